"""Read the dynamic relocations that give pointers their values.

A pointer in a shared library is a word that the loader fills in: by a RELA entry (its value is the addend,
or a symbol's value plus the addend), or by RELR (the word in the file is the value). In a program that is
not position independent the word itself is the pointer. Follows the gABI ("Relocation", RELR proposal of
2018) and the psABI supplements for the numbers. REL tables, which neither x86-64 nor AArch64 uses, are not
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kpack_build.elf.constants import (
    RELA,
    RELOCATIONS,
    SYM,
    Address,
    DynamicTag,
    ElfType,
    FileOffset,
)
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.elf.image import ElfImage

__all__ = ["Pointer", "PointerKind", "find_pointers", "iter_pointers_into", "iter_touched"]

_WORD = 8
_MASK = (1 << 64) - 1
_RELR_BITS = 63
_ADDEND_FIELD = 16


class PointerKind(Enum):
    """What gives a pointer its value."""

    RELATIVE = "relative relocation"
    SYMBOLIC = "symbolic relocation"
    RELR = "RELR"
    PLAIN = "plain word"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A word of the image that holds an address once it is loaded.

    Attributes:
        place: Address of the word.
        kind: What gives it its value.
        value: Address that it points to at load bias 0.
        base: Value of the symbol that the addend is added to; 0 for the other kinds.
        addend: File offset of the RELA entry's addend, None where the word itself is the value.
        word: File offset of the word.
    """

    place: Address
    kind: PointerKind
    value: int
    base: int
    addend: FileOffset | None
    word: FileOffset


@dataclass(frozen=True, slots=True)
class _Table:
    """A RELA table: its file offset and its bytes."""

    offset: int
    data: memoryview


