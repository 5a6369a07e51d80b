"""The archive as its users see it."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kpack_build import schemes
from kpack_build.archive import PackedKernelArchive
from kpack_build.compression import COMPRESSION_SCHEMES, NoOpCompressor, ZstdCompressor
from kpack_build.errors import (
    ArchiveLimitError,
    ArchiveStateError,
    ConfigError,
    DuplicateKernelError,
    FormatError,
    MissingKernelError,
    OrdinalError,
)
from tests.archives import (
    KERNELS,
    BackwardsCompressor,
    archive_bytes,
    compressor_of,
    example_toc,
    save_example,
)

if TYPE_CHECKING:
    from kpack_build.compression import Compressor

SCHEMES = ["none", "zstd-per-kernel"]

# Header: magic, version 1, offset of the table; zeros up to byte 64.
PADDING = bytes(48)
TOC_START = (
    b"\x87"
    b"\xaeformat_version\x01"
    b"\xaagroup_name\xa1g"
    b"\xafgfx_arch_family\xa7gfx110x"
    b"\xaagfx_arches\x92\xa7gfx1100\xa7gfx1101"
    b"\xa3toc\x82"
    b"\xaapkg/a.so#0\x82"
    b"\xa7gfx1100\x83\xa4type\xa5hsaco\xa7ordinal\x00\xadoriginal_size\x06"
    b"\xa7gfx1101\x84\xa4type\xa5hsaco\xa7ordinal\x01\xadoriginal_size\x03\xa8metadata\x81\xa1k\xc3"
    b"\xaapkg/b.so#0\x81"
    b"\xa7gfx1100\x83\xa4type\xa5hsaco\xa7ordinal\x00\xadoriginal_size\x06"
)
GOLDEN_NONE = (
    b"KPAK\x01\x00\x00\x00\x83\x00\x00\x00\x00\x00\x00\x00"
    + PADDING
    + (b"kernel" + bytes(58))
    + b"two"
    + TOC_START
    + b"\xb2compression_scheme\xa4none"
    + b"\xa5blobs\x92\x82\xa6offset\x40\xa4size\x06\x82\xa6offset\xcc\x80\xa4size\x03"
)
GOLDEN_ZSTD = (
    b"KPAK\x01\x00\x00\x00\x67\x00\x00\x00\x00\x00\x00\x00"
    + PADDING
    + b"\x02\x00\x00\x00"
    # A frame: magic, one segment with its size in one byte, the size, a raw last block.
    + b"\x0f\x00\x00\x00"
    + (b"\x28\xb5\x2f\xfd\x20\x06\x31\x00\x00" + b"kernel")
    + b"\x0c\x00\x00\x00"
    + (b"\x28\xb5\x2f\xfd\x20\x03\x19\x00\x00" + b"two")
    + (b"\x88" + TOC_START[1:])
    + b"\xb2compression_scheme\xafzstd-per-kernel"
    + b"\xabzstd_offset\x40\xa9zstd_size\x27"
)


def golden(path: Path | None, compressor: Compressor | None) -> PackedKernelArchive:
    archive = PackedKernelArchive("g", "gfx110x", ["gfx1100", "gfx1101"], path, compressor)
    archive.add_kernel(archive.prepare_kernel("pkg\\a.so#0", "gfx1100", b"kernel", {}))
    archive.add_kernel(archive.prepare_kernel("pkg/a.so#0", "gfx1101", b"two", {"k": True}))
    archive.add_kernel(archive.prepare_kernel("pkg/b.so#0", "gfx1100", b"kernel"))
    archive.finalize_archive()
    return archive


@pytest.mark.parametrize(("scheme", "expected"), [("none", GOLDEN_NONE), ("zstd-per-kernel", GOLDEN_ZSTD)])
def test_bytes_are_those_of_the_format(tmp_path: Path, scheme: str, expected: bytes) -> None:
    golden(tmp_path / "streamed.kpack", compressor_of(scheme)).close()
    golden(None, compressor_of(scheme)).write(tmp_path / "new" / "folder" / "written.kpack")
    assert (tmp_path / "streamed.kpack").read_bytes() == expected
    assert (tmp_path / "new" / "folder" / "written.kpack").read_bytes() == expected
    PackedKernelArchive.read(tmp_path / "streamed.kpack").write(tmp_path / "copied.kpack")
    assert (tmp_path / "copied.kpack").read_bytes() == expected


def test_no_compressor_is_none(tmp_path: Path) -> None:
    golden(tmp_path / "a.kpack", None).close()
    assert (tmp_path / "a.kpack").read_bytes() == GOLDEN_NONE


def test_constants_of_the_reference() -> None:
    assert PackedKernelArchive.MAGIC == b"KPAK"
    assert PackedKernelArchive.FORMAT_VERSION == 1
    assert PackedKernelArchive.HEADER_SIZE == 16
    assert PackedKernelArchive.BLOB_ALIGNMENT == 64


def test_prepared_kernel(tmp_path: Path) -> None:
    archive = PackedKernelArchive("g", "f", ["gfx1100"])
    prepared = archive.prepare_kernel("a\\b.so", "gfx1100", bytearray(b"data"), {"x": 1})
    assert prepared.relative_path == "a/b.so"
    assert prepared.gfx_arch == "gfx1100"
    assert prepared.kernel_id == "a/b.so@gfx1100"
    assert prepared.original_size == 4
    assert prepared.metadata == {"x": 1}
    assert prepared.digest == hashlib.sha256(b"data").hexdigest()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_round_trip(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "g-gfx110x.kpack"
    save_example(path, scheme)
    with PackedKernelArchive.read(path) as archive:
        assert archive.group_name == "g"
        assert archive.gfx_arch_family == "gfx110x"
        assert archive.gfx_arches == ["gfx1100", "gfx1101"]
        assert archive.compression_scheme == scheme
        for (binary, arch), data in KERNELS.items():
            assert archive.get_kernel(binary.replace("/", "\\"), arch) == data
        assert archive.get_kernel("pkg/b.so#0", "gfx1101") == KERNELS["pkg/a.so#0", "gfx1100"]
        assert archive.toc["pkg/b.so#0"]["gfx1101"]["metadata"] == {"from": "pkg/a.so"}
        assert "metadata" not in archive.toc["pkg/b.so#0"]["gfx1100"]
        assert archive.get_kernel("pkg/a.so#0", "gfx90a") is None
        assert archive.get_kernel("pkg/none.so#0", "gfx1100") is None


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("streamed", [False, True])
def test_new_archive_is_readable_once_final(tmp_path: Path, scheme: str, *, streamed: bool) -> None:
    archive = golden(tmp_path / "a.kpack" if streamed else None, compressor_of(scheme))
    assert archive.get_kernel("pkg/a.so#0", "gfx1101") == b"two"
    assert [(key, arch, place.ordinal) for key, arch, place in archive.entries()] == [
        ("pkg/a.so#0", "gfx1100", 0),
        ("pkg/a.so#0", "gfx1101", 1),
        ("pkg/b.so#0", "gfx1100", 0),
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_location_leads_to_the_stored_bytes(tmp_path: Path, scheme: str) -> None:
    archive = golden(tmp_path / "a.kpack", compressor_of(scheme))
    place = archive.location("pkg\\a.so#0", "gfx1101")
    assert place.original_size == 3
    assert place.ordinal == 1
    stored = (tmp_path / "a.kpack").read_bytes()[place.offset : place.offset + place.stored_size]
    frame = archive.prepare_kernel("x", "y", b"two").compression_input
    assert frame in (schemes.NoOpCompressionInput(stored), schemes.ZstdCompressionInput(stored))
    with pytest.raises(MissingKernelError) as caught:
        archive.location("pkg/a.so#0", "gfx90a")
    assert caught.value.gfx_arch == "gfx90a"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_kernels_are_stored_once(tmp_path: Path, scheme: str) -> None:
    data = os.urandom(1 << 16)
    with PackedKernelArchive("g", "f", ["gfx1100"], tmp_path / "a.kpack", compressor_of(scheme)) as archive:
        ordinals = [archive.add_kernel(archive.prepare_kernel(f"a#{i}", "gfx1100", data)) for i in range(20)]
    assert ordinals == [0] * 20
    assert (tmp_path / "a.kpack").stat().st_size < 2 * len(data)


def test_prepared_kernel_fits_every_archive_of_its_scheme(tmp_path: Path) -> None:
    first, second = (
        PackedKernelArchive("g", "f", ["a", "b"], tmp_path / f"{name}.kpack", ZstdCompressor())
        for name in "ab"
    )
    prepared = first.prepare_kernel("x", "a", b"data")
    first.add_kernel(prepared)
    second.add_kernel(replace(prepared, gfx_arch="b"))
    first.close()
    second.finalize_archive()
    assert second.get_kernel("x", "b") == b"data"


def test_none_is_aligned_and_uncopied(tmp_path: Path) -> None:
    save_example(tmp_path / "a.kpack", "none")
    with PackedKernelArchive.read(tmp_path / "a.kpack") as archive:
        places = [place for _, _, place in archive.entries()]
        kernel = archive.get_kernel("pkg/b.so#0", "gfx1100")
    assert all(place.offset % 64 == 0 for place in places)
    assert isinstance(kernel, memoryview)
    assert kernel.readonly
    # The view keeps its map, also when the archive is closed and the file is gone.
    (tmp_path / "a.kpack").unlink()
    assert kernel == KERNELS["pkg/b.so#0", "gfx1100"]


def test_zstd_is_smaller(tmp_path: Path) -> None:
    for scheme in SCHEMES:
        with PackedKernelArchive("g", "f", ["x"], tmp_path / scheme, compressor_of(scheme)) as archive:
            archive.add_kernel(archive.prepare_kernel("a", "x", b"instruction" * 5000))
    assert (tmp_path / "zstd-per-kernel").stat().st_size * 8 < (tmp_path / "none").stat().st_size


def test_empty_archive(tmp_path: Path) -> None:
    for scheme in SCHEMES:
        with PackedKernelArchive("g", "f", [], tmp_path / scheme, compressor_of(scheme)):
            pass
        with PackedKernelArchive.read(tmp_path / scheme) as archive:
            assert list(archive.entries()) == []


def test_order_and_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    contents = [bytes([i]) * (50_000 - 100 * i) for i in range(60)]
    for workers in (1, 4):
        path = tmp_path / f"{workers}.kpack"
        with (
            PackedKernelArchive("g", "f", ["x"], path, ZstdCompressor(7)) as archive,
            ThreadPoolExecutor(workers) as pool,
        ):
            for prepared in pool.map(
                lambda i, to=archive: to.prepare_kernel(f"a#{i}", "x", contents[i]), range(len(contents))
            ):
                archive.add_kernel(prepared)
    assert (tmp_path / "1.kpack").read_bytes() == (tmp_path / "4.kpack").read_bytes()


class TestStates:
    def test_reading_needs_a_final_archive(self, tmp_path: Path) -> None:
        archive = PackedKernelArchive("g", "f", ["x"])
        archive.add_kernel(archive.prepare_kernel("a", "x", b"1"))
        for call in (
            lambda: archive.get_kernel("a", "x"),
            lambda: archive.location("a", "x"),
            lambda: archive.write(tmp_path / "a"),
            lambda: list(archive.entries()),
        ):
            with pytest.raises(ArchiveStateError):
                call()
        assert issubclass(ArchiveStateError, RuntimeError)

    def test_final_archive_takes_nothing_more(self) -> None:
        archive = golden(None, None)
        for call in (
            archive.finalize_archive,
            lambda: archive.add_kernel(archive.prepare_kernel("z", "x", b"1")),
            lambda: archive.add_alias("z", "x", ordinal=0),
        ):
            with pytest.raises(ArchiveStateError):
                call()

    def test_closed_archive_does_nothing(self) -> None:
        archive = golden(None, None)
        archive.close()
        archive.close()
        with pytest.raises(ArchiveStateError):
            archive.get_kernel("pkg/a.so#0", "gfx1100")

    def test_duplicate(self) -> None:
        archive = PackedKernelArchive("g", "f", ["x"])
        archive.add_kernel(archive.prepare_kernel("a/b", "x", b"1"))
        with pytest.raises(DuplicateKernelError):
            archive.add_kernel(archive.prepare_kernel("a\\b", "x", b"2"))
        with pytest.raises(ValueError, match="a/b"):
            archive.add_alias("a\\b", "x", ordinal=0)

    @pytest.mark.parametrize("ordinal", [-1, 1])
    def test_alias_of_nothing(self, ordinal: int) -> None:
        archive = PackedKernelArchive("g", "f", ["x"])
        archive.add_kernel(archive.prepare_kernel("a", "x", b"1"))
        with pytest.raises(OrdinalError) as caught:
            archive.add_alias("b", "x", ordinal=ordinal)
        assert (caught.value.ordinal, caught.value.count) == (ordinal, 1)

    def test_repr_tells_what_it_is(self, tmp_path: Path) -> None:
        text = repr(golden(tmp_path / "x.kpack", ZstdCompressor()))
        for part in (
            "'g'",
            "gfx110x",
            "gfx1101",
            "zstd-per-kernel",
            "final",
            "x.kpack",
            "3 kernels",
            "2 bin",
        ):
            assert part in text
        assert "being written" in repr(PackedKernelArchive("g", "f", []))


class TestDestination:
    def test_nothing_is_there_before_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "a.kpack"
        with PackedKernelArchive("g", "f", ["x"], path) as archive:
            archive.add_kernel(archive.prepare_kernel("a", "x", bytes(100_000)))
            assert not path.exists()
            (private,) = path.parent.iterdir()
            # Flushed or not, no reader takes what is there.
            with pytest.raises(FormatError):
                PackedKernelArchive.read(private)
        assert [file.name for file in path.parent.iterdir()] == ["a.kpack"]

    def test_exception_leaves_nothing_and_keeps_the_old(self, tmp_path: Path) -> None:
        path = tmp_path / "a.kpack"
        path.write_bytes(b"old")
        with pytest.raises(KeyError), PackedKernelArchive("g", "f", ["x"], path):
            raise KeyError
        assert path.read_bytes() == b"old"
        assert [file.name for file in tmp_path.iterdir()] == ["a.kpack"]

    def test_close_gives_up(self, tmp_path: Path) -> None:
        archive = PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpack")
        archive.close()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ArchiveStateError):
            archive.finalize_archive()

    def test_mode_is_that_of_any_file(self, tmp_path: Path) -> None:
        golden(tmp_path / "a.kpack", None).close()
        (tmp_path / "other").write_bytes(b"")
        assert (tmp_path / "a.kpack").stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_full_disk_throws_the_archive_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class FullStream:
            def append(self, kernel: object) -> int:
                raise OSError(28, "No space left on device", kernel)

        monkeypatch.setattr(NoOpCompressor, "open_stream", lambda _self, _file: FullStream())
        archive = PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpack")
        with pytest.raises(OSError, match="No space"):
            archive.add_kernel(archive.prepare_kernel("a", "x", b"1"))
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ArchiveStateError):
            archive.finalize_archive()

    def test_failing_end_leaves_nothing(self, tmp_path: Path) -> None:
        archive = PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpack")
        unpackable = {"a": object()}
        archive.add_kernel(archive.prepare_kernel("a", "x", b"1", unpackable))  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            archive.finalize_archive()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ArchiveStateError):
            archive.finalize_archive()

    def test_failing_write_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_number: int) -> None:
            raise OSError(5, "Input/output error")

        archive = golden(None, None)
        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            archive.write(tmp_path / "a.kpack")
        assert list(tmp_path.iterdir()) == []

    def test_limit_is_told_and_harms_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "MAX_KERNELS", 1)
        for scheme in SCHEMES:
            with PackedKernelArchive("g", "f", ["x"], tmp_path / scheme, compressor_of(scheme)) as archive:
                archive.add_kernel(archive.prepare_kernel("a", "x", b"1"))
                with pytest.raises(ArchiveLimitError) as caught:
                    archive.add_kernel(archive.prepare_kernel("b", "x", b"2"))
                assert (caught.value.value, caught.value.limit) == (2, 1)
            assert PackedKernelArchive.read(tmp_path / scheme).get_kernel("a", "x") == b"1"


class TestNames:
    def test_file_name(self) -> None:
        assert PackedKernelArchive.compute_pack_filename("my_group", "gfx110x") == "my_group-gfx110x.kpack"
        name = PackedKernelArchive.compute_pack_filename("g", "gfx9-4-generic", scheme="zstd-per-kernel")
        assert name == "g-gfx9-4-generic.kpack"

    @pytest.mark.parametrize("name", ["gfx90a:xnack-", "gfx90a+", "a/b", "a\\b", "", ".hidden", "a\0"])
    def test_names_that_are_no_file_names(self, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            PackedKernelArchive.compute_pack_filename("g", name)
        assert caught.value.key == "family"
        with pytest.raises(ConfigError) as caught:
            PackedKernelArchive.compute_pack_filename(name, "gfx90a")
        assert caught.value.key == "group"

    def test_unknown_scheme(self) -> None:
        with pytest.raises(ConfigError) as caught:
            PackedKernelArchive.compute_pack_filename("g", "f", scheme="lzma-of-nobody")
        assert caught.value.key == "scheme"


class TestForeignScheme:
    """A scheme that ROCm does not read, that does not stream, and that knows only files."""

    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(COMPRESSION_SCHEMES, "backwards", BackwardsCompressor)

    def fill(self, path: Path | None) -> PackedKernelArchive:
        archive = PackedKernelArchive("g", "f", ["x"], path, BackwardsCompressor())
        archive.add_kernel(archive.prepare_kernel("a", "x", memoryview(b"abc")))
        archive.add_kernel(archive.prepare_kernel("b", "x", b"defg"))
        archive.finalize_archive()
        return archive

    def test_never_wears_rocms_magic_or_name(self, tmp_path: Path) -> None:
        archive = self.fill(tmp_path / "a.kpkb")
        assert (tmp_path / "a.kpkb").read_bytes()[:4] == b"KPKB"
        assert PackedKernelArchive.compute_pack_filename("g", "f", scheme="backwards") == "g-f.kpkb"
        with pytest.raises(ArchiveStateError):
            PackedKernelArchive("g", "f", ["x"], tmp_path / "b.kpack", BackwardsCompressor())
        with pytest.raises(ArchiveStateError):
            archive.write(tmp_path / "b.kpack")
        assert [file.name for file in tmp_path.iterdir()] == ["a.kpkb"]

    @pytest.mark.parametrize("streamed", [False, True])
    def test_kernels_come_back(self, tmp_path: Path, *, streamed: bool) -> None:
        archive = self.fill(tmp_path / "a.kpkb" if streamed else None)
        archive.write(tmp_path / "b.kpkb")
        for found in (archive, PackedKernelArchive.read(tmp_path / "b.kpkb")):
            assert found.get_kernel("a", "x") == b"abc"
            assert found.get_kernel("b", "x") == b"defg"
            with pytest.raises(ArchiveStateError):
                found.location("a", "x")
            found.close()


class TestReaders:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_many_threads(self, tmp_path: Path, scheme: str) -> None:
        save_example(tmp_path / "a.kpack", scheme)
        start = threading.Barrier(8)
        with PackedKernelArchive.read(tmp_path / "a.kpack") as archive, ThreadPoolExecutor(8) as pool:

            def check(_number: int) -> bool:
                start.wait()
                return all(
                    archive.get_kernel(*key) == data for _ in range(100) for key, data in KERNELS.items()
                )

            assert all(pool.map(check, range(8)))

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_after_fork(self, tmp_path: Path, scheme: str) -> None:
        save_example(tmp_path / "a.kpack", scheme)
        archive = PackedKernelArchive.read(tmp_path / "a.kpack")
        assert archive.get_kernel("pkg/a.so#0", "gfx1100") == KERNELS["pkg/a.so#0", "gfx1100"]
        child = os.fork()
        if child == 0:
            same = all(archive.get_kernel(*key) == data for key, data in KERNELS.items())
            os._exit(0 if same else 1)
        assert all(archive.get_kernel(*key) == data for key, data in KERNELS.items())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_table_may_leave_out_what_the_reference_lets(self, tmp_path: Path) -> None:
        toc = example_toc(
            compression_scheme=..., toc={"a#0": {"gfx1100": {"ordinal": 0, "unknown": 1}}}, unknown=[1]
        )
        (tmp_path / "a.kpack").write_bytes(archive_bytes(toc))
        with PackedKernelArchive.read(tmp_path / "a.kpack") as archive:
            assert archive.compression_scheme == "none"
            assert archive.get_kernel("a#0", "gfx1100") == b"kernel"
            assert archive.location("a#0", "gfx1100").original_size == 6

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            PackedKernelArchive.read(tmp_path / "none.kpack")


def test_memory_stays_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are on disk, and forgotten, as they come."""
    written: list[int] = []
    open_file = Path.open

    def watch(path: Path, mode: str) -> io.BufferedRandom:
        file = open_file(path, mode)
        assert isinstance(file, io.BufferedRandom)
        return file

    monkeypatch.setattr(Path, "open", watch)
    with PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpack") as archive:
        monkeypatch.undo()
        for number in range(4):
            archive.add_kernel(archive.prepare_kernel(f"a#{number}", "x", bytes([number]) * 1_000_000))
            (private,) = tmp_path.iterdir()
            written.append(private.stat().st_size // 1_000_000)
    assert written == [1, 2, 3, 4]
