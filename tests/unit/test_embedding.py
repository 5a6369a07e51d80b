"""What a wheel gets: loader, index, archives, and nothing in the place of its own files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import Config, Loader
from kpack_build.errors import WheelError
from kpack_build.injection import has_loader_call
from kpack_build.pipeline import pack
from tests.elfbuilder import PT_NOTE, ElfOptions
from tests.synthetic import fat_library
from tests.unit.wheels import write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.report import PackReport

CONFIG = Config(level=1, workers=1)
FAT = fat_library(["gfx1100"])
INIT = b'"""A package."""\n'


def packed(
    folder: Path, files: dict[str, bytes], config: Config = CONFIG
) -> tuple[dict[str, bytes], PackReport]:
    report = pack(write_wheel_file(folder, files), folder / "out", config)
    with zipfile.ZipFile(report.output) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}, report


@pytest.mark.parametrize("loader", Loader)
def test_loader(tmp_path: Path, loader: Loader) -> None:
    found, report = packed(
        tmp_path, {"pkg/__init__.py": INIT, "pkg/lib.so": FAT}, replace(CONFIG, loader=loader)
    )
    assert ("pkg/_kpack/__init__.py" in found) is (loader is not Loader.NONE)
    assert has_loader_call(found["pkg/__init__.py"]) is (loader is Loader.INJECT)
    undo = json.loads(found["pkg/.kpack/thing.json"])["restore"]
    assert set(undo["files"]) == ({"pkg/__init__.py"} if loader is Loader.INJECT else set())
    assert report.warnings == ()


def test_everything_new_is_named_for_the_way_back(tmp_path: Path) -> None:
    files = {"pkg/__init__.py": INIT, "pkg/lib.so": FAT}
    found, _ = packed(tmp_path, files)
    undo = json.loads(found["pkg/.kpack/thing.json"])["restore"]
    new = {name for name in found if name.startswith(("pkg/.kpack/", "pkg/_kpack/"))}
    assert set(undo["added"]) == new
    assert undo["added"] == sorted(undo["added"])


@pytest.mark.parametrize("name", ["__init__.pyc", "__init__.cpython-311-x86_64-linux-gnu.so"])
def test_compiled_package_gets_a_loader_but_no_call(tmp_path: Path, name: str) -> None:
    found, report = packed(tmp_path, {f"pkg/{name}": b"compiled", "pkg/lib.so": FAT})
    assert "pkg/_kpack/__init__.py" in found
    assert found[f"pkg/{name}"] == b"compiled"
    [warning] = report.warnings
    assert "pkg/__init__.py" in warning


def test_source_that_cannot_take_the_call(tmp_path: Path) -> None:
    source = b"def broken(:\n"
    found, report = packed(tmp_path, {"pkg/__init__.py": source, "pkg/lib.so": FAT})
    assert found["pkg/__init__.py"] == source
    assert [warning.partition(":")[0] for warning in report.warnings] == ["pkg/__init__.py"]


def test_source_that_has_the_call_already(tmp_path: Path) -> None:
    first, _ = packed(tmp_path, {"pkg/__init__.py": INIT, "pkg/lib.so": FAT})
    source = first["pkg/__init__.py"]
    (tmp_path / "again").mkdir()
    found, report = packed(tmp_path / "again", {"pkg/__init__.py": source, "pkg/lib.so": FAT})
    assert found["pkg/__init__.py"] == source
    assert json.loads(found["pkg/.kpack/thing.json"])["restore"]["files"] == {}
    assert report.warnings == ()


@pytest.mark.parametrize("signature", ["RECORD.jws", "RECORD.p7s"])
def test_signed_wheel(tmp_path: Path, signature: str) -> None:
    files = {"pkg/__init__.py": INIT, "pkg/lib.so": FAT, f"thing-1.0.dist-info/{signature}": b"signed"}
    found, report = packed(tmp_path, files)
    assert found["pkg/__init__.py"] == INIT
    assert found[f"thing-1.0.dist-info/{signature}"] == b"signed"
    assert sum("signed" in warning for warning in report.warnings) == 2


@pytest.mark.parametrize(
    "name", ["pkg/_kpack/__init__.py", "pkg/.kpack/thing-gfx110x.kpack", "pkg/.kpack/mine.json"]
)
def test_file_in_the_way(tmp_path: Path, name: str) -> None:
    files = {"pkg/__init__.py": INIT, "pkg/lib.so": FAT, name: b"the wheel's own"}
    wheel = write_wheel_file(tmp_path, files)
    if name.endswith("mine.json"):
        # An index of another group is none of ours.
        assert pack(wheel, tmp_path / "out", CONFIG).archives
        return
    with pytest.raises(WheelError) as caught:
        pack(wheel, tmp_path / "out", CONFIG)
    assert name in caught.value.problem
    assert not list((tmp_path / "out").glob("*"))


def test_kept_bundles(tmp_path: Path) -> None:
    files = {
        "one/__init__.py": INIT,
        "one/a.so": fat_library(["gfx1100"], ["gfx90a"], encoded=True),
        "one/b.so": fat_library(["gfx1100"], seed=4),
        "two/__init__.py": INIT,
        "two/c.so": fat_library(["gfx1100"], seed=5),
    }
    found, _ = packed(tmp_path, files, replace(CONFIG, keep_ccob=True))
    index = json.loads(found["one/.kpack/thing.json"])
    kept = found["one/.kpack/thing.ccob"]
    assert [kept[row["offset"] : row["offset"] + row["size"]][:4] for row in index["kept"]] == [b"CCOB"] * 2
    numbers = [
        bundle["ccob"] and bundle["ccob"]["kept"]
        for binary in index["binaries"]
        for bundle in binary["restore"]["bundles"]
    ]
    first = len(index["code_objects"])
    assert numbers == [first, first + 1, None]
    assert "two/.kpack/thing.ccob" not in found
    assert json.loads(found["two/.kpack/thing.json"])["kept"] == []


def test_what_the_conversion_warns_of(tmp_path: Path) -> None:
    """The only header that could be spared is one that debuggers read."""
    files = {
        f"pkg/{name}.so": fat_library(
            ["gfx1100", "gfx1101", "gfx1102"], seed=seed, options=ElfOptions(extra=(PT_NOTE,))
        )
        for seed, name in enumerate(("a", "b"))
    }
    _, report = packed(tmp_path, {"pkg/__init__.py": INIT, **files})
    assert [warning.partition(":")[0] for warning in report.warnings] == ["pkg/a.so, pkg/b.so"]
