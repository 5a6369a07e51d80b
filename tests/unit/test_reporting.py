"""The report of a run, held against the files that it is about."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.config import Config
from kpack_build.pipeline import pack
from kpack_build.report import BinaryAction, Outcome, Sizes
from tests.synthetic import code_of, fat_library, without_device_code
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(level=1, workers=1)
INIT = {"pkg/__init__.py": b""}
UNITS = [("gfx1100", "gfx90a"), ("gfx11-generic",)]


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_binaries_and_sizes_of_a_wheel(tmp_path: Path) -> None:
    library, host = fat_library(*UNITS), without_device_code()
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": library, "pkg/host.so": host})
    report = pack(wheel, tmp_path / "out", CONFIG)
    [binary] = report.binaries
    with zipfile.ZipFile(report.output) as archive:
        after = {info.filename: info.file_size for info in archive.infolist()}
    with zipfile.ZipFile(wheel) as archive:
        before = sum(info.file_size for info in archive.infolist())
    assert (binary.action, binary.wrappers, binary.code_objects) == (BinaryAction.CONVERTED, 2, 3)
    assert binary.size == Sizes(before=len(library), after=after["pkg/lib.so"])
    assert binary.size.growth < 0
    assert report.wheel == Sizes(before=wheel.stat().st_size, after=report.output.stat().st_size)
    assert report.installed == Sizes(before=before, after=sum(after.values()))
    assert report.scheme == CONFIG.scheme


def test_sizes_of_a_tree(tmp_path: Path) -> None:
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/lib.so": fat_library(*UNITS)})
    report = pack(tree, tmp_path / "out", CONFIG)
    assert report.wheel == Sizes(before=sizes(tree), after=sizes(report.output))
    assert report.installed == report.wheel


def test_archives_and_repeated_bytes(tmp_path: Path) -> None:
    """The generic object lies in its own archive and in the native one, where it counts as repeated."""
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/lib.so": fat_library(*UNITS)})
    report = pack(tree, tmp_path / "out", CONFIG)
    own = {target: len(code_of(target, UNITS[0])) for target in UNITS[0]}
    generic = len(code_of("gfx11-generic", UNITS[1], seed=1))
    found = {
        archive.family: (archive.code_objects, archive.original_bytes, archive.repeated_bytes)
        for archive in report.archives
    }
    assert found == {
        "gfx11-generic": (1, generic, 0),
        "gfx110x": (2, own["gfx1100"] + generic, generic),
        "gfx9_0": (1, own["gfx90a"], 0),
    }
    for archive in report.archives:
        file = report.output / archive.path
        assert file.stat().st_size == archive.size
        with PackedKernelArchive.read(file) as opened:
            assert tuple(opened.gfx_arches) == archive.targets


def test_copies_of_a_library_are_no_repeated_bytes(tmp_path: Path) -> None:
    """They are stored once, so nothing is there twice."""
    library = fat_library(["gfx1100"])
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/a.so": library, "pkg/b.so": library})
    [archive] = pack(tree, tmp_path / "out", CONFIG).archives
    assert (archive.code_objects, archive.repeated_bytes) == (1, 0)


@pytest.mark.parametrize(
    ("targets", "dropped"),
    [(None, ()), (("gfx90a",), ("gfx11-generic", "gfx1100")), (("gfx1101",), ("gfx1100", "gfx90a"))],
)
def test_dropped_targets(tmp_path: Path, targets: tuple[str, ...] | None, dropped: tuple[str, ...]) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": fat_library(*UNITS)})
    report = pack(wheel, tmp_path / "out", replace(CONFIG, targets=targets))
    assert (report.outcome, report.dropped) == (Outcome.DONE, dropped)


def test_what_passed_through(tmp_path: Path) -> None:
    library = fat_library(*UNITS, encoded=True)
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": library})
    report = pack(wheel, tmp_path / "out", replace(CONFIG, targets=("gfx1201",)))
    [binary] = report.binaries
    assert (report.source, report.outcome) == (wheel, Outcome.NOTHING_WANTED)
    assert (binary.action, binary.encodings) == (BinaryAction.KEPT_FAT, ("CCOB v3",))
    assert binary.size == Sizes(before=len(library), after=len(library))
    assert report.wheel == Sizes(before=wheel.stat().st_size, after=wheel.stat().st_size)
    assert report.installed.growth == 0
    assert report.archives == ()
    [warning] = report.warnings
    assert "gfx1100, gfx90a" in warning
