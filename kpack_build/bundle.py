"""Clang offload bundles: which code objects a fat binary offers, and where they are.

Follows LLVM's "Clang Offload Bundler" guide (Binary Bundled File Layout, Bundle Entry ID). Reads headers
only, until an entry is asked for; the compressed encoding is `kpack_build.ccob`'s. Finding bundles in an ELF
file is `kpack_build.elf`'s business, what a code object says of itself `kpack_build.codeobject`'s.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kpack_build.bundle_table import (
    PLAIN_MAGIC,
    BundleEntry,
    EntryKind,
    EntryTable,
    Prefix,
    encode_table,
    entry_target,
    plain_header,
)
from kpack_build.ccob import (
    CCOB_MAGIC,
    CcobHeader,
    CcobMethod,
    CcobPayload,
    parse_ccob_header,
    write_ccob,
)
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "BUNDLE_ALIGNMENT",
    "PLAIN_MAGIC",
    "Bundle",
    "BundleEncoding",
    "BundleEntry",
    "CcobHeader",
    "CcobMethod",
    "DecodedBundle",
    "EntryKind",
    "entry_target",
    "iter_bundles",
    "parse_bundle",
    "plain_header",
    "write_bundle",
    "write_ccob",
]

#: Compilers place bundles in a file, and entries in a bundle, at multiples of this many bytes.
BUNDLE_ALIGNMENT = 4096

_OFFLOAD_BINARY_MAGIC = b"\x10\xff\x10\xad"
_PREFIX_CHUNK = 16 << 10

_NOT_ZERO = re.compile(rb"[^\0]")
_LAST_NOT_ZERO = re.compile(rb"[^\0]\0*\Z")


class BundleEncoding(Enum):
    """How a bundle is stored."""

    PLAIN = "plain"
    CCOB = "ccob"


@dataclass(frozen=True, slots=True)
class DecodedBundle:
    """A bundle whose entries can be had, as views that live as long as the bundle is open.

    Attributes:
        data: All of the decoded bundle.
        entries: Its entries.
        header_size: Size of the header, in bytes.
    """

    data: memoryview
    entries: tuple[BundleEntry, ...]
    header_size: int

    def entry(self, entry: BundleEntry) -> memoryview:
        """Return the bytes of an entry, without a copy."""
        return self.data[entry.offset : entry.offset + entry.size]

    def unaccounted(self) -> list[tuple[int, int]]:
        """Return (offset, length) of what is not zero and belongs neither to the header nor to an entry.

        At most one for each gap, from its first to its last byte that is not zero. Offsets are those of the
        decoded bundle, in bytes. Must be empty for a bundle that is taken apart, or something would be lost.
        """
        found = []
        end = self.header_size
        parts = sorted((entry.offset, entry.offset + entry.size) for entry in self.entries if entry.size)
        for start, stop in (*parts, (len(self.data), len(self.data))):
            gap = self.data[end:start] if end < start else self.data[:0]
            first = _NOT_ZERO.search(gap)
            if first is not None:
                last = _LAST_NOT_ZERO.search(gap, first.start())
                length = (last.start() if last is not None else first.start()) + 1 - first.start()
                found.append((end + first.start(), length))
            end = max(end, stop)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle in a file. Only its headers have been read; safe to use from many threads.

    Attributes:
        path: The file that holds it.
        offset: Where in the buffer it begins, in bytes.
        stored_size: How many bytes of the buffer it takes.
        encoding: How it is stored.
        ccob: Its header, if it is compressed.
        entries: Its entries, in their order.
        header_size: Size of the plain bundle's header, in bytes.
        decoded_size: Size of the plain bundle, in bytes.
        stored: Its bytes as they are stored.
    """

    path: Path
    offset: int
    stored_size: int
    encoding: BundleEncoding
    ccob: CcobHeader | None
    entries: tuple[BundleEntry, ...]
    header_size: int
    decoded_size: int
    stored: memoryview = field(repr=False, compare=False)

    @contextmanager
    def open_decoded(self) -> Iterator[DecodedBundle]:
        """Decode the bundle, if it is compressed, and give access to its entries.

        A plain bundle is used where it is. A compressed one is decoded once, in memory or (over 256 MB) in an
        unlinked file, and its hash is checked.

        Raises:
            FormatError: The compressed data is damaged, or not what the bundle's header says.
        """
        if self.ccob is None:
            yield DecodedBundle(self.stored, self.entries, self.header_size)
            return
        payload = CcobPayload(self.stored, self.ccob, path=self.path, offset=self.offset)
        yield DecodedBundle(payload.decode(), self.entries, self.header_size)


