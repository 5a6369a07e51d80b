from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kpack_build.runtime._gpus import FOUND, NONE, UNKNOWN, Gpu, Machine, find_gpus
from kpack_build.runtime._report import format_status
from kpack_build.runtime._status import DAMAGED, MISSING, PRESENT, READER_VARIABLES, Status, make_status
from tests.loaders import Recipe, make_package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def see(folder: Path, *targets: str | None, **masks: str) -> Status:
    """Return the status of a machine with these GPUs."""
    named = {"KPACK_TARGETS": ",".join(target or "gfx0" for target in targets), **masks}
    machine = find_gpus("/nowhere", named)
    for number, target in enumerate(targets):
        machine.gpus[number].target = target
    return make_status(machine, str(folder))


@pytest.fixture
def package(tmp_path: Path, use_table: Callable[[Recipe], None]) -> Path:
    use_table(Recipe())
    return make_package(tmp_path)


def test_a_served_gpu(package: Path) -> None:
    status = see(package, "gfx1101")
    (row,) = status.gpus
    assert (row.archive, row.path) == ("demo-gfx110x.kpack", str(package / ".kpack" / "demo-gfx110x.kpack"))
    assert (row.targets, row.processor, row.condition) == (("gfx1101",), "gfx1101", "")
    assert (row.is_served, row.reason, row.without_code) == (True, None, ("lib/_C.so",))
    assert (status.distribution, status.version, status.package) == ("demo-dist", "1.2", "demo")
    assert (status.state, status.warnings, status.folder) == (FOUND, (), str(package))
    assert {archive.state for archive in status.archives} == {PRESENT}


def test_a_gpu_without_an_archive_is_warned_of(package: Path) -> None:
    status = see(package, "gfx1030")
    (row,) = status.gpus
    assert (row.archive, row.path, row.targets, row.is_served) == (None, None, (), False)
    (warning,) = status.warnings
    for text in ("demo-dist 1.2", "GPU 0", "gfx1030", "gfx1100, gfx1101, gfx90a, gfx9-4-generic"):
        assert text in warning
    assert "HIP_VISIBLE_DEVICES" not in warning


def test_a_covered_gpu_beside_it_can_be_chosen(package: Path) -> None:
    (warning,) = see(package, "gfx1036", "gfx1100").warnings
    assert "GPU 0" in warning
    assert "GPU 1" not in warning
    assert "HIP_VISIBLE_DEVICES=1" in warning


def test_masked_gpus_are_no_cause_of_warnings(package: Path) -> None:
    assert see(package, "gfx1036", "gfx1100", HIP_VISIBLE_DEVICES="1").warnings == ()
    assert see(package, "gfx1036", "gfx1100", HIP_VISIBLE_DEVICES="0").warnings != ()
    assert see(package, "gfx942", "gfx1100", ROCR_VISIBLE_DEVICES="1").warnings == ()


def test_mixed_targets_are_warned_of_with_the_way_out(package: Path) -> None:
    (warning,) = see(package, "gfx1100", "gfx942", "gfx1100").warnings
    assert "HIP_VISIBLE_DEVICES=0,2 or HIP_VISIBLE_DEVICES=1" in warning
    (warning,) = see(package, "gfx1030", "gfx942", "gfx1100", ROCR_VISIBLE_DEVICES="1,2").warnings
    assert "HIP_VISIBLE_DEVICES=0 or HIP_VISIBLE_DEVICES=1" in warning


def test_different_gpus_with_the_same_code_are_not_mixed(package: Path) -> None:
    status = see(package, "gfx942", "gfx950")
    assert [row.processor for row in status.gpus] == ["gfx9-4-generic"] * 2
    assert status.warnings == ()


def test_both_names_of_an_overridden_gpu_are_told(package: Path) -> None:
    gpu = Gpu(0, "gfx1030", "HSA_OVERRIDE_GFX_VERSION", node=1, hardware="gfx1103")
    status = make_status(Machine(FOUND, (gpu,), (), "/nowhere"), str(package))
    assert "gfx1030" in status.warnings[0]
    assert "gfx1103" in status.warnings[0]
    assert "HSA_OVERRIDE_GFX_VERSION" in status.warnings[0]
    assert "hardware gfx1103" in format_status(status)


def test_a_lost_archive_is_told(package: Path) -> None:
    (package / ".kpack" / "demo-gfx110x.kpack").unlink()
    status = see(package, "gfx1100", "gfx942")
    assert [row.is_served for row in status.gpus] == [False, True]
    assert status.gpus[0].archive == "demo-gfx110x.kpack"
    assert status.archives[0].state == MISSING
    (warning,) = status.warnings
    assert str(package / ".kpack" / "demo-gfx110x.kpack") in warning
    assert "demo-dist==1.2" in warning
    # Other archives may be missing without a word: nobody here needs them.
    assert see(package, "gfx942").warnings == ()


