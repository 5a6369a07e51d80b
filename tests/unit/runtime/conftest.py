"""The generated table of a made-up package, in the place of the empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kpack_build.loader import loader_files
from kpack_build.runtime import _table
from tests.loaders import Recipe, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []


@pytest.fixture
def use_table(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recipe], None]:
    """Put the table of a made-up package in place, for the running test."""

    def use(recipe: Recipe) -> None:
        names: dict[str, object] = {}
        exec(loader_files(make_table(recipe))["_table.py"], names)  # noqa: S102 - our own text
        for name in _table.__all__:
            monkeypatch.setattr(_table, name, names[name])

    use(Recipe())
    return use


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what a developer may have set, and the machine's own WSL device."""
    for name in ("ROCM_KPACK_DISABLE", "ROCM_KPACK_PATH", "ROCM_KPACK_PATH_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kpack_build.runtime._gpus._WSL_DEVICE", "/dev/no-such-device")
