"""Code objects written to files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import FormatError, WheelError
from kpack_build.export import Export, export_code_objects, file_name
from kpack_build.progress import SilentProgress
from kpack_build.targets import TargetId
from tests.fixtures.bundles import chain, fat_bundle
from tests.unit.archives import code_object, write_archive

if TYPE_CHECKING:
    from pathlib import Path


def _export(source: Path, output: Path, *targets: str) -> Export:
    wanted = frozenset(targets) if targets else None
    return export_code_objects(source, output, targets=wanted, progress=SilentProgress())


def _files(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("gfx1100", "gfx1100.hsaco"),
        ("gfx90a:xnack-", "gfx90a_xnack-off.hsaco"),
        ("gfx90a:sramecc+:xnack+", "gfx90a_sramecc-on_xnack-on.hsaco"),
        ("gfx9-4-generic:sramecc-", "gfx9-4-generic_sramecc-off.hsaco"),
    ],
)
def test_file_names_are_safe(target: str, name: str) -> None:
    assert file_name(TargetId.parse(target)) == name


def test_archive(tmp_path: Path) -> None:
    bare, qualified = code_object("gfx90a"), code_object("gfx90a:xnack-")
    write_archive(
        tmp_path / "a.kpack",
        ["gfx90a", "gfx90a:xnack-"],
        {
            ("pkg/lib.so#0", "gfx90a"): bare,
            ("pkg/lib.so#1", "gfx90a"): bare,
            ("pkg/lib.so#10", "gfx90a:xnack-"): qualified,
            ("no-index", "gfx90a"): bare,
        },
    )
    result = _export(tmp_path / "a.kpack", tmp_path / "out")
    assert _files(tmp_path / "out") == {
        "pkg/lib.so/0/gfx90a.hsaco": bare,
        "pkg/lib.so/1/gfx90a.hsaco": bare,
        "pkg/lib.so/10/gfx90a_xnack-off.hsaco": qualified,
        "no-index/0/gfx90a.hsaco": bare,
    }
    assert len(result.objects) == 4
    assert (tmp_path / "out/no-index/0/gfx90a.hsaco").stat().st_nlink == 3


def test_equal_files_where_links_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", link)
    data = code_object("gfx1100")
    write_archive(tmp_path / "a.kpack", ["gfx1100"], {(f"l#{n}", "gfx1100"): data for n in range(2)})
    _export(tmp_path / "a.kpack", tmp_path / "out")
    assert _files(tmp_path / "out") == {"l/0/gfx1100.hsaco": data, "l/1/gfx1100.hsaco": data}


def test_names_from_archives_stay_inside(tmp_path: Path) -> None:
    keys = ["../../../evil#0", "/etc/evil#0", "a:b+c\x1b#0", "a_b_c_#0", "...#0", "#0", "/#0", "x#٣", "y#"]
    entries = {(key, "gfx1100"): code_object("gfx1100", key.encode()) for key in keys}
    write_archive(tmp_path / "a.kpack", ["gfx1100"], entries)
    result = _export(tmp_path / "a.kpack", tmp_path / "deep/er/out")
    assert len(result.objects) == len(keys)
    assert sorted(_files(tmp_path)) == sorted(
        ["a.kpack", *(f"deep/er/out/{found.path}" for found in result.objects)]
    )
    assert all(not set(found.path) & set(":+\x1b") for found in result.objects)
    assert sorted(_files(tmp_path / "deep/er/out").values()) == sorted(entries.values())


def test_chosen_targets(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_bytes(fat_bundle("gfx90a:xnack-", "gfx90a:xnack+", "gfx1100"))
    _export(tmp_path / "x.co", tmp_path / "one", "gfx90a")
    assert set(_files(tmp_path / "one")) == {
        "x.co/0/gfx90a_xnack-off.hsaco",
        "x.co/0/gfx90a_xnack-on.hsaco",
    }
    _export(tmp_path / "x.co", tmp_path / "two", "gfx90a:xnack-", "gfx1030")
    assert set(_files(tmp_path / "two")) == {"x.co/0/gfx90a_xnack-off.hsaco"}


def test_loose_files_of_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    data, _ = chain([fat_bundle("gfx1100"), fat_bundle("gfx1100", "gfx942", seed=1)])
    (source / "two.hsaco").write_bytes(data)
    (source / "bare.co").write_bytes(code_object("gfx1030"))
    (source / "text.txt").write_text("nothing")
    _export(source, tmp_path / "out")
    assert set(_files(tmp_path / "out")) == {
        "bare.co/0/gfx1030.hsaco",
        "two.hsaco/0/gfx1100.hsaco",
        "two.hsaco/1/gfx1100.hsaco",
        "two.hsaco/1/gfx942.hsaco",
    }


def test_empty_output_folder_is_used_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_bytes(code_object("gfx1030"))
    (tmp_path / "out").mkdir()
    _export(tmp_path / "x.co", tmp_path / "out")
    before = _files(tmp_path)
    for used in ("out", "x.co"):
        with pytest.raises(WheelError):
            _export(tmp_path / "x.co", tmp_path / used)
    assert _files(tmp_path) == before


def test_sources_are_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_bytes(code_object("gfx1030"))
    with pytest.raises(WheelError):
        _export(tmp_path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.co"]


def test_archive_that_names_what_is_no_target(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.kpack", ["sm_90"], {("lib.so#0", "sm_90"): code_object("gfx1030")})
    with pytest.raises(FormatError) as caught:
        _export(tmp_path / "a.kpack", tmp_path / "out")
    assert caught.value.path == tmp_path / "a.kpack"
    assert caught.value.found == "sm_90"


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.co").write_bytes(code_object("gfx1030"))
    (source / "b.co").write_bytes(code_object("gfx1030")[:70])
    with pytest.raises(FormatError):
        _export(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_result_as_json(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_bytes(code_object("gfx1030"))
    result = _export(tmp_path / "x.co", tmp_path / "out").to_json()
    assert isinstance(result, dict)
    assert result["output"] == str(tmp_path / "out")


def test_output_folder_that_another_run_took(tmp_path: Path) -> None:
    source, output = tmp_path / "x.co", tmp_path / "out"
    source.write_bytes(code_object("gfx1030"))

    class Rival(SilentProgress):
        def finish(self) -> None:
            output.mkdir()
            (output / "theirs").touch()

    with pytest.raises(WheelError) as caught:
        export_code_objects(source, output, targets=None, progress=Rival())
    assert str(output) in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "theirs", "x.co"]
