"""Places of results: their names, the folders that are made for them, and errors that should name them.

A folder that was made for a result goes away again when there is no result. Moving the result to its final
name is the work of those who write it.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["naming_full_disk", "output_folder", "result_path"]

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def result_path(output_dir: Path, source: Path) -> Path:
    """Return where the result of a source goes: it keeps the name that the source was given by.

    A link keeps its own name, since stores of files give their contents names that say nothing.
    """
    return output_dir / Path(os.path.abspath(source)).name  # noqa: PTH100 - Path has nothing for ".."


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it, where they are missing; remove what was made after an error.

    Raises:
        OSError: It cannot be made, or something inside raised it; one that tells of a full disk names it.
    """
    made: list[Path] = []
    try:
        for place in (*reversed(folder.parents), folder):
            if not place.exists():
                place.mkdir(exist_ok=True)
                made.append(place)
        folder.mkdir(exist_ok=True)
        with naming_full_disk(folder):
            yield
    except BaseException:
        for place in reversed(made):
            # Another run may use it by now.
            with suppress(OSError):
                place.rmdir()
        raise


@contextmanager
def naming_full_disk(place: Path) -> Iterator[None]:
    """Let errors of a full disk name a place: writing to an open file, the system names none."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:
            error.filename = str(place)
        raise
