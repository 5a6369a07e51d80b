"""The way back: the original wheel, or an error that says what is not as it was."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.config import Config, Loader
from kpack_build.errors import FormatError, KpackError, RestorationError, WheelError
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.restoration import restore
from kpack_build.targets import GroupBy
from tests.synthetic import fat_library
from tests.unit.wheels import FILE_NAME, write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = Config(level=1, workers=1)
FILES = {
    "pkg/__init__.py": b"# coding: latin-1\r\n'''\xe9'''\r\nfrom __future__ import annotations",
    "pkg/lib.so": fat_library(["gfx1100", "gfx90a:xnack-"], ["gfx90a", "gfx11-generic"]),
    "plugins/x.so": fat_library(["gfx1030"], seed=6),
}
INDEX = "pkg/.kpack/thing.json"


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def files_of(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }


def packed_tree(folder: Path, files: dict[str, bytes] | None = None, config: Config = CONFIG) -> Path:
    return pack(write_tree_of_wheel(folder / "tree", files or FILES), folder / "packed", config).output


@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
@pytest.mark.parametrize("group_by", GroupBy)
@pytest.mark.parametrize("loader", Loader)
def test_wheel_comes_back(tmp_path: Path, scheme: str, group_by: GroupBy, loader: Loader) -> None:
    wheel = write_wheel_file(tmp_path, FILES)
    config = replace(CONFIG, scheme=scheme, group_by=group_by, loader=loader)
    packed = pack(wheel, tmp_path / "packed", config).output
    before = packed.read_bytes()
    report = restore(packed, tmp_path / "restored")
    assert packed.read_bytes() == before
    assert (report.source, report.output) == (packed, tmp_path / "restored" / FILE_NAME)
    assert set(report.exact) == {"pkg/lib.so", "plugins/x.so"}
    assert report.recompressed == ()
    assert members(report.output) == members(wheel)
    assert list((tmp_path / "restored").iterdir()) == [report.output]


def test_tree_comes_back(tmp_path: Path) -> None:
    restored = restore(packed_tree(tmp_path), tmp_path / "restored").output
    assert files_of(restored) == files_of(tmp_path / "tree")


class Noted(SilentProgress):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def start(self, label: str, total: int) -> None:
        assert label
        self.steps.append(total)

    def advance(self, amount: int) -> None:
        self.steps.append(amount)

    def finish(self) -> None:
        self.steps.append(0)


def test_progress(tmp_path: Path) -> None:
    progress = Noted()
    restore(packed_tree(tmp_path), tmp_path / "restored", progress=progress)
    sizes = [len(FILES["pkg/lib.so"]), len(FILES["plugins/x.so"])]
    assert progress.steps == [sum(sizes), *sizes, 0]


@pytest.mark.parametrize("keep_ccob", [False, True])
def test_compressed_bundles(tmp_path: Path, *, keep_ccob: bool) -> None:
    """Ours can be compressed again as they were; with `keep_ccob` nothing has to be."""
    files = {"pkg/__init__.py": b"", "pkg/lib.so": fat_library(["gfx1100"], ["gfx90a"], encoded=True)}
    tree = packed_tree(tmp_path, files, replace(CONFIG, keep_ccob=keep_ccob))
    assert (tree / "pkg/.kpack/thing.ccob").exists() is keep_ccob
    report = restore(tree, tmp_path / "restored")
    assert report.exact == ("pkg/lib.so",)
    assert files_of(report.output) == files_of(tmp_path / "tree")


def test_wheel_that_was_not_packed(tmp_path: Path) -> None:
    with pytest.raises(WheelError):
        restore(write_wheel_file(tmp_path, FILES), tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_result_in_the_place_of_the_source(tmp_path: Path) -> None:
    packed = pack(write_wheel_file(tmp_path, FILES), tmp_path / "packed", CONFIG).output
    before = packed.read_bytes()
    with pytest.raises(WheelError):
        restore(packed, packed.parent)
    assert packed.read_bytes() == before


def test_filtered_wheel_cannot_come_back(tmp_path: Path) -> None:
    tree = packed_tree(tmp_path, config=replace(CONFIG, targets=("gfx1100",)))
    with pytest.raises(RestorationError) as caught:
        restore(tree, tmp_path / "restored")
    assert caught.value.path == tree / "pkg/lib.so"
    assert not list((tmp_path / "restored").glob("*"))


def change_index(tree: Path, change: Callable[[Any], object]) -> None:
    file = tree / INDEX
    index = json.loads(file.read_bytes())
    change(index)
    file.write_text(json.dumps(index))


def _no_answer(index: Any) -> None:  # noqa: ANN401 - JSON of any shape
    for answers in index["binaries"][0]["wrappers"]:
        answers.clear()


def _too_large_number(index: Any) -> None:  # noqa: ANN401 - JSON of any shape
    entry = index["binaries"][0]["restore"]["bundles"][0]["entries"][1]
    entry["object"] = len(index["code_objects"]) + len(index["kept"])


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["code_objects"][0].update(sha256="0" * 64),
        _no_answer,
        _too_large_number,
        lambda index: index["archives"][0].update(file="thing-gfx9_0.kpack"),
    ],
    ids=["another digest", "no answer", "no such bundle", "another archive"],
)
def test_index_that_does_not_fit(tmp_path: Path, change: Callable[[Any], object]) -> None:
    tree = packed_tree(tmp_path)
    change_index(tree, change)
    with pytest.raises((FormatError, RestorationError)):
        restore(tree, tmp_path / "restored")
    assert not list((tmp_path / "restored").glob("*"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: (tree / "pkg/lib.so").write_bytes((tree / "pkg/lib.so").read_bytes() + b"more"),
        lambda tree: (tree / "pkg/__init__.py").write_bytes(b"import this\n"),
        lambda tree: (tree / "thing-1.0.dist-info/RECORD").write_text("thing-1.0.dist-info/RECORD,,\n"),
        lambda tree: (tree / "pkg/lib.so").unlink(),
        lambda tree: (tree / "pkg/.kpack/thing-gfx110x.kpack").unlink(),
        lambda tree: shutil.rmtree(tree / "pkg/_kpack"),
        lambda tree: (tree / "pkg/.kpack/thing-gfx110x.kpack").write_bytes(b"KPAK"),
    ],
    ids=[
        *("changed library", "changed source", "another RECORD", "no library", "no archive"),
        *("no loader", "damaged archive"),
    ],
)
def test_wheel_that_was_changed(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    tree = packed_tree(tmp_path)
    damage(tree)
    with pytest.raises(KpackError) as caught:
        restore(tree, tmp_path / "restored")
    assert str(tree) in str(caught.value)
    assert not list((tmp_path / "restored").glob("*"))


def test_wheel_that_was_packed_in_two_runs(tmp_path: Path) -> None:
    """Something was put into it in between, so there is no one original."""
    tree = packed_tree(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": fat_library(["gfx1100"])})
    before = files_of(tree)
    added = {name: data for name, data in before.items() if not name.startswith("thing-1.0.dist-info/")}
    (tmp_path / "second").mkdir()
    twice = packed_tree(tmp_path / "second", {**added, "thing.libs/x.so": fat_library(["gfx1030"], seed=3)})
    with pytest.raises(WheelError) as caught:
        restore(twice, tmp_path / "restored")
    assert caught.value.path == twice
    assert not list((tmp_path / "restored").glob("*"))


def kept(folder: Path) -> Path:
    files = {"pkg/__init__.py": b"", "pkg/lib.so": fat_library(["gfx1100"], encoded=True)}
    return packed_tree(folder, files, replace(CONFIG, keep_ccob=True))


@pytest.mark.parametrize("content", [None, b"", b"CCOB" * 500], ids=["gone", "empty", "another"])
def test_kept_bundles_that_are_not_what_they_were(tmp_path: Path, content: bytes | None) -> None:
    tree = kept(tmp_path)
    (tree / "pkg/.kpack/thing.ccob").unlink()
    if content is not None:
        (tree / "pkg/.kpack/thing.ccob").write_bytes(content)
    with pytest.raises(KpackError) as caught:
        restore(tree, tmp_path / "restored")
    assert content is None or (isinstance(caught.value, FormatError) and caught.value.path == tree / INDEX)
    assert not list((tmp_path / "restored").glob("*"))


def test_kept_bundles_that_the_index_forgot(tmp_path: Path) -> None:
    tree = kept(tmp_path)
    change_index(tree, lambda index: index["kept"].clear())
    with pytest.raises(FormatError):
        restore(tree, tmp_path / "restored")


def test_archives_are_checked_by_their_content(tmp_path: Path) -> None:
    """An archive of the same shape with other code in it is noticed."""
    tree = packed_tree(tmp_path, config=replace(CONFIG, scheme="none"))
    [file] = (tree / "pkg/.kpack").glob("*gfx110x*")
    with PackedKernelArchive.read(file) as archive:
        place = next(place for _, _, place in archive.entries())
    data = bytearray(file.read_bytes())
    data[place.offset + place.stored_size - 1] ^= 1
    file.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        restore(tree, tmp_path / "restored")
    assert caught.value.path == tree / INDEX
