"""How a new archive's bytes are written: kernels as they come, then the table of contents, then the header.

A file appears under its name only when it is complete, read back and on disk. Until then it has a hidden name
in the same directory, which goes away when the work fails or is given up. Without a destination the bytes
stay in memory.

What the table of contents says is the business of `kpack_build.archive`.
"""

from __future__ import annotations

import io
import os
import secrets
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from kpack_build.archive_toc import BLOB_OFFSET, MAGIC, OWN_MAGIC, map_file, pack_header, pack_toc
from kpack_build.compressor import StreamingCompressor
from kpack_build.errors import OrdinalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kpack_build.archive_toc import JsonValue, Toc
    from kpack_build.compressor import BlobStream, CompressionInput, Compressor

__all__ = ["ArchiveWriter", "PreparedKernel", "replacing"]

_NAME_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedKernel:
    """A kernel that is compressed and not yet in an archive.

    Attributes:
        relative_path: Key of the binary, with slashes.
        gfx_arch: Target id.
        compression_input: What the compressor made of it.
        kernel_id: "relative_path@gfx_arch".
        original_size: Size in bytes.
        metadata: What is stored beside it, or None.
        digest: SHA-256 of the kernel, in hexadecimal.
    """

    relative_path: str
    gfx_arch: str
    compression_input: CompressionInput
    kernel_id: str
    original_size: int
    metadata: Mapping[str, JsonValue] | None
    digest: str


class ArchiveWriter:
    """The file of a new archive and the kernels that are in it so far."""

    def __init__(self, compressor: Compressor, destination: Path | None) -> None:
        """Begin a file.

        Args:
            compressor: The scheme.
            destination: Where it shall appear; its parent directories are made. None keeps it in memory.

        Raises:
            OSError: It cannot be created.
        """
        self._compressor = compressor
        self._output = _Output(destination)
        # A table at offset 0 is outside of any file: no reader takes the file before its end is written.
        self._output.file.write(pack_header(0).ljust(BLOB_OFFSET, b"\0"))
        self._sink = _open_sink(compressor, self._output.file)
        self._ordinals: dict[str, int] = {}
        self._sizes: list[int] = []

    def store(self, prepared: PreparedKernel) -> int:
        """Write a kernel, unless an equal one is there, and return its ordinal.

        Raises:
            ArchiveLimitError: The archive would be larger than the format allows; nothing was written.
            OSError: It cannot be written.
        """
        known = self._ordinals.get(prepared.digest)
        if known is not None:
            return known
        ordinal = self._sink.append(prepared.kernel_id, prepared.compression_input)
        self._ordinals[prepared.digest] = ordinal
        self._sizes.append(prepared.original_size)
        return ordinal

    def size_of(self, ordinal: int) -> int:
        """Return the original size in bytes of a stored kernel.

        Raises:
            OrdinalError: No kernel of that number is stored.
        """
        if not 0 <= ordinal < len(self._sizes):
            raise OrdinalError(ordinal, len(self._sizes))
        return self._sizes[ordinal]

    @contextmanager
    def finish(self, toc: Toc, *, sync: bool) -> Iterator[memoryview]:
        """Complete the file; it gets its name, or is in memory, when the block ends well.

        Args:
            toc: The table of contents without the scheme's keys.
            sync: Whether to wait for the disk.

        Yields:
            The whole file, to be validated.

        Raises:
            ArchiveLimitError: The table of contents is larger than the format allows.
            OSError: The file cannot be written. After any exception nothing of it is left.
        """
        try:
            file = self._output.file
            keys = self._sink.close()
            toc_offset = file.tell()
            file.write(pack_toc(toc, keys))
            file.seek(0)
            file.write(pack_header(toc_offset, magic=MAGIC if self._compressor.READ_BY_ROCM else OWN_MAGIC))
            yield self._output.image()
            self._output.publish(sync=sync)
        finally:
            self._output.discard()

    def discard(self) -> None:
        """Throw the archive away; a file that has its name stays."""
        self._output.discard()


class _Output:
    def __init__(self, destination: Path | None) -> None:
        self._destination = destination
        self._private: Path | None = None
        self.file: BinaryIO = io.BytesIO() if destination is None else self._create(destination)

    def _create(self, destination: Path) -> BinaryIO:
        destination.parent.mkdir(parents=True, exist_ok=True)
        self._private = destination.with_name(f".{destination.name}.{secrets.token_hex(_NAME_BYTES)}")
        # Unlike a file of tempfile, this one gets the mode that any new file gets.
        return cast("BinaryIO", self._private.open("x+b"))

    def image(self) -> memoryview:
        """Return what is written, read-only; nothing may be written any more."""
        if self._private is None:
            return cast("io.BytesIO", self.file).getbuffer().toreadonly()
        self.file.flush()
        return map_file(self._private)

    def publish(self, *, sync: bool = True) -> None:
        if self._private is None or self._destination is None:
            return
        self.file.flush()
        if sync:
            os.fsync(self.file.fileno())
        self.file.close()
        self._private.replace(self._destination)
        self._private = None

    def discard(self) -> None:
        if self._private is None:
            return
        # Closing writes what is buffered, which a full disk refuses once more.
        with suppress(OSError):
            self.file.close()
        self._private.unlink(missing_ok=True)
        self._private = None


@contextmanager
def replacing(destination: Path) -> Iterator[BinaryIO]:
    """Write a file that takes the place of `destination` when the block ends well, and vanishes if not.

    Raises:
        OSError: It cannot be written.
    """
    output = _Output(destination)
    try:
        yield output.file
        output.publish()
    finally:
        output.discard()


class _Sink(Protocol):
    def append(self, kernel_id: str, kernel: CompressionInput) -> int: ...

    def close(self) -> dict[str, object]: ...


def _open_sink(compressor: Compressor, file: BinaryIO) -> _Sink:
    if isinstance(compressor, StreamingCompressor):
        return _Streamed(compressor.open_stream(file))
    return _Buffered(compressor, file)


class _Streamed:
    def __init__(self, stream: BlobStream) -> None:
        self._stream = stream

    def append(self, kernel_id: str, kernel: CompressionInput) -> int:
        del kernel_id
        return self._stream.append(kernel)

    def close(self) -> dict[str, object]:
        return self._stream.close()


class _Buffered:
    def __init__(self, compressor: Compressor, file: BinaryIO) -> None:
        self._compressor = compressor
        self._file = file
        self._kernels: list[tuple[str, CompressionInput]] = []

    def append(self, kernel_id: str, kernel: CompressionInput) -> int:
        self._kernels.append((kernel_id, kernel))
        return len(self._kernels) - 1

    def close(self) -> dict[str, object]:
        blob, keys = self._compressor.finalize(self._kernels)
        self._file.write(blob)
        return keys
