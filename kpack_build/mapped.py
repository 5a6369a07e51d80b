"""Compression schemes that read kernels from a map of the archive, by a table of where each of them lies.

The table is made, and held against the file, when an archive is opened. Afterwards nothing changes, so that
reading needs no lock.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kpack_build.archive_toc import BLOB_OFFSET
from kpack_build.compressor import BlobSpan, CompressionInput, Compressor
from kpack_build.errors import OrdinalError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from kpack_build.compressor import BlobStream

__all__ = ["MappedCompressor", "StoredBlobs"]


@dataclass(frozen=True, slots=True)
class StoredBlobs:
    """The blobs of an archive that is read.

    Attributes:
        view: The whole file.
        path: Its name.
        offsets: File offset in bytes of each stored kernel.
        sizes: Stored size of each, in bytes.
        original_sizes: Original size of each in bytes, -1 where the table of contents does not tell it.
    """

    view: memoryview
    path: Path
    offsets: array[int]
    sizes: array[int]
    original_sizes: array[int]

    def locate(self, ordinal: int) -> BlobSpan:
        """Return the place of a kernel, or raise `OrdinalError`."""
        if not 0 <= ordinal < len(self.offsets):
            raise OrdinalError(ordinal, len(self.offsets))
        return BlobSpan(self.offsets[ordinal], self.sizes[ordinal])

    def stored(self, span: BlobSpan) -> memoryview:
        """Return the stored bytes at a place."""
        return self.view[span.offset : span.offset + span.size]


class MappedCompressor(Compressor):
    """What the schemes of this module have in common: a table of where each kernel lies in a map."""

    _blobs: StoredBlobs | None = None

    @classmethod
    def from_view(cls, toc: Mapping[str, object], view: memoryview, path: Path, end: int) -> Self:
        """Return a compressor that reads an archive from a view of it.

        Args:
            toc: Its table of contents.
            view: The whole archive.
            path: Its name, for errors.
            end: File offset of the blob's end at the latest, in bytes.
        """
        reader = cls()
        reader._blobs = cls._parse_blobs(toc, view, path, end)
        return reader

    @classmethod
    @abstractmethod
    def _parse_blobs(cls, toc: Mapping[str, object], view: memoryview, path: Path, end: int) -> StoredBlobs:
        """Find and check the place of each kernel."""

    @abstractmethod
    def open_stream(self, file: BinaryIO) -> BlobStream:
        """Begin a blob at the position of a seekable file."""

    def finalize(self, kernels: Sequence[tuple[str, CompressionInput]]) -> tuple[bytes, dict[str, object]]:
        file = io.BytesIO(bytes(BLOB_OFFSET))
        file.seek(BLOB_OFFSET)
        stream = self.open_stream(file)
        for _, kernel in kernels:
            stream.append(kernel)
        keys = stream.close()
        image = memoryview(file.getvalue())
        entries = {str(number): {"": {"ordinal": number}} for number in range(len(kernels))}
        self._blobs = self._parse_blobs({**keys, "toc": entries}, image, Path("<memory>"), len(image))
        return bytes(image[BLOB_OFFSET:]), keys

    def locate(self, ordinal: int) -> BlobSpan:
        return self._stored(ordinal).locate(ordinal)

    def _stored(self, ordinal: int) -> StoredBlobs:
        if self._blobs is None:
            raise OrdinalError(ordinal, 0)
        return self._blobs

    def close(self) -> None:
        self._blobs = None
