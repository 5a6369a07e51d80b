"""Code objects on their way from binaries into archives."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.assignment import ObjectKey, plan_archives
from kpack_build.bundle import Bundle, write_bundle
from kpack_build.compression import create_compressor
from kpack_build.extraction import UnsafeBinaries, extract
from kpack_build.progress import SilentProgress
from kpack_build.scan import scan_wheel
from kpack_build.targets import GroupBy
from kpack_build.wheel import open_wheel
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import entry_id, fat_entries
from tests.fixtures.code_objects import write_code_object
from tests.synthetic import code_of, compressed, fat_library
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpack_build.archive import PreparedKernel
    from kpack_build.bundle import DecodedBundle
    from kpack_build.extraction import ExtractedObject

UNITS = [("gfx1100", "gfx90a:xnack-"), ("gfx90a", "gfx11-generic")]
INIT = {"pkg/__init__.py": b""}


class Counting(SilentProgress):
    """Adds up what it is told."""

    def __init__(self) -> None:
        self.done = 0

    def advance(self, amount: int) -> None:
        self.done += amount


def run(
    folder: Path,
    files: dict[str, bytes],
    *,
    workers: int = 2,
    wanted: frozenset[str] | None = None,
    progress: Counting | None = None,
) -> tuple[dict[ObjectKey, ExtractedObject], list[Path]]:
    """Extract from a tree with these files; return what was stored, and the archives' files."""
    tree = write_tree_of_wheel(folder / "tree", {**INIT, **files})
    with open_wheel(tree) as contents, scan_wheel(contents) as scan:
        assert scan.kept == []
        plan = plan_archives(scan.fat, group_by=GroupBy.SUB_FAMILY, wanted=wanted)
        paths = [folder / f"{number}.kpack" for number, _ in enumerate(plan.archives)]
        archives = [
            PackedKernelArchive(
                "g",
                planned.family,
                [str(target) for target in planned.targets],
                output_path=path,
                compressor=create_compressor("zstd-per-kernel", level=1),
            )
            for path, planned in zip(paths, plan.archives, strict=True)
        ]
        try:
            stored = extract(scan.fat, plan, archives, workers=workers, progress=progress or Counting())
            for archive in archives:
                archive.finalize_archive()
        finally:
            for archive in archives:
                archive.close()
        return stored, paths


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "compressed"])
def test_every_code_object_is_stored(tmp_path: Path, *, workers: int, encoded: bool) -> None:
    progress = Counting()
    stored, archives = run(
        tmp_path, {"pkg/lib.so": fat_library(*UNITS, encoded=encoded)}, workers=workers, progress=progress
    )
    originals = {
        ObjectKey("pkg/lib.so", unit, number): code_of(target, targets, seed=unit)
        for unit, targets in enumerate(UNITS)
        for number, target in enumerate(targets, 1)
    }
    assert {key: (found.size, found.sha256) for key, found in stored.items()} == {
        key: (len(data), hashlib.sha256(data).hexdigest()) for key, data in originals.items()
    }
    assert progress.done == sum(map(len, originals.values()))
    held = set()
    for file in archives:
        with PackedKernelArchive.read(file) as archive:
            held |= {bytes(archive.get_kernel(key, target) or b"") for key, target, _ in archive.entries()}
    assert held == set(originals.values())


def test_generic_object_is_stored_in_each_archive_that_needs_it(tmp_path: Path) -> None:
    stored, archives = run(tmp_path, {"pkg/lib.so": fat_library(["gfx1100"], ["gfx11-generic"])})
    generic = stored[ObjectKey("pkg/lib.so", 1, 1)]
    assert set(generic.ordinals) == {0, 1}
    for file, key in zip(archives, ("gfx11-generic", "gfx1100"), strict=True):
        with PackedKernelArchive.read(file) as archive:
            data = archive.get_kernel("pkg/lib.so#1", key)
            assert data is not None
            assert hashlib.sha256(data).hexdigest() == generic.sha256


def test_equal_objects_are_stored_once(tmp_path: Path) -> None:
    same = fat_library(["gfx1100"], seed=7)
    stored, [file] = run(tmp_path, {"pkg/a.so": same, "pkg/b.so": same})
    assert [found.ordinals for found in stored.values()] == [{0: 0}, {0: 0}]
    with PackedKernelArchive.read(file) as archive:
        assert len({place.offset for _, _, place in archive.entries()}) == 1
        assert {key for key, _, _ in archive.entries()} == {"pkg/a.so#0", "pkg/b.so#0"}


def test_bundles_without_anything_wanted_are_checked_and_let_go(tmp_path: Path) -> None:
    stored, archives = run(
        tmp_path,
        {"pkg/lib.so": fat_library(["gfx90a"], ["gfx1100"], ["gfx90a"], encoded=True)},
        workers=1,
        wanted=frozenset({"gfx1100"}),
    )
    assert [key.bundle for key in stored] == [1]
    assert len(archives) == 1


def library(*bundles: bytes) -> bytes:
    return build_elf(ElfOptions(bundles=bundles, wrappers=tuple(range(len(bundles)))))


def stray(bundle: bytes) -> bytes:
    """Return a bundle with a byte in the padding before its last entry."""
    damaged = bytearray(bundle)
    damaged[4096 - 1] = 1
    return bytes(damaged)


