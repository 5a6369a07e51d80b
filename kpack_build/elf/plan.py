"""Plan the conversion of a fat ELF file: which bytes leave it, and what is written over those that stay.

No kept byte changes its address. The MessagePack map goes to the first bytes of the device code, whose page
stays; the whole pages behind it leave the file, and what follows moves down in the file by their size, a
multiple of the largest alignment of a load segment. The load segment that held the device code becomes two.
A plan lists every byte that it changes; `kpack_build.elf.convert` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpack_build.elf.constants import PHDR, Address, FileOffset, SectionType, SegmentType
from kpack_build.elf.fatbin import HIPK_MAGIC, REFERENCE_SECTION, RawWrapper
from kpack_build.elf.image import ElfImage, ProgramHeader, SectionHeader
from kpack_build.elf.relocations import PointerKind
from kpack_build.elf.slots import SlotKind, iter_slots
from kpack_build.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ConversionPlan", "Region", "Write", "largest_alignment", "plan_conversion"]

PAGE = 4096
"""Granule of the map's own page: the smallest page of x86-64 and AArch64."""

_WORD = 8
_MASK = (1 << 64) - 1
_SHOFF_FIELD = 0x28
_PHNUM_FIELD = 0x38
_INDEX_FIELD = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The device code.

    Attributes:
        offset: Its place in the file.
        address: Its place in memory.
        size: Its size in bytes.
        section: Its section, if the file has section headers.
    """

    offset: FileOffset
    address: Address
    size: int
    section: SectionHeader | None

    @property
    def end(self) -> FileOffset:
        """File offset behind it."""
        return FileOffset(self.offset + self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """New bytes for a place of the original file."""

    offset: FileOffset
    data: bytes

    @property
    def end(self) -> int:
        """File offset behind it."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """What makes a HIPK file of a HIPF one.

    Attributes:
        region: The device code.
        reference: The MessagePack map that takes its place.
        hole: How many bytes leave the file: the last ones of the device code.
        writes: Changes of kept bytes, by their offsets in the original, in order and without overlap.
        appended: Bytes added at the end of the file.
        slot: Where the room for the new program header came from, None where none was needed.
    """

    region: Region
    reference: bytes
    hole: int
    writes: tuple[Write, ...]
    appended: bytes
    slot: SlotKind | None

    def new_offset(self, offset: int) -> int:
        """Return where a kept byte of the original is in the converted file."""
        return offset if offset < self.region.end else offset - self.hole


def plan_conversion(
    image: ElfImage, region: Region, wrappers: Sequence[RawWrapper], reference: bytes
) -> ConversionPlan:
    """Plan a conversion.

    Args:
        image: The fat file.
        region: Its device code.
        wrappers: Its wrappers; each has a pointer.
        reference: The MessagePack map.

    Raises:
        ConversionError: The file's layout does not allow it; it says why.
    """
    if len(reference) > region.size:
        raise ConversionError(
            image.path,
            [f"the device code's {region.size} bytes are too few for the kpack map of {len(reference)}"],
        )
    hole = _hole(image, region, len(reference))
    segments, slot = _new_segments(image, region, hole, len(reference))
    sections, appended = _new_sections(image, region, hole, len(reference))
    writes = [
        *_header_writes(image, region, hole, len(segments)),
        *_segment_writes(image, segments),
        *_section_writes(image, sections),
        *_wrapper_writes(image, region, wrappers),
    ]
    writes.sort(key=lambda write: write.offset)
    _check_writes(image, region, writes)
    return ConversionPlan(
        region=region, reference=reference, hole=hole, writes=tuple(writes), appended=appended, slot=slot
    )


def largest_alignment(image: ElfImage) -> int:
    """Return the largest alignment of a load segment, in bytes; not less than a page."""
    return max([PAGE, *(load.align for load in image.loads)])


def _kept_end(region: Region, reference_size: int) -> int:
    """Return the file offset behind the page in which the map ends."""
    return -(-(region.offset + reference_size) // PAGE) * PAGE


def _hole(image: ElfImage, region: Region, reference_size: int) -> int:
    """Return how many bytes can leave the file; 0 where the device code is too small."""
    granule = largest_alignment(image)
    room = region.end - _kept_end(region, reference_size)
    return max(room // granule * granule, 0)


def _new_segments(
    image: ElfImage, region: Region, hole: int, reference_size: int
) -> tuple[tuple[ProgramHeader, ...], SlotKind | None]:
    if not hole:
        return image.segments, None
    [holder] = [load for load in image.loads if load.offset <= region.offset and region.end <= load.end]
    parts = _split(holder, region, hole, reference_size)
    if len(parts) == 1:
        return tuple(_moved(image.segments, holder, parts, region, hole)), None
    for slot in iter_slots(image):
        if holder in slot.segments and holder.type == SegmentType.LOAD:
            segments = tuple(_moved(slot.segments, holder, parts, region, hole))
            return segments + _unused_entries(slot.count - len(segments)), slot.kind
    raise ConversionError(
        image.path, ["its program header table has no room for the one entry more that is needed"]
    )


def _unused_entries(count: int) -> tuple[ProgramHeader, ...]:
    empty = ProgramHeader(
        type=SegmentType.NULL, flags=0, offset=0, vaddr=0, paddr=0, filesz=0, memsz=0, align=0
    )
    return (empty,) * count


def _split(
    holder: ProgramHeader, region: Region, hole: int, reference_size: int
) -> tuple[ProgramHeader, ...]:
    """Return the load segment before the hole and, if anything follows the device code, the one behind it."""
    first_size = _kept_end(region, reference_size) - holder.offset
    first = replace(holder, filesz=first_size, memsz=first_size)
    if holder.end == region.end and holder.memsz == holder.filesz:
        return (first,)
    skipped = first_size + hole
    second = replace(
        holder,
        offset=holder.offset + first_size,
        vaddr=holder.vaddr + skipped,
        paddr=(holder.paddr + skipped) & _MASK,
        filesz=holder.filesz - skipped,
        memsz=holder.memsz - skipped,
    )
    return first, second


def _moved(
    segments: Sequence[ProgramHeader],
    holder: ProgramHeader,
    parts: Sequence[ProgramHeader],
    region: Region,
    hole: int,
) -> Iterator[ProgramHeader]:
    for segment in segments:
        if segment == holder:
            yield from parts
        elif segment.offset >= region.end:
            yield replace(segment, offset=segment.offset - hole)
        else:
            yield segment


def _new_sections(
    image: ElfImage, region: Region, hole: int, reference_size: int
) -> tuple[tuple[SectionHeader, ...], bytes]:
    """Return the section headers as they will be, and the new table of their names."""
    names = image.names_section
    if region.section is None or names is None:
        return tuple(_shifted(section, region, hole) for section in image.sections), b""
    table = bytes(image.data[names.offset : names.end])
    encoded = REFERENCE_SECTION.encode() + b"\0"
    changed = []
    for section in image.sections:
        moved = _shifted(section, region, hole)
        if section.index == region.section.index:
            moved = replace(moved, name=REFERENCE_SECTION, name_offset=len(table), size=reference_size)
        elif section.index == names.index:
            moved = replace(moved, offset=image.size - hole, size=len(table) + len(encoded))
        changed.append(moved)
    return tuple(changed), table + encoded


def _shifted(section: SectionHeader, region: Region, hole: int) -> SectionHeader:
    if section.type == SectionType.NULL or section.offset < region.end:
        return section
    return replace(section, offset=section.offset - hole)


def _header_writes(image: ElfImage, region: Region, hole: int, count: int) -> Iterator[Write]:
    if image.header.shoff >= region.end:
        shoff = image.header.shoff - hole
        yield Write(offset=FileOffset(_SHOFF_FIELD), data=shoff.to_bytes(_WORD, "little"))
    if count != image.header.phnum:
        yield Write(offset=FileOffset(_PHNUM_FIELD), data=count.to_bytes(2, "little"))


def _segment_writes(image: ElfImage, segments: Sequence[ProgramHeader]) -> Iterator[Write]:
    start = image.header.phoff
    size = len(segments) * PHDR.size
    yield from _changed_words(
        start, bytes(image.data[start : start + size]), b"".join(segment.pack() for segment in segments)
    )


def _section_writes(image: ElfImage, sections: Sequence[SectionHeader]) -> Iterator[Write]:
    for before, after in zip(image.sections, sections, strict=True):
        start = image.header.shoff + before.index * image.header.shentsize
        yield from _changed_words(start, before.pack(), after.pack())


def _wrapper_writes(image: ElfImage, region: Region, wrappers: Sequence[RawWrapper]) -> Iterator[Write]:
    """Let each wrapper be HIPK, carry its index, and point to the map."""
    for index, wrapper in enumerate(wrappers):
        yield Write(offset=wrapper.offset, data=HIPK_MAGIC)
        place = FileOffset(wrapper.offset + _INDEX_FIELD)
        yield Write(offset=place, data=index.to_bytes(_WORD, "little"))
        pointer = wrapper.pointer
        if pointer is None:
            raise ConversionError(image.path, [f"nothing gives the pointer of wrapper {index} its value"])
        target = region.address.to_bytes(_WORD, "little")
        if pointer.addend is not None:
            addend = (region.address - pointer.base) & _MASK
            yield Write(offset=pointer.addend, data=addend.to_bytes(_WORD, "little"))
        word = bytes(image.data[pointer.word : pointer.word + _WORD])
        repeats_value = int.from_bytes(word, "little") == pointer.value
        if pointer.kind in (PointerKind.RELR, PointerKind.PLAIN) or repeats_value:
            # Some linkers write a relocation's value into the word as well; the two are kept in step.
            yield Write(offset=pointer.word, data=target)


def _changed_words(start: int, before: bytes, after: bytes) -> Iterator[Write]:
    """Iterate over the runs of words in which two tables of the same length differ."""
    run = -1
    for position in range(0, len(after) + _WORD, _WORD):
        chunk = slice(position, position + _WORD)
        differs = position < len(after) and before[chunk] != after[chunk]
        if differs and run < 0:
            run = position
        elif not differs and run >= 0:
            yield Write(offset=FileOffset(start + run), data=after[run:position])
            run = -1


def _check_writes(image: ElfImage, region: Region, writes: Sequence[Write]) -> None:
    """Refuse a plan whose writes overlap, or lie in bytes that leave the file."""
    behind = 0
    for write in writes:
        inside = write.offset < region.end and region.offset < write.end
        if write.offset < behind or inside or write.end > image.size:
            raise ConversionError(
                image.path, [f"its tables overlap each other or the device code at {write.offset:#x}"]
            )
        behind = write.end
