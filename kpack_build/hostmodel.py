"""What every format of host binary has in common: states, wrappers, the map that names archives.

The map (`KpackReference`) is ROCm's own: a HIP runtime with kpack reads it through a wrapper's pointer and
finds the archives of the binary by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgpack

from kpack_build.errors import ConversionError, FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.bundle import Bundle
    from kpack_build.runtime._restore import ConversionRecord

__all__ = ["MAX_REFERENCE_SIZE", "BinaryState", "HostBinary", "KpackReference", "Wrapper"]

MAX_REFERENCE_SIZE = (1 << 16) - 1
"""Largest map, in bytes, that ROCm's reader takes."""


class BinaryState(Enum):
    """Where the device code of a binary is."""

    NO_DEVICE_CODE = "no device code"
    FAT = "HIPF"
    CONVERTED = "HIPK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A record by which a binary registers device code.

    Attributes:
        index: Its number in the binary, in the order of the file.
        address: Its virtual address at load bias 0.
        file_offset: Its place in the file, in bytes.
        bundle: Number of its bundle; several wrappers may share one. None where it has none.
    """

    index: int
    address: int
    file_offset: int
    bundle: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KpackReference:
    """The map in a converted binary.

    Attributes:
        kernel_name: Key of the binary in archives: its path in the wheel.
        search_paths: Paths of archives, relative to the folder of the binary.
    """

    kernel_name: str
    search_paths: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the MessagePack map.

        Raises:
            ConversionError: It is larger than ROCm's reader allows.
        """
        content = {"kernel_name": self.kernel_name, "kpack_search_paths": list(self.search_paths)}
        data: bytes = msgpack.packb(content, use_bin_type=True)
        if len(data) > MAX_REFERENCE_SIZE:
            raise ConversionError(
                self.kernel_name,
                [f"its kpack map would have {len(data)} bytes, where {MAX_REFERENCE_SIZE} are allowed"],
            )
        return data

    @classmethod
    def parse(cls, data: memoryview, *, path: Path, offset: int = 0) -> KpackReference:
        """Parse the map at the start of some bytes; keys that are not known are ignored, as ROCm does.

        Args:
            data: The bytes; others may follow the map.
            path: The file, for messages.
            offset: File offset of the bytes, for messages.

        Raises:
            FormatError: There is no such map.
        """
        unpacker = msgpack.Unpacker(raw=False, max_buffer_size=MAX_REFERENCE_SIZE)
        try:
            unpacker.feed(data[:MAX_REFERENCE_SIZE])
            content = unpacker.unpack()
            name, paths = content["kernel_name"], content["kpack_search_paths"]
        except (msgpack.UnpackException, ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(path, "the kpack map cannot be read", offset=offset, found=error) from error
        if not isinstance(name, str) or not _is_text_list(paths):
            raise FormatError(path, "the kpack map has values of other types", offset=offset)
        return cls(kernel_name=name, search_paths=tuple(paths))


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


class HostBinary(Protocol):
    """An open program or library of some format; a context manager.

    Attributes are documented as the contract that each format keeps. Sizes and offsets are bytes.
    """

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def size(self) -> int:
        """Size of the file."""

    @property
    def state(self) -> BinaryState:
        """Where its device code is."""

    @property
    def machine(self) -> str:
        """Name of its processor: "x86_64" or "aarch64"."""

    @property
    def soname(self) -> str | None:
        """Its own name for linkers."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the libraries that it needs, in order."""

    @property
    def hip_library(self) -> str | None:
        """The one of `needed` that is the HIP runtime, under whatever mangled name."""

    @property
    def wrappers(self) -> tuple[Wrapper, ...]:
        """Its wrappers, in the order of the file."""

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """Its bundles, in the order of the file."""

    @property
    def reference(self) -> KpackReference | None:
        """The map of a converted binary."""

    @property
    def device_bytes(self) -> int:
        """Size of its device code in the file."""

    def refusals(self) -> tuple[str, ...]:
        """Return why it has to stay fat; empty where it can be converted."""

    def to_hipk(
        self,
        destination: Path,
        reference: KpackReference,
        objects: Sequence[Sequence[int | None]],
        *,
        kept: Mapping[int, int] = ...,
        sync: bool = True,
    ) -> ConversionRecord:
        """Write the converted binary, verify it, and return what the way back needs.

        Args:
            destination: The new file; it appears whole or not at all, with the mode bits of this one.
            reference: The map.
            objects: For each bundle and each of its entries the number of its code object, or None.
            kept: For bundles whose stored (compressed) bytes are kept as well, the numbers by which they can
                be fetched; such bundles come back bit for bit.
            sync: Whether to wait for the disk. A file that is soon moved or copied elsewhere need not.

        Raises:
            ConversionError: It has to stay fat, or the result is not what it should be.
        """

    def close(self) -> None:
        """Let the file go."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
