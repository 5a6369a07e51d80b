"""Plan the conversion of a fat ELF file: which bytes leave it, and what is written over those that stay.

No kept byte changes its address. The MessagePack map goes to the first bytes of the device code, whose page
stays; the whole pages behind it leave the file, and what follows moves down in the file by their size, a
multiple of the largest alignment of a load segment. The load segment that held the device code becomes two.
A plan lists every byte that it changes; `kpack_build.elf.convert` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpack_build.elf.constants import PHDR, Address, FileOffset, SectionType
from kpack_build.elf.fatbin import HIPK_MAGIC, REFERENCE_SECTION, RawWrapper
from kpack_build.elf.names import NameGrowth, plan_name
from kpack_build.elf.relocations import PointerKind
from kpack_build.elf.slots import SlotKind, iter_slots
from kpack_build.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpack_build.elf.headers import ProgramHeader, SectionHeader
    from kpack_build.elf.image import ElfImage

__all__ = ["PAGE", "ConversionPlan", "Region", "Write", "plan_conversion"]

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
        inserted: Bytes added to the file.
        insertion: Where they are added, an offset of the original.
        slot: Where the room for the new program header came from, None where none was needed.
    """

    region: Region
    reference: bytes
    hole: int
    writes: tuple[Write, ...]
    inserted: bytes
    insertion: int
    slot: SlotKind | None

    @property
    def kept_end(self) -> int:
        """File offset behind the page in which the map ends; the hole follows."""
        return _page_end(self.region.offset + len(self.reference))

    def new_offset(self, offset: int) -> int:
        """Return where a kept byte of the original is in the converted file."""
        moved = offset - self.hole if offset >= self.region.end else offset
        return moved + len(self.inserted) if offset >= self.insertion else moved


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
    names = image.names_section if region.section is not None else None
    growth = None if names is None else plan_name(image, names, REFERENCE_SECTION)
    plan = ConversionPlan(
        region=region,
        reference=reference,
        hole=_hole(image, region, len(reference)),
        writes=(),
        inserted=b"" if growth is None else growth.inserted,
        insertion=image.size if growth is None else growth.insertion,
        slot=None,
    )
    segments, slot = _new_segments(image, plan)
    writes = [
        *_header_writes(image, plan, len(segments)),
        *_segment_writes(image, segments),
        *_section_writes(image, plan, growth),
        *_wrapper_writes(image, region, wrappers),
    ]
    writes.sort(key=lambda write: write.offset)
    _check_writes(image, region, writes)
    return replace(plan, writes=tuple(writes), slot=slot)


def _page_end(offset: int) -> int:
    return -(-offset // PAGE) * PAGE


def _hole(image: ElfImage, region: Region, reference_size: int) -> int:
    """Return how many bytes can leave the file; 0 where the device code is too small.

    Offsets and addresses have to stay congruent modulo every load segment's alignment.
    """
    granule = max([PAGE, *(load.align for load in image.loads)])
    room = region.end - _page_end(region.offset + reference_size)
    return max(room // granule * granule, 0)


def _new_segments(image: ElfImage, plan: ConversionPlan) -> tuple[tuple[ProgramHeader, ...], SlotKind | None]:
    """Return the program headers as they will be, and where the room for one more came from."""
    if not plan.hole:
        return tuple(_moved(segment, plan) for segment in image.segments), None
    [holder] = [
        load for load in image.loads if load.offset <= plan.region.offset and plan.region.end <= load.end
    ]
    parts = _split(holder, plan)
    if len(parts) == 1:
        return _replaced(image.segments, holder, parts, plan), None
    for slot in iter_slots(image):
        if holder in slot.segments:
            segments = _replaced(slot.segments, holder, parts, plan)
            return segments, slot.kind
    raise ConversionError(
        image.path, ["its program header table has no room for the one entry more that is needed"]
    )


def _split(holder: ProgramHeader, plan: ConversionPlan) -> tuple[ProgramHeader, ...]:
    """Return the load segment before the hole and, if anything follows the device code, the one behind it."""
    first_size = plan.kept_end - holder.offset
    first = replace(holder, filesz=first_size, memsz=first_size)
    if holder.end == plan.region.end and holder.memsz == holder.filesz:
        return (first,)
    skipped = first_size + plan.hole
    second = replace(
        holder,
        offset=holder.offset + first_size,
        vaddr=holder.vaddr + skipped,
        paddr=(holder.paddr + skipped) & _MASK,
        filesz=holder.filesz - skipped,
        memsz=holder.memsz - skipped,
    )
    return first, second


def _replaced(
    segments: Sequence[ProgramHeader],
    holder: ProgramHeader,
    parts: Sequence[ProgramHeader],
    plan: ConversionPlan,
) -> tuple[ProgramHeader, ...]:
    """Return a table in which the parts stand in place of their holder, and all else is moved."""
    table: list[ProgramHeader] = []
    for segment in segments:
        table += parts if segment == holder else [_moved(segment, plan)]
    return tuple(table)


def _moved(segment: ProgramHeader, plan: ConversionPlan) -> ProgramHeader:
    return replace(segment, offset=plan.new_offset(segment.offset))


def _header_writes(image: ElfImage, plan: ConversionPlan, count: int) -> Iterator[Write]:
    shoff = plan.new_offset(image.header.shoff)
    if image.sections and shoff != image.header.shoff:
        yield Write(offset=FileOffset(_SHOFF_FIELD), data=shoff.to_bytes(_WORD, "little"))
    if count != image.header.phnum:
        yield Write(offset=FileOffset(_PHNUM_FIELD), data=count.to_bytes(2, "little"))


def _segment_writes(image: ElfImage, segments: Sequence[ProgramHeader]) -> Iterator[Write]:
    start = image.header.phoff
    size = len(segments) * PHDR.size
    yield from _changed_words(
        start, bytes(image.data[start : start + size]), b"".join(segment.pack() for segment in segments)
    )


def _section_writes(image: ElfImage, plan: ConversionPlan, growth: NameGrowth | None) -> Iterator[Write]:
    """Move the sections, and give that of the device code its new name and size."""
    own = plan.region.section
    if growth is None or own is None:
        return
    for section in image.sections:
        moved = section
        if section.type != SectionType.NULL:
            moved = replace(section, offset=plan.new_offset(section.offset))
        if section.index == own.index:
            moved = replace(moved, size=len(plan.reference), name_offset=growth.name_offset)
        elif section.index == growth.table.index:
            # A copy at the end begins where the insertion does.
            copied = growth.table_offset == image.size
            offset = growth.table_offset - plan.hole if copied else moved.offset
            moved = replace(moved, offset=offset, size=growth.table_size)
        start = image.header.shoff + section.index * image.header.shentsize
        yield from _changed_words(start, section.pack(), moved.pack())
    if growth.overwritten:
        yield Write(offset=FileOffset(growth.table.end), data=growth.overwritten)


def _wrapper_writes(image: ElfImage, region: Region, wrappers: Sequence[RawWrapper]) -> Iterator[Write]:
    """Let each wrapper be HIPK, carry its index, and point to the map."""
    target = region.address.to_bytes(_WORD, "little")
    for index, wrapper in enumerate(wrappers):
        yield Write(offset=wrapper.offset, data=HIPK_MAGIC)
        place = FileOffset(wrapper.offset + _INDEX_FIELD)
        yield Write(offset=place, data=index.to_bytes(_WORD, "little"))
        pointer = wrapper.pointer
        if pointer is None:
            raise ConversionError(image.path, [f"nothing gives the pointer of wrapper {index} its value"])
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
