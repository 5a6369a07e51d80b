"""What the tests stand on: the cache, and how a missing thing is reported."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.cache import cache_directory, make_once
from tests.missing import missing

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []


def test_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPACK_TEST_CACHE", str(tmp_path / "cache"))
    assert cache_directory("a", "b") == tmp_path / "cache" / "a" / "b"
    assert (tmp_path / "cache" / "a" / "b").is_dir()


def test_entry_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(directory: Path) -> None:
        made.append(directory)
        (directory / "file").write_text("content")

    assert make_once(tmp_path / "entry", make) == tmp_path / "entry"
    assert make_once(tmp_path / "entry", make) == tmp_path / "entry"
    assert len(made) == 1
    assert (tmp_path / "entry" / "file").read_text() == "content"


def test_makers_at_the_same_time_agree(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def make(directory: Path) -> None:
        (directory / "file").write_text("content")
        barrier.wait(timeout=30)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: make_once(tmp_path / "entry", make), range(4)))
    assert results == [tmp_path / "entry"] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["entry"]


def test_entry_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def make(directory: Path) -> None:
        (directory / "half").write_text("content")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        make_once(tmp_path / "entry", make)
    assert list(tmp_path.iterdir()) == []


def test_missing_things_skip_and_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="a compiler"):
        missing("a compiler")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="a compiler"):
        missing("a compiler")
