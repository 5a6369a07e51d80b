"""Find room for one more program header without moving the table.

A table that moves is what breaks: GNU strip and old patchelf damage such files, and kernels of EL8 compute
the table's address from its file offset. So the new entry takes a place that can be spared. In order of
what is lost: an unused entry; free room behind the table; a PT_NOTE that repeats PT_GNU_PROPERTY; PT_PHDR
in a library (loaders read it in programs only); another PT_NOTE (the note stays in its section, but
debuggers and profilers no longer find it in memory); and last, a read-only load segment that is joined with
the executable one behind it, as linkers laid files out before `-z separate-code`. PT_GNU_STACK is never
taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kpack_build.elf.constants import PHDR, SegmentFlag, SegmentType
from kpack_build.elf.names import is_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.elf.headers import ProgramHeader
    from kpack_build.elf.image import ElfImage

__all__ = ["Slot", "SlotKind", "iter_slots"]


class SlotKind(Enum):
    """Where the room for a program header comes from."""

    NULL = "an unused entry"
    ROOM = "free room behind the table"
    PROPERTY_NOTE = "a PT_NOTE that repeats PT_GNU_PROPERTY"
    PHDR = "the PT_PHDR of a library"
    NOTE = "a PT_NOTE"
    MERGE = "two load segments joined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A way to make room.

    Attributes:
        kind: Where the room comes from.
        segments: The table with the room made: one entry less than can be written.
        count: How many entries can be written.
    """

    kind: SlotKind
    segments: tuple[ProgramHeader, ...]
    count: int


def iter_slots(image: ElfImage) -> Iterator[Slot]:
    """Iterate over the ways to make room, the one that loses least first."""
    count = len(image.segments)
    removable = (
        (SlotKind.NULL, _unused(image)),
        (SlotKind.ROOM, ()),
        (SlotKind.PROPERTY_NOTE, _property_notes(image)),
        (SlotKind.PHDR, () if image.is_executable else image.segments_of(SegmentType.PHDR)),
        (SlotKind.NOTE, image.segments_of(SegmentType.NOTE)),
    )
    for kind, candidates in removable:
        if kind is SlotKind.ROOM and _has_room(image):
            yield Slot(kind=kind, segments=_longer(image), count=count + 1)
        for candidate in candidates[:1]:
            yield Slot(kind=kind, segments=_without(image, candidate), count=count)
    for segments in _merged(image):
        yield Slot(kind=SlotKind.MERGE, segments=segments, count=count)


def _without(image: ElfImage, dropped: ProgramHeader) -> tuple[ProgramHeader, ...]:
    position = image.segments.index(dropped)
    return image.segments[:position] + image.segments[position + 1 :]


def _unused(image: ElfImage) -> tuple[ProgramHeader, ...]:
    return image.segments_of(SegmentType.NULL)


def _property_notes(image: ElfImage) -> tuple[ProgramHeader, ...]:
    ranges = {(segment.offset, segment.filesz) for segment in image.segments_of(SegmentType.GNU_PROPERTY)}
    notes = image.segments_of(SegmentType.NOTE)
    return tuple(note for note in notes if (note.offset, note.filesz) in ranges)


def _longer(image: ElfImage) -> tuple[ProgramHeader, ...]:
    """Return the table with a PT_PHDR, if there is one, that covers one more entry."""
    return tuple(
        replace(segment, filesz=segment.filesz + PHDR.size, memsz=segment.memsz + PHDR.size)
        if segment.type == SegmentType.PHDR
        else segment
        for segment in image.segments
    )


def _has_room(image: ElfImage) -> bool:
    """Tell whether the bytes behind the table are mapped with it, hold only filler, and are nobody's."""
    start = image.header.phoff + len(image.segments) * PHDR.size
    end = start + PHDR.size
    mapped = any(load.offset <= image.header.phoff and end <= load.end for load in image.loads)
    return bool(image.sections) and mapped and is_free(image, start, end)


def _merged(image: ElfImage) -> Iterator[tuple[ProgramHeader, ...]]:
    """Iterate over tables in which two neighbours, neither of them writable, are joined; smallest first."""
    pairs = []
    for first, second in zip(image.loads, image.loads[1:], strict=False):
        writable = (first.flags | second.flags) & SegmentFlag.WRITE
        same_bias = second.vaddr - first.vaddr == second.offset - first.offset
        executable = second.flags & SegmentFlag.EXECUTE
        if same_bias and executable and not writable and first.memsz == first.filesz:
            pairs.append((first, second))
    for first, second in sorted(pairs, key=lambda pair: pair[0].filesz):
        joined = replace(
            first,
            flags=first.flags | second.flags,
            filesz=second.end - first.offset,
            memsz=second.vend - first.vaddr,
            align=max(first.align, second.align),
        )
        rest = _without(image, second)
        yield tuple(joined if segment == first else segment for segment in rest)
