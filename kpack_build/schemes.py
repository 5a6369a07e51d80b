"""The two compression schemes that ROCm's runtime reads: "none" and "zstd-per-kernel".

"none" stores each code object as it is, aligned to 64 bytes so that it can be used from a map of the file.
"zstd-per-kernel" stores a count, and a size and a zstd frame (RFC 8878) for each, all sizes as little-endian
u32; the frames are byte for byte those of ROCm's Python reference, so they carry a content size and no
checksum. The limits are those of ROCm's reader.

Which scheme an archive has, and where it is looked up, is decided in `kpack_build.compression`.
"""

from __future__ import annotations

import struct
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final

import zstandard

from kpack_build.archive_toc import MAX_KERNELS, check_range, map_file, original_sizes, require_int
from kpack_build.compressor import CompressionInput
from kpack_build.errors import ArchiveLimitError, ConfigError, FormatError
from kpack_build.mapped import MappedCompressor, StoredBlobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from kpack_build.compressor import BlobSpan, BlobStream, Buffer
    from kpack_build.errors import PathLike

__all__ = [
    "MAX_BLOB_SIZE",
    "MAX_FRAME_SIZE",
    "NoOpCompressionInput",
    "NoOpCompressor",
    "ZstdCompressionInput",
    "ZstdCompressor",
]

MAX_FRAME_SIZE: Final = (1 << 32) - 1
MAX_BLOB_SIZE: Final = 1 << 32
_ALIGNMENT: Final = 64
_U32: Final = struct.Struct("<I")
_LEVELS: Final = range(1, 23)
_SPLIT_REMEDY: Final = "store fewer kernels in one archive: group by target, or pack fewer targets"
# RFC 8878: a block decodes to at most 128 KiB and takes at least four bytes if it decodes to anything.
_BLOCK_LIMIT: Final = 128 * 1024
_SMALLEST_BLOCK: Final = 4


@dataclass(frozen=True, slots=True)
class NoOpCompressionInput(CompressionInput):
    """A kernel as it is."""

    kernel_data: Buffer


class NoOpCompressor(MappedCompressor):
    """The scheme "none": kernels as they are, each aligned to 64 bytes."""

    SCHEME_NAME: ClassVar[str] = "none"
    READ_BY_ROCM: ClassVar[bool] = True

    def prepare_kernel(self, kernel_data: Buffer, kernel_id: str) -> NoOpCompressionInput:
        del kernel_id
        return NoOpCompressionInput(kernel_data)

    def open_stream(self, file: BinaryIO) -> BlobStream:
        return _NoOpStream(file)

    @staticmethod
    def from_toc(toc: Mapping[str, object], file_path: PathLike) -> NoOpCompressor:
        view = map_file(Path(file_path))
        return NoOpCompressor.from_view(toc, view, Path(file_path), len(view))

    def decompress_kernel(self, ordinal: int) -> memoryview:
        """Return a kernel as a view of the map, which lives as long as the view."""
        blobs = self._stored(ordinal)
        return blobs.stored(blobs.locate(ordinal))

    @classmethod
    def _parse_blobs(cls, toc: Mapping[str, object], view: memoryview, path: Path, end: int) -> StoredBlobs:
        blobs = toc.get("blobs")
        if not isinstance(blobs, list) or len(blobs) > MAX_KERNELS:
            raise FormatError(
                path, "blobs is no list of a size that readers take", expected=f"at most {MAX_KERNELS}"
            )
        offsets, sizes = array("Q"), array("Q")
        for number, blob in enumerate(blobs):
            if not isinstance(blob, dict):
                raise FormatError(path, f"blob {number} is no map", found=type(blob).__name__)
            offset = require_int(blob.get("offset"), f"offset of blob {number}", path)
            size = require_int(blob.get("size"), f"size of blob {number}", path)
            check_range(offset, size, end, f"blob {number}", path)
            offsets.append(offset)
            sizes.append(size)
        originals = original_sizes(toc, len(blobs), path)
        for number, (size, original) in enumerate(zip(sizes, originals, strict=True)):
            if original not in (-1, size):
                raise FormatError(
                    path,
                    f"blob {number} has another size than its kernel",
                    offset=offsets[number],
                    expected=original,
                    found=size,
                )
        return StoredBlobs(view, path, offsets, sizes, originals)


