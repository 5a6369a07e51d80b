"""A wheel, a folder or a single file as a set of named files, and the archives that a binary finds.

What looks into things (inspection, verification, export of code objects) works on a `FileSet` and need not
care what it was given. Names are POSIX paths relative to the set's root. Nothing is ever written to a source.

A relative search path of a converted binary starts at the binary's folder; `@GFXARCH@` in it stands for any
target, as ROCm's kpack reader has it. In a wheel only paths that stay inside it lead
anywhere; in a folder, and from a single file, they are followed on the file system. The environment is not
consulted.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import mmap
import os
import posixpath
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kpack_build.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kpack_build.wheel import WheelContents

__all__ = ["FileSet", "FoundFile", "SourceKind", "WheelFiles", "map_file", "open_files"]

_ANY_TARGET = "@GFXARCH@"


class SourceKind(str, Enum):
    """What a path leads to."""

    WHEEL = "wheel"
    TREE = "unpacked wheel"
    FOLDER = "folder"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a search led to: its name (an absolute path outside of the set), and the file."""

    name: str
    file: Path


class FileSet(Protocol):
    """Named files."""

    @property
    def path(self) -> Path:
        """What was opened."""

    @property
    def kind(self) -> SourceKind:
        """What kind of thing that is."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size in bytes of each file, sorted by name."""

    def head(self, name: str, length: int) -> bytes:
        """Return the first bytes of a file, as many as there are up to `length`."""

    def file(self, name: str) -> Path:
        """Return a real file to map; it lasts as long as the set is open."""

    def find(self, binary: str, search_path: str) -> tuple[FoundFile, ...]:
        """Return the files to which a search path of a binary leads, sorted by name."""


class WheelFiles:
    """The files of a wheel, packed or unpacked."""

    def __init__(self, contents: WheelContents) -> None:
        self.contents = contents
        self.path = contents.path
        self.kind = SourceKind.TREE if contents.path.is_dir() else SourceKind.WHEEL
        self.sizes: Mapping[str, int] = {
            member.path: member.size for member in sorted(contents.members, key=lambda member: member.path)
        }

    def head(self, name: str, length: int) -> bytes:
        """Return the first bytes of a member."""
        with self.contents.open(name) as stream:
            return stream.read(length)

    def file(self, name: str) -> Path:
        """Return the member as a real file."""
        return self.contents.materialise(name)

    def find(self, binary: str, search_path: str) -> tuple[FoundFile, ...]:
        """Return the members to which a search path of a binary leads."""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(binary), search_path))
        if _ANY_TARGET in place:
            pattern = _pattern(place)
            names = [name for name in self.sizes if fnmatch.fnmatchcase(name, pattern)]
        else:
            names = [place] if place in self.sizes else []
        return tuple(FoundFile(name, self.file(name)) for name in names)


class _DiskFiles:
    """Files of a folder, or a single file, on the file system."""

    def __init__(self, path: Path, root: Path, sizes: Mapping[str, int], kind: SourceKind) -> None:
        self.path = path
        self.kind = kind
        self.sizes = sizes
        self._root = root

    def head(self, name: str, length: int) -> bytes:
        with (self._root / name).open("rb") as stream:
            return stream.read(length)

    def file(self, name: str) -> Path:
        return self._root / name

    def find(self, binary: str, search_path: str) -> tuple[FoundFile, ...]:
        place = os.path.normpath(self._root.resolve() / posixpath.dirname(binary) / search_path)
        # Path.glob cannot start at a pattern that is absolute before Python 3.13.
        candidates = glob.glob(_pattern(place)) if _ANY_TARGET in place else [place]  # noqa: PTH207
        return tuple(
            FoundFile(self._name(Path(found)), Path(found))
            for found in sorted(candidates)
            if os.path.isfile(found)  # noqa: PTH113 - unlike Path's, it bears names that no system call takes
        )

    def _name(self, file: Path) -> str:
        try:
            return file.relative_to(self._root.resolve()).as_posix()
        except ValueError:
            return str(file)


@contextmanager
def open_files(path: Path) -> Iterator[FileSet]:
    """Open whatever a path leads to.

    Args:
        path: A wheel, the folder of its unpacked files, any other folder, or a file.

    Raises:
        OSError: There is nothing, or it cannot be read.
        WheelError: A wheel that is damaged.
        FormatError: Likewise.
    """
    mode = path.stat().st_mode
    with ExitStack() as stack:
        if _is_wheel(path):
            from kpack_build.wheel import open_wheel  # noqa: PLC0415 - a third of the start-up of `inspect`

            wheel: WheelContents = open_wheel(path)
            yield WheelFiles(stack.enter_context(wheel))
        elif stat.S_ISDIR(mode):
            yield _DiskFiles(path, path, _sizes_below(path), SourceKind.FOLDER)
        elif stat.S_ISREG(mode):
            sizes = {path.name: path.stat().st_size}
            yield _DiskFiles(path, path.parent, sizes, SourceKind.FILE)
        else:
            raise WheelError(path, "is neither a file nor a folder", remedy="name a file or a folder")


def _is_wheel(path: Path) -> bool:
    """Tell a wheel, or the unpacked tree of exactly one, from any other file or folder."""
    if path.is_dir():
        return len(list(path.glob("*.dist-info/WHEEL"))) == 1
    return path.suffix == ".whl"


def _sizes_below(root: Path) -> dict[str, int]:
    """Return the sizes of the regular files below a folder; links are not followed, so none is met twice."""
    sizes: dict[str, int] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            file = Path(folder, name)
            facts = file.lstat()
            if stat.S_ISREG(facts.st_mode):
                sizes[file.relative_to(root).as_posix()] = facts.st_size
    return dict(sorted(sizes.items()))


def _pattern(place: str) -> str:
    return glob.escape(place).replace(_ANY_TARGET, "*")


@contextmanager
def map_file(file: Path) -> Iterator[memoryview]:
    """Map a file to read it; the map goes away after the context, as soon as no view of it is left.

    Args:
        file: A regular file, possibly empty.
    """
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            yield memoryview(b"")
            return
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            yield memoryview(mapped)
        finally:
            with contextlib.suppress(BufferError):
                mapped.close()
