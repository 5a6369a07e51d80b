"""The headers of ELF files as they stand in the file: their fields, and their bytes again.

Follows the gABI, chapters 4 and 5, for 64-bit files. Names of fields are the gABI's without the prefix, where
they are clear. Whether a header makes sense is asked elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.elf.constants import PHDR, SHDR, SectionFlag, SectionType

if TYPE_CHECKING:
    from kpack_build.elf.constants import ElfType, Machine

__all__ = ["ElfHeader", "ProgramHeader", "SectionHeader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfHeader:
    """The fields of `Elf64_Ehdr` that matter here, under their gABI names without the prefix."""

    ident: bytes
    type: ElfType
    machine: Machine
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramHeader:
    """An `Elf64_Phdr`; offsets and sizes in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int

    @property
    def end(self) -> int:
        """File offset behind its last byte in the file."""
        return self.offset + self.filesz

    @property
    def vend(self) -> int:
        """Address behind its last byte in memory."""
        return self.vaddr + self.memsz

    def pack(self) -> bytes:
        """Return the bytes of the entry."""
        return PHDR.pack(
            *(self.type, self.flags, self.offset, self.vaddr),
            *(self.paddr, self.filesz, self.memsz, self.align),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionHeader:
    """An `Elf64_Shdr` with its name; offsets and sizes in bytes."""

    index: int
    name: str
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int

    @property
    def end(self) -> int:
        """File offset behind its last byte."""
        return self.offset + self.file_size

    @property
    def file_size(self) -> int:
        """Bytes that it has in the file."""
        return 0 if self.type in (SectionType.NOBITS, SectionType.NULL) else self.size

    @property
    def is_alloc(self) -> bool:
        """Whether it is part of the process's memory."""
        return bool(self.flags & SectionFlag.ALLOC)

    def pack(self) -> bytes:
        """Return the bytes of the entry."""
        return SHDR.pack(
            *(self.name_offset, self.type, self.flags, self.address, self.offset, self.size),
            *(self.link, self.info, self.align, self.entry_size),
        )
