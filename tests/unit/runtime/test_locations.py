from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kpack_build.runtime import _locations
from kpack_build.runtime._gpus import FOUND, UNKNOWN, Gpu, Machine
from kpack_build.runtime._locations import (
    PREFIX,
    has_direct_path,
    hip_is_loaded,
    mend_search,
    offer_prefix,
    package_folder,
)
from kpack_build.runtime._status import make_status
from tests.loaders import Recipe, make_package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kpack_build.runtime._status import Status

BINARIES = ("lib/_C.so", "_top.so")
RECIPE = Recipe(binaries={"lib/_C.so": ("gfx1100",), "_top.so": ("gfx1100",)})
ARCHIVES = ("demo-gfx110x.kpack", "demo-gfx9_0.kpack")


@pytest.fixture
def package(tmp_path: Path, use_table: Callable[[Recipe], None]) -> Path:
    use_table(RECIPE)
    return make_package(tmp_path / "site", RECIPE)


def scatter(package: Path, store: Path, *, archives: bool = False) -> None:
    """Move each file of a package to a folder of its own, and leave links behind."""
    moved = [package / binary for binary in BINARIES]
    moved += list((package / ".kpack").iterdir()) if archives else []
    for number, path in enumerate(moved):
        target = store / str(number) / path.name
        target.parent.mkdir(parents=True)
        path.rename(target)
        path.symlink_to(target)


def status_of(package: Path, state: str = FOUND) -> Status:
    gpus = (Gpu(0, "gfx1100", "kfd", node=1),) if state == FOUND else ()
    return make_status(Machine(state, gpus, (), "/nowhere"), str(package))


@pytest.fixture(autouse=True)
def hip_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_locations, "hip_is_loaded", lambda: False)


def test_the_package_is_above_the_loader() -> None:
    assert package_folder().endswith("kpack_build")


def test_a_plain_install_has_a_direct_path(package: Path) -> None:
    assert has_direct_path(str(package), BINARIES, ARCHIVES)


def test_a_link_to_the_package_or_above_has_a_direct_path(package: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "demo").symlink_to(package)
    assert has_direct_path(str(tmp_path / "links" / "demo"), BINARIES, ARCHIVES)


def test_links_into_a_whole_package_have_a_direct_path(package: Path, tmp_path: Path) -> None:
    for name in (*BINARIES, *(f".kpack/{archive}" for archive in ARCHIVES)):
        link = tmp_path / "links" / "demo" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(package / name)
    assert has_direct_path(str(tmp_path / "links" / "demo"), BINARIES, ARCHIVES)


@pytest.mark.parametrize("archives", [False, True])
def test_scattered_links_have_none(package: Path, tmp_path: Path, *, archives: bool) -> None:
    scatter(package, tmp_path / "store", archives=archives)
    assert not has_direct_path(str(package), BINARIES, ARCHIVES)


def test_a_linked_folder_elsewhere_has_none(package: Path, tmp_path: Path) -> None:
    (package / "lib").rename(tmp_path / "lib")
    (package / "lib").symlink_to(tmp_path / "lib")
    assert has_direct_path(str(package), ("_top.so",), ARCHIVES)
    assert not has_direct_path(str(package), BINARIES, ARCHIVES)


def test_binaries_that_are_not_there_do_not_count(package: Path) -> None:
    assert has_direct_path(str(package), ("gone/_C.so",), ("gone.kpack",))
    assert not has_direct_path(str(package), BINARIES, ("gone.kpack",))


def test_a_plain_install_changes_no_variable(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PREFIX, raising=False)
    status = status_of(package)
    mend_search(status)
    assert (status.search_prefix, status.warnings) == ((), ())
    assert PREFIX not in os.environ


@pytest.mark.parametrize(("state", "count"), [(FOUND, 1), (UNKNOWN, 3)])
def test_scattered_archives_are_named_in_the_prefix(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, count: int
) -> None:
    monkeypatch.delenv(PREFIX, raising=False)
    scatter(package, tmp_path / "store", archives=True)
    status = status_of(package, state)
    mend_search(status)
    assert status.search_prefix[0] == str(package / ".kpack" / "demo-gfx110x.kpack")
    assert len(status.search_prefix) == count
    assert status.warnings == ()
    assert os.environ[PREFIX].split(":") == list(status.search_prefix)
    monkeypatch.delenv(PREFIX)


def test_without_a_served_gpu_nothing_is_named(package: Path, tmp_path: Path) -> None:
    scatter(package, tmp_path / "store")
    status = make_status(Machine(FOUND, (Gpu(0, "gfx1030", "kfd"),), (), ""), str(package))
    mend_search(status)
    assert status.search_prefix == ()


def test_after_hip_it_is_too_late(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_locations, "hip_is_loaded", lambda: True)
    scatter(package, tmp_path / "store")
    status = status_of(package)
    mend_search(status)
    assert status.search_prefix == ()
    (warning,) = status.warnings
    assert PREFIX in warning
    assert PREFIX not in os.environ


def test_a_path_that_no_variable_can_name(tmp_path: Path, use_table: Callable[[Recipe], None]) -> None:
    use_table(RECIPE)
    package = make_package(tmp_path / "a:b", RECIPE)
    scatter(package, tmp_path / "store")
    status = status_of(package)
    mend_search(status)
    assert (status.search_prefix, len(status.warnings)) == ((), 1)


def test_what_is_in_the_prefix_stays_in_front() -> None:
    variables = {PREFIX: "/theirs.kpack:"}
    assert offer_prefix(["/ours.kpack", "/theirs.kpack"], variables) == ("/ours.kpack",)
    assert variables == {PREFIX: "/theirs.kpack:/ours.kpack"}
    assert offer_prefix(["/ours.kpack"], variables) == ()
    assert variables == {PREFIX: "/theirs.kpack:/ours.kpack"}


def test_hip_is_found_in_the_map_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    maps = tmp_path / "maps"
    maps.write_bytes(b"7f00-7f01 r-xp 0 00:00 1  /usr/lib/libc.so.6\n")
    assert not hip_is_loaded(str(maps))
    maps.write_bytes(b"7f00-7f01 r-xp 0 00:00 1  /x.libs/libamdhip64-7f2e.so.7.14\n")
    assert hip_is_loaded(str(maps))
    assert not hip_is_loaded(str(tmp_path / "none"))
