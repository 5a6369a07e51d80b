"""What is to be changed in a wheel, and what its RECORD becomes by that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kpack_build.errors import WheelError
from kpack_build.wheel.names import check_member_names
from kpack_build.wheel.record import Record, RecordUndo, RowFacts, plan_record_undo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpack_build.wheel.contents import WheelContents

__all__ = [
    "Change",
    "Changes",
    "base_record",
    "check_changes",
    "final_members",
    "final_record",
    "record_undo",
]

Change: TypeAlias = "Path | bytes"
"""A member's new contents: a file, which must not change until it is written, or bytes."""

_REMEDY = "this is a fault of the program that asked for the change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is to be changed in a wheel. RECORD is not named here: it follows.

    Attributes:
        files: Contents of new and replaced members. A replaced member keeps its mode.
        removed: Members that go away.
        stored: Members of `files` that are not deflated, because they would not shrink.
        executable: New members of `files` that get mode 0755 instead of 0644.
        given: Members of `files` whose file is not needed where it is: it may be moved instead of copied.
        record: The RECORD to start from, to give back the one of an earlier wheel: its rows are kept as they
            are written wherever they are true. By default the source's RECORD, whose rows without hash or
            size are completed.
    """

    files: Mapping[str, Change] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    executable: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    record: bytes | None = None


def check_changes(source: WheelContents, changes: Changes) -> None:
    """Check that changes make sense for a wheel.

    Raises:
        WheelError: They do not.
    """
    present = {member.path for member in source.members}
    faults = {
        "RECORD is changed by itself": {source.record.own_path} & (changes.files.keys() | changes.removed),
        "there is no such member to remove": changes.removed - present,
        "it is both written and removed": changes.removed & changes.files.keys(),
        "it is not among the changed files": (changes.stored | changes.executable | changes.given)
        - changes.files.keys(),
    }
    for problem, members in faults.items():
        for member in sorted(members):
            raise WheelError(source.path, f"{member} cannot be changed: {problem}", remedy=_REMEDY)
    check_member_names(source.path, final_members(source, changes))


def final_members(source: WheelContents, changes: Changes) -> list[str]:
    """Return the members of the changed wheel in their order.

    Old ones keep their order; new ones stand, sorted, before the first one of the dist-info folder, which
    belongs at the end; RECORD is the last.
    """
    old = [member.path for member in source.members if member.path not in changes.removed]
    new = sorted(changes.files.keys() - set(old))
    folder = f"{source.dist_info}/"
    place = next(number for number, path in enumerate(old) if path.startswith(folder))
    own_path = source.record.own_path
    return [path for path in (*old[:place], *new, *old[place:]) if path != own_path] + [own_path]


def final_record(source: WheelContents, changes: Changes, facts: Mapping[str, RowFacts]) -> bytes:
    """Return the RECORD of the changed wheel. A given one that is true is returned to the bit.

    Args:
        source: The wheel, after its `check`.
        changes: What is changed.
        facts: The facts of all changed files, with the algorithms of `base_record`'s rows.
    """
    base = base_record(source, changes)
    rows = base.by_path()
    members = final_members(source, changes)
    updates: dict[str, RowFacts] = {}
    for member in filter(base.needs_row, members):
        known = facts[member] if member in changes.files else source.facts(member)
        row = rows.get(member)
        complete = changes.record is not None or (row is not None and row.is_complete)
        if row is None or not complete or not row.agrees(known):
            updates[member] = known
    removed = rows.keys() - set(members)
    if changes.record is not None and not updates and not removed:
        return changes.record
    return base.updated(updates, removed).to_bytes()


def base_record(source: WheelContents, changes: Changes) -> Record:
    """Return the RECORD that the changed wheel's one starts from."""
    if changes.record is None:
        return source.record
    return Record.parse(changes.record, own_path=source.record.own_path, source=source.path)


def record_undo(source: WheelContents, changes: Changes) -> RecordUndo:
    """Plan how the source's RECORD comes back from that of the changed wheel.

    Args:
        source: The wheel.
        changes: What will be changed. Only the names count, not what is in the files, so that the undo can be
            written into one of them.
    """
    unknown = RowFacts(hash="", size=0)
    volatile = set(changes.files)
    volatile |= {
        row.path for row in source.record.rows if source.record.needs_row(row.path) and not row.is_complete
    }
    volatile -= changes.removed
    packed = source.record.updated(dict.fromkeys(volatile, unknown), changes.removed)
    return plan_record_undo(source.read(source.record.own_path), packed, volatile)