def parse_bundle(buffer: memoryview, offset: int, *, limit: int, path: Path) -> Bundle:
    """Parse the headers of the bundle that begins at `offset`.

    Of a compressed bundle, as much is decoded as its entry table needs (and, of version 1 with zlib, all of
    it: nothing else tells where it ends).

    Args:
        buffer: The file that holds it.
        offset: Where in the buffer it begins, in bytes.
        limit: Where in the buffer it has to end at the latest, in bytes.
        path: The file's path, for error messages.

    Raises:
        FormatError: No bundle, one of an unsupported kind, or a damaged one.
    """
    data = buffer[offset:limit] if 0 <= offset <= limit else buffer[:0]
    if data[: len(CCOB_MAGIC)] == CCOB_MAGIC:
        return _parse_ccob(data, path, offset)
    if data[: len(PLAIN_MAGIC)] == PLAIN_MAGIC:
        return _parse_plain(data, path, offset)
    if data[: len(_OFFLOAD_BINARY_MAGIC)] == _OFFLOAD_BINARY_MAGIC:
        raise FormatError(
            path,
            "device code in LLVM's offload binary format is not supported",
            offset=offset,
            expected="an offload bundle",
            remedy="build with --no-offload-new-driver",
        )
    raise FormatError(
        path,
        "there is no offload bundle",
        offset=offset,
        expected=f"{PLAIN_MAGIC.decode()} or {CCOB_MAGIC.decode()}",
        found=bytes(data[: len(PLAIN_MAGIC)]),
    )


def iter_bundles(buffer: memoryview, start: int, end: int, path: Path) -> Iterator[Bundle]:
    """Iterate over bundles that stand one after another with nothing but zeros between them.

    Args:
        buffer: The file that holds them.
        start: Where in the buffer to begin, in bytes.
        end: Where in the buffer to stop, in bytes.
        path: The file's path, for error messages.

    Raises:
        FormatError: Something else than a bundle, or a damaged one.
    """
    position = start
    while (found := _NOT_ZERO.search(buffer, position, end)) is not None:
        bundle = parse_bundle(buffer, found.start(), limit=end, path=path)
        yield bundle
        position = bundle.offset + bundle.stored_size


def write_bundle(entries: Sequence[tuple[str, bytes | memoryview]]) -> bytes:
    """Write a plain bundle as clang does, each entry at a multiple of 4096.

    Args:
        entries: Id and bytes of each entry, in their order.
    """
    position = len(encode_table([(0, 0, name) for name, _ in entries]))
    places = []
    for name, data in entries:
        position = -(-position // BUNDLE_ALIGNMENT) * BUNDLE_ALIGNMENT
        places.append((position, len(data), name))
        position += len(data)
    bundle = bytearray(position)
    header = encode_table(places)
    bundle[: len(header)] = header
    for (offset, size, _), (_, data) in zip(places, entries, strict=True):
        bundle[offset : offset + size] = data
    return bytes(bundle)


def _parse_plain(data: memoryview, path: Path, offset: int) -> Bundle:
    table = EntryTable(Prefix(data, iter(())), size=len(data), path=path, offset=offset)
    entries = table.parse()
    size = max([table.position, *(entry.offset + entry.size for entry in entries if entry.size)])
    return Bundle(
        path=path,
        offset=offset,
        stored_size=size,
        encoding=BundleEncoding.PLAIN,
        ccob=None,
        entries=entries,
        header_size=table.position,
        decoded_size=size,
        stored=data[:size],
    )


def _parse_ccob(data: memoryview, path: Path, offset: int) -> Bundle:
    header = parse_ccob_header(data, path=path, offset=offset)
    payload = CcobPayload(data, header, path=path, offset=offset)
    prefix = Prefix(b"", payload.iter_decoded(_PREFIX_CHUNK))
    table = EntryTable(prefix, size=header.decoded_size, path=path, offset=offset)
    entries = table.parse()
    size = header.size + len(payload.stored)
    return Bundle(
        path=path,
        offset=offset,
        stored_size=size,
        encoding=BundleEncoding.CCOB,
        ccob=header,
        entries=entries,
        header_size=table.position,
        decoded_size=header.decoded_size,
        stored=data[:size],
    )
