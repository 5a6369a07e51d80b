"""The two schemes of ROCm: what they write, and what they refuse to read."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import pytest
import zstandard

from kpack_build import schemes
from kpack_build.archive import PackedKernelArchive
from kpack_build.compression import NoOpCompressor, ZstdCompressor, create_compressor_from_toc
from kpack_build.errors import ArchiveLimitError, ConfigError, FormatError, OrdinalError
from tests.archives import archive_bytes, compressor_of, example_toc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kpack_build.compression import Compressor

SCHEMES = ["none", "zstd-per-kernel"]
KERNELS = [b"one" * 50, b"", b"three"]


def zstd_blob(frames: Sequence[bytes], *, count: int | None = None) -> bytes:
    stored = b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
    return struct.pack("<I", len(frames) if count is None else count) + stored


def zstd_toc(blob: bytes, *, size: object = 6, **changes: object) -> dict[str, object]:
    entry = {"ordinal": 0} if size is None else {"ordinal": 0, "original_size": size}
    fields = {"blobs": ..., "compression_scheme": "zstd-per-kernel", "toc": {"a": {"x": entry}}}
    return example_toc(**{**fields, "zstd_offset": 64, "zstd_size": len(blob), **changes})


def save_zstd(path: Path, blob: bytes, *, size: int | None = 6) -> Path:
    path.write_bytes(archive_bytes(zstd_toc(blob, size=size), blob))
    return path


def frame_of(data: bytes, *, content_size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=content_size).compress(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.kpack"


class TestReferenceInterface:
    """The two phases, used without an archive, as scripts for ROCm's reference do."""

    def finalized(self, compressor: Compressor) -> tuple[bytes, dict[str, object]]:
        inputs = [(f"{i}@x", compressor.prepare_kernel(data, f"{i}@x")) for i, data in enumerate(KERNELS)]
        return compressor.finalize(inputs)

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_compressor_reads_what_it_finalized(self, scheme: str) -> None:
        compressor = compressor_of(scheme)
        self.finalized(compressor)
        assert [compressor.decompress_kernel(i) for i in range(3)] == KERNELS
        assert [compressor.kernel_size(i) for i in range(3)] == [150, 0, 5]

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_blob_and_keys_make_an_archive(self, path: Path, scheme: str) -> None:
        blob, keys = self.finalized(compressor_of(scheme))
        entries = {str(i): {"x": {"ordinal": i}} for i in range(3)}
        toc = example_toc(**{"blobs": ..., "compression_scheme": scheme, "toc": entries, **keys})
        path.write_bytes(archive_bytes(toc, blob))
        for reader in (create_compressor_from_toc(toc, path), compressor_of(scheme).from_toc(toc, str(path))):
            assert [reader.decompress_kernel(i) for i in range(3)] == KERNELS
            span = reader.locate(2)
            assert path.read_bytes()[span.offset : span.offset + span.size] in (
                b"three",
                zstandard.ZstdCompressor(level=3).compress(b"three"),
            )

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("ordinal", [-1, 3])
    def test_wrong_ordinal(self, scheme: str, ordinal: int) -> None:
        compressor = compressor_of(scheme)
        self.finalized(compressor)
        for call in (compressor.decompress_kernel, compressor.locate, compressor.kernel_size):
            with pytest.raises(OrdinalError) as caught:
                call(ordinal)
            assert (caught.value.ordinal, caught.value.count) == (ordinal, 3)
        assert isinstance(caught.value, ValueError)

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_compressor_without_an_archive(self, scheme: str) -> None:
        with pytest.raises(OrdinalError):
            compressor_of(scheme).decompress_kernel(0)

    def test_stream_counts_from_where_it_begins(self) -> None:
        file = io.BytesIO()
        file.write(b"before")
        compressor = ZstdCompressor()
        stream = compressor.open_stream(file)
        assert stream.append(compressor.prepare_kernel(b"kernel", "")) == 0
        assert stream.close() == {"zstd_offset": 6, "zstd_size": len(file.getvalue()) - 6}
        assert file.tell() == len(file.getvalue())


