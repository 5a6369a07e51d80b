"""The cache of the tests: downloads and compiled fixtures, kept outside the source tree.

`KPACK_TEST_CACHE` names its directory, by default `~/.cache/kpack-build`. An entry is made under a private
name and renamed into place, so several test processes may make the same entry at the same time: one wins, the
others use what it left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cache_directory", "make_once"]


def cache_directory(*parts: str) -> Path:
    """Return the directory `parts` of the cache, which exists afterwards."""
    root = os.environ.get("KPACK_TEST_CACHE") or "~/.cache/kpack-build"
    directory = Path(root).expanduser().resolve().joinpath(*parts)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def make_once(destination: Path, make: Callable[[Path], None]) -> Path:
    """Return the directory `destination`, made by `make` in a private directory if it does not exist yet.

    Args:
        destination: The directory wanted, in the cache.
        make: Fills the (empty) directory that it is given.
    """
    if destination.exists():
        return destination
    private = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        make(private)
        private.chmod(0o755)
        private.rename(destination)
    except OSError:
        # Another process may have been quicker. Its directory is as good as ours.
        if not destination.is_dir():
            raise
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return destination
