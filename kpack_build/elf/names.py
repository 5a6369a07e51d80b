"""Find room for one more section name.

The new name is longer than the old one, so the table of section names has to grow. Best is unused room right
behind it. Next, what follows moves up: section headers and what else is not mapped. Only where mapped bytes
follow, a copy of the table goes to the end of the file: patchelf 0.19 may extend a segment over it later, and
llvm-strip then garbles the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.elf.constants import EHDR, SegmentType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.elf.headers import SectionHeader
    from kpack_build.elf.image import ElfImage

__all__ = ["FILLERS", "NameGrowth", "is_free", "plan_name"]

FILLERS = (b"\0", b"X", b"Z")
"""What linkers and patchelf leave in room that they gave up."""

_UNIT = 16
"""Bytes by which things can move without losing the alignment of a section or of the section headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameGrowth:
    """How the table of section names grows.

    Attributes:
        table: The section that holds the names.
        name_offset: Where in the table the new name is.
        table_offset: Where the table starts; an offset of the original, or its size for a copy at the end.
        table_size: Size of the grown table in bytes.
        overwritten: New bytes for unused room behind the table, empty if it grows otherwise.
        inserted: Bytes inserted into the file.
        insertion: Where in the original they are inserted.
    """

    table: SectionHeader
    name_offset: int
    table_offset: int
    table_size: int
    overwritten: bytes
    inserted: bytes
    insertion: int


def plan_name(image: ElfImage, table: SectionHeader, name: str) -> NameGrowth:
    """Plan how a section name is added to its table.

    Args:
        image: The file.
        table: The section that holds the names.
        name: The new name.
    """
    encoded = name.encode() + b"\0"
    grown = table.size + len(encoded)
    free = is_free(image, table.end, table.end + len(encoded))
    if free or _can_move(image, table.end):
        padding = b"\0" * (-len(encoded) % _UNIT)
        return NameGrowth(
            table=table,
            name_offset=table.size,
            table_offset=table.offset,
            table_size=grown,
            overwritten=encoded if free else b"",
            inserted=b"" if free else encoded + padding,
            insertion=image.size if free else table.end,
        )
    return NameGrowth(
        table=table,
        name_offset=table.size,
        table_offset=image.size,
        table_size=grown,
        overwritten=b"",
        inserted=bytes(image.data[table.offset : table.end]) + encoded,
        insertion=image.size,
    )


def is_free(image: ElfImage, start: int, end: int) -> bool:
    """Tell whether bytes of a file that has section headers are filler that nothing lays claim to.

    Load segments, which cover the padding between their sections, count by their first byte only.
    """
    content = bytes(image.data[start:end])
    if len(content) != end - start or not any(content == filler * len(content) for filler in FILLERS):
        return False
    return not any(first < end and start < last for first, last in _claims(image))


def _claims(image: ElfImage) -> Iterator[tuple[int, int]]:
    header = image.header
    yield 0, EHDR.size
    yield header.phoff, header.phoff + header.phnum * header.phentsize
    yield header.shoff, header.shoff + len(image.sections) * header.shentsize
    for section in image.sections:
        yield section.offset, section.end
    for segment in image.segments:
        if segment.type == SegmentType.LOAD:
            yield segment.offset, segment.offset + 1
        elif segment.type != SegmentType.PHDR:
            yield segment.offset, segment.end


def _can_move(image: ElfImage, start: int) -> bool:
    """Tell whether all that follows an offset may move up: it is not mapped, and not aligned to much."""
    if any(segment.end > start for segment in image.segments if segment.filesz):
        return False
    header = image.header
    if header.shoff < start and header.shoff + len(image.sections) * header.shentsize > start:
        return False
    behind = [section for section in image.sections if section.end > start]
    return all(section.offset >= start and section.align <= _UNIT for section in behind)
