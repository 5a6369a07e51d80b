"""The compressed encoding of offload bundles ("CCOB"): its header, decoding, encoding.

Follows LLVM's `CompressedOffloadBundle` (clang/lib/Driver/OffloadBundler.cpp), versions 1 to 3, with zlib and
zstd. The payload is one zlib stream or one zstd frame; the hash is the first half of the plain bundle's MD5,
read as a little-endian number. What is in the plain bundle is `kpack_build.bundle`'s business.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import tempfile
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import zstandard

from kpack_build.errors import FormatError, KpackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Buffer = bytes | bytearray | memoryview

__all__ = [
    "CCOB_MAGIC",
    "MEMORY_LIMIT",
    "CcobHeader",
    "CcobMethod",
    "CcobPayload",
    "parse_ccob_header",
    "plain_digest",
    "write_ccob",
]

CCOB_MAGIC = b"CCOB"

_PREFIX = struct.Struct("<4sHH")
#: What follows the prefix, by version: [total size,] decoded size, hash.
_FIELDS = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}

#: Decoded bundles above this many bytes are kept in an unlinked file, not in memory.
MEMORY_LIMIT = 256 << 20
_CHUNK = 1 << 20
#: Window that any zstd decoder accepts; larger ones only as far as the decoded size asks for them.
_USUAL_WINDOW = 1 << 27
_LARGEST_WINDOW = 1 << 31
_ZSTD_BLOCK = 128 << 10
_ZSTD_BLOCK_HEADER = 3
_ZSTD_RLE, _ZSTD_RESERVED = 1, 3
_ZSTD_CHECKSUM = 4
#: Deflate codes at most 258 bytes in two bits.
_ZLIB_RATIO = 1032


class CcobMethod(IntEnum):
    """How the payload is compressed."""

    ZLIB = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CcobHeader:
    """The header of a compressed bundle.

    Attributes:
        version: 1 to 3.
        method: How the payload is compressed.
        size: Size of the header, in bytes.
        total_size: Size of header and payload, in bytes; None in version 1, which does not tell.
        decoded_size: Size of the plain bundle, in bytes.
        digest: First eight bytes of the plain bundle's MD5, as a little-endian number.
    """

    version: int
    method: CcobMethod
    size: int
    total_size: int | None
    decoded_size: int
    digest: int


def parse_ccob_header(data: memoryview, *, path: Path, offset: int) -> CcobHeader:
    """Parse the header of a compressed bundle and hold its claims against the bytes that are there.

    Args:
        data: The compressed bundle; bytes after its end may follow.
        path: The file that holds it, for error messages.
        offset: Where in that file it begins, in bytes.

    Raises:
        FormatError: Not a header of version 1 to 3, cut short, or claiming sizes that cannot be.
    """
    if len(data) < _PREFIX.size:
        raise _cut_short(path, offset, _PREFIX.size, len(data))
    magic, version, method = _PREFIX.unpack_from(data)
    fields = _FIELDS.get(version)
    if magic != CCOB_MAGIC or fields is None or method not in list(CcobMethod):
        raise FormatError(
            path,
            "unknown kind of compressed offload bundle",
            offset=offset,
            expected="CCOB version 1, 2 or 3 with method 0 (zlib) or 1 (zstd)",
            found=f"{bytes(magic)!r} version {version} with method {method}",
        )
    size = _PREFIX.size + fields.size
    if len(data) < size:
        raise _cut_short(path, offset, size, len(data))
    *total, decoded_size, digest = fields.unpack_from(data, _PREFIX.size)
    if total and not size <= total[0] <= len(data):
        raise _cut_short(path, offset, f"between {size} and {len(data)}", total[0])
    header = CcobHeader(
        version=version,
        method=CcobMethod(method),
        size=size,
        total_size=total[0] if total else None,
        decoded_size=decoded_size,
        digest=digest,
    )
    _check_ratio(header, len(data) if header.total_size is None else header.total_size, path, offset)
    return header


def _cut_short(path: Path, offset: int, expected: object, found: object) -> FormatError:
    return FormatError(
        path, "the compressed offload bundle was cut short", offset=offset, expected=expected, found=found
    )


def _check_ratio(header: CcobHeader, stored: int, path: Path, offset: int) -> None:
    """Refuse a decoded size that no payload of this length can have, before anything is allocated for it."""
    payload = stored - header.size
    if header.method is CcobMethod.ZLIB:
        largest = payload * _ZLIB_RATIO
    else:
        largest = payload // _ZSTD_BLOCK_HEADER * _ZSTD_BLOCK
    if header.decoded_size > largest:
        raise FormatError(
            path,
            "the compressed offload bundle claims more than its payload can hold",
            offset=offset,
            expected=f"at most {largest} bytes",
            found=header.decoded_size,
        )


class CcobPayload:
    """The payload of a compressed bundle: its end, its first bytes, all of it.

    Safe to use from many threads: each call decodes with a decoder of its own.
    """

    def __init__(self, data: memoryview, header: CcobHeader, *, path: Path, offset: int) -> None:
        """Find the payload.

        Args:
            data: The compressed bundle; bytes after its end may follow.
            header: Its header.
            path: The file that holds it, for error messages.
            offset: Where in that file it begins, in bytes.

        Raises:
            FormatError: The header is of version 1 and the payload has no end.
        """
        self.header = header
        self._path = path
        self._offset = offset
        self._data = data[header.size : header.total_size]
        if header.total_size is None:
            self._data = self._data[: self._payload_size()]

    @property
    def stored(self) -> memoryview:
        """The payload as it is stored."""
        return self._data

    def iter_decoded(self, size: int) -> Iterator[bytes]:
        """Decode lazily, in pieces of at most `size` bytes.

        Raises:
            FormatError: The payload is damaged.
        """
        if self.header.method is CcobMethod.ZSTD:
            return self._iter_zstd(size)
        return (chunk for chunk, _ in self._inflate(size) if chunk)

    def decode(self) -> memoryview:
        """Decode all of it and check size and hash.

        Returns:
            The plain bundle, in memory, or as a map of an unlinked file where it is large.

        Raises:
            FormatError: The payload is damaged.
        """
        found = self._payload_size()
        if found != len(self._data):
            raise self._error("the compressed data ends too early", expected=len(self._data), found=found)
        decoded = (
            self._decode_to_memory() if self.header.decoded_size <= MEMORY_LIMIT else self._decode_to_file()
        )
        if len(decoded) != self.header.decoded_size:
            raise self._error("wrong decoded size", expected=self.header.decoded_size, found=len(decoded))
        digest = plain_digest(decoded)
        if digest != self.header.digest:
            raise self._error("wrong hash", expected=f"{self.header.digest:#018x}", found=f"{digest:#018x}")
        return decoded

    def _decode_to_memory(self) -> memoryview:
        size = self.header.decoded_size
        try:
            if self.header.method is CcobMethod.ZLIB:
                return memoryview(zlib.decompressobj().decompress(self._data, size + 1))
            return memoryview(zstandard.ZstdDecompressor().decompress(self._data, max_output_size=size))
        except (zlib.error, zstandard.ZstdError) as error:
            raise self._error("the compressed data is damaged", found=error) from error

    def _decode_to_file(self) -> memoryview:
        left = self.header.decoded_size
        with tempfile.TemporaryFile(prefix="kpack-build-") as file:
            for chunk in self.iter_decoded(_CHUNK):
                left -= len(chunk)
                if left < 0:
                    break
                file.write(chunk)
            file.flush()
            if left:
                size = self.header.decoded_size
                raise self._error("wrong decoded size", expected=size, found=size - left)
            return memoryview(mmap.mmap(file.fileno(), self.header.decoded_size, access=mmap.ACCESS_READ))

    def _iter_zstd(self, size: int) -> Iterator[bytes]:
        self._check_frame()
        window = min(max(_USUAL_WINDOW, self.header.decoded_size), _LARGEST_WINDOW)
        decompressor = zstandard.ZstdDecompressor(max_window_size=window)
        try:
            with decompressor.stream_reader(self._data, closefd=False) as reader:
                while chunk := reader.read(size):
                    yield chunk
        except zstandard.ZstdError as error:
            raise self._error("the compressed data is damaged", found=error) from error

    def _inflate(self, size: int) -> Iterator[tuple[bytes, int]]:
        """Decode lazily: pieces, each with how many bytes of the payload were used so far."""
        decompressor = zlib.decompressobj()
        position = 0
        try:
            while not decompressor.eof:
                rest: bytes | memoryview = decompressor.unconsumed_tail
                if not rest:
                    rest = self._data[position : position + _CHUNK]
                    position += len(rest)
                chunk = decompressor.decompress(rest, size)
                if not chunk and not rest:
                    raise self._error("the compressed data was cut short", found=position)
                yield chunk, position - len(decompressor.unused_data)
        except zlib.error as error:
            raise self._error("the compressed data is damaged", found=error) from error

    def _payload_size(self) -> int:
        """Return where the compressed data ends by itself, in bytes from its beginning."""
        if self.header.method is CcobMethod.ZSTD:
            return self._zstd_size()
        # Nothing but the end of the stream tells its size.
        return max(used for _, used in self._inflate(_CHUNK))

    def _check_frame(self) -> zstandard.FrameParameters:
        try:
            frame = zstandard.get_frame_parameters(self._data)
        except zstandard.ZstdError as error:
            raise self._error("the compressed data is no zstd frame", found=error) from error
        claimed = frame.content_size
        if claimed not in (zstandard.CONTENTSIZE_UNKNOWN, self.header.decoded_size):
            raise self._error(
                "the zstd frame has another size", expected=self.header.decoded_size, found=claimed
            )
        return frame

    def _zstd_size(self) -> int:
        """Walk over the headers of the frame's blocks (RFC 8878, section 3.1.1.2)."""
        frame = self._check_frame()
        position = zstandard.frame_header_size(self._data)
        last = False
        while not last:
            header = int.from_bytes(self._data[position : position + _ZSTD_BLOCK_HEADER], "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            if position + _ZSTD_BLOCK_HEADER > len(self._data) or kind == _ZSTD_RESERVED:
                raise self._error("the zstd frame is damaged or was cut short", found=position)
            position += _ZSTD_BLOCK_HEADER + (1 if kind == _ZSTD_RLE else size)
        position += _ZSTD_CHECKSUM if frame.has_checksum else 0
        if position > len(self._data):
            raise self._error("the zstd frame was cut short", expected=position, found=len(self._data))
        return position

    def _error(self, problem: str, *, expected: object = None, found: object = None) -> FormatError:
        return FormatError(
            self._path,
            f"compressed offload bundle: {problem}",
            offset=self._offset,
            expected=expected,
            found=found,
        )


def plain_digest(plain: Buffer) -> int:
    """Return the hash that a compressed bundle carries of its plain one."""
    return int.from_bytes(hashlib.md5(plain, usedforsecurity=False).digest()[:8], "little")


def write_ccob(plain: Buffer, *, version: int, method: CcobMethod, level: int) -> bytes:
    """Compress a plain bundle, as LLVM does: with one call, and zstd with long distance matching.

    Args:
        plain: The plain bundle.
        version: 1 to 3.
        method: How to compress.
        level: 1 to 9 for zlib, 1 to 22 for zstd.

    Raises:
        KpackError: The bundle is larger than the version can tell.
    """
    payload = _compress(plain, method, level)
    size, digest = memoryview(plain).nbytes, plain_digest(plain)
    fields = _FIELDS[version]
    total = _PREFIX.size + fields.size + len(payload)
    values = (size, digest) if version == 1 else (total, size, digest)
    try:
        header = _PREFIX.pack(CCOB_MAGIC, version, method) + fields.pack(*values)
    except struct.error as error:
        raise KpackError(
            f"a bundle of {size} bytes is too large for CCOB version {version} (use version 3)"
        ) from error
    return header + payload


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=level, enable_ldm=True, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def _compress(plain: Buffer, method: CcobMethod, level: int) -> bytes:
    if method is CcobMethod.ZLIB:
        return zlib.compress(plain, level)
    return _zstd_compressor(level).compress(plain)
