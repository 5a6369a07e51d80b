"""Read an ELF file: its headers, sections, dynamic table, and the way from addresses to file offsets.

Follows the gABI, chapters 4 and 5. Only 64-bit little-endian executables and shared libraries are read. Every
table is checked against the size of the file before it is used. Nothing is changed here, and no section's
content is interpreted beyond the dynamic table and the strings it names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kpack_build.elf.constants import (
    EHDR,
    ELF_MAGIC,
    PHDR,
    SHDR,
    SHN_XINDEX,
    Address,
    DynamicTag,
    ElfType,
    FileOffset,
    Machine,
    SectionType,
    SegmentType,
)
from kpack_build.elf.headers import ElfHeader, ProgramHeader, SectionHeader
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ElfImage", "is_host_elf", "parse_image"]

_CLASS_64 = 2
_LITTLE_ENDIAN = 1
_IDENT_VERSION = 1
_MACHINE_END = 20
_PN_XNUM = 0xFFFF
_DF_1_PIE = 0x08000000


@dataclass(frozen=True, kw_only=True)
class ElfImage:
    """A parsed ELF file over its bytes.

    Attributes:
        path: The file, for messages.
        data: All bytes of the file.
        header: The ELF header.
        segments: The program headers, in the table's order.
        sections: The section headers, in the table's order; empty where the file has no table.
    """

    path: Path
    data: memoryview
    header: ElfHeader
    segments: tuple[ProgramHeader, ...]
    sections: tuple[SectionHeader, ...]

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self.data)

    @property
    def names_section(self) -> SectionHeader | None:
        """The section that holds the names of sections, or None."""
        index = _names_index(self.header, self.sections)
        return self.sections[index] if index else None

    @cached_property
    def loads(self) -> tuple[ProgramHeader, ...]:
        """The load segments."""
        return self.segments_of(SegmentType.LOAD)

    def segments_of(self, kind: SegmentType) -> tuple[ProgramHeader, ...]:
        """Return the program headers of a type."""
        return tuple(segment for segment in self.segments if segment.type == kind)

    def sections_named(self, name: str) -> tuple[SectionHeader, ...]:
        """Return the sections of a name (the format allows several)."""
        return tuple(section for section in self.sections if section.name == name)

    def offset_of(self, address: int, size: int = 1) -> FileOffset | None:
        """Return the file offset that is mapped at an address.

        Args:
            address: Virtual address at load bias 0.
            size: How many bytes have to be there, all from the file.

        Returns:
            The offset, or None where no load segment has these bytes in the file.
        """
        for load in self.loads:
            if load.vaddr <= address and address + size <= load.vaddr + load.filesz:
                offset = load.offset + address - load.vaddr
                return FileOffset(offset) if offset + size <= self.size else None
        return None

    def address_of(self, offset: int, size: int = 1) -> Address | None:
        """Return the address at which bytes of the file are mapped, or None."""
        for load in self.loads:
            if load.offset <= offset and offset + size <= load.end:
                return Address(load.vaddr + offset - load.offset)
        return None

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """The dynamic table as (tag, value) pairs, without its end mark; empty where the file has none.

        Raises:
            FormatError: The table lies outside of the file.
        """
        if any(section.type == SectionType.NOBITS for section in self.sections_named(".dynamic")):
            # A separated debug file keeps the program headers of the file it was taken from.
            return ()
        for segment in self.segments_of(SegmentType.DYNAMIC):
            table = self.view(segment.offset, segment.filesz // 16 * 16, "the dynamic table")
            return tuple(_until_null(table))
        return ()

    def dynamic_value(self, tag: DynamicTag) -> int | None:
        """Return the value of a dynamic tag that occurs once, or None."""
        return self._dynamic_values.get(tag)

    @cached_property
    def _dynamic_values(self) -> dict[int, int]:
        """The first value of each tag."""
        return dict(reversed(self.dynamic))

    @property
    def needed(self) -> tuple[str, ...]:
        """The libraries of DT_NEEDED, in order."""
        return tuple(self.dynamic_string(value) for tag, value in self.dynamic if tag == DynamicTag.NEEDED)

    @property
    def soname(self) -> str | None:
        """The string of DT_SONAME, or None."""
        value = self.dynamic_value(DynamicTag.SONAME)
        return None if value is None else self.dynamic_string(value)

    @property
    def is_executable(self) -> bool:
        """Whether it is a program, static ones included; a library with an interpreter counts as one."""
        flags = self.dynamic_value(DynamicTag.FLAGS_1) or 0
        return (
            self.header.type is ElfType.EXEC
            or bool(flags & _DF_1_PIE)
            or bool(self.segments_of(SegmentType.INTERP))
        )

    def dynamic_string(self, position: int) -> str:
        """Return a string of the dynamic string table.

        Raises:
            FormatError: The position is outside of the table, or the table outside of the file.
        """
        address = self.dynamic_value(DynamicTag.STRTAB)
        size = self.dynamic_value(DynamicTag.STRSZ) or 0
        offset = None if address is None else self.offset_of(address, max(size, 1))
        if offset is None or position >= size:
            raise FormatError(
                self.path, "a dynamic string is outside of its table", expected=f"< {size}", found=position
            )
        return _string(self.view(offset, size, "the dynamic string table"), position)

    def view(self, offset: int, size: int, what: str) -> memoryview:
        """Return bytes of the file.

        Args:
            offset: File offset in bytes.
            size: How many bytes.
            what: Their name, for the error.

        Raises:
            FormatError: They are not all in the file.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FormatError(
                self.path,
                f"{what} goes beyond the end of the file",
                offset=offset,
                expected=f"{size} bytes",
                found=max(self.size - offset, 0),
            )
        return self.data[offset : offset + size]