class TestLevels:
    @pytest.mark.parametrize("level", [0, 23, -1])
    def test_no_such_level(self, level: int) -> None:
        with pytest.raises(ConfigError) as caught:
            ZstdCompressor(level)
        assert caught.value.key == "level"

    @pytest.mark.parametrize("level", [1, 3, 22])
    def test_frames_are_those_of_plain_zstandard(self, level: int) -> None:
        data = bytes(range(200)) * 30
        frame = ZstdCompressor(compression_level=level).prepare_kernel(data, "k").compressed_data
        assert frame == zstandard.ZstdCompressor(level=level).compress(data)
        parameters = zstandard.get_frame_parameters(frame)
        assert parameters.content_size == len(data)
        assert not parameters.has_checksum

    def test_one_thread_keeps_one_context(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[int] = []
        real = zstandard.ZstdCompressor

        def count(level: int) -> zstandard.ZstdCompressor:
            made.append(level)
            return real(level=level)

        monkeypatch.setattr(zstandard, "ZstdCompressor", count)
        monkeypatch.setattr(schemes, "_contexts", schemes._Contexts())
        for level in (4, 4, 5, 5, 4):
            ZstdCompressor(level).prepare_kernel(b"x", "k")
        assert made == [4, 5, 4]


class TestLimits:
    def test_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "MAX_FRAME_SIZE", 5)
        with pytest.raises(ArchiveLimitError) as caught:
            ZstdCompressor().prepare_kernel(b"kernel", "k@x")
        assert (caught.value.value, caught.value.limit) == (6, 5)

    def test_frame(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "MAX_FRAME_SIZE", 6)
        with pytest.raises(ArchiveLimitError) as caught:
            ZstdCompressor().prepare_kernel(b"kernel", "k@x")
        assert caught.value.value == 15

    def test_blob(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "MAX_BLOB_SIZE", 4 + 4 + 15)
        compressor = ZstdCompressor()
        stream = compressor.open_stream(io.BytesIO())
        stream.append(compressor.prepare_kernel(b"kernel", "k@x"))
        with pytest.raises(ArchiveLimitError) as caught:
            stream.append(compressor.prepare_kernel(b"", "k@x"))
        assert caught.value.limit == 23

    def test_blob_that_is_read(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        blob = zstd_blob([frame_of(b"kernel")])
        monkeypatch.setattr(schemes, "MAX_BLOB_SIZE", len(blob) - 1)
        with pytest.raises(FormatError) as caught:
            PackedKernelArchive.read(save_zstd(path, blob))
        assert caught.value.found == len(blob)

    def test_number_of_kernels_that_are_read(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "MAX_KERNELS", 1)
        blob = zstd_blob([frame_of(b"kernel")] * 2)
        with pytest.raises(FormatError):
            PackedKernelArchive.read(save_zstd(path, blob))
        path.write_bytes(archive_bytes(example_toc(blobs=[{"offset": 64, "size": 6}] * 2)))
        with pytest.raises(FormatError):
            PackedKernelArchive.read(path)


class TestNone:
    @pytest.mark.parametrize(
        "blobs",
        [
            ...,
            {},
            [7],
            [{}],
            [{"offset": 64}],
            [{"offset": 64, "size": "6"}],
            [{"offset": -64, "size": 6}],
            [{"offset": 64, "size": 7}],
            [{"offset": 15, "size": 6}],
            [{"offset": 65, "size": 6}],
            [{"offset": 2**62, "size": 6}],
            [{"offset": 64, "size": 5}],
            [],
        ],
    )
    def test_wrong_blobs(self, path: Path, blobs: object) -> None:
        path.write_bytes(archive_bytes(example_toc(blobs=blobs)))
        with pytest.raises(FormatError) as caught:
            PackedKernelArchive.read(path)
        assert caught.value.path == path

    def test_blobs_need_not_be_aligned(self, path: Path) -> None:
        toc = example_toc(
            blobs=[{"offset": 67, "size": 3}], toc={"a": {"x": {"ordinal": 0, "original_size": 3}}}
        )
        path.write_bytes(archive_bytes(toc))
        with PackedKernelArchive.read(path) as archive:
            assert archive.get_kernel("a", "x") == b"nel"

    def test_empty_kernel_at_the_end_of_the_blob(self, path: Path) -> None:
        toc = example_toc(
            blobs=[{"offset": 70, "size": 0}], toc={"a": {"x": {"ordinal": 0, "original_size": 0}}}
        )
        path.write_bytes(archive_bytes(toc))
        with PackedKernelArchive.read(path) as archive:
            assert archive.get_kernel("a", "x") == b""
            assert archive.location("a", "x").stored_size == 0

    def test_reader_of_a_table_alone(self, path: Path) -> None:
        path.write_bytes(archive_bytes(example_toc()))
        assert bytes(NoOpCompressor.from_toc(example_toc(), path).decompress_kernel(0)) == b"kernel"
        with pytest.raises(FormatError):
            NoOpCompressor.from_toc({"blobs": [{"offset": 64, "size": 6}]}, path)


class TestZstd:
    @pytest.mark.parametrize(
        "changes",
        [
            {"zstd_offset": ...},
            {"zstd_offset": "64"},
            {"zstd_offset": 15},
            {"zstd_offset": 65},
            {"zstd_offset": 2**40},
            {"zstd_size": ...},
            {"zstd_size": 3},
            {"zstd_size": 1000},
            {"zstd_size": 22},
            {"toc": {"a": {"x": {"ordinal": 1, "original_size": 6}}}},
        ],
    )
    def test_wrong_table(self, path: Path, changes: dict[str, object]) -> None:
        blob = zstd_blob([frame_of(b"kernel")])
        path.write_bytes(archive_bytes(zstd_toc(blob, **changes), blob))
        with pytest.raises(FormatError) as caught:
            PackedKernelArchive.read(path)
        assert caught.value.path == path

    @pytest.mark.parametrize(
        "blob",
        [
            zstd_blob([frame_of(b"kernel")], count=0),
            zstd_blob([frame_of(b"kernel")], count=2),
            zstd_blob([frame_of(b"kernel")], count=2**32 - 1),
            zstd_blob([frame_of(b"kernel")]) + b"\0",
            zstd_blob([frame_of(b"kernel")])[:-1],
            zstd_blob([frame_of(b"kernel")] * 2, count=3) + bytes(3),
            b"\x01\0\0\0\xff\xff\xff\xff" + frame_of(b"kernel"),
        ],
    )
    def test_wrong_frames(self, path: Path, blob: bytes) -> None:
        with pytest.raises(FormatError) as caught:
            PackedKernelArchive.read(save_zstd(path, blob))
        assert caught.value.offset is not None

    @pytest.mark.parametrize(
        ("frame", "size"),
        [
            (frame_of(b"kernel"), 7),
            (frame_of(b"kernel"), 5),
            (frame_of(b"kernel"), 0),
            (frame_of(b""), 6),
            (frame_of(b"kernel", content_size=False), 7),
            (frame_of(b"kernel", content_size=False), 5),
            (frame_of(b"kernel", content_size=False), 0),
            (frame_of(b"kernel", content_size=False), None),
            (frame_of(b"kernel")[:-1], 6),
            (frame_of(b"kernel") + b"\0", 6),
            (frame_of(b"kernel") + frame_of(b""), 6),
            (b"", 0),
            (b"not zstd at all", 6),
            # A header that claims 4 GiB less one, and one that claims 2**63.
            (b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\xff\x31\0\0kernel", 2**32 - 1),
            (b"\x28\xb5\x2f\xfd\xe0" + (2**63 - 1).to_bytes(8, "little") + b"\x31\0\0kernel", None),
            # A skippable frame.
            (b"\x50\x2a\x4d\x18\x06\0\0\0kernel", 6),
        ],
    )
    def test_frame_that_lies(self, path: Path, frame: bytes, size: int | None) -> None:
        with (
            PackedKernelArchive.read(save_zstd(path, zstd_blob([frame]), size=size)) as archive,
            pytest.raises(FormatError) as caught,
        ):
            archive.get_kernel("a", "x")
        assert caught.value.path == path
        assert caught.value.offset == 72

    @pytest.mark.parametrize(
        ("frame", "size", "data"),
        [
            (frame_of(b"kernel"), None, b"kernel"),
            (frame_of(b"kernel", content_size=False), 6, b"kernel"),
            (frame_of(b"", content_size=False), 0, b""),
            (frame_of(b""), None, b""),
            (frame_of(bytes(10_000_000)), 10_000_000, bytes(10_000_000)),
        ],
    )
    def test_size_from_frame_or_entry(self, path: Path, frame: bytes, size: int | None, data: bytes) -> None:
        with PackedKernelArchive.read(save_zstd(path, zstd_blob([frame]), size=size)) as archive:
            assert archive.get_kernel("a", "x") == data
            assert archive.location("a", "x").original_size == len(data)

    def test_archive_ends_before_its_blob(self, path: Path) -> None:
        blob = zstd_blob([frame_of(b"kernel")])
        path.write_bytes(bytes(70))
        with pytest.raises(FormatError):
            ZstdCompressor.from_toc(zstd_toc(blob), path)
