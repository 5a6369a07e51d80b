"""The search for code objects, by the rules of ROCm's reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import FormatError
from kpack_build.filesets import FoundFile, open_files
from kpack_build.kernelsearch import Search, Shelf
from kpack_build.targets import TargetId
from tests.unit.archives import code_object, write_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with Shelf() as shelf:
        yield shelf


def _search(folder: Path, shelf: Shelf, *search_paths: str) -> Search:
    with open_files(folder) as files:
        return Search(files, shelf, "pkg/lib.so", search_paths)


def _found(search: Search, key: str, agent: str) -> tuple[str, str] | None:
    answer = search.answer(key, TargetId.parse(agent))
    return None if answer is None else (answer.archive.name, str(answer.target))


def test_most_specific_target_of_any_archive_goes_first(tmp_path: Path, shelf: Shelf) -> None:
    write_archive(tmp_path / "pkg/.kpack/a.kpack", ["gfx90a"], {("k#0", "gfx90a"): code_object("gfx90a")})
    data = code_object("gfx90a:xnack-")
    write_archive(tmp_path / "pkg/.kpack/b.kpack", ["gfx90a:xnack-"], {("k#0", "gfx90a:xnack-"): data})
    search = _search(tmp_path, shelf, ".kpack/a.kpack", ".kpack/b.kpack")
    assert _found(search, "k#0", "gfx90a:sramecc+:xnack-") == ("pkg/.kpack/b.kpack", "gfx90a:xnack-")
    assert _found(search, "k#0", "gfx90a:sramecc+:xnack+") == ("pkg/.kpack/a.kpack", "gfx90a")
    assert _found(search, "k#0", "gfx1100") is None
    answer = search.answer("k#0", TargetId.parse("gfx90a:xnack-"))
    assert answer is not None
    assert bytes(answer.read()) == data


def test_search_ends_at_the_first_archive_that_lists_the_target(tmp_path: Path, shelf: Shelf) -> None:
    write_archive(tmp_path / "pkg/a.kpack", ["gfx1100"], {("k#0", "gfx1100"): code_object("gfx1100")})
    write_archive(tmp_path / "pkg/b.kpack", ["gfx1100"], {("k#1", "gfx1100"): code_object("gfx1100", b"1")})
    search = _search(tmp_path, shelf, "a.kpack", "b.kpack")
    assert _found(search, "k#0", "gfx1100") == ("pkg/a.kpack", "gfx1100")
    assert _found(search, "k#1", "gfx1100") is None
    rest = search.rest("k#1", TargetId.parse("gfx1100"))
    assert rest is not None
    assert rest.archive.name == "pkg/b.kpack"
    assert search.rest("k#2", TargetId.parse("gfx1100")) is None


def test_generic_code_comes_last(tmp_path: Path, shelf: Shelf) -> None:
    data = code_object("gfx11-generic")
    write_archive(tmp_path / "pkg/a.kpack", ["gfx11-generic"], {("k#0", "gfx11-generic"): data})
    search = _search(tmp_path, shelf, "a.kpack")
    assert _found(search, "k#0", "gfx1100") == ("pkg/a.kpack", "gfx11-generic")


def test_any_target_in_a_search_path(tmp_path: Path, shelf: Shelf) -> None:
    for target in ("gfx1100", "gfx1030"):
        write_archive(tmp_path / f".kpack/x_{target}.kpack", [target], {("k#0", target): code_object(target)})
    search = _search(
        tmp_path, shelf, "../.kpack/x_@GFXARCH@.kpack", "../absent_@GFXARCH@.kpack", "gone.kpack"
    )
    assert [str(target) for target in search.listed] == ["gfx1030", "gfx1100"]
    assert search.missing == ("../absent_@GFXARCH@.kpack", "gone.kpack")


def test_absent_entry_reads_as_nothing(tmp_path: Path, shelf: Shelf) -> None:
    write_archive(tmp_path / "a.kpack", ["gfx1100"], {("k#0", "gfx1100"): code_object("gfx1100")})
    archive = shelf.open(FoundFile("a.kpack", tmp_path / "a.kpack"))
    assert bytes(archive.read("k#0", "gfx1030")) == b""
    assert shelf.open(FoundFile("a.kpack", tmp_path / "a.kpack")) is archive


def test_damaged_archive(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "a.kpack").write_bytes(b"KPAK" + bytes(60))
    with pytest.raises(FormatError):
        shelf.open(FoundFile("a.kpack", tmp_path / "a.kpack"))
