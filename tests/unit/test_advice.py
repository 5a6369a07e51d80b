"""What a user is told beyond what was done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.advice import iter_size_warnings
from kpack_build.config import Config
from kpack_build.hostbinary import KpackReference
from kpack_build.pipeline import pack
from kpack_build.report import Outcome
from kpack_build.targets import GroupBy
from tests.converted import convert
from tests.elfbuilder import ElfOptions
from tests.synthetic import fat_library, without_device_code
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(level=1, workers=1)
INIT = {"pkg/__init__.py": b""}
FAT = fat_library(["gfx1100"])


def warnings(folder: Path, files: dict[str, bytes], config: Config = CONFIG) -> tuple[str, ...]:
    return pack(write_tree_of_wheel(folder / "tree", files), folder / "out", config).warnings


def test_nothing_to_say(tmp_path: Path) -> None:
    assert warnings(tmp_path, {**INIT, "pkg/lib.so": FAT}) == ()


@pytest.mark.parametrize(
    ("needed", "warned"),
    [
        ("libamdhip64.so.5", True),
        ("libamdhip64.so.6", True),
        ("libamdhip64.so.7", False),
        ("libamdhip64.so.8", False),
        ("libamdhip64-f1043337.so.7.2.70204", True),
        ("libamdhip64-69e34bce.so.7.14.60850-0000000", False),
        ("libamdhip64.so", False),
    ],
)
def test_runtimes_that_cannot_read_kpack(tmp_path: Path, needed: str, *, warned: bool) -> None:
    library = fat_library(["gfx1100"], options=ElfOptions(needed=(needed,)))
    found = warnings(tmp_path, {**INIT, "pkg/lib.so": library})
    assert [needed in warning for warning in found] == [True] * warned


@pytest.mark.parametrize("group_by", GroupBy)
def test_processor_without_a_family(tmp_path: Path, group_by: GroupBy) -> None:
    """It falls back to its own name, which is said once; where names are what was asked for, it is none."""
    library = fat_library(["gfx1999", "gfx1998", "gfx1100"], ["gfx1999"])
    found = warnings(tmp_path, {**INIT, "pkg/lib.so": library}, replace(CONFIG, group_by=group_by))
    if group_by is GroupBy.TARGET:
        assert found == ()
    else:
        [warning] = found
        assert "gfx1998, gfx1999" in warning


def test_homes_that_are_no_packages(tmp_path: Path) -> None:
    found = warnings(tmp_path, {"top.so": FAT, "plugins/lib.so": fat_library(["gfx90a"])})
    assert [warning.partition(" is no package")[0] for warning in found] == ["the top level", "plugins"]


def test_copies(tmp_path: Path) -> None:
    files = {**INIT, "pkg/lib.so": FAT, "pkg/lib.so.1": FAT, "pkg/lib.so.1.2": FAT}
    [warning] = warnings(tmp_path, files)
    assert f"{2 * len(FAT)} bytes" in warning
    assert "pkg/lib.so, pkg/lib.so.1, pkg/lib.so.1.2" in warning


def test_copies_that_record_has_no_hash_of(tmp_path: Path) -> None:
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/a.so": FAT, "pkg/b.so": FAT})
    record = tree / "thing-1.0.dist-info" / "RECORD"
    lines = record.read_text().splitlines()
    record.write_text("\n".join(f"{line.partition(',')[0]},," for line in lines) + "\n")
    assert pack(tree, tmp_path / "out", CONFIG).warnings == ()


@pytest.mark.parametrize(
    "name", ["libamdhip64.so.7", "libamdhip64-1a2b3c4d.so.7", "libhsa-runtime64.so.1", "librocm_kpack.so.0"]
)
def test_runtime_inside(tmp_path: Path, name: str) -> None:
    [warning] = warnings(tmp_path, {**INIT, "pkg/lib.so": FAT, f"thing.libs/{name}": without_device_code()})
    assert f"thing.libs/{name}" in warning


def test_libraries_that_are_no_runtime(tmp_path: Path) -> None:
    files = {**INIT, "pkg/lib.so": FAT, "thing.libs/librocblas-12.so": b"", "pkg/libamdhip64.py": b""}
    assert warnings(tmp_path, files) == ()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("../.kpack/package-gfx110x.kpack", False),
        (".kpack/package-gfx110x.kpack", True),
        (".kpack/package-@GFXARCH@.kpack", True),
        ("../elsewhere/package-@GFXARCH@.kpack", False),
    ],
)
@pytest.mark.parametrize("beside_a_fat_one", [False, True])
def test_converted_before_with_archives_elsewhere(
    tmp_path: Path, name: str, *, found: bool, beside_a_fat_one: bool
) -> None:
    """The library was moved away from its archives, as repairing a packed wheel does."""
    (tmp_path / "fat.so").write_bytes(FAT)
    reference = KpackReference(kernel_name="pkg/lib.so", search_paths=(name,))
    library = convert(tmp_path / "fat.so", tmp_path / "lib.so", reference).path.read_bytes()
    files = {**INIT, "pkg/lib.so": library, "pkg/.kpack/package-gfx110x.kpack": b"archive"}
    if beside_a_fat_one:
        files["other/__init__.py"] = b""
        files["other/fat.so"] = FAT
    tree = write_tree_of_wheel(tmp_path / "tree", files)
    report = pack(tree, tmp_path / "out", CONFIG)
    assert report.outcome is (Outcome.DONE if beside_a_fat_one else Outcome.NOTHING_TO_DO)
    assert [warning.partition(" ")[0] for warning in report.warnings] == ([] if found else ["pkg/lib.so"])


@pytest.mark.parametrize(
    ("size", "limit"), [(1, None), (2 << 30, None), ((2 << 30) + 1, "2 GiB"), ((4 << 30) + 1, "4 GiB")]
)
def test_large_wheels(size: int, limit: str | None) -> None:
    found = list(iter_size_warnings(size))
    assert len(found) == (limit is not None)
    assert all(str(size) in warning and str(limit) in warning for warning in found)


@pytest.mark.parametrize("is_tree", [False, True])
def test_size_of_a_wheel_counts_and_that_of_a_tree_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_tree: bool
) -> None:
    monkeypatch.setattr("kpack_build.advice._GIB", 1)
    files = {**INIT, "pkg/lib.so": FAT}
    source = write_tree_of_wheel(tmp_path / "tree", files) if is_tree else write_wheel_file(tmp_path, files)
    assert len(pack(source, tmp_path / "out", CONFIG).warnings) == (not is_tree)


def test_notes_on_the_wheel_itself(tmp_path: Path) -> None:
    """Tags that do not agree with the file name are said once, packed or not."""
    for files in ({**INIT, "pkg/lib.so": FAT}, INIT):
        wheel = write_wheel_file(tmp_path, files)
        other = wheel.rename(tmp_path / "thing-1.0-py2-none-any.whl")
        [note] = pack(other, tmp_path / f"out{len(files)}", CONFIG).warnings
        assert "py3-none-any" in note
