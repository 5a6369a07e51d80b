"""Say why an ELF file with device code has to stay as it is.

Nothing may be lost: every byte of the device code has to belong to a bundle that some wrapper points to,
every wrapper has to be understood, and nothing else of the file may use the device code's bytes. And the
file itself has to be sound, so that a fault that was there before is not blamed on the conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.bundle import Bundle, BundleEncoding, EntryKind
from kpack_build.elf.constants import EHDR, PHDR, DynamicTag, SegmentFlag, SegmentType
from kpack_build.elf.fatbin import WRAPPER_SIZE, DeviceCode, WrapperKind
from kpack_build.elf.relocations import iter_pointers_into, iter_touched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kpack_build.elf.image import ElfImage
    from kpack_build.elf.plan import Region

__all__ = ["bundle_refusals", "layout_faults", "region_refusals", "wrapper_refusals"]

_POINTER_FIELD = 8
_CHUNK = 1 << 20
_ADDRESS_TAGS = frozenset(
    {
        *(DynamicTag.STRTAB, DynamicTag.SYMTAB, DynamicTag.RELA, DynamicTag.JMPREL, DynamicTag.RELR),
        *(DynamicTag.PLTGOT, DynamicTag.HASH, DynamicTag.GNU_HASH, DynamicTag.VERSYM),
        *(DynamicTag.VERDEF, DynamicTag.VERNEED, DynamicTag.INIT, DynamicTag.FINI),
        *(DynamicTag.INIT_ARRAY, DynamicTag.FINI_ARRAY),
    }
)


def layout_faults(image: ElfImage) -> Iterator[str]:
    """Iterate over the faults of a file's segments: what makes loaders refuse it or crash.

    The rules are the gABI's ("Program Header") and those of glibc's `_dl_map_segments`; two come from what
    tools did to libraries in the wild: a program header table whose address is not where it is mapped, and
    load segments that overlap.
    """
    yield from _load_faults(image)
    yield from _table_faults(image)
    for segment in image.segments:
        if segment.type in (SegmentType.LOAD, SegmentType.NULL) or not segment.filesz:
            continue
        if image.offset_of(segment.vaddr, segment.filesz) not in (None, segment.offset):
            yield f"the segment of type {segment.type:#x} is mapped from elsewhere than {segment.offset:#x}"
    for section in image.sections:
        if section.is_alloc and section.file_size and image.offset_of(section.address) != section.offset:
            yield f"section {section.name} is not mapped where it says"


def _load_faults(image: ElfImage) -> Iterator[str]:
    behind = 0
    for load in image.loads:
        name = f"the load segment at {load.vaddr:#x}"
        if load.align > 1 and load.align & (load.align - 1):
            yield f"{name} has the alignment {load.align:#x}, which is no power of two"
        elif load.align > 1 and (load.vaddr - load.offset) % load.align:
            yield f"{name} and its file offset {load.offset:#x} differ modulo its alignment {load.align:#x}"
        if load.end > image.size:
            yield f"{name} ends behind the end of the file"
        if load.filesz > load.memsz:
            yield f"{name} is larger in the file than in memory"
        if load.vaddr < behind:
            yield f"{name} overlaps the one before, or comes before it"
        behind = load.vend


def _table_faults(image: ElfImage) -> Iterator[str]:
    for table in image.segments_of(SegmentType.PHDR):
        if table.offset != image.header.phoff or image.offset_of(table.vaddr, table.filesz) != table.offset:
            yield "the program header table is not where PT_PHDR says"
        elif image.segments_of(SegmentType.INTERP) and (
            table.vaddr - table.offset != image.loads[0].vaddr - image.loads[0].offset
        ):
            # Kernels before 5.18 take the first segment's bias for the table's (known from EL8).
            yield "the program header table is not where old kernels look for it"


def wrapper_refusals(image: ElfImage, code: DeviceCode) -> Iterator[str]:
    """Iterate over what is wrong with the wrappers."""
    yield from (f"it has several sections {name}" for name in code.repeated)
    if not code.wrappers:
        yield "no wrapper leads to its device code"
        return
    kinds = [wrapper.kind for wrapper in code.wrappers]
    if WrapperKind.UNKNOWN in kinds or code.odd_bytes:
        yield "there are gaps between its wrappers, or wrappers of an unknown kind"
        return
    if WrapperKind.HIPK in kinds:
        yield "some of its wrappers are converted already and some are not"
    first, last = code.wrappers[0].address, code.wrappers[-1].address
    if last - first != (len(code.wrappers) - 1) * WRAPPER_SIZE:
        yield "there are gaps between its wrappers"
    for index, wrapper in enumerate(code.wrappers):
        if wrapper.pointer is None:
            yield f"nothing gives the pointer of wrapper {index} its value (no relocation)"
        if wrapper.reserved:
            yield f"wrapper {index} has a value in its reserved word"
        if image.offset_of(wrapper.address, WRAPPER_SIZE) != wrapper.offset:
            yield f"wrapper {index} is not mapped from its section"
    places = {wrapper.address + _POINTER_FIELD for wrapper in code.wrappers}
    touched = set(iter_touched(image, first, last + WRAPPER_SIZE))
    if not touched <= places:
        yield "a relocation changes more of its wrappers than their pointers"


def region_refusals(image: ElfImage, code: DeviceCode, region: Region) -> Iterator[str]:
    """Iterate over what else of the file uses the bytes or addresses of the device code."""
    holders = [load for load in image.loads if load.offset <= region.offset and region.end <= load.end]
    if len(holders) != 1 or holders[0].vaddr + region.offset - holders[0].offset != region.address:
        yield "its device code is not mapped by one load segment"
        return
    for name, first, last in _used_ranges(image, region):
        if first < region.end and region.offset < last:
            yield f"{name} lies in its device code"
    start, end = region.address, region.address + region.size
    for name, first, last in _used_addresses(image, region):
        if first < end and start < last:
            yield f"{name} has an address in its device code"
    wrappers = {wrapper.address + _POINTER_FIELD for wrapper in code.wrappers}
    if any(place not in wrappers for place in iter_pointers_into(image, start, end)):
        yield "something else than its wrappers points to its device code"
    if holders[0].flags & SegmentFlag.WRITE:
        yield "its device code is writable"


def _used_ranges(image: ElfImage, region: Region) -> Iterator[tuple[str, int, int]]:
    """Iterate over what has bytes in the file: name, first offset, offset behind."""
    header = image.header
    yield "the ELF header", 0, EHDR.size
    yield "the program header table", header.phoff, header.phoff + header.phnum * PHDR.size
    yield "the section header table", header.shoff, header.shoff + len(image.sections) * header.shentsize
    for section in image.sections:
        if section != region.section and section.file_size:
            yield f"section {section.name}", section.offset, section.end
    for segment in image.segments:
        holds = segment.offset <= region.offset and region.end <= segment.end
        if segment.filesz and not (segment.type == SegmentType.LOAD and holds):
            yield f"the segment of type {segment.type:#x}", segment.offset, segment.end


def _used_addresses(image: ElfImage, region: Region) -> Iterator[tuple[str, int, int]]:
    """Iterate over what has addresses: name, first address, address behind."""
    yield "the entry point", image.header.entry, image.header.entry + 1
    for section in image.sections:
        if section != region.section and section.is_alloc and section.size:
            yield f"section {section.name}", section.address, section.address + section.size
    for segment in image.segments:
        if segment.type not in (SegmentType.LOAD, SegmentType.NULL) and segment.memsz:
            yield f"the segment of type {segment.type:#x}", segment.vaddr, segment.vend
    for tag, value in image.dynamic:
        if tag in _ADDRESS_TAGS:
            yield f"dynamic tag {tag:#x}", value, value + 1


def bundle_refusals(image: ElfImage, region: Region, bundles: Sequence[Bundle]) -> Iterator[str]:
    """Iterate over what would be lost of the device code."""
    behind: int = region.offset
    for number, bundle in enumerate(bundles):
        yield from _stray(image, behind, bundle.offset)
        behind = bundle.offset + bundle.stored_size
        for entry in bundle.entries:
            if entry.kind is EntryKind.OTHER:
                yield f"the entry {entry.id!r} of bundle {number} is no code object of a gfx target"
        if bundle.encoding is BundleEncoding.PLAIN:
            with bundle.open_decoded() as decoded:
                for offset, length in decoded.unaccounted()[:1]:
                    yield f"{length} bytes at {offset:#x} of bundle {number} belong to no entry"
    yield from _stray(image, behind, region.end)


def _stray(image: ElfImage, start: int, end: int) -> Iterator[str]:
    for position in range(start, end, _CHUNK):
        chunk = bytes(image.data[position : min(position + _CHUNK, end)])
        if chunk.strip(b"\0"):
            yield f"there are bytes at {start:#x} of its device code that no wrapper leads to"
            return
