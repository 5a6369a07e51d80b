"""AMDGPU code objects: what an ELF file for the GPU was built for, and which kernels it has.

Follows LLVM's "User Guide for AMDGPU Backend" (ELF Header, Note Records, Code Object V3 to V5 Metadata) and
the gABI for the ELF parts. Code objects are opaque beyond that: nothing here changes one, and code object
version 2 and older is not read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from kpack_build.errors import FormatError, TargetError
from kpack_build.processors import PROCESSOR_OF_MACH, PROCESSORS
from kpack_build.targets import TargetId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["CodeObject", "FeatureState", "Kernel", "parse_code_object", "read_kernels"]

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
#: What to add to an ABI version to have the code object version.
_CODE_OBJECT_VERSION_BIAS = 2

_MACH = 0xFF
_XNACK_V3, _SRAMECC_V3 = 0x100, 0x200
_XNACK_SHIFT, _SRAMECC_SHIFT, _STATE_MASK = 8, 10, 3
_GENERIC_VERSION_SHIFT = 24

_NOT_A_CODE_OBJECT = "rebuild it with a compiler for code object version 3 to 6, or leave it out"
#: What a processor is called, with its number, if neither the table nor the metadata names it.
_UNNAMED = "amdgpu-"


class FeatureState(IntEnum):
    """The state of a target feature in `e_flags`, from code object version 4 on."""

    UNSUPPORTED = 0
    ANY = 1
    OFF = 2
    ON = 3


_NAMED_STATE = {FeatureState.OFF: False, FeatureState.ON: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """What the headers of a code object say.

    Attributes:
        target: What it was built for. Of version 3 it names no features, as the flags of that version do not
            tell "any" from "on".
        mach: The processor's number in `e_flags`.
        flags: All of `e_flags`.
        abi_version: `EI_ABIVERSION`.
        code_object_version: 3 to 6.
        generic_version: Version of the generic processor's instruction set, of generic targets only.
        size: How many bytes the file takes, up to the end of its last part.
    """

    target: TargetId
    mach: int
    flags: int
    abi_version: int
    code_object_version: int
    generic_version: int | None
    size: int

    def agrees_with(self, target: TargetId) -> bool:
        """Tell whether a bundle may offer this code object for `target`.

        A processor that is not in the table agrees with everything but the processors that are; so does the
        number of one that has several names (gfx1250 and gfx1250-strict).
        """
        return self._same_processor(target) and self._same_features(target)

    def _same_processor(self, target: TargetId) -> bool:
        known = PROCESSORS.get(target.processor)
        if known is not None:
            return known.mach == self.mach
        own = self.target.processor
        unnamed = own.startswith(_UNNAMED)
        return unnamed or target.processor == own or target.processor.startswith(f"{own}-")

    def _same_features(self, target: TargetId) -> bool:
        if self.code_object_version > 3:  # noqa: PLR2004 - the version that has two bits for each feature
            return (self.target.sramecc, self.target.xnack) == (target.sramecc, target.xnack)
        bits = (self.flags & _SRAMECC_V3, self.flags & _XNACK_V3)
        return all(
            named is None or named == bool(bit)
            for named, bit in zip((target.sramecc, target.xnack), bits, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a code object, as its metadata describes it.

    Attributes:
        name: Its name in the source, mangled.
        symbol: Name of its kernel descriptor.
        vgprs: Vector registers of a work-item.
        agprs: Accumulation registers of a work-item, 0 where the processor has none.
        sgprs: Scalar registers of a wavefront.
        lds_bytes: Local memory of a work-group that is known at compile time, in bytes.
        scratch_bytes: Private memory of a work-item, in bytes.
        kernarg_bytes: Size of its arguments, in bytes.
        wavefront_size: Work-items in a wavefront.
        max_workgroup_size: Most work-items in a work-group.
    """

    name: str
    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    wavefront_size: int
    max_workgroup_size: int


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
class _Image:
    """The parts of an ELF header that matter here, all tables inside the data."""

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


