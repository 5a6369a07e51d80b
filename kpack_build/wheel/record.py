"""RECORD: the list of a wheel's files with their hashes and sizes, and the undo of its changes.

Follows PyPA's "Recording installed projects" and binary distribution format: CSV rows of path, hash and size;
hashes are SHA-256 or better, as urlsafe base64 without padding; RECORD's own row has neither hash nor size,
and signature files have no row. Rows keep the text that they came with, so that what is not changed stays as
it is to the bit.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from kpack_build.errors import FormatError, PathLike, WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

__all__ = [
    "ALGORITHMS",
    "Record",
    "RecordRow",
    "RecordUndo",
    "RowFacts",
    "apply_record_undo",
    "format_hash",
    "plan_record_undo",
]

ALGORITHMS = frozenset(
    {"sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s"}
)
"""Hash algorithms that a row may name; the specification refuses MD5, SHA-1 and SHA-224."""

_COLUMNS = 3
_SPECIAL = frozenset(',"\r\n')
_SIGNATURES = (".jws", ".p7s")
_REMEDY = "build the wheel again, or write its RECORD anew with `wheel unpack` and `wheel pack`"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """What a row says of a file: its hash as RECORD writes it (`sha256=…`), its size in bytes."""

    hash: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """One row.

    Attributes:
        path: The file's path.
        hash: Its hash as written, "" where there is none.
        size: Its size as written, "" where there is none.
        raw: The row's text, with its line end.
    """

    path: str
    hash: str
    size: str
    raw: str

    @property
    def algorithm(self) -> str:
        """The hash's algorithm, or SHA-256 where the row has no hash that may be kept."""
        name = self.hash.partition("=")[0]
        return name if name in ALGORITHMS else "sha256"

    @property
    def is_complete(self) -> bool:
        """Whether the row has both hash and size."""
        return bool(self.hash and self.size)

    def agrees(self, facts: RowFacts) -> bool:
        """Tell whether what the row says (it may say nothing) holds for a file."""
        return self.hash in {"", facts.hash} and self.size in {"", str(facts.size)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A RECORD.

    Attributes:
        own_path: Its own path in the wheel.
        rows: Its rows in their order; empty lines are left out.
        newline: Its line end.
    """

    own_path: str
    rows: tuple[RecordRow, ...]
    newline: str

    @classmethod
    def parse(cls, data: bytes, *, own_path: str, source: PathLike = "RECORD") -> Record:
        """Parse a RECORD.

        Args:
            data: Its bytes.
            own_path: Its path in the wheel.
            source: The wheel, for errors.

        Raises:
            FormatError: The bytes are no RECORD.
        """
        lines = [line for line in _split(_decode(data, source), source) if line.strip("\r\n")]
        return cls(
            own_path=own_path,
            rows=tuple(_parse_row(line, number, source) for number, line in enumerate(lines, 1)),
            newline="\r\n" if lines and lines[0].endswith("\r\n") else "\n",
        )

    def to_bytes(self) -> bytes:
        """Return the RECORD's bytes."""
        return "".join(row.raw for row in self.rows).encode()

    def by_path(self) -> dict[str, RecordRow]:
        """Return the rows by path."""
        return {row.path: row for row in self.rows}

    def needs_row(self, path: str) -> bool:
        """Tell whether a file has to have a row with a hash: all but RECORD and its signatures have to."""
        return path != self.own_path and not self.is_signature(path)

    def is_signature(self, path: str) -> bool:
        """Tell whether a path is that of a signature of this RECORD."""
        return path in {self.own_path + suffix for suffix in _SIGNATURES}

    def updated(self, changes: Mapping[str, RowFacts], removed: Collection[str] = ()) -> Record:
        """Return the RECORD of a changed wheel.

        Rows that do not change keep text and order; new ones come after them, sorted by path; RECORD's own
        row is the last. Every row ends with a line end.

        Args:
            changes: Facts of each file whose row changes or is new.
            removed: Paths of files that are no longer there.
        """
        rows: list[RecordRow] = []
        for row in self.rows:
            if row.path == self.own_path or row.path in removed:
                continue
            facts = changes.get(row.path)
            rows.append(self._ended(row) if facts is None else self._row(row.path, facts))
        known = {row.path for row in rows}
        rows += [self._row(path, changes[path]) for path in sorted(changes.keys() - known)]
        rows.append(self._row(self.own_path, None))
        return Record(own_path=self.own_path, rows=tuple(rows), newline=self.newline)

    def _ended(self, row: RecordRow) -> RecordRow:
        if row.raw.endswith(("\r", "\n")):
            return row
        return RecordRow(path=row.path, hash=row.hash, size=row.size, raw=row.raw + self.newline)

    def _row(self, path: str, facts: RowFacts | None) -> RecordRow:
        hash_, size = ("", "") if facts is None else (facts.hash, str(facts.size))
        raw = f"{_quoted(path)},{hash_},{size}{self.newline}"
        return RecordRow(path=path, hash=hash_, size=size, raw=raw)


def format_hash(algorithm: str, digest: bytes) -> str:
    """Return a digest as RECORD writes it: urlsafe base64 without padding."""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode('ascii')}"


