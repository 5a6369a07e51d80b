"""Undoing changes of RECORD and of texts gives back what was there, whatever it was."""

from __future__ import annotations

import json
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpack_build.errors import FormatError, WheelError
from kpack_build.wheel.names import member_name_problem
from kpack_build.wheel.record import (
    Record,
    RecordUndo,
    RowFacts,
    apply_record_undo,
    plan_record_undo,
)
from kpack_build.wheel.textedit import apply_text_undo, plan_text_undo

__all__: list[str] = []

OWN = "t-1.dist-info/RECORD"
FACTS = st.builds(
    RowFacts, hash=st.text("abc", max_size=3).map("sha256=".__add__), size=st.integers(0, 1 << 40)
)
# Names with commas, quotes, line ends and letters of any script; surrogates cannot be written as UTF-8.
PATHS = st.one_of(
    st.text(st.sampled_from('ab,"/\r\n é'), min_size=1, max_size=6),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
)


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """Draw a RECORD and the paths in it."""
    paths = draw(st.lists(PATHS, max_size=8, unique=True))
    own = draw(st.integers(0, len(paths)))
    text = ""
    for path in [*paths[:own], OWN, *paths[own:]]:
        facts = "," if path == OWN else draw(st.sampled_from([",", ",5", "sha256=x,7"]))
        text += _field(path, quoted=draw(st.booleans())) + "," + facts
        text += draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    return text.encode(), paths


def _field(path: str, *, quoted: bool) -> str:
    quoted = quoted or any(letter in path for letter in ',"\r\n')
    return '"' + path.replace('"', '""') + '"' if quoted else path


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    record=records(),
    choices=st.data(),
    new=st.dictionaries(PATHS, FACTS, max_size=3),
    final=FACTS,
)
def test_any_record_comes_back(
    record: tuple[bytes, list[str]], choices: st.DataObject, new: dict[str, RowFacts], final: RowFacts
) -> None:
    original, paths = record
    parsed = Record.parse(original, own_path=OWN)
    changed = choices.draw(st.sets(st.sampled_from(paths)) if paths else st.just(set()))
    removed = choices.draw(st.sets(st.sampled_from(paths)) if paths else st.just(set())) - changed
    provisional = {**new, **dict.fromkeys(changed, RowFacts(hash="", size=0))}
    undo = plan_record_undo(original, parsed.updated(provisional, removed), provisional)
    # What is written into a wheel is JSON, and rows of new files get their facts only afterwards.
    undo = cast("RecordUndo", json.loads(json.dumps(undo)))
    packed = parsed.updated(dict.fromkeys(provisional, final), removed).to_bytes()
    assert apply_record_undo(packed, undo) == original
    again = Record.parse(packed, own_path=OWN)
    assert again.to_bytes() == packed
    assert again.rows[-1].path == OWN
    assert {row.path for row in again.rows} == ((set(paths) - removed) | new.keys() | {OWN})


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_record_or_our_error(data: bytes) -> None:
    try:
        record = Record.parse(data, own_path=OWN)
    except FormatError:
        return
    assert (
        apply_record_undo(record.updated({}).to_bytes(), plan_record_undo(data, record.updated({}), ()))
        == data
    )


@given(original=st.binary(max_size=40), changed=st.binary(max_size=40))
def test_any_change_of_a_text_is_undone(original: bytes, changed: bytes) -> None:
    undo = plan_text_undo(original, changed)
    assert apply_text_undo(changed, json.loads(json.dumps(undo))) == original


@given(before=st.binary(max_size=40), line=st.binary(max_size=20), after=st.binary(max_size=40))
def test_the_undo_of_an_insertion_holds_no_text(before: bytes, line: bytes, after: bytes) -> None:
    undo = plan_text_undo(before + after, before + line + after)
    assert undo["original"] == ""
    assert undo["length"] == len(line)


@given(changed=st.binary(max_size=20), other=st.binary(max_size=20))
def test_an_undo_is_never_applied_to_other_bytes_silently(changed: bytes, other: bytes) -> None:
    undo = plan_text_undo(b"original", changed)
    try:
        assert apply_text_undo(other, undo) == b"original"
    except WheelError:
        assert other != changed


@given(name=st.text(st.sampled_from("a./\\:C\0"), max_size=8))
def test_a_name_without_a_problem_stays_below_its_folder(name: str) -> None:
    if member_name_problem(name) is None:
        assert name
        assert ".." not in name.split("/")
        assert not name.startswith("/")
        assert "\\" not in name
        assert not (name[0].isalpha() and name[1:2] == ":")