def broken(bundle: bytes) -> bytes:
    """Return a compressed bundle whose header has another hash than its content."""
    damaged = bytearray(compressed(bundle))
    damaged[24] ^= 0x55
    return bytes(damaged)


def wrong_target() -> bytes:
    return write_bundle([*fat_entries(["gfx1100"]), (entry_id("gfx1030"), write_code_object("gfx1031"))])


def no_code_object() -> bytes:
    return write_bundle([*fat_entries(["gfx1100"]), (entry_id("gfx1030"), b"not ELF" * 20)])


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "bundle",
    [
        compressed(stray(write_bundle(fat_entries(["gfx1100"])))),
        broken(write_bundle(fat_entries(["gfx1100", "gfx90a"]))),
        wrong_target(),
        no_code_object(),
    ],
    ids=["stray bytes", "damaged compression", "another target", "no code object"],
)
def test_unsafe_binaries_are_all_named(tmp_path: Path, bundle: bytes, workers: int) -> None:
    good = write_bundle(fat_entries(["gfx1100"]))
    files = {
        "pkg/a.so": library(good),
        "pkg/b.so": library(good, bundle),
        "pkg/c.so": library(bundle, bundle, good),
    }
    with pytest.raises(UnsafeBinaries) as caught:
        run(tmp_path, files, workers=workers)
    assert {path: len(reasons) for path, reasons in caught.value.reasons.items()} == {
        "pkg/b.so": 1,
        "pkg/c.so": 2,
    }
    assert "pkg/b.so" in str(caught.value)
    # Where the files were while this was found is of no use to anybody.
    assert str(tmp_path) not in repr(caught.value.reasons)


@pytest.mark.parametrize(
    ("workers", "spare", "bound"),
    [
        (1, 1 << 20, 1),
        (2, 1 << 20, 2),
        # With nothing to spare, a fourth bundle and its code object would be too much.
        (4, 0, 3),
    ],
)
@pytest.mark.parametrize("targets", [["gfx1100"], ["gfx1100", "gfx1101", "gfx1102", "gfx90a"]], ids=len)
def test_number_of_open_bundles_is_bounded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    workers: int,
    spare: int,
    bound: int,
    targets: list[str],
) -> None:
    opened, most = [0], [0]
    lock, original = threading.Lock(), Bundle.open_decoded

    @contextmanager
    def counted(bundle: Bundle) -> Iterator[DecodedBundle]:
        with original(bundle) as decoded:
            with lock:
                opened[0] += 1
                most[0] = max(most[0], opened[0])
            try:
                yield decoded
            finally:
                with lock:
                    opened[0] -= 1

    data = fat_library(*[targets] * 12, encoded=True)
    monkeypatch.setattr(Bundle, "open_decoded", counted)
    monkeypatch.setattr("kpack_build.extraction._SPARE", spare)
    stored, _ = run(tmp_path, {"pkg/lib.so": data}, workers=workers)
    assert len(stored) == 12 * len(targets)
    assert opened == [0]
    assert 1 <= most[0] <= bound


def test_bundles_are_closed_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Bundle] = []
    original = Bundle.open_decoded

    @contextmanager
    def noted(bundle: Bundle) -> Iterator[DecodedBundle]:
        with original(bundle) as decoded:
            try:
                yield decoded
            finally:
                closed.append(bundle)

    class Failing(Counting):
        def advance(self, amount: int) -> None:
            raise OSError(amount)

    monkeypatch.setattr(Bundle, "open_decoded", noted)
    with pytest.raises(OSError, match=r"[0-9]"):
        run(tmp_path, {"pkg/lib.so": fat_library(*UNITS, encoded=True)}, progress=Failing())
    assert len(closed) == len(UNITS)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "compressed"])
def test_bytes_that_are_held_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int, encoded: bool
) -> None:
    held, most, lock = [0], [0], threading.Lock()
    original, prepare = Bundle.open_decoded, PackedKernelArchive.prepare_kernel
    sizes: set[int] = set()

    def hold(amount: int) -> None:
        with lock:
            held[0] += amount
            most[0] = max(most[0], held[0])

    @contextmanager
    def opened(bundle: Bundle) -> Iterator[DecodedBundle]:
        size = bundle.decoded_size if bundle.ccob is not None else 0
        sizes.update([size, *(entry.size for entry in bundle.entries)])
        hold(size)
        with original(bundle) as decoded:
            yield decoded
        hold(-size)

    def prepared(archive: PackedKernelArchive, path: str, arch: str, data: memoryview) -> PreparedKernel:
        hold(len(data))
        return prepare(archive, path, arch, data)

    class Collected(Counting):
        def advance(self, amount: int) -> None:
            hold(-amount)

    monkeypatch.setattr("kpack_build.extraction._SPARE", 0)
    monkeypatch.setattr(Bundle, "open_decoded", opened)
    monkeypatch.setattr(PackedKernelArchive, "prepare_kernel", prepared)
    data = fat_library(*[["gfx1100", "gfx1101"], ["gfx90a"]] * 6, encoded=encoded)
    run(tmp_path, {"pkg/lib.so": data}, workers=workers, progress=Collected())
    assert held == [0]
    # One code object is prepared for each open bundle at least, or nothing would be done.
    assert most[0] <= workers * max(sizes) + (max(sizes) if workers == 1 else 0)
