"""From the wrappers of an ELF file to what they lead to: bundles and their place, or a converted file's map.

Wrappers themselves are found by `kpack_build.elf.fatbin`; bundles are parsed by `kpack_build.bundle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.bundle import parse_bundle
from kpack_build.elf.constants import Address, FileOffset
from kpack_build.elf.fatbin import REFERENCE_SECTION, WrapperKind
from kpack_build.elf.plan import Region
from kpack_build.errors import FormatError
from kpack_build.hostmodel import BinaryState, KpackReference, Wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpack_build.bundle import Bundle
    from kpack_build.elf.fatbin import DeviceCode, RawWrapper
    from kpack_build.elf.image import ElfImage

__all__ = ["find_region", "iter_device_bundles", "iter_wrappers", "read_reference", "state_of"]


def state_of(code: DeviceCode | None) -> BinaryState:
    """Tell from its wrappers where the device code of a file is."""
    if code is None:
        return BinaryState.NO_DEVICE_CODE
    kinds = {wrapper.kind for wrapper in code.wrappers}
    if code.section is None and kinds == {WrapperKind.HIPK}:
        return BinaryState.CONVERTED
    return BinaryState.FAT


def read_reference(image: ElfImage, code: DeviceCode) -> KpackReference:
    """Read the map of a converted file, through its wrappers or, without a relocation, from its section.

    Raises:
        FormatError: There is no such map.
    """
    pointers = [wrapper.pointer for wrapper in code.wrappers if wrapper.pointer]
    offset = image.offset_of(pointers[0].value) if pointers else None
    if offset is None:
        sections = image.sections_named(REFERENCE_SECTION)
        offset = FileOffset(sections[0].offset) if sections else None
    if offset is None:
        raise FormatError(image.path, "its kpack wrappers point to nothing in the file")
    return KpackReference.parse(image.data[offset:], path=image.path, offset=offset)


def iter_device_bundles(image: ElfImage, code: DeviceCode) -> Iterator[Bundle]:
    """Iterate over the bundles that wrappers point to, in the order of the file.

    Raises:
        FormatError: A wrapper points into the device code, and there is no sound bundle.
    """
    offsets = {_bundle_offset(image, code, wrapper) for wrapper in code.wrappers}
    starts = sorted(offset for offset in offsets if offset is not None)
    for number, start in enumerate(starts, 1):
        limit = starts[number] if number < len(starts) else _limit(image, code, start)
        yield parse_bundle(image.data, start, limit=limit, path=image.path)


def _bundle_offset(image: ElfImage, code: DeviceCode, wrapper: RawWrapper) -> int | None:
    """Return the file offset of a wrapper's bundle, or None where it points to no device code."""
    if wrapper.kind is not WrapperKind.HIPF or wrapper.pointer is None:
        return None
    section, value = code.section, wrapper.pointer.value
    if section is None:
        return image.offset_of(value)
    inside = section.address <= value < section.address + section.size
    return section.offset + value - section.address if inside else None


def _limit(image: ElfImage, code: DeviceCode, start: int) -> int:
    """Return the file offset up to which the last bundle may go."""
    if code.section is not None:
        return code.section.end
    return next((load.end for load in image.loads if load.offset <= start < load.end), image.size)


def find_region(image: ElfImage, code: DeviceCode, bundles: Sequence[Bundle]) -> Region | None:
    """Return the place of the device code: its section, or without section headers what the bundles take.

    None where the wrappers do not lead to any, or to what no single load segment maps.
    """
    section = code.section
    if section is not None:
        return Region(
            offset=FileOffset(section.offset),
            address=Address(section.address),
            size=section.size,
            section=section,
        )
    if image.sections or not bundles:
        return None
    start, end = bundles[0].offset, bundles[-1].offset + bundles[-1].stored_size
    address = image.address_of(start, end - start)
    if address is None:
        return None
    return Region(offset=FileOffset(start), address=address, size=end - start, section=None)


def iter_wrappers(image: ElfImage, code: DeviceCode, bundles: Sequence[Bundle]) -> Iterator[Wrapper]:
    """Iterate over the wrappers as the interface of all formats has them."""
    numbers = {bundle.offset: number for number, bundle in enumerate(bundles)}
    for index, wrapper in enumerate(code.wrappers):
        offset = _bundle_offset(image, code, wrapper)
        yield Wrapper(
            index=index,
            address=wrapper.address,
            file_offset=wrapper.offset,
            bundle=None if offset is None else numbers.get(offset),
        )