def _quoted(path: str) -> str:
    """Quote a path as csv does. Before Python 3.13 csv itself overlooks line ends other than its own."""
    if _SPECIAL.isdisjoint(path):
        return path
    return '"' + path.replace('"', '""') + '"'


def _decode(data: bytes, source: PathLike) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(source, "its RECORD is not UTF-8", offset=error.start, remedy=_REMEDY) from error


def _split(text: str, source: PathLike) -> Iterator[str]:
    """Split a RECORD into rows with their line ends; a quoted path may hold line ends of its own."""
    pending = ""
    for line in io.StringIO(text, newline=""):
        pending += line
        if pending.count('"') % 2 == 0:
            yield pending
            pending = ""
    if pending:
        raise FormatError(source, "a quoted path in its RECORD does not end", remedy=_REMEDY)


def _parse_row(line: str, number: int, source: PathLike) -> RecordRow:
    problem = f"row {number} of its RECORD is malformed"
    try:
        [fields] = csv.reader([line], strict=True)
    except (csv.Error, ValueError) as error:
        raise FormatError(source, problem, found=str(error), remedy=_REMEDY) from error
    if len(fields) != _COLUMNS:
        raise FormatError(source, problem, expected=f"{_COLUMNS} columns", found=len(fields), remedy=_REMEDY)
    path, hash_, size = fields
    return RecordRow(path=path, hash=hash_, size=size, raw=line)


class RecordUndo(TypedDict):
    """How the original RECORD comes back from the packed one.

    Attributes:
        rows: Its text in pieces: a range of rows that the packed RECORD has too (number of the first, count),
            or a text.
        sha256: Digest of the original, in hexadecimal.
    """

    rows: list[list[int] | str]
    sha256: str


def plan_record_undo(original: bytes, packed: Record, changed: Iterable[str]) -> RecordUndo:
    """Plan the undo of all changes of a RECORD.

    Args:
        original: The RECORD as it was.
        packed: The RECORD as it will be. Rows of `changed` files may still hold wrong facts: nothing of them
            is used, so that the undo can be written into one of these files.
        changed: Paths of the files that are new or changed.
    """
    unknown = frozenset(changed)
    places = {row.raw: number for number, row in enumerate(packed.rows) if row.path not in unknown}
    pieces: list[list[int] | str] = []
    for line in _split(_decode(original, "RECORD"), "RECORD"):
        place = places.get(line)
        last = pieces[-1] if pieces else None
        if place is None:
            if isinstance(last, str):
                pieces[-1] = last + line
            else:
                pieces.append(line)
        elif isinstance(last, list) and sum(last) == place:
            last[1] += 1
        else:
            pieces.append([place, 1])
    return RecordUndo(rows=pieces, sha256=hashlib.sha256(original).hexdigest())


def apply_record_undo(packed: bytes, undo: RecordUndo, *, path: PathLike = "RECORD") -> bytes:
    """Give back the RECORD of the original wheel.

    Args:
        packed: The RECORD of the packed wheel.
        undo: What `plan_record_undo` returned.
        path: The packed wheel, for errors.

    Raises:
        WheelError: RECORD was changed in another way since.
        FormatError: The RECORD or the undo is malformed.
    """
    rows = list(_split(_decode(packed, path), path))
    try:
        text = "".join(
            piece if isinstance(piece, str) else "".join(rows[piece[0] : piece[0] + piece[1]])
            for piece in undo["rows"]
        )
        original, expected = text.encode(), undo["sha256"]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FormatError(path, "the recorded undo of its RECORD is malformed", found=repr(error)) from error
    if hashlib.sha256(original).hexdigest() != expected:
        raise WheelError(
            path,
            "its RECORD was changed since the wheel was packed, so the original cannot be given back",
            remedy="restore the wheel as kpack-build wrote it",
        )
    return original
