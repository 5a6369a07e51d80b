"""A second opinion on converted binaries: what their wrappers say, read from the file without the package.

It stands in for loading the library where that is not possible, because something that it needs is missing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

from tests.fat import WRAPPER_SIZE, pointers_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HipkWrapper", "read_converted_binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HipkWrapper:
    """One wrapper of a converted binary.

    Attributes:
        index: The number at its offset 16, by which ROCm's reader asks.
        metadata: The bytes of its load segment from where its pointer leads: a MessagePack map, then others.
    """

    index: int
    metadata: bytes


def read_converted_binary(path: Path) -> list[HipkWrapper]:
    """Return the wrappers of the converted binary at `path`, in their order."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        segment = elf.get_section_by_name(".hipFatBinSegment")
        assert segment is not None
        pointers, wrappers = pointers_of(elf), []
        for start in range(0, segment["sh_size"], WRAPPER_SIZE):
            magic, version, in_place, index = struct.unpack_from("<4sIQQ", segment.data(), start)
            assert (magic, version) == (b"HIPK", 1)
            target = pointers.get(segment["sh_addr"] + start + 8, in_place)
            wrappers.append(HipkWrapper(index=index, metadata=_loaded_bytes(elf, target)))
        return wrappers


def _loaded_bytes(elf: ELFFile, address: int) -> bytes:
    for segment in elf.iter_segments("PT_LOAD"):
        start = address - segment["p_vaddr"]
        if 0 <= start < segment["p_filesz"]:
            data: bytes = segment.data()[start:]
            return data
    raise AssertionError(f"nothing of the file is loaded at {address:#x}")
