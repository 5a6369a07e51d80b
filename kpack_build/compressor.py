"""What a compression scheme of .kpack archives is, and what a package that adds one implements.

Names and meaning follow ROCm's Python reference. A compressor works in two phases: `prepare_kernel`
compresses one kernel and may run on many threads; `finalize` lays them out. A compressor that also has
`open_stream` writes each kernel as it comes. The blob of an archive always begins at the file offset
`kpack_build.archive_toc.BLOB_OFFSET`, and offsets in a scheme's keys count from the file's start.

The schemes themselves are in `kpack_build.schemes`, the registry in `kpack_build.compression`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Protocol, TypeAlias, runtime_checkable

from kpack_build.errors import ArchiveStateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from kpack_build.errors import PathLike

__all__ = ["BlobSpan", "BlobStream", "Buffer", "CompressionInput", "Compressor", "StreamingCompressor"]

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class CompressionInput(ABC):  # noqa: B024 - it marks what passes between the two phases; each scheme has its own
    """What a compressor's `prepare_kernel` makes of one kernel."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BlobSpan:
    """Where the stored bytes of a kernel lie.

    Attributes:
        offset: File offset in bytes.
        size: Number of bytes.
    """

    offset: int
    size: int


class BlobStream(Protocol):
    """A blob that is being written."""

    def append(self, kernel: CompressionInput) -> int:
        """Write one kernel and return its ordinal; `kernel` is not needed afterwards."""

    def close(self) -> dict[str, object]:
        """Complete the blob, leave the file's position at its end, and return the scheme's keys."""


@runtime_checkable
class StreamingCompressor(Protocol):
    """A compressor that writes each kernel as it comes, which keeps memory flat."""

    def open_stream(self, file: BinaryIO) -> BlobStream:
        """Begin a blob at the position of a seekable file."""


class Compressor(ABC):
    """A compression scheme: an object writes one archive, or reads one."""

    SCHEME_NAME: ClassVar[str]
    READ_BY_ROCM: ClassVar[bool] = False
    """Whether ROCm's runtime reads the scheme. If not, archives get another magic and file name extension,
    because that reader takes the blob of an unknown scheme for plain code objects."""

    @classmethod
    def create(cls, *, level: int | None = None) -> Self:
        """Return a compressor for writing.

        Args:
            level: The configured level, for schemes that have levels; the others ignore it.
        """
        del level
        return cls()

    @abstractmethod
    def prepare_kernel(self, kernel_data: Buffer, kernel_id: str) -> CompressionInput:
        """Compress one kernel; may be called from many threads at once."""

    @abstractmethod
    def finalize(self, kernels: Sequence[tuple[str, CompressionInput]]) -> tuple[bytes, dict[str, object]]:
        """Lay out kernels, each with its id, in the order of their ordinals.

        Returns:
            The blob, which will begin at the file offset `BLOB_OFFSET`, and the scheme's keys for the table
            of contents.
        """

    @staticmethod
    @abstractmethod
    def from_toc(toc: Mapping[str, object], file_path: PathLike) -> Compressor:
        """Return a compressor that reads the archive `file_path`, whose table of contents is `toc`.

        Raises:
            FormatError: The table and the file do not fit together.
        """

    @abstractmethod
    def decompress_kernel(self, ordinal: int) -> bytes | memoryview:
        """Return a kernel; may be called from many threads at once.

        Raises:
            OrdinalError: There is none of that number.
            FormatError: The archive is damaged.
        """

    def locate(self, ordinal: int) -> BlobSpan:
        """Return where the bytes of a kernel are stored; schemes that can tell override this.

        Raises:
            OrdinalError: There is none of that number.
            ArchiveStateError: The scheme cannot tell.
        """
        raise ArchiveStateError(
            f"the scheme {self.SCHEME_NAME} does not tell where kernel {ordinal} is stored"
            " (its Compressor would have to implement locate)"
        )

    def kernel_size(self, ordinal: int) -> int:
        """Return the size in bytes of a kernel as `decompress_kernel` returns it.

        Raises:
            OrdinalError: There is none of that number.
            FormatError: The archive is damaged.
        """
        return len(self.decompress_kernel(ordinal))

    def close(self) -> None:  # noqa: B027 - a scheme that holds nothing has nothing to do
        """Let go of the archive that is read."""