def parse_code_object(data: memoryview, *, path: Path, offset: int = 0) -> CodeObject:
    """Parse the headers of a code object and check that all of its parts lie inside of it.

    Args:
        data: The code object; bytes after its end may follow.
        path: The file that holds it, for error messages.
        offset: Where in that file it begins, in bytes.

    Raises:
        FormatError: This is no code object of version 3 to 6, or it was cut short.
    """
    image = _parse_image(data, path, offset)
    version = image.abi_version + _CODE_OBJECT_VERSION_BIAS
    target = _target(image, version)
    generic_version = image.flags >> _GENERIC_VERSION_SHIFT
    return CodeObject(
        target=target,
        mach=image.flags & _MACH,
        flags=image.flags,
        abi_version=image.abi_version,
        code_object_version=version,
        generic_version=generic_version if target.is_generic and generic_version else None,
        size=image.end,
    )


def read_kernels(data: memoryview, *, path: Path, offset: int = 0) -> tuple[Kernel, ...]:
    """Read the kernels from a code object's metadata, in their order there.

    Args:
        data: The code object.
        path: The file that holds it, for error messages.
        offset: Where in that file it begins, in bytes.

    Raises:
        FormatError: As `parse_code_object`, or the metadata is not what LLVM's guide asks for.
    """
    image = _parse_image(data, path, offset)
    found = _metadata(image)
    if found is None:
        return ()
    at, metadata = found
    kernels = metadata.get("amdhsa.kernels", [])
    if not isinstance(kernels, list) or not all(isinstance(kernel, dict) for kernel in kernels):
        raise image.error("the metadata's amdhsa.kernels is no list of maps", at=at)
    return tuple(_kernel(image, at, kernel) for kernel in kernels)


def _parse_image(data: memoryview, path: Path, base: int) -> _Image:
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
    image = _Image(data, path, base, header.ident[8], header.flags, (), _HEADER.size)
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


def _rows(image: _Image, layout: struct.Struct, table: _Table, *, at: int) -> Iterator[tuple[int, ...]]:
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


def _target(image: _Image, version: int) -> TargetId:
    processor = PROCESSOR_OF_MACH.get(image.flags & _MACH)
    name = processor.name if processor is not None else _unknown_processor(image)
    if version <= 3:  # noqa: PLR2004 - the version whose flags do not tell "any" from "on"
        return TargetId(processor=name)
    return TargetId(
        processor=name,
        sramecc=_NAMED_STATE.get(FeatureState(image.flags >> _SRAMECC_SHIFT & _STATE_MASK)),
        xnack=_NAMED_STATE.get(FeatureState(image.flags >> _XNACK_SHIFT & _STATE_MASK)),
    )


def _unknown_processor(image: _Image) -> str:
    """Name a processor whose number is in no table, from the metadata if that tells it."""
    found = _metadata(image)
    text = found[1].get("amdhsa.target") if found is not None else None
    if isinstance(text, str):
        try:
            return TargetId.parse(text.rpartition("--")[2]).processor
        except TargetError:
            pass  # The number has to do, as for code without metadata.
    return f"{_UNNAMED}{image.flags & _MACH:#x}"


def _metadata(image: _Image) -> tuple[int, Mapping[str, object]] | None:
    """Return the metadata map with its place in bytes, or None if there is none."""
    for at, description in _notes(image):
        try:
            metadata = msgpack.unpackb(description)
        except (ValueError, msgpack.UnpackException) as error:
            raise image.error("the metadata is no MessagePack", at=at, found=error) from error
        if not isinstance(metadata, dict):
            raise image.error("the metadata is no map", at=at, found=type(metadata).__name__)
        return at, metadata
    return None


def _notes(image: _Image) -> Iterator[tuple[int, memoryview]]:
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


def _kernel(image: _Image, at: int, kernel: Mapping[str, object]) -> Kernel:
    def text(key: str) -> str:
        value = kernel.get(key)
        if not isinstance(value, str):
            raise image.error(f"the metadata of a kernel has no text {key}", at=at, found=value)
        return value

    def number(key: str, default: int | None = None) -> int:
        value = kernel.get(key, default)
        if not isinstance(value, int):
            raise image.error(f"the metadata of a kernel has no number {key}", at=at, found=value)
        return value

    return Kernel(
        name=text(".name"),
        symbol=text(".symbol"),
        vgprs=number(".vgpr_count"),
        agprs=number(".agpr_count", 0),
        sgprs=number(".sgpr_count"),
        lds_bytes=number(".group_segment_fixed_size"),
        scratch_bytes=number(".private_segment_fixed_size"),
        kernarg_bytes=number(".kernarg_segment_size"),
        wavefront_size=number(".wavefront_size"),
        max_workgroup_size=number(".max_flat_workgroup_size"),
    )
