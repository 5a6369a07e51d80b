"""Hold a converted ELF file against its original, from the bytes of both.

What was planned is not trusted: the converted file is parsed anew, and every kept address of the original
has to be mapped to the same bytes with the same rights, except for the bytes that the plan lists. Only kept
bytes are read. All issues are collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.elf.constants import SegmentFlag
from kpack_build.elf.fatbin import REFERENCE_SECTION, RawWrapper, WrapperKind, find_device_code
from kpack_build.elf.refusal import layout_faults
from kpack_build.elf.relocations import iter_pointers_into
from kpack_build.elf.slots import SlotKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpack_build.elf.headers import ProgramHeader, SectionHeader
    from kpack_build.elf.image import ElfImage
    from kpack_build.elf.plan import ConversionPlan, Region, Write

__all__ = ["iter_issues"]

_CHUNK = 1 << 18
_POINTER_FIELD = 8


def iter_issues(
    before: ElfImage, after: ElfImage, plan: ConversionPlan, wrappers: Sequence[RawWrapper]
) -> Iterator[str]:
    """Iterate over what is wrong with a converted file.

    Args:
        before: The original.
        after: The converted file.
        plan: What was to be done.
        wrappers: The wrappers of the original.

    Raises:
        FormatError: The converted file is damaged.
    """
    if after.size != before.size - plan.hole + len(plan.inserted):
        yield f"its size is {after.size}"
    if after.header.entry != before.header.entry or after.dynamic != before.dynamic:
        yield "its entry point or dynamic table changed"
    if (after.needed, after.soname) != (before.needed, before.soname):
        yield "its needed libraries changed"
    yield from layout_faults(after)
    yield from _segment_issues(before, after, plan)
    yield from _section_issues(before, after, plan)
    yield from _wrapper_issues(after, plan, wrappers)


def _segment_issues(before: ElfImage, after: ElfImage, plan: ConversionPlan) -> Iterator[str]:
    content = _Comparison(before=before.data, after=after.data, writes=plan.writes)
    for load in before.loads:
        for start, end in _kept_parts(load, plan.region):
            address = load.vaddr + start - load.offset
            offset = after.offset_of(address, end - start)
            if offset is None:
                yield f"the bytes at address {address:#x} are no longer mapped"
                continue
            if not content.same(start, offset, end - start):
                yield f"the bytes at address {address:#x} changed"
        if not _same_rights(load, after, plan):
            yield f"the memory of the load segment at {load.vaddr:#x} changed"
    hole = plan.region.address + plan.region.size - plan.hole
    if plan.hole and any(load.vaddr < hole and load.vend > hole - 1 + plan.hole for load in after.loads):
        yield "the device code is still mapped"


def _kept_parts(load: ProgramHeader, region: Region) -> Iterator[tuple[int, int]]:
    """Iterate over the ranges of file offsets of a load segment that are kept."""
    if load.end <= region.offset or region.end <= load.offset:
        parts = [(load.offset, load.end)]
    else:
        parts = [(load.offset, region.offset), (region.end, load.end)]
    yield from ((start, end) for start, end in parts if start < end)


def _same_rights(load: ProgramHeader, after: ElfImage, plan: ConversionPlan) -> bool:
    """Tell whether the first and the last byte of a load segment are mapped with the rights that they had."""
    ends = [load.vaddr]
    if load.offset + load.filesz != plan.region.end or load.memsz != load.filesz:
        ends.append(load.vend - 1)
    for address in ends if load.memsz else []:
        flags = next((new.flags for new in after.loads if new.vaddr <= address < new.vend), None)
        if flags is None:
            return False
        if plan.slot is SlotKind.MERGE and not load.flags & SegmentFlag.WRITE:
            flags &= ~SegmentFlag.EXECUTE | load.flags
        if flags != load.flags:
            return False
    return True


def _section_issues(before: ElfImage, after: ElfImage, plan: ConversionPlan) -> Iterator[str]:
    if len(before.sections) != len(after.sections):
        yield "its section headers changed in number"
        return
    content = _Comparison(before=before.data, after=after.data, writes=plan.writes)
    names = before.names_section
    for old, new in zip(before.sections, after.sections, strict=True):
        if plan.region.section is not None and old.index == plan.region.section.index:
            expected = (REFERENCE_SECTION, plan.region.address, len(plan.reference))
            if (new.name, new.address, new.size) != expected:
                yield f"section {new.name} does not hold the kpack map"
            continue
        if names is not None and old.index == names.index:
            continue
        if _shape(old) != _shape(new):
            yield f"the header of section {old.name} changed"
        elif not old.is_alloc and not content.same(old.offset, new.offset, old.file_size):
            yield f"section {old.name} changed"


def _shape(section: SectionHeader) -> tuple[object, ...]:
    return (
        *(section.name, section.type, section.flags, section.address, section.size),
        *(section.link, section.info, section.align, section.entry_size),
    )


def _wrapper_issues(after: ElfImage, plan: ConversionPlan, wrappers: Sequence[RawWrapper]) -> Iterator[str]:
    code = find_device_code(after)
    found = code.wrappers if code is not None else ()
    if [wrapper.address for wrapper in found] != [wrapper.address for wrapper in wrappers]:
        yield "its wrappers are not where they were"
        return
    target = plan.region.address
    for index, wrapper in enumerate(found):
        pointer = wrapper.pointer
        if wrapper.kind is not WrapperKind.HIPK or wrapper.reserved != index:
            yield f"wrapper {index} is not converted"
        if pointer is None or pointer.value != target:
            yield f"wrapper {index} does not point to the kpack map"
    places = {wrapper.address + _POINTER_FIELD for wrapper in found}
    if set(iter_pointers_into(after, target, target + plan.region.size)) - places:
        yield "something points into the device code that is gone"
    offset = after.offset_of(target, len(plan.reference))
    if offset is None or after.data[offset : offset + len(plan.reference)] != plan.reference:
        yield "the kpack map is not where the wrappers point"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """The bytes of both files, and what may differ."""

    before: memoryview
    after: memoryview
    writes: Sequence[Write]

    def same(self, start: int, other: int, length: int) -> bool:
        """Tell whether a range of the original and one of the other file are equal, the writes aside."""
        position, end, shift = start, start + length, other - start
        for write in self.writes:
            if write.end <= position or write.offset >= end:
                continue
            if not self._equal(position, max(write.offset, position), shift):
                return False
            position = min(write.end, end)
        return self._equal(position, end, shift)

    def _equal(self, position: int, end: int, shift: int) -> bool:
        """Compare as bytes objects, because views are compared item by item."""
        while position < end:
            stop = min(position + _CHUNK, end)
            if bytes(self.before[position:stop]) != bytes(self.after[position + shift : stop + shift]):
                return False
            position = stop
        return True