class _NoOpStream:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = file.tell()
        self._blobs: list[dict[str, int]] = []

    def append(self, kernel: CompressionInput) -> int:
        assert isinstance(kernel, NoOpCompressionInput)  # noqa: S101 - an archive mixes no schemes
        _check_count(len(self._blobs) + 1)
        padding = -self._end % _ALIGNMENT
        self._file.write(bytes(padding))
        self._file.write(kernel.kernel_data)
        size = memoryview(kernel.kernel_data).nbytes
        self._blobs.append({"offset": self._end + padding, "size": size})
        self._end += padding + size
        return len(self._blobs) - 1

    def close(self) -> dict[str, object]:
        return {"blobs": self._blobs}


@dataclass(frozen=True, slots=True)
class ZstdCompressionInput(CompressionInput):
    """A kernel as a zstd frame."""

    compressed_data: bytes


class ZstdCompressor(MappedCompressor):
    """The scheme "zstd-per-kernel": a zstd frame for each kernel."""

    SCHEME_NAME: ClassVar[str] = "zstd-per-kernel"
    READ_BY_ROCM: ClassVar[bool] = True

    def __init__(self, compression_level: int = 3) -> None:
        """Make a compressor.

        Args:
            compression_level: zstd's level, 1 to 22.

        Raises:
            ConfigError: There is no such level.
        """
        if compression_level not in _LEVELS:
            raise ConfigError(
                "level", f"is {compression_level}", allowed=f"{_LEVELS.start} to {_LEVELS.stop - 1}"
            )
        self.compression_level = compression_level

    @classmethod
    def create(cls, *, level: int | None = None) -> Self:
        return cls() if level is None else cls(level)

    def prepare_kernel(self, kernel_data: Buffer, kernel_id: str) -> ZstdCompressionInput:
        """Compress one kernel; may be called from many threads at once.

        Raises:
            ArchiveLimitError: Kernel or frame are larger than the format allows.
        """
        _check_limit(f"size of {kernel_id} in bytes", memoryview(kernel_data).nbytes, MAX_FRAME_SIZE)
        frame = _contexts.compressor(self.compression_level).compress(kernel_data)
        _check_limit(f"frame of {kernel_id} in bytes", len(frame), MAX_FRAME_SIZE)
        return ZstdCompressionInput(frame)

    def open_stream(self, file: BinaryIO) -> BlobStream:
        return _ZstdStream(file)

    @staticmethod
    def from_toc(toc: Mapping[str, object], file_path: PathLike) -> ZstdCompressor:
        view = map_file(Path(file_path))
        return ZstdCompressor.from_view(toc, view, Path(file_path), len(view))

    def decompress_kernel(self, ordinal: int) -> bytes:
        blobs = self._stored(ordinal)
        span = blobs.locate(ordinal)
        frame = blobs.stored(span)
        size = _content_size(frame, span, blobs.original_sizes[ordinal], blobs.path)
        try:
            # A bound of 0 would mean "none".
            data = _contexts.decompressor().decompress(
                frame, max_output_size=max(size, 1), allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise FormatError(
                blobs.path, f"kernel {ordinal} does not decompress: {error}", offset=span.offset
            ) from error
        if len(data) != size:
            raise _wrong_size(span, size, len(data), blobs.path)
        return data

    def kernel_size(self, ordinal: int) -> int:
        blobs = self._stored(ordinal)
        span = blobs.locate(ordinal)
        return _content_size(blobs.stored(span), span, blobs.original_sizes[ordinal], blobs.path)

    @classmethod
    def _parse_blobs(cls, toc: Mapping[str, object], view: memoryview, path: Path, end: int) -> StoredBlobs:
        start = require_int(toc.get("zstd_offset"), "zstd_offset", path)
        size = require_int(toc.get("zstd_size"), "zstd_size", path)
        check_range(start, size, end, "the zstd blob", path)
        if not _U32.size <= size <= MAX_BLOB_SIZE:
            raise FormatError(
                path,
                "the zstd blob has a size that readers do not take",
                offset=start,
                expected=f"{_U32.size} to {MAX_BLOB_SIZE} bytes",
                found=size,
            )
        offsets, sizes = _parse_frames(view[start : start + size], start, path)
        return StoredBlobs(view, path, offsets, sizes, original_sizes(toc, len(offsets), path))


class _ZstdStream:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()
        self._size = file.write(_U32.pack(0))
        self._count = 0

    def append(self, kernel: CompressionInput) -> int:
        assert isinstance(kernel, ZstdCompressionInput)  # noqa: S101 - an archive mixes no schemes
        frame = kernel.compressed_data
        _check_count(self._count + 1)
        _check_limit("blob in bytes", self._size + _U32.size + len(frame), MAX_BLOB_SIZE)
        self._file.write(_U32.pack(len(frame)))
        self._file.write(frame)
        self._size += _U32.size + len(frame)
        self._count += 1
        return self._count - 1

    def close(self) -> dict[str, object]:
        self._file.seek(self._start)
        self._file.write(_U32.pack(self._count))
        self._file.seek(self._start + self._size)
        return {"zstd_offset": self._start, "zstd_size": self._size}


def _parse_frames(blob: memoryview, start: int, path: Path) -> tuple[array[int], array[int]]:
    """Walk the frames of a zstd blob, which touches the first bytes of each and no more."""
    (count,) = _U32.unpack_from(blob)
    if count > MAX_KERNELS or count * _U32.size > len(blob):
        raise FormatError(
            path,
            "the zstd blob counts more frames than it can have",
            offset=start,
            expected=f"at most {min(MAX_KERNELS, len(blob) // _U32.size)}",
            found=count,
        )
    offsets, sizes = array("Q"), array("Q")
    position = _U32.size
    for number in range(count):
        if position + _U32.size > len(blob):
            raise FormatError(path, f"frame {number} is missing", offset=start + position, expected=count)
        (size,) = _U32.unpack_from(blob, position)
        position += _U32.size
        if size > len(blob) - position:
            raise FormatError(
                path,
                f"frame {number} goes past the end of the zstd blob",
                offset=start + position,
                expected=f"at most {len(blob) - position} bytes",
                found=size,
            )
        offsets.append(start + position)
        sizes.append(size)
        position += size
    if position != len(blob):
        raise FormatError(
            path,
            "the zstd blob does not end with its last frame",
            offset=start + position,
            found=f"{len(blob) - position} more bytes",
        )
    return offsets, sizes


def _content_size(frame: memoryview, span: BlobSpan, original: int, path: Path) -> int:
    """Return how many bytes a frame decompresses to, checked before anything is allocated."""
    try:
        content = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise FormatError(path, f"is no zstd frame: {error}", offset=span.offset) from error
    if content == -1 == original:
        raise FormatError(path, "neither the frame nor its entry tells the kernel's size", offset=span.offset)
    size = original if content == -1 else content
    if original not in (-1, size):
        raise _wrong_size(span, original, size, path)
    limit = min(MAX_FRAME_SIZE, span.size // _SMALLEST_BLOCK * _BLOCK_LIMIT)
    if size > limit:
        raise FormatError(
            path,
            "a frame claims more bytes than it can hold",
            offset=span.offset,
            expected=f"at most {limit}",
            found=size,
        )
    return size


def _wrong_size(span: BlobSpan, expected: int, found: int, path: Path) -> FormatError:
    return FormatError(
        path, "a frame lies about its size", offset=span.offset, expected=f"{expected} bytes", found=found
    )


class _Contexts(threading.local):
    """One context for each direction and thread: they are large, and may not be shared."""

    def __init__(self) -> None:
        self._level = 0
        self._compressor: zstandard.ZstdCompressor | None = None
        self._decompressor: zstandard.ZstdDecompressor | None = None

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if self._compressor is None or self._level != level:
            # The old context goes first: at high levels each takes hundreds of megabytes.
            self._compressor = None
            self._compressor, self._level = zstandard.ZstdCompressor(level=level), level
        return self._compressor

    def decompressor(self) -> zstandard.ZstdDecompressor:
        if self._decompressor is None:
            self._decompressor = zstandard.ZstdDecompressor()
        return self._decompressor


_contexts = _Contexts()


def _check_count(count: int) -> None:
    _check_limit("number of kernels", count, MAX_KERNELS)


def _check_limit(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise ArchiveLimitError(what, value, limit, remedy=_SPLIT_REMEDY)
