"""Hold the files of a wheel against its RECORD.

Follows PyPA's binary distribution format, as `wheel unpack` and installer do: every file has a row, every row
a file, hashes and sizes hold. Rows without a hash are accepted, since old build tools write them. All faults
are collected; the error names the first, in RECORD's order, and says how many more there are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from kpack_build.errors import WheelError
from kpack_build.wheel.record import ALGORITHMS, Record, RecordRow, RowFacts, format_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kpack_build.wheel.contents import Member

__all__ = ["FactKeeper", "Hashing", "check_against_record", "find_structural_faults"]

_WORKERS = 2
_HEX = frozenset("0123456789abcdef")
_REMEDY = "the file is damaged or its RECORD was not written last: build or download it again"


class _Source(Protocol):
    """What a check needs of a wheel."""

    @property
    def path(self) -> Path: ...

    @property
    def members(self) -> tuple[Member, ...]: ...

    @property
    def record(self) -> Record: ...

    def facts(self, member: str) -> RowFacts: ...


class Hashing:
    """Hash bytes while they pass by."""

    def __init__(self, algorithm: str) -> None:
        self._algorithm = algorithm
        self._hash = hashlib.new(algorithm)
        self._size = 0

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Iterate over chunks, and hash each."""
        for chunk in chunks:
            self._hash.update(chunk)
            self._size += len(chunk)
            yield chunk

    @property
    def facts(self) -> RowFacts:
        """What RECORD has to say of the bytes that passed."""
        return RowFacts(hash=format_hash(self._algorithm, self._hash.digest()), size=self._size)


@dataclass(slots=True)
class FactKeeper:
    """The facts of members that were read already, from any thread."""

    record: Record
    _facts: dict[str, RowFacts] = field(default_factory=dict)
    _algorithms: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._algorithms = {row.path: row.algorithm for row in self.record.rows}

    def get(self, member: str) -> RowFacts | None:
        """Return a member's facts where they are known."""
        return self._facts.get(member)

    def of(self, member: str) -> RowFacts:
        """Return the facts of a member that was read."""
        return self._facts[member]

    def all(self) -> dict[str, RowFacts]:
        """Return all known facts by path."""
        return dict(self._facts)

    def hashing(self, member: str) -> Hashing:
        """Return a hashing with the algorithm of the member's row."""
        return Hashing(self._algorithms.get(member, "sha256"))

    def keep(self, member: str, facts: RowFacts) -> None:
        """Remember a member's facts."""
        with self._lock:
            self._facts[member] = facts


def find_structural_faults(record: Record, members: Sequence[Member]) -> list[str]:
    """Find what is wrong with a RECORD without a look at any file's bytes.

    Returns:
        A clause for each fault.
    """
    faults: list[str] = []
    sizes = {member.path: member.size for member in members}
    for path, count in Counter(row.path for row in record.rows).items():
        if count > 1:
            faults.append(f"RECORD has {count} rows for {path}")
    for row in record.rows:
        if row.path not in sizes:
            faults.append(f"RECORD lists {row.path}, which is not there")
        elif record.needs_row(row.path):
            faults.extend(_row_faults(row, sizes[row.path]))
    known = {row.path for row in record.rows}
    faults += [
        f"member {member.path} has no row in RECORD"
        for member in members
        if member.path not in known and record.needs_row(member.path)
    ]
    return faults


def _row_faults(row: RecordRow, size: int) -> Iterator[str]:
    if row.hash and not row.hash.startswith(f"{row.algorithm}="):
        allowed = ", ".join(sorted(ALGORITHMS))
        yield f"RECORD has the hash {row.hash!r} for {row.path}, which is of none of the algorithms {allowed}"
    if row.size and row.size != str(size):
        yield f"RECORD says that {row.path} has {row.size} bytes, but it has {size}"


def check_against_record(source: _Source, *, read_all: bool) -> None:
    """Check all files of a wheel against its RECORD, on two threads.

    Args:
        source: The wheel.
        read_all: Whether files whose row has no hash are read too, because reading them checks something.

    Raises:
        WheelError: RECORD does not tell the truth.
        FormatError: A member is damaged.
    """
    faults = find_structural_faults(source.record, source.members)
    if not faults:
        needed = {member.path for member in source.members if source.record.needs_row(member.path)}
        rows = [row for row in source.record.rows if row.path in needed and (read_all or row.hash)]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="kpack-wheel") as pool:
            for row, facts in zip(rows, pool.map(source.facts, (row.path for row in rows)), strict=True):
                if not row.agrees(facts):
                    faults.append(_mismatch(row, facts))
    if faults:
        more = f"; and {len(faults) - 1} more fault(s)" if len(faults) > 1 else ""
        raise WheelError(source.path, faults[0] + more, remedy=_REMEDY)


def _mismatch(row: RecordRow, facts: RowFacts) -> str:
    digest = row.hash.partition("=")[2]
    if len(digest) == 2 * hashlib.new(row.algorithm).digest_size and set(digest.lower()) <= _HEX:
        return f"RECORD has the hash of {row.path} in hexadecimal instead of urlsafe base64 without padding"
    return f"RECORD has the hash {row.hash} for {row.path}, but its bytes have {facts.hash}"