def is_host_elf(data: memoryview) -> bool:
    """Tell whether bytes start like a 64-bit little-endian program or library of a host that HIP runs on."""
    head = bytes(data[:_MACHINE_END])
    if len(head) < _MACHINE_END or head[:4] != ELF_MAGIC:
        return False
    if head[4] != _CLASS_64 or head[5] != _LITTLE_ENDIAN:
        return False
    kind, machine = int.from_bytes(head[16:18], "little"), int.from_bytes(head[18:20], "little")
    return kind in tuple(ElfType) and machine in tuple(Machine)


def parse_image(data: memoryview, path: Path) -> ElfImage:
    """Parse the headers of an ELF file for which `is_host_elf` is true.

    Args:
        data: All bytes of the file.
        path: The file, for messages.

    Raises:
        FormatError: A header or table is damaged or goes beyond the end of the file.
    """
    if len(data) < EHDR.size:
        raise FormatError(path, "the ELF header is cut short", expected=EHDR.size, found=len(data))
    fields = EHDR.unpack_from(data)
    header = ElfHeader(
        ident=fields[0],
        type=ElfType(fields[1]),
        machine=Machine(fields[2]),
        version=fields[3],
        entry=fields[4],
        phoff=fields[5],
        shoff=fields[6],
        flags=fields[7],
        ehsize=fields[8],
        phentsize=fields[9],
        phnum=fields[10],
        shentsize=fields[11],
        shnum=fields[12],
        shstrndx=fields[13],
    )
    _check_header(header, path)
    bare = ElfImage(path=path, data=data, header=header, segments=(), sections=())
    segments = tuple(_program_headers(bare))
    sections = _named(bare, tuple(_section_headers(bare)))
    return ElfImage(path=path, data=data, header=header, segments=segments, sections=sections)


def _check_header(header: ElfHeader, path: Path) -> None:
    if header.ident[6] != _IDENT_VERSION or header.version != _IDENT_VERSION:
        raise FormatError(path, "the ELF version is unknown", offset=6, expected=1, found=header.version)
    if header.ehsize != EHDR.size:
        raise FormatError(
            path, "the ELF header has another size", offset=0x34, expected=EHDR.size, found=header.ehsize
        )
    if header.phnum == _PN_XNUM:
        raise FormatError(path, "there are too many program headers", offset=0x38, expected="< 65535")
    if header.phnum and header.phentsize != PHDR.size:
        raise FormatError(
            path, "program headers have another size", offset=0x36, expected=PHDR.size, found=header.phentsize
        )
    if header.shoff and header.shentsize != SHDR.size:
        raise FormatError(
            path, "section headers have another size", offset=0x3A, expected=SHDR.size, found=header.shentsize
        )


def _program_headers(image: ElfImage) -> Iterator[ProgramHeader]:
    table = image.view(image.header.phoff, image.header.phnum * PHDR.size, "the program header table")
    for kind, flags, offset, vaddr, paddr, filesz, memsz, align in PHDR.iter_unpack(table):
        yield ProgramHeader(
            type=kind,
            flags=flags,
            offset=offset,
            vaddr=vaddr,
            paddr=paddr,
            filesz=filesz,
            memsz=memsz,
            align=align,
        )


def _section_headers(image: ElfImage) -> Iterator[SectionHeader]:
    count = image.header.shnum
    if not image.header.shoff:
        return
    if not count:
        # gABI, "Section Header": a count that does not fit is the size of entry 0.
        first = image.view(image.header.shoff, SHDR.size, "the section header table")
        count = SHDR.unpack(first)[5]
    table = image.view(image.header.shoff, count * SHDR.size, "the section header table")
    for index, fields in enumerate(SHDR.iter_unpack(table)):
        name, kind, flags, address, offset, size, link, info, align, entry_size = fields
        section = SectionHeader(
            index=index,
            name="",
            name_offset=name,
            type=kind,
            flags=flags,
            address=address,
            offset=offset,
            size=size,
            link=link,
            info=info,
            align=align,
            entry_size=entry_size,
        )
        image.view(offset if section.file_size else 0, section.file_size, f"section {index}")
        yield section


def _named(image: ElfImage, sections: tuple[SectionHeader, ...]) -> tuple[SectionHeader, ...]:
    """Give the sections their names."""
    index = _names_index(image.header, sections)
    if not index:
        return sections
    if index >= len(sections) or not sections[index].file_size:
        raise FormatError(image.path, "the section name table is missing", offset=0x3E, found=index)
    table = image.view(sections[index].offset, sections[index].size, "the section name table")
    named = []
    for section in sections:
        if section.name_offset >= len(table):
            raise FormatError(
                image.path,
                f"the name of section {section.index} is outside of its table",
                found=section.name_offset,
            )
        named.append(replace(section, name=_string(table, section.name_offset)))
    return tuple(named)


def _names_index(header: ElfHeader, sections: tuple[SectionHeader, ...]) -> int:
    """Return the number of the section that holds the names, 0 where there is none."""
    if not sections:
        return 0
    return sections[0].link if header.shstrndx == SHN_XINDEX else header.shstrndx


def _until_null(table: memoryview) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<QQ", table):
        if tag == DynamicTag.NULL:
            return
        yield tag, value


def _string(table: memoryview, position: int) -> str:
    """Return the string at a position; one without an end mark ends with its table."""
    for length in (64, len(table)):
        text, end, _ = bytes(table[position : position + length]).partition(b"\0")
        if end:
            break
    return text.decode("utf-8", "backslashreplace")
