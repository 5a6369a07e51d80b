"""Places of results: names, folders that vanish with a failure, errors of a full disk."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kpack_build.outputs import naming_full_disk, output_folder, result_path

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []


def test_link_keeps_its_own_name(tmp_path: Path) -> None:
    link = tmp_path / "foo-1.0-py3-none-any.whl"
    link.symlink_to(tmp_path / "0123abcd")
    assert result_path(tmp_path / "out", link) == tmp_path / "out" / link.name


def test_links_in_a_circle_have_a_name(tmp_path: Path) -> None:
    link = tmp_path / "foo"
    link.symlink_to(link)
    assert result_path(tmp_path, link).name == "foo"


def test_working_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree")
    place = type(tmp_path)
    assert result_path(tmp_path, place()).name == "tree"
    assert result_path(tmp_path, place("inner/..")).name == "tree"


def test_folder_is_made_and_stays(tmp_path: Path) -> None:
    with output_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "a" / "b").is_dir()


def test_made_folders_go_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path / "mine" / "a" / "b"):
        raise KeyboardInterrupt
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_folder_that_another_run_uses_stays(tmp_path: Path) -> None:
    def fail_beside_other() -> None:
        with output_folder(tmp_path / "a" / "b"):
            (tmp_path / "a" / "other").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_beside_other()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "other"]


def test_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError), output_folder(tmp_path / "file"):
        raise AssertionError


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EIO, "broken"), False),
        (OSError(errno.ENOSPC, "full", "elsewhere"), False),
    ],
)
def test_full_disk_is_named(error: OSError, named: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    with pytest.raises(OSError, match=r"full|broken") as caught, naming_full_disk(tmp_path):
        raise error
    assert (caught.value.filename == str(tmp_path)) is named
