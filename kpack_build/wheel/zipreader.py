"""Read the members of a zip file strictly, raw or unpacked, from any thread.

Follows PKWARE's APPNOTE. The central directory is parsed by `zipfile`; the rest is checked here, because
installers refuse what `zipfile` lets pass: local headers that contradict the directory, members that overlap,
data that is longer or shorter than announced, wrong checksums, encryption, links. Only stored and deflated
members are read. It does not know what a wheel is.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, NoReturn, cast

from kpack_build.errors import FormatError, WheelError
from kpack_build.wheel.names import member_name_problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["CHUNK", "ZipReader"]

CHUNK = 256 * 1024
"""Bytes that are read, or unpacked, at once."""

_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_MAGIC = b"PK\x03\x04"
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OverflowError,
    ValueError,
)
#: What zipfile says of a file without a directory at its end; it adds nothing to our own sentence.
_NO_ZIP = "File is not a zip file"


class ZipReader:
    """An open zip file.

    Args:
        path: The file.

    Raises:
        FormatError: It is no zip file, or a damaged one.
        WheelError: A member is encrypted, a link, or packed in a way that wheels do not use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.infos = tuple(archive.infolist())
                self._end = archive.start_dir
        except _ZIP_ERRORS as error:
            found = None if str(error) == _NO_ZIP else str(error)
            raise FormatError(path, "it is no zip file, or a damaged one", found=found) from error
        except OSError as error:
            _raise_os_error(path, error)
        for info in self.infos:
            self._check_kind(info)
        self._file = path.open("rb", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def check_layout(self) -> None:
        """Check all local headers, and that no members overlap.

        Raises:
            FormatError: They are damaged.
        """
        end, last = 0, ""
        for info in sorted(self.infos, key=lambda info: info.header_offset):
            if info.header_offset < end:
                self._fail(info, f"overlaps member {last}")
            end, last = self._locate(info) + info.compress_size, info.filename

    def iter_raw(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Iterate over a member's bytes as they are stored.

        Raises:
            FormatError: Its header is damaged, or the file ends too early.
        """
        offset, left = self._locate(info), info.compress_size
        while left:
            chunk = os.pread(self._file.fileno(), min(CHUNK, left), offset)
            if not chunk:
                self._fail(info, "is cut short")
            offset += len(chunk)
            left -= len(chunk)
            yield chunk

    def iter_content(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Iterate over a member's unpacked bytes; size and checksum are checked at the end.

        Raises:
            FormatError: The member is damaged.
        """
        chunks = self.iter_raw(info)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            chunks = self._inflate(info, chunks)
        size = crc = 0
        for chunk in chunks:
            size += len(chunk)
            if size > info.file_size:
                self._fail(info, f"is longer than the {info.file_size} bytes that the zip file says")
            crc = zlib.crc32(chunk, crc)
            yield chunk
        if size != info.file_size:
            self._fail(info, f"has {size} bytes, not the {info.file_size} that the zip file says")
        if crc != info.CRC:
            self._fail(info, "has a wrong checksum")

    def open(self, info: zipfile.ZipInfo) -> BinaryIO:
        """Open a member as a stream of its unpacked bytes."""
        return cast("BinaryIO", io.BufferedReader(_Stream(self.iter_content(info))))

    def _inflate(self, info: zipfile.ZipInfo, chunks: Iterator[bytes]) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for chunk in chunks:
                pending, produced = chunk, CHUNK
                # A full output chunk may have left more inside, even when all input is taken.
                while (pending or produced == CHUNK) and not inflater.eof:
                    data = inflater.decompress(pending, CHUNK)
                    pending, produced = inflater.unconsumed_tail, len(data)
                    if data:
                        yield data
                if inflater.unused_data or (inflater.eof and pending):
                    self._fail(info, "has bytes behind its deflated data")
        except zlib.error as error:
            raise FormatError(
                self.path, f"the deflated data of member {info.filename} is damaged", found=str(error)
            ) from error
        if not inflater.eof:
            self._fail(info, "has deflated data that does not end")

    def _locate(self, info: zipfile.ZipInfo) -> int:
        """Return the file offset of a member's data, after a check of its local header."""
        # The directory's offset may be anything, even negative where the directory's own place is wrong.
        if not 0 <= info.header_offset <= self._end - _LOCAL.size:
            self._fail(info, "has no local header")
        header = os.pread(self._file.fileno(), _LOCAL.size, info.header_offset)
        magic, _, flags, method, *_, name_size, extra_size = _LOCAL.unpack(header)
        if magic != _LOCAL_MAGIC:
            self._fail(info, "has no local header")
        name = os.pread(self._file.fileno(), name_size, info.header_offset + _LOCAL.size)
        if name.decode("utf-8" if flags & 0x800 else "cp437", "replace") != info.orig_filename:
            self._fail(info, "has another name in its local header")
        if method != info.compress_type or (flags ^ info.flag_bits) & _ENCRYPTED:
            self._fail(info, "is packed in another way by its local header")
        start = info.header_offset + _LOCAL.size + name_size + extra_size
        if start + info.compress_size > self._end:
            self._fail(info, "does not end before the central directory")
        return int(start)

    def _check_kind(self, info: zipfile.ZipInfo) -> None:
        name = info.orig_filename.removesuffix("/")
        name_problem = member_name_problem(name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        problem = None
        if name_problem is not None:
            problem = f"has a name that {name_problem}"
        elif info.flag_bits & _ENCRYPTED:
            problem = "is encrypted"
        elif kind == stat.S_IFLNK:
            problem = "is a symbolic link"
        elif kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            problem = "is no regular file"
        elif info.compress_type not in _METHODS:
            problem = f"is packed with method {info.compress_type}, where wheels may use stored or deflated"
        elif info.is_dir() and info.file_size:
            problem = "is a folder with contents of its own"
        if problem is not None:
            raise WheelError(
                self.path,
                f"member {info.orig_filename!r} {problem}",
                remedy="build the wheel again, with plain files only",
            )

    def _fail(self, info: zipfile.ZipInfo, problem: str) -> NoReturn:
        raise FormatError(self.path, f"member {info.filename} {problem}", offset=info.header_offset)


def _raise_os_error(path: Path, error: OSError) -> NoReturn:
    """Tell offsets that lead nowhere, which zipfile leaves to the system, from a file that cannot be read."""
    if error.filename is not None:
        raise error
    raise FormatError(path, "it is no zip file, or a damaged one", found=str(error)) from error


class _Stream(io.RawIOBase):
    """Chunks as a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
