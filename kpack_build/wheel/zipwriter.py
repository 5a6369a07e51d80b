"""Write a zip file: members copied raw from another one, and new ones.

Follows PKWARE's APPNOTE. All headers are made afresh from what is known of a member, so that nothing stale
comes along from where it was copied; sizes and offsets above `ZIP64_LIMIT` are in ZIP64 fields, in the local
header and in the central directory alike, and no data descriptors are used. The same members give the same
bytes (new deflated ones: with the same zlib). It does not know what a wheel is.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kpack_build.errors import KpackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

__all__ = ["COUNT_LIMIT", "DEFLATED", "STORED", "ZIP64_LIMIT", "Packed", "ZipEntry", "ZipWriter", "pack_data"]

STORED: Final = 0
DEFLATED: Final = 8

ZIP64_LIMIT = (1 << 31) - 1
"""Largest size and offset, in bytes, in plain fields. It is half of what fits: some take them as signed."""
COUNT_LIMIT = (1 << 16) - 1
"""Largest number of members in plain fields."""

_LEVEL = 6
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s2B5H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_VERSION = 20
_VERSION64 = 45
_UTF8 = 0x800
_FULL = 0xFFFFFFFF
_FULL_COUNT = 0xFFFF
_EXTRA64 = 1
_EARLIEST_YEAR = 1980


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """What a member's headers say besides sizes.

    Attributes:
        name: Its name; a folder's ends with a slash.
        date_time: Year, month, day, hour, minute, second.
        method: `STORED` or `DEFLATED`.
        external_attr: File attributes; the Unix mode is in the upper 16 bits.
        create_system: The system whose attributes these are (3 is Unix).
    """

    name: str
    date_time: tuple[int, int, int, int, int, int]
    method: int
    external_attr: int
    create_system: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A member's data as it is stored: CRC-32 of what it was, sizes in bytes before and after."""

    crc: int
    size: int
    stored_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    entry: ZipEntry
    packed: Packed
    offset: int


