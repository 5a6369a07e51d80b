"""Fixtures that every part of the tests may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.corpus import FAT_CORPUS, corpus_tree, corpus_wheel

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

pytest_plugins = ["tests.runtime.plugin"]

# How long an example takes says more about what else the machine does than about us.
settings.register_profile("kpack-build", deadline=None)
settings.load_profile("kpack-build")


@pytest.fixture(params=FAT_CORPUS)
def fat_corpus_name(request: pytest.FixtureRequest) -> str:
    """Name of a wheel of the corpus that holds fat binaries; the test runs once for each."""
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def fat_corpus_wheel(fat_corpus_name: str) -> Path:
    """One wheel of the corpus that holds fat binaries."""
    return corpus_wheel(fat_corpus_name)


@pytest.fixture
def fat_corpus_tree(fat_corpus_name: str) -> Path:
    """One unpacked wheel of the corpus that holds fat binaries, not to be written to."""
    return corpus_tree(fat_corpus_name)