def test_a_cut_archive_is_told(package: Path) -> None:
    (package / ".kpack" / "demo-gfx110x.kpack").write_bytes(b"K")
    status = see(package, "gfx1100")
    assert status.archives[0].state == DAMAGED
    assert (status.gpus[0].is_served, len(status.warnings)) == (False, 1)


def test_a_generic_archive_stands_in_for_a_lost_one(
    tmp_path: Path, use_table: Callable[[Recipe], None]
) -> None:
    recipe = Recipe(families={"gfx110x": ("gfx1100",), "gfx11-generic": ("gfx11-generic",)})
    use_table(recipe)
    folder = make_package(tmp_path, recipe)
    assert see(folder, "gfx1100").gpus[0].processor == "gfx1100"
    (folder / ".kpack" / "demo-gfx110x.kpack").unlink()
    assert see(folder, "gfx1100").gpus[0].processor == "gfx11-generic"


def test_a_package_in_a_zip_has_nothing_to_look_for(tmp_path: Path, package: Path) -> None:
    status = see(tmp_path / "site.zip" / "demo", "gfx1100")
    assert package.exists()
    assert {archive.state for archive in status.archives} == {PRESENT}
    assert status.warnings == ()


def test_a_gpu_that_nobody_knows_is_no_cause(package: Path) -> None:
    status = see(package, None, "gfx1100")
    assert [row.is_served for row in status.gpus] == [False, True]
    assert status.warnings == ()
    assert "unknown" in format_status(status)


@pytest.mark.parametrize("state", [NONE, UNKNOWN])
def test_without_gpus_there_are_no_warnings(package: Path, state: str) -> None:
    status = make_status(Machine(state, (), ("a note",), "/nowhere"), str(package))
    assert (status.state, status.gpus, status.warnings) == (state, (), ())
    assert "a note" in format_status(status)


@pytest.mark.parametrize("name", READER_VARIABLES)
def test_variables_of_the_reader_are_noted(package: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = see(package, "gfx1100").notes
    monkeypatch.setenv(name, "somewhere")
    assert see(package, "gfx1100").notes == (*before, f"{name}=somewhere is set")


def test_a_wheel_without_archives_still_has_a_status(
    use_table: Callable[[Recipe], None], tmp_path: Path
) -> None:
    recipe = Recipe(families={}, binaries={})
    use_table(recipe)
    status = see(make_package(tmp_path, recipe), "gfx1100")
    assert len(status.warnings) == 1


def test_a_status_is_written_as_json(package: Path) -> None:
    status = see(package, "gfx90a", "gfx1030")
    data = json.loads(json.dumps(status.as_dict()))
    assert data["gpus"][0]["gpu"]["target"] == "gfx90a"
    assert data["gpus"][0]["archive"] == "demo-gfx9_0.kpack"
    assert data["gpus"][1]["reason"]
    assert data["archives"][1]["targets"] == ["gfx90a:xnack+", "gfx90a:xnack-"]
    assert data["warnings"] == list(status.warnings)


def test_results_compare_and_show_their_fields(package: Path) -> None:
    assert see(package, "gfx1100") == see(package, "gfx1100")
    assert see(package, "gfx1100") != see(package, "gfx1101")
    assert see(package, "gfx1100") != "gfx1100"
    assert see(package, "gfx1100").gpus[0].gpu != see(package, "gfx1100").gpus[0]
    assert "target='gfx1100'" in repr(see(package, "gfx1100"))


def test_the_table_for_people_says_all(package: Path, use_table: Callable[[Recipe], None]) -> None:
    use_table(Recipe(families={"a": ("gfx908:xnack+",), "b": ("gfx11-generic",), "c": ("gfx1101",)}))
    for family in "abc":
        (package / ".kpack" / f"demo-{family}.kpack").write_bytes(b"KPAK")
    (package / ".kpack" / "demo-c.kpack").unlink()
    status = see(package, "gfx908", "gfx1100", "gfx1101", "gfx1030", HIP_VISIBLE_DEVICES="0,1")
    status.search_prefix = ("/somewhere/a.kpack",)
    lines = format_status(status).splitlines()
    rows = {line.split()[0]: line for line in lines[3:7]}
    assert "only with xnack+" in rows["0"]
    assert "by gfx11-generic" in rows["1"]
    assert "no code in lib/_C.so" in rows["1"]
    assert "hidden by a mask" in rows["2"]
    assert "no archive" in rows["3"]
    assert "  /somewhere/a.kpack" in lines
    assert any("missing" in line for line in lines)
    assert not any(line != line.rstrip() for line in lines)
