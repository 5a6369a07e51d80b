"""Numbers of the ELF format that this package reads or writes.

Follows the gABI (chapters 4 and 5), the psABI supplements of x86-64 and AArch64, and for RELR the generic ABI
proposal of 2018. Only 64-bit little-endian files are described: no other kind carries HIP code.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, NewType

__all__ = [
    "EHDR",
    "ELF_MAGIC",
    "MACHINE_NAMES",
    "PHDR",
    "RELA",
    "RELOCATIONS",
    "SHDR",
    "SHN_XINDEX",
    "SYM",
    "Address",
    "DynamicTag",
    "ElfType",
    "FileOffset",
    "Machine",
    "RelocationNumbers",
    "SectionFlag",
    "SectionType",
    "SegmentFlag",
    "SegmentType",
]

FileOffset = NewType("FileOffset", int)
"""A position in the file, in bytes."""
Address = NewType("Address", int)
"""A virtual address at load bias 0."""

ELF_MAGIC: Final = b"\x7fELF"

EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR: Final = struct.Struct("<IIQQQQQQ")
SHDR: Final = struct.Struct("<IIQQQQIIQQ")
RELA: Final = struct.Struct("<QQq")
SYM: Final = struct.Struct("<IBBHQQ")

SHN_XINDEX: Final = 0xFFFF


class ElfType(IntEnum):
    """`e_type`: the kinds of file that a loader maps."""

    EXEC = 2
    DYN = 3


class Machine(IntEnum):
    """`e_machine`: the hosts that HIP runs on."""

    X86_64 = 62
    AARCH64 = 183


MACHINE_NAMES: Final = {Machine.X86_64: "x86_64", Machine.AARCH64: "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationNumbers:
    """The dynamic relocations of a machine that can hold a pointer: base + addend, and symbol + addend."""

    relative: int
    irelative: int
    absolute: int


RELOCATIONS: Final = {
    Machine.X86_64: RelocationNumbers(relative=8, irelative=37, absolute=1),
    Machine.AARCH64: RelocationNumbers(relative=1027, irelative=1032, absolute=257),
}


class SegmentType(IntEnum):
    """`p_type`."""

    NULL = 0
    LOAD = 1
    DYNAMIC = 2
    INTERP = 3
    NOTE = 4
    PHDR = 6
    TLS = 7
    GNU_EH_FRAME = 0x6474E550
    GNU_STACK = 0x6474E551
    GNU_RELRO = 0x6474E552
    GNU_PROPERTY = 0x6474E553


class SegmentFlag(IntFlag):
    """`p_flags`."""

    EXECUTE = 1
    WRITE = 2
    READ = 4


class SectionType(IntEnum):
    """`sh_type`."""

    NULL = 0
    PROGBITS = 1
    STRTAB = 3
    NOBITS = 8


class SectionFlag(IntFlag):
    """`sh_flags`."""

    WRITE = 1
    ALLOC = 2


class DynamicTag(IntEnum):
    """`d_tag`."""

    NULL = 0
    NEEDED = 1
    PLTRELSZ = 2
    PLTGOT = 3
    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    RELA = 7
    RELASZ = 8
    RELAENT = 9
    STRSZ = 10
    SYMENT = 11
    INIT = 12
    FINI = 13
    SONAME = 14
    PLTREL = 20
    JMPREL = 23
    INIT_ARRAY = 25
    FINI_ARRAY = 26
    RELRSZ = 35
    RELR = 36
    RELRENT = 37
    GNU_HASH = 0x6FFFFEF5
    VERSYM = 0x6FFFFFF0
    FLAGS_1 = 0x6FFFFFFB
    VERDEF = 0x6FFFFFFC
    VERNEED = 0x6FFFFFFE
