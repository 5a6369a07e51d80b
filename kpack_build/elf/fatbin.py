"""Find the HIP wrappers of an ELF file and the device code that they point to.

A wrapper is a record of 24 bytes in the section `.hipFatBinSegment`: magic, version 1, a pointer, a word.
"HIPF" points to an offload bundle in `.hip_fatbin`, "HIPK" to a MessagePack map. In a file without section
headers the wrappers are found by their magic, and the device code is what they point to. Bundles are parsed
by `kpack_build.bundle`; whether the file can be converted is asked in `kpack_build.elf.refusal`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kpack_build.elf.constants import Address, FileOffset, SegmentFlag
from kpack_build.elf.relocations import Pointer, find_pointers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.elf.headers import SectionHeader
    from kpack_build.elf.image import ElfImage

__all__ = [
    "BUNDLE_MAGICS",
    "FATBIN_SECTION",
    "HIPF_MAGIC",
    "HIPK_MAGIC",
    "REFERENCE_SECTION",
    "WRAPPER",
    "WRAPPER_SECTION",
    "WRAPPER_SIZE",
    "DeviceCode",
    "RawWrapper",
    "WrapperKind",
    "find_device_code",
]

FATBIN_SECTION = ".hip_fatbin"
WRAPPER_SECTION = ".hipFatBinSegment"
REFERENCE_SECTION = ".rocm_kpack_ref"
HIPF_MAGIC = b"FPIH"
HIPK_MAGIC = b"HIPK"
BUNDLE_MAGICS = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x10\xff\x10\xad")
"""What device code may begin with; the last one, LLVM's offload binary, is recognised and not supported."""

WRAPPER = struct.Struct("<4sIQQ")
WRAPPER_SIZE = WRAPPER.size
_VERSION = 1
_POINTER_FIELD = 8
_RECORD_START = re.compile(
    rb"(?:%b|%b)%b" % (HIPF_MAGIC, HIPK_MAGIC, re.escape(_VERSION.to_bytes(4, "little")))
)
_STEP = 8
_SMALL_MAP = 0x80
"""MessagePack: the high half of the first byte of a map with up to 15 keys."""


class WrapperKind(Enum):
    """What a record of `.hipFatBinSegment` is."""

    HIPF = "HIPF"
    HIPK = "HIPK"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawWrapper:
    """A record of `.hipFatBinSegment`.

    Attributes:
        address: Its address.
        offset: Its file offset.
        kind: By its magic and version.
        reserved: The word at offset 16.
        pointer: Its pointer, or None where nothing gives it a value.
    """

    address: Address
    offset: FileOffset
    kind: WrapperKind
    reserved: int
    pointer: Pointer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """The wrappers and the section of device code of a file.

    Attributes:
        wrappers: The records in order, those of no known magic included.
        section: The header of `.hip_fatbin`, or None where the file has no section headers.
        odd_bytes: Bytes of `.hipFatBinSegment` behind the last whole record.
        repeated: Names of sections that occur more than once.
    """

    wrappers: tuple[RawWrapper, ...]
    section: SectionHeader | None
    odd_bytes: int = 0
    repeated: tuple[str, ...] = ()


def find_device_code(image: ElfImage) -> DeviceCode | None:
    """Find the wrappers and the device code of a file.

    Returns:
        What was found, or None where the file has none, as a separated debug file has none: there the
        section takes no bytes.

    Raises:
        FormatError: A relocation table lies outside of the file.
    """
    if not image.sections:
        wrappers = tuple(_scan(image))
        return DeviceCode(wrappers=wrappers, section=None) if wrappers else None
    records = [section for section in image.sections_named(WRAPPER_SECTION) if section.file_size]
    fatbins = [section for section in image.sections_named(FATBIN_SECTION) if section.file_size]
    if not fatbins and not any(section.is_alloc for section in records):
        return None
    repeated = [
        name for name, found in ((WRAPPER_SECTION, records), (FATBIN_SECTION, fatbins)) if len(found) > 1
    ]
    wrappers = tuple(wrapper for section in records for wrapper in _records(image, section))
    return DeviceCode(
        wrappers=wrappers,
        section=fatbins[0] if fatbins else None,
        odd_bytes=sum(section.size % WRAPPER_SIZE for section in records),
        repeated=tuple(repeated),
    )


def _records(image: ElfImage, section: SectionHeader) -> Iterator[RawWrapper]:
    count = section.size // WRAPPER_SIZE
    start = section.address
    pointers = find_pointers(image, start, start + section.size)
    for index in range(count):
        yield _record(image, start + index * WRAPPER_SIZE, section.offset + index * WRAPPER_SIZE, pointers)


def _record(image: ElfImage, address: int, offset: int, pointers: dict[Address, Pointer]) -> RawWrapper:
    magic, version, _, reserved = WRAPPER.unpack_from(image.data, offset)
    known = {HIPF_MAGIC: WrapperKind.HIPF, HIPK_MAGIC: WrapperKind.HIPK}
    return RawWrapper(
        address=Address(address),
        offset=FileOffset(offset),
        kind=known.get(magic, WrapperKind.UNKNOWN) if version == _VERSION else WrapperKind.UNKNOWN,
        reserved=reserved,
        pointer=pointers.get(Address(address + _POINTER_FIELD)),
    )


def _scan(image: ElfImage) -> Iterator[RawWrapper]:
    """Find wrappers by their magic in the writable segments: those whose pointer leads to what it should."""
    for load in image.loads:
        if not load.flags & SegmentFlag.WRITE:
            continue
        content = image.view(load.offset, load.filesz, "a load segment")
        places = list(_aligned(content, load.vaddr))
        if not places:
            continue
        pointers = find_pointers(image, places[0], places[-1] + WRAPPER_SIZE)
        for place in places:
            offset = load.offset + place - load.vaddr
            if offset + WRAPPER_SIZE <= load.end:
                wrapper = _record(image, place, offset, pointers)
                if _is_plausible(image, wrapper):
                    yield wrapper


def _aligned(content: memoryview, address: int) -> Iterator[int]:
    for found in _RECORD_START.finditer(content):
        if (address + found.start()) % _STEP == 0:
            yield address + found.start()


def _is_plausible(image: ElfImage, wrapper: RawWrapper) -> bool:
    if wrapper.pointer is None:
        return False
    offset = image.offset_of(wrapper.pointer.value)
    if offset is None:
        return False
    head = bytes(image.data[offset : offset + 32])
    if wrapper.kind is WrapperKind.HIPF:
        return head.startswith(BUNDLE_MAGICS)
    return bool(head) and head[0] & 0xF0 == _SMALL_MAP
