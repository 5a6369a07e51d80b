"""Fixtures of the tests with real wheels, runtimes and tools."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packing import PackedCorpus

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__: list[str] = []


@pytest.fixture(scope="session")
def packed_corpus() -> Iterator[PackedCorpus]:
    """Give wheels of the corpus packed and installed; they are large, so nothing stays behind."""
    with tempfile.TemporaryDirectory(prefix="kpack-build-packed-") as directory:
        yield PackedCorpus(directory=Path(directory))
