"""A second opinion on fat HIP binaries: what each wrapper holds, read without the package under test.

pyelftools reads the ELF file, `zstandard` and `zlib` the compressed bundles. It knows healthy files only: the
ones that compilers and the corpus give. Not a parser for hostile input.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from elftools.elf.sections import SymbolTableSection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["FatWrapper", "decode_bundle", "pointers_of", "read_fat_binary", "target_of"]

WRAPPER_SIZE = 24
PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
#: Header layout of a compressed bundle by version: struct format after magic, version and method.
CCOB_LAYOUTS = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}
SYMBOLIC = {"EM_X86_64": 1, "EM_AARCH64": 257}


@dataclass(frozen=True, slots=True, kw_only=True)
class FatWrapper:
    """One wrapper of a fat binary.

    Attributes:
        index: Its place in `.hipFatBinSegment`.
        address: The wrapper's virtual address.
        bundle_address: The virtual address that it points to.
        entries: The bundle's entries in order, id → bytes.
    """

    index: int
    address: int
    bundle_address: int
    entries: Mapping[str, bytes]

    @property
    def code_objects(self) -> dict[str, bytes]:
        """Target id → code object, for the GPU entries alone."""
        return {target_of(entry): data for entry, data in self.entries.items() if target_of(entry)}


def target_of(entry_id: str) -> str:
    """Return the target id in an entry id of a bundle, empty for the host's and other entries."""
    for prefix in ("hipv4-amdgcn-amd-amdhsa--", "hip-amdgcn-amd-amdhsa--"):
        if entry_id.startswith(prefix):
            return entry_id[len(prefix) :]
    return ""


def decode_bundle(data: bytes) -> bytes:
    """Return the plain bundle at the start of `data` (trailing bytes may follow), decompressed if need be."""
    if data.startswith(PLAIN_MAGIC):
        return data
    magic, version, method = struct.unpack_from("<4sHH", data)
    assert magic == b"CCOB", magic
    layout = CCOB_LAYOUTS[version]
    start = 8 + struct.calcsize(layout)
    fields = struct.unpack_from(layout, data, 8)
    total = fields[0] if version > 1 else len(data)
    payload = data[start:total]
    if method == 1:
        return zstandard.ZstdDecompressor().decompressobj().decompress(payload)
    return zlib.decompressobj().decompress(payload)


def read_fat_binary(path: Path) -> list[FatWrapper]:
    """Return the wrappers of the fat binary at `path`, in their order; empty if it has none."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        segment = elf.get_section_by_name(".hipFatBinSegment")
        fatbin = elf.get_section_by_name(".hip_fatbin")
        if segment is None or fatbin is None or fatbin["sh_type"] == "SHT_NOBITS":
            return []
        pointers = pointers_of(elf)
        bundles, start = fatbin.data(), fatbin["sh_addr"]
        wrappers = []
        for index in range(segment["sh_size"] // WRAPPER_SIZE):
            address = segment["sh_addr"] + index * WRAPPER_SIZE
            in_place = struct.unpack_from("<Q", segment.data(), index * WRAPPER_SIZE + 8)[0]
            target = pointers.get(address + 8, in_place)
            wrappers.append(
                FatWrapper(
                    index=index,
                    address=address,
                    bundle_address=target,
                    entries=_entries(decode_bundle(bundles[target - start :])),
                )
            )
        return wrappers


def pointers_of(elf: ELFFile) -> dict[int, int]:
    """Address of each relocated word → the address that it points to at load bias 0."""
    pointers = {}
    for section in elf.iter_sections():
        # RELR words hold their value in place, which is what the caller falls back to.
        if isinstance(section, RelrRelocationSection) or not isinstance(section, RelocationSection):
            continue
        if not section.is_RELA():
            continue
        symbols = elf.get_section(section["sh_link"]) if section["sh_link"] else None
        for relocation in section.iter_relocations():
            value = relocation["r_addend"]
            if relocation["r_info_type"] == SYMBOLIC[elf["e_machine"]] and isinstance(
                symbols, SymbolTableSection
            ):
                value += symbols.get_symbol(relocation["r_info_sym"])["st_value"]
            pointers[relocation["r_offset"]] = value
    return pointers


def _entries(bundle: bytes) -> dict[str, bytes]:
    assert bundle.startswith(PLAIN_MAGIC)
    position = len(PLAIN_MAGIC) + 8
    (count,) = struct.unpack_from("<Q", bundle, position - 8)
    entries = {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, position)
        name = bundle[position + 24 : position + 24 + length].decode()
        entries[name] = bundle[offset : offset + size]
        position += 24 + length
    return entries