class ZipWriter:
    """Write a zip file from the current position of a stream on, which has to be seekable.

    Offsets are counted from the stream's beginning.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._written: list[_Written] = []

    def copy(self, entry: ZipEntry, packed: Packed, chunks: Iterable[bytes]) -> None:
        """Add a member whose data is in its stored form already.

        Args:
            entry: Its headers; the method is that of the data.
            packed: Its checksum and sizes.
            chunks: The data.
        """
        offset = self._stream.tell()
        wide = max(packed.size, packed.stored_size) > ZIP64_LIMIT
        self._stream.write(_local_header(entry, packed, wide=wide))
        self._stream.writelines(chunks)
        self._written.append(_Written(entry=entry, packed=packed, offset=offset))

    def add(self, entry: ZipEntry, size: int, chunks: Iterable[bytes]) -> None:
        """Add a member, and deflate it where its method says so.

        Args:
            entry: Its headers.
            size: Number of bytes that are to come.
            chunks: The bytes.

        Raises:
            KpackError: More or fewer bytes came.
        """
        offset = self._stream.tell()
        # Data that cannot be deflated grows, by far less than this.
        wide = size + (size >> 8) + 1024 > ZIP64_LIMIT
        unknown = Packed(crc=0, size=0, stored_size=0)
        self._stream.write(_local_header(entry, unknown, wide=wide))
        packed = pack_data(entry, size, chunks, self._stream)
        end = self._stream.tell()
        self._stream.seek(offset)
        self._stream.write(_local_header(entry, packed, wide=wide))
        self._stream.seek(end)
        self._written.append(_Written(entry=entry, packed=packed, offset=offset))

    def close(self) -> None:
        """Write the central directory; nothing can be added after it."""
        start = self._stream.tell()
        for written in self._written:
            self._stream.write(_central_header(written))
        self._stream.write(_end_records(len(self._written), start, self._stream.tell()))


def pack_data(entry: ZipEntry, size: int, chunks: Iterable[bytes], stream: BinaryIO) -> Packed:
    """Write a member's data in the form that it is stored in, without headers.

    Args:
        entry: The member; only its name and method count.
        size: Number of bytes that are to come.
        chunks: The bytes.
        stream: Where the data goes.

    Raises:
        KpackError: More or fewer bytes came.
    """
    crc = came = stored_size = 0

    def watched() -> Iterator[bytes]:
        nonlocal crc, came
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
            came += len(chunk)
            yield chunk

    for data in _deflate(watched()) if entry.method == DEFLATED else watched():
        stored_size += stream.write(data)
    if came != size:
        raise KpackError(
            f"{entry.name}: {came} bytes came where {size} were announced"
            " (it was changed while it was read: try again)"
        )
    return Packed(crc=crc, size=size, stored_size=stored_size)


def _deflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    for chunk in chunks:
        yield deflater.compress(chunk)
    yield deflater.flush()


def _local_header(entry: ZipEntry, packed: Packed, *, wide: bool) -> bytes:
    name, flags = _name(entry)
    sizes = (packed.stored_size, packed.size)
    extra = b""
    if wide:
        # The local header's ZIP64 field has to hold both sizes (APPNOTE 4.5.3), the uncompressed one first.
        extra = struct.pack("<2H2Q", _EXTRA64, 16, packed.size, packed.stored_size)
        sizes = (_FULL, _FULL)
    header = _LOCAL.pack(
        b"PK\x03\x04",
        _VERSION64 if wide else _VERSION,
        flags,
        entry.method,
        *_dos_time(entry),
        packed.crc,
        *sizes,
        len(name),
        len(extra),
    )
    return header + name + extra


def _central_header(written: _Written) -> bytes:
    """Make a central header; only fields that are too large for their plain place are in its ZIP64 field."""
    entry, packed = written.entry, written.packed
    name, flags = _name(entry)
    # As in the local header, both sizes are wide where one is: strict readers compare the two headers.
    wide_sizes = max(packed.size, packed.stored_size) > ZIP64_LIMIT
    wide_offset = written.offset > ZIP64_LIMIT
    values = [packed.size, packed.stored_size] * wide_sizes + [written.offset] * wide_offset
    extra = struct.pack(f"<2H{len(values)}Q", _EXTRA64, 8 * len(values), *values) if values else b""
    header = _CENTRAL.pack(
        b"PK\x01\x02",
        _VERSION64 if values else _VERSION,
        entry.create_system,
        _VERSION64 if values else _VERSION,
        flags,
        entry.method,
        *_dos_time(entry),
        packed.crc,
        _FULL if wide_sizes else packed.stored_size,
        _FULL if wide_sizes else packed.size,
        len(name),
        len(extra),
        0,
        0,
        0,
        entry.external_attr,
        _FULL if wide_offset else written.offset,
    )
    return header + name + extra


def _end_records(count: int, start: int, end: int) -> bytes:
    size = end - start
    records = b""
    if count > COUNT_LIMIT or max(size, start) > ZIP64_LIMIT:
        records += _END64.pack(
            b"PK\x06\x06", _END64.size - 12, _VERSION64, _VERSION64, 0, 0, count, count, size, start
        )
        records += _LOCATOR64.pack(b"PK\x06\x07", 0, end, 1)
        count = min(count, _FULL_COUNT)
        size, start = (_FULL if value > ZIP64_LIMIT else value for value in (size, start))
    return records + _END.pack(b"PK\x05\x06", 0, 0, count, count, size, start, 0)


def _name(entry: ZipEntry) -> tuple[bytes, int]:
    if entry.name.isascii():
        return entry.name.encode("ascii"), 0
    return entry.name.encode("utf-8"), _UTF8


def _dos_time(entry: ZipEntry) -> tuple[int, int]:
    year, month, day, hour, minute, second = entry.date_time
    return hour << 11 | minute << 5 | second // 2, (year - _EARLIEST_YEAR) << 9 | month << 5 | day
