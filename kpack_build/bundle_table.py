"""The entry table of an offload bundle: ids, places, and what each entry is for.

Follows LLVM's "Clang Offload Bundler" guide (Binary Bundled File Layout, Bundle Entry ID). Where the table
comes from, a file or a decoder, is `kpack_build.bundle`'s business.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kpack_build.errors import FormatError, TargetError
from kpack_build.targets import TargetId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "PLAIN_MAGIC",
    "BundleEntry",
    "EntryKind",
    "EntryTable",
    "Prefix",
    "encode_table",
    "entry_target",
    "plain_header",
]

PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
#: No compiler comes near these; they keep a damaged header from being taken at its word.
_MOST_ENTRIES = 4096
_LONGEST_ID = 1024

_CODE_OBJECT_ID = re.compile(r"hip(?:v4)?-amdgcn-amd-amdhsa-(?:-|unknown-)?(gfx.*)", re.ASCII)


class EntryKind(Enum):
    """What an entry of a bundle is for."""

    #: The place of the host's code, which is always empty in a fat binary.
    HOST = "host"
    #: Code for an AMD GPU.
    CODE_OBJECT = "code object"
    #: What cannot go into an archive: SPIR-V, other triples, host entries that are not empty, empty GPU
    #: entries, a second code object for a target.
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleEntry:
    """One entry of a bundle.

    Attributes:
        id: The entry's id, as it stands in the header.
        kind: What it is for.
        target: What the code object is for, of code objects only.
        offset: Where it is in the decoded bundle, in bytes.
        size: Its size, in bytes.
    """

    id: str
    kind: EntryKind
    target: TargetId | None
    offset: int
    size: int


def plain_header(entries: Sequence[BundleEntry]) -> bytes:
    """Return the header of a plain bundle with these entries: of a parsed bundle, its own bytes."""
    return encode_table([(entry.offset, entry.size, entry.id) for entry in entries])


def entry_target(entry_id: str) -> TargetId | None:
    """Return the target in an entry's id, or None if the id is not that of a HIP code object."""
    match = _CODE_OBJECT_ID.fullmatch(entry_id)
    if match is None:
        return None
    try:
        return TargetId.parse(match[1])
    except TargetError:
        return None


def encode_table(entries: Sequence[tuple[int, int, str]]) -> bytes:
    """Return the header of a plain bundle; each entry is (offset, size, id), in bytes from its beginning."""
    parts = [PLAIN_MAGIC, _COUNT.pack(len(entries))]
    for offset, size, name in entries:
        encoded = name.encode()
        parts += [_ENTRY.pack(offset, size, len(encoded)), encoded]
    return b"".join(parts)


class Prefix:
    """The first bytes of a plain bundle, as many as were asked for."""

    def __init__(self, data: bytes | memoryview, more: Iterator[bytes]) -> None:
        self._data = data
        self._more = more

    def read(self, start: int, size: int) -> bytes:
        while start + size > len(self._data) and (chunk := next(self._more, b"")):
            self._data = bytes(self._data) + chunk
        return bytes(self._data[start : start + size])


class EntryTable:
    """Parses the header of a plain bundle; `position` is in the end the header's size."""

    def __init__(self, prefix: Prefix, *, size: int, path: Path, offset: int) -> None:
        self._prefix = prefix
        self._size = size
        self._path = path
        self._offset = offset
        self.position = 0

    def parse(self) -> tuple[BundleEntry, ...]:
        magic = self._take(len(PLAIN_MAGIC))
        if magic != PLAIN_MAGIC:
            raise self._error("there is no offload bundle", expected=PLAIN_MAGIC, found=magic)
        (count,) = _COUNT.unpack(self._take(_COUNT.size))
        if count > _MOST_ENTRIES:
            raise self._error("too many entries", expected=f"at most {_MOST_ENTRIES}", found=count)
        rows = [self._take_row() for _ in range(count)]
        if len({name for *_, name in rows}) < len(rows):
            raise self._error("two entries have the same id")
        return tuple(self._entries(rows))

    def _take(self, size: int) -> bytes:
        data = self._prefix.read(self.position, size)
        if len(data) < size:
            raise self._error(
                "the entry table was cut short", expected=self.position + size, found=self._size
            )
        self.position += size
        return data

    def _take_row(self) -> tuple[int, int, str]:
        offset, size, length = _ENTRY.unpack(self._take(_ENTRY.size))
        if length > _LONGEST_ID:
            raise self._error("an entry's id is too long", expected=f"at most {_LONGEST_ID}", found=length)
        name = self._take(length)
        try:
            return offset, size, name.decode()
        except UnicodeDecodeError as error:
            raise self._error("an entry's id is no text", found=name) from error

    def _entries(self, rows: list[tuple[int, int, str]]) -> Iterator[BundleEntry]:
        seen: set[TargetId] = set()
        for offset, size, name in rows:
            if size and not self.position <= offset <= self._size - size:
                raise self._error(
                    f"the entry {name} lies outside of the bundle",
                    expected=f"between {self.position} and {self._size}",
                    found=f"{offset} to {offset + size}",
                )
            kind, target = _classify(name, size, seen)
            yield BundleEntry(id=name, kind=kind, target=target, offset=offset, size=size)

    def _error(self, problem: str, *, expected: object = None, found: object = None) -> FormatError:
        return FormatError(
            self._path, f"offload bundle: {problem}", offset=self._offset, expected=expected, found=found
        )


def _classify(name: str, size: int, seen: set[TargetId]) -> tuple[EntryKind, TargetId | None]:
    """Return the kind of an entry; `seen` collects the targets of the bundle."""
    if name.startswith("host-") and size == 0:
        return EntryKind.HOST, None
    target = entry_target(name)
    if target is None or target in seen or size == 0:
        return EntryKind.OTHER, None
    seen.add(target)
    return EntryKind.CODE_OBJECT, target
