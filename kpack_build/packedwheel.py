"""A packed wheel that is being verified: its files and indexes, and what was found so far.

The parts of a verification share one `PackedWheel`; they note faults in it and count what they checked.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kpack_build.errors import FormatError, KpackError
from kpack_build.index import parse_index
from kpack_build.layout import ARCHIVE_FOLDER
from kpack_build.magic import FileKind, detect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.filesets import WheelFiles
    from kpack_build.index import ArchiveRow, BinaryRow, Index
    from kpack_build.kernelsearch import Shelf

__all__ = ["Counts", "Fault", "PackedWheel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong: the member of the wheel that it is about, and a clause that says what."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was checked.

    Attributes:
        files: Members of the wheel.
        archives: Archives.
        binaries: Converted binaries.
        wrappers: Their wrappers.
        code_objects: Stored code objects, each once.
        answers: Look-ups of a wrapper under a listed target.
        gpus: Look-ups of a wrapper for a state of a GPU.
        compared: Code objects of the fat wheel that were compared.
    """

    files: int = 0
    archives: int = 0
    binaries: int = 0
    wrappers: int = 0
    code_objects: int = 0
    answers: int = 0
    gpus: int = 0
    compared: int = 0


@dataclass(slots=True)
class PackedWheel:
    """A wheel that is being verified: its files and indexes, and what was found so far."""

    files: WheelFiles
    shelf: Shelf
    counts: Counts = field(default_factory=Counts)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    indexes: dict[str, Index] = field(init=False)
    binaries: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.counts.files = len(self.files.sizes)
        self.indexes = dict(self._read_indexes())
        self.binaries = [
            name for name in self.files.sizes if detect(self.files, name) is FileKind.HOST_BINARY
        ]

    def fault(self, path: str, problem: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(path=path, problem=problem))

    def damage(self, path: str, error: KpackError) -> None:
        """Note the error that came of reading a member, or a file that it led to."""
        if not isinstance(error, FormatError):
            self.fault(path, str(error))
        elif error.path.name == posixpath.basename(path):
            self.fault(path, error.clause)
        else:
            self.fault(path, f"{error.path.name}: {error.clause}")

    def archive_rows(self) -> Iterator[tuple[str, ArchiveRow]]:
        """Iterate over all archives of all indexes, with their paths in the wheel."""
        for path, index in self.indexes.items():
            for row in index["archives"]:
                yield posixpath.join(posixpath.dirname(path), row["file"]), row

    def row_of(self, binary: str) -> tuple[Index, BinaryRow] | None:
        """Return what an index says about a binary, or None where none names it."""
        for index in self.indexes.values():
            for row in index["binaries"]:
                if row["path"] == binary:
                    return index, row
        return None

    def _read_indexes(self) -> Iterator[tuple[str, Index]]:
        for name in self.files.sizes:
            folder, file = posixpath.split(name)
            if posixpath.basename(folder) != ARCHIVE_FOLDER or not file.endswith(".json"):
                continue
            try:
                yield name, parse_index(self.files.file(name).read_bytes(), name)
            except FormatError as error:
                self.damage(name, error)
