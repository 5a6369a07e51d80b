"""The ELF side of AMDGPU code objects: headers, bounds, the metadata note.

Follows the gABI, and LLVM's "User Guide for AMDGPU Backend" (ELF Header, Note Records). What flags and
metadata mean is `kpack_build.codeobject`'s business.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["DeviceImage", "parse_image", "read_metadata"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_NOTE_HEADER = struct.Struct("<III")

_IDENT = b"\x7fELF\x02\x01\x01\x40"  # 64-bit, little-endian, version 1, ELFOSABI_AMDGPU_HSA
_EM_AMDGPU = 224
_PT_NULL, _PT_NOTE = 0, 4
_SHT_NULL, _SHT_NOBITS = 0, 8
_NT_AMDGPU_METADATA = 32
_NOTE_NAME = b"AMDGPU\0"
_FIRST_ABI_VERSION, _LAST_ABI_VERSION = 1, 4

_NOT_A_CODE_OBJECT = "rebuild it with a compiler for code object version 3 to 6, or leave it out"


class _Table(NamedTuple):
    """A header table: its place in the file, its rows and the size of one."""

    offset: int
    length: int
    row: int


class _Header(NamedTuple):
    """An ELF header."""

    ident: bytes
    kind: int
    machine: int
    version: int
    entry: int
    program_headers: int
    section_headers: int
    flags: int
    size: int
    program_header_size: int
    program_header_count: int
    section_header_size: int
    section_header_count: int
    names: int

    @property
    def segments(self) -> _Table:
        return _Table(self.program_headers, self.program_header_count, self.program_header_size)

    @property
    def sections(self) -> _Table:
        return _Table(self.section_headers, self.section_header_count, self.section_header_size)


class _Range(NamedTuple):
    """A segment or section: its type and its place in the file."""

    kind: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """What the headers of a code object say; all that they speak of lies inside of the data.

    Attributes:
        data: The code object.
        path: The file that holds it.
        base: Where in that file it begins, in bytes.
        abi_version: `EI_ABIVERSION`.
        flags: `e_flags`.
        segments: The program headers.
        end: Where the last part ends, in bytes.
    """

    data: memoryview
    path: Path
    base: int
    abi_version: int
    flags: int
    segments: tuple[_Range, ...]
    end: int

    def error(self, problem: str, *, at: int, expected: object = None, found: object = None) -> FormatError:
        """Return the error for a fault `at` bytes into the code object."""
        return FormatError(self.path, problem, offset=self.base + at, expected=expected, found=found)


def parse_image(data: memoryview, path: Path, base: int) -> DeviceImage:
    """Parse the headers of a code object and hold them against the bytes that are there.

    Args:
        data: The code object; bytes after its end may follow.
        path: The file that holds it, for error messages.
        base: Where in that file it begins, in bytes.

    Raises:
        FormatError: This is no code object of version 3 to 6, or it was cut short.
    """
    if len(data) < _HEADER.size or data[:4] != _IDENT[:4]:
        raise FormatError(
            path,
            "this is no code object",
            offset=base,
            expected="an ELF header",
            found=_shown(data[:4]) if len(data) >= _HEADER.size else f"{len(data)} bytes",
        )
    header = _Header._make(_HEADER.unpack_from(data))
    _check_kind(header, path, base)
    image = DeviceImage(data, path, base, header.ident[8], header.flags, (), _HEADER.size)
    segments = [
        _Range(kind, offset, size)
        for kind, _, offset, _, _, size, _, _ in _rows(image, _PROGRAM_HEADER, header.segments, at=32)
        if kind != _PT_NULL
    ]
    sections = [
        _Range(kind, offset, size)
        for _, kind, _, _, offset, size, *_ in _rows(image, _SECTION_HEADER, header.sections, at=40)
        if kind not in (_SHT_NULL, _SHT_NOBITS)
    ]
    ends = [
        table.offset + table.length * table.row
        for table in (header.segments, header.sections)
        if table.length
    ]
    ends += [part.offset + part.size for part in (*segments, *sections)]
    end = max(_HEADER.size, *ends, 0)
    if end > len(data):
        raise image.error("the code object was cut short", at=0, expected=f"{end} bytes", found=len(data))
    return replace(image, segments=tuple(segments), end=end)


def read_metadata(image: DeviceImage) -> tuple[int, Mapping[str, object]] | None:
    """Read the metadata note.

    Returns:
        Its place in the code object, in bytes, and its map; None if there is none.

    Raises:
        FormatError: The notes or the metadata are damaged.
    """
    for at, description in _notes(image):
        try:
            metadata = msgpack.unpackb(description)
        except (ValueError, msgpack.UnpackException) as error:
            raise image.error("the metadata is no MessagePack", at=at, found=error) from error
        if not isinstance(metadata, dict):
            raise image.error("the metadata is no map", at=at, found=type(metadata).__name__)
        return at, metadata
    return None


def _notes(image: DeviceImage) -> Iterator[tuple[int, memoryview]]:
    """Iterate over the metadata notes: place in bytes and contents."""
    for segment in image.segments:
        if segment.kind != _PT_NOTE:
            continue
        position, end = segment.offset, segment.offset + segment.size
        while position + _NOTE_HEADER.size <= end:
            name_size, size, kind = _NOTE_HEADER.unpack_from(image.data, position)
            name = position + _NOTE_HEADER.size
            start = name + _aligned(name_size)
            if start + size > end:
                raise image.error(
                    "a note is longer than its segment", at=position, expected=end, found=start + size
                )
            if kind == _NT_AMDGPU_METADATA and image.data[name : name + name_size] == _NOTE_NAME:
                yield start, image.data[start : start + size]
            position = start + _aligned(size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def _check_kind(header: _Header, path: Path, base: int) -> None:
    found = (header.machine, header.ident[: len(_IDENT)])
    if found != (_EM_AMDGPU, _IDENT):
        raise FormatError(
            path,
            "this ELF file is no code object for AMD GPUs",
            offset=base,
            expected=f"machine {_EM_AMDGPU}, identification {_shown(_IDENT)}",
            found=f"machine {found[0]}, identification {_shown(found[1])}",
            remedy=_NOT_A_CODE_OBJECT,
        )
    if not _FIRST_ABI_VERSION <= header.ident[8] <= _LAST_ABI_VERSION:
        raise FormatError(
            path,
            "this code object has an unsupported version",
            offset=base + 8,
            expected=f"ABI version {_FIRST_ABI_VERSION} to {_LAST_ABI_VERSION}",
            found=header.ident[8],
            remedy=_NOT_A_CODE_OBJECT,
        )


def _rows(image: DeviceImage, layout: struct.Struct, table: _Table, *, at: int) -> Iterator[tuple[int, ...]]:
    """Iterate over the rows of a header table; `at` is where the header speaks of it."""
    if table.length == 0:
        return iter(())
    if table.row != layout.size:
        raise image.error(
            "a header table has rows of a wrong size", at=at, expected=layout.size, found=table.row
        )
    end = table.offset + table.length * table.row
    if end > len(image.data):
        raise image.error(
            "a header table was cut short", at=at, expected=f"{end} bytes", found=len(image.data)
        )
    return layout.iter_unpack(image.data[table.offset : end])


def _shown(data: bytes | memoryview) -> str:
    return bytes(data).hex(" ")
