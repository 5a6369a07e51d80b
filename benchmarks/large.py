"""Very large libraries and archives for the other scripts here, made on the spot.

Most of their bytes are holes in a sparse file or repeat themselves, so that they take no time to make and
little disk. Their headers are sound: what is made here can be packed.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.archive import PackedKernelArchive
from kpack_build.bundle import BUNDLE_ALIGNMENT, CcobMethod, write_bundle, write_ccob
from kpack_build.bundle_table import encode_table
from kpack_build.compression import NoOpCompressor
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import HOST_ID, entry_id
from tests.fixtures.code_objects import write_code_object

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["TARGETS", "Content", "write_archive", "write_ccob_library", "write_library"]

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201")

_PAGE = 4096
_CHUNK = 1 << 20
#: Where a library's strings begin: its headers, four program headers, and some room.
_HEADERS_END = 0x200
_SYM = 24
#: Size of the dynamic table and, with the wrapper behind it, of the writable segment, in bytes.
_DYNAMIC = 0x80
_WRITABLE = _DYNAMIC + 24
#: File offset and address of the device code.
_DEVICE_CODE = 2 * _PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The code objects of a library.

    Attributes:
        size: Size of each in bytes, a multiple of 1 MB.
        targets: The target of each.
        dense: Whether their bytes are random, and cannot be compressed; they are holes otherwise.
    """

    size: int
    targets: Sequence[str] = TARGETS
    dense: bool = False


def write_library(path: Path, content: Content) -> int:
    """Write a library with one plain bundle, and return its size in bytes."""
    places = [(0, 0, HOST_ID)]
    start = BUNDLE_ALIGNMENT
    for target in content.targets:
        places.append((start, content.size, entry_id(target)))
        start += content.size
    table = encode_table(places)
    before, behind = _library_around(start)
    with path.open("wb") as stream:
        stream.write(before + table)
        for target, (offset, _, _) in zip(content.targets, places[1:], strict=True):
            stream.seek(_DEVICE_CODE + offset)
            if content.dense:
                source = random.Random(target)  # noqa: S311 - bytes that any run repeats
                for _ in range(content.size // _CHUNK):
                    stream.write(source.randbytes(_CHUNK))
                stream.seek(_DEVICE_CODE + offset)
            stream.write(write_code_object(target))
        stream.seek(_DEVICE_CODE + start)
        stream.write(behind)
    return path.stat().st_size


def write_ccob_library(path: Path, content: Content) -> int:
    """Write a library with one compressed bundle, and return the size of the plain one in bytes."""
    entries = [(HOST_ID, b"")]
    for target in content.targets:
        data = write_code_object(target)
        rest = content.size - len(data)
        filler = random.Random(target).randbytes(rest) if content.dense else bytes(rest)  # noqa: S311 - as above
        entries.append((entry_id(target), data + filler))
    plain = write_bundle(entries)
    bundle = write_ccob(plain, version=3, method=CcobMethod.ZSTD, level=1)
    path.write_bytes(build_elf(ElfOptions(bundles=(bundle,))))
    return len(plain)


def write_archive(path: Path, content: Content) -> int:
    """Write an archive of the scheme "none", and return its size in bytes."""
    compressor = NoOpCompressor()
    with PackedKernelArchive("large", "all", list(content.targets), path, compressor) as archive:
        for target in content.targets:
            data = write_code_object(target)
            archive.add_kernel(archive.prepare_kernel("lib.so#0", target, data.ljust(content.size, b"\0")))
    return path.stat().st_size


def _library_around(bundle_size: int) -> tuple[bytes, bytes]:
    """Return what stands before and behind the device code of a library whose device code comes last."""
    strings = b"\0libamdhip64.so.7\0".ljust(24, b"\0")
    symbols = _HEADERS_END + len(strings)
    relocation = symbols + _SYM
    loads = (
        struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, relocation + 24, relocation + 24, _PAGE),
        struct.pack("<IIQQQQQQ", 1, 6, *(_PAGE,) * 3, _WRITABLE, _WRITABLE, _PAGE),
        struct.pack("<IIQQQQQQ", 1, 4, *(_DEVICE_CODE,) * 3, bundle_size, bundle_size, _PAGE),
        struct.pack("<IIQQQQQQ", 2, 6, *(_PAGE,) * 3, _DYNAMIC, _DYNAMIC, 8),
    )
    tags = ((1, 1), (5, _HEADERS_END), (10, len(strings)), (6, symbols), (7, relocation), (8, 24), (0, 0))
    names = b"\0.hip_fatbin\0.hipFatBinSegment\0.shstrtab\0"
    end = _DEVICE_CODE + bundle_size
    sections = (
        (b"", 0, 0, 0, 0, 0),
        (b".hip_fatbin", 1, 2, _DEVICE_CODE, _DEVICE_CODE, bundle_size),
        (b".hipFatBinSegment", 1, 3, _PAGE + _DYNAMIC, _PAGE + _DYNAMIC, 24),
        (b".shstrtab", 3, 0, 0, end, len(names)),
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", names.index(name + b"\0"), *fields, 0, 0, 1, 0)
        for name, *fields in sections
    )
    padded = names.ljust(-(-len(names) // 8) * 8, b"\0")
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, end + len(padded), 0, 64, 56, len(loads), 64, len(sections), 3
    )
    pointer = struct.pack("<QQq", _PAGE + _DYNAMIC + 8, 8, _DEVICE_CODE)
    fixed = (header + b"".join(loads)).ljust(_HEADERS_END, b"\0") + strings + bytes(_SYM) + pointer
    writable = b"".join(struct.pack("<QQ", *tag) for tag in tags).ljust(_DYNAMIC, b"\0")
    wrapper = struct.pack("<4sIQQ", b"FPIH", 1, 0, 0)
    return (fixed.ljust(_PAGE, b"\0") + writable + wrapper).ljust(_DEVICE_CODE, b"\0"), padded + table