def find_pointers(image: ElfImage, start: int, end: int) -> dict[Address, Pointer]:
    """Find the pointers whose words lie in an address range.

    Args:
        image: The file.
        start: First address of the range.
        end: Address behind it.

    Returns:
        The pointers by the addresses of their words. In a program that is not position independent each
        aligned word without a relocation counts as one.

    Raises:
        FormatError: A relocation table or a symbol lies outside of the file.
    """
    found: dict[Address, Pointer] = {}
    if image.header.type is ElfType.EXEC:
        for place in range(-(-start // _WORD) * _WORD, end - _WORD + 1, _WORD):
            _add_word(image, found, place, PointerKind.PLAIN)
    for place in _relr_places(image):
        if start <= place < end:
            _add_word(image, found, place, PointerKind.RELR)
    numbers = RELOCATIONS[image.header.machine]
    symbols = _Symbols(image)
    for table in _rela_tables(image):
        for index, (place, info, addend) in enumerate(RELA.iter_unpack(table.data)):
            if not start <= place < end:
                continue
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            word = image.offset_of(place, _WORD)
            if word is None or kind not in (numbers.relative, numbers.absolute):
                continue
            base = symbols.value(symbol) if kind == numbers.absolute else 0
            found[Address(place)] = Pointer(
                place=Address(place),
                kind=PointerKind.RELATIVE if kind == numbers.relative else PointerKind.SYMBOLIC,
                value=(base + addend) & _MASK,
                base=base,
                addend=FileOffset(table.offset + index * RELA.size + _ADDEND_FIELD),
                word=word,
            )
    return found


def _add_word(image: ElfImage, found: dict[Address, Pointer], place: int, kind: PointerKind) -> None:
    word = image.offset_of(place, _WORD)
    if word is None:
        return
    found[Address(place)] = Pointer(
        place=Address(place), kind=kind, value=_word_at(image, word), base=0, addend=None, word=word
    )


def iter_pointers_into(image: ElfImage, start: int, end: int) -> Iterator[Address]:
    """Iterate over the places whose relocations lead into an address range.

    Args:
        image: The file.
        start: First address of the range.
        end: Address behind it.

    Raises:
        FormatError: A relocation table or a symbol lies outside of the file.
    """
    for place in _relr_places(image):
        word = image.offset_of(place, _WORD)
        if word is not None and start <= _word_at(image, word) < end:
            yield Address(place)
    numbers = RELOCATIONS[image.header.machine]
    based = (numbers.relative, numbers.irelative)
    symbols = _Symbols(image)
    inside: dict[int, bool] = {0: False}
    for table in _rela_tables(image):
        for place, info, addend in RELA.iter_unpack(table.data):
            if info & 0xFFFFFFFF in based:
                if start <= addend < end:
                    yield Address(place)
                continue
            symbol = info >> 32
            if symbol not in inside:
                inside[symbol] = start <= symbols.value(symbol) < end
            if inside[symbol]:
                yield Address(place)


def iter_touched(image: ElfImage, start: int, end: int) -> Iterator[Address]:
    """Iterate over the places in an address range that some relocation changes, whatever its kind."""
    for place in _relr_places(image):
        if start <= place < end:
            yield Address(place)
    for table in _rela_tables(image):
        for place, _, _ in RELA.iter_unpack(table.data):
            if start <= place < end:
                yield Address(place)


def _word_at(image: ElfImage, offset: int) -> int:
    return int.from_bytes(image.data[offset : offset + _WORD], "little")


def _rela_tables(image: ElfImage) -> list[_Table]:
    """Return the tables of DT_RELA and DT_JMPREL."""
    tables = []
    for address_tag, size_tag in (
        (DynamicTag.RELA, DynamicTag.RELASZ),
        (DynamicTag.JMPREL, DynamicTag.PLTRELSZ),
    ):
        table = _dynamic_table(image, address_tag, size_tag)
        if table is not None:
            whole = len(table.data) // RELA.size * RELA.size
            tables.append(_Table(table.offset, table.data[:whole]))
    return tables


def _dynamic_table(image: ElfImage, address_tag: DynamicTag, size_tag: DynamicTag) -> _Table | None:
    address, size = image.dynamic_value(address_tag), image.dynamic_value(size_tag)
    if address is None or not size:
        return None
    offset = image.offset_of(address, size)
    if offset is None:
        raise FormatError(
            image.path, f"the table of DT_{address_tag.name} is not in the file", expected=f"{size} bytes"
        )
    return _Table(offset, image.data[offset : offset + size])


def _relr_places(image: ElfImage) -> Iterator[int]:
    """Decode DT_RELR: an even entry is an address, an odd one a bitmap of the 63 words that follow."""
    table = _dynamic_table(image, DynamicTag.RELR, DynamicTag.RELRSZ)
    if table is None:
        return
    position = 0
    for index in range(0, len(table.data) // _WORD * _WORD, _WORD):
        entry = int.from_bytes(table.data[index : index + _WORD], "little")
        if not entry & 1:
            yield entry
            position = entry + _WORD
            continue
        for bit in range(_RELR_BITS):
            if entry >> (bit + 1) & 1:
                yield position + bit * _WORD
        position += _RELR_BITS * _WORD


class _Symbols:
    """The dynamic symbols of a file, by their numbers."""

    def __init__(self, image: ElfImage) -> None:
        self._image = image
        self._table = image.dynamic_value(DynamicTag.SYMTAB)
        self._values: dict[int, int] = {}
        self._start, self._count = self._place()

    def _place(self) -> tuple[int, int]:
        """Return the table's file offset, and how many symbols have room between it and its segment's end."""
        offset = None if self._table is None else self._image.offset_of(self._table, SYM.size)
        if offset is None:
            return 0, 0
        end = next(load.end for load in self._image.loads if load.offset <= offset < load.end)
        return offset, (min(end, self._image.size) - offset) // SYM.size

    def value(self, index: int) -> int:
        """Return the value of a symbol; 0 for an undefined one."""
        known = self._values.get(index)
        if known is None:
            known = self._values[index] = self._read(index)
        return known

    def _read(self, index: int) -> int:
        if index >= self._count:
            raise FormatError(
                self._image.path, "a relocation names a symbol that is not in the file", found=index
            )
        value: int = SYM.unpack_from(self._image.data, self._start + index * SYM.size)[4]
        return value
