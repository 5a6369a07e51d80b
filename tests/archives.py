"""Archives for tests: small ones, foreign schemes, and bytes written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgpack

from kpack_build.archive import PackedKernelArchive
from kpack_build.archive_toc import pack_header
from kpack_build.compression import CompressionInput, Compressor, NoOpCompressor, ZstdCompressor
from kpack_build.errors import OrdinalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpack_build.compression import Buffer
    from kpack_build.errors import PathLike

__all__ = [
    "KERNELS",
    "BackwardsCompressor",
    "BackwardsInput",
    "archive_bytes",
    "compressor_of",
    "example_toc",
    "save_example",
]

KERNELS = {
    ("pkg/a.so#0", "gfx1100"): b"\x7fELF kernel of a" * 40,
    ("pkg/a.so#0", "gfx1101"): b"\x7fELF another" * 90,
    ("pkg/a.so#1", "gfx1100"): b"",
    ("pkg/b.so#0", "gfx1100"): bytes(range(256)) * 3,
}


def compressor_of(scheme: str) -> Compressor:
    return NoOpCompressor() if scheme == "none" else ZstdCompressor()


def save_example(path: Path, scheme: str) -> None:
    """Write an archive of `KERNELS`, with one alias."""
    with PackedKernelArchive("g", "gfx110x", ["gfx1100", "gfx1101"], path, compressor_of(scheme)) as archive:
        for (binary, arch), data in KERNELS.items():
            archive.add_kernel(archive.prepare_kernel(binary, arch, data))
        archive.add_alias("pkg/b.so#0", "gfx1101", ordinal=0, metadata={"from": "pkg/a.so"})


def example_toc(**changes: object) -> dict[str, object]:
    """A sound table of an archive whose one kernel, b"kernel", is at offset 64; `...` leaves a key out."""
    toc: dict[str, object] = {
        "format_version": 1,
        "group_name": "g",
        "gfx_arch_family": "gfx110x",
        "gfx_arches": ["gfx1100"],
        "toc": {"a#0": {"gfx1100": {"type": "hsaco", "ordinal": 0, "original_size": 6}}},
        "compression_scheme": "none",
        "blobs": [{"offset": 64, "size": 6}],
    }
    return {key: value for key, value in {**toc, **changes}.items() if value is not ...}


def archive_bytes(toc: object, blob: bytes = b"kernel", *, magic: bytes = b"KPAK") -> bytes:
    """An archive with any table; `toc` is packed unless it is bytes already."""
    packed = toc if isinstance(toc, bytes) else msgpack.packb(toc)
    return pack_header(64 + len(blob), magic=magic) + bytes(48) + blob + packed


@dataclass(frozen=True, slots=True)
class BackwardsInput(CompressionInput):
    data: bytes


class BackwardsCompressor(Compressor):
    """A scheme of somebody else: kernels backwards, no streaming, places only in its own keys."""

    SCHEME_NAME: ClassVar[str] = "backwards"

    def __init__(self) -> None:
        self.kernels: list[bytes] = []

    def prepare_kernel(self, kernel_data: Buffer, kernel_id: str) -> BackwardsInput:
        assert isinstance(kernel_data, bytes)
        assert "@" in kernel_id
        return BackwardsInput(kernel_data[::-1])

    def finalize(self, kernels: Sequence[tuple[str, CompressionInput]]) -> tuple[bytes, dict[str, object]]:
        self.kernels = [kernel.data for _, kernel in kernels if isinstance(kernel, BackwardsInput)]
        return b"".join(self.kernels), {"lengths": [len(data) for data in self.kernels]}

    @staticmethod
    def from_toc(toc: Mapping[str, object], file_path: PathLike) -> BackwardsCompressor:
        reader = BackwardsCompressor()
        lengths = toc["lengths"]
        assert isinstance(lengths, list)
        with Path(file_path).open("rb") as file:
            file.seek(64)
            reader.kernels = [file.read(length) for length in lengths]
        return reader

    def decompress_kernel(self, ordinal: int) -> bytes:
        if not 0 <= ordinal < len(self.kernels):
            raise OrdinalError(ordinal, len(self.kernels))
        return self.kernels[ordinal][::-1]
