"""RECORD: parsing, changing, undoing."""

from __future__ import annotations

from typing import cast

import pytest

from kpack_build.errors import FormatError, WheelError
from kpack_build.wheel.record import (
    Record,
    RecordUndo,
    RowFacts,
    apply_record_undo,
    format_hash,
    plan_record_undo,
)

__all__: list[str] = []

OWN = "t-1.dist-info/RECORD"
FACTS = RowFacts(hash="sha256=new", size=5)


def parse(data: bytes) -> Record:
    return Record.parse(data, own_path=OWN, source="w.whl")


def test_rows_keep_their_text() -> None:
    data = b'"a,b",sha256=x,1\r\n"q""uote",,\r\n"with\nline",,7\r\nt-1.dist-info/RECORD,,'
    record = parse(data)
    assert [row.path for row in record.rows] == ["a,b", 'q"uote', "with\nline", OWN]
    assert record.rows[0].hash == "sha256=x"
    assert record.rows[2].size == "7"
    assert record.newline == "\r\n"
    assert record.to_bytes() == data


@pytest.mark.parametrize(
    "data",
    [b"\xff,,\n", b"a,b\n", b"a,b,c,d\n", b'"a,,\n', b'a"b",,\n"\n', b'"a"b,,\n', b"x" * 200_000 + b",,\n"],
)
def test_malformed_records(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert caught.value.path.name == "w.whl"


def test_updated_keeps_order_sorts_new_rows_and_puts_itself_last() -> None:
    record = parse(f"{OWN},,\r\nb,sha256=x,1\r\na,sha256=y,2\r\ngone,,".encode())
    updated = record.updated({"a": FACTS, "n,2": FACTS, "m": FACTS}, {"gone"})
    assert updated.to_bytes().decode().split("\r\n") == [
        "b,sha256=x,1",
        "a,sha256=new,5",
        "m,sha256=new,5",
        '"n,2",sha256=new,5',
        f"{OWN},,",
        "",
    ]


def test_updated_ends_the_last_row() -> None:
    assert parse(b"a,,").updated({}).to_bytes() == f"a,,\n{OWN},,\n".encode()


def test_updated_of_nothing_is_its_own_row() -> None:
    assert parse(b"\n\n").updated({}).to_bytes() == f"{OWN},,\n".encode()


def test_signatures_and_the_record_itself_need_no_row() -> None:
    record = parse(b"")
    assert [record.needs_row(path) for path in (OWN, f"{OWN}.jws", f"{OWN}.p7s", f"{OWN}.x", "a")] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_row_agrees_with_what_it_does_not_contradict() -> None:
    rows = parse(b"a,,\nb,sha256=new,\nc,,5\nd,sha256=new,5\ne,sha256=x,5\nf,,6\n").rows
    assert [row.agrees(FACTS) for row in rows] == [True, True, True, True, False, False]
    assert [row.is_complete for row in rows] == [False, False, False, True, True, False]


def test_a_row_names_an_algorithm_that_may_be_kept() -> None:
    rows = parse(b"a,sha512=x,1\nb,md5=x,1\nc,,\n").rows
    assert [row.algorithm for row in rows] == ["sha512", "sha256", "sha256"]


def test_hashes_are_urlsafe_base64_without_padding() -> None:
    assert format_hash("sha256", b"\xfb\xff\xfe\x00") == "sha256=-__-AA"


def test_the_undo_is_small_and_does_not_hold_new_facts() -> None:
    original = "".join(f"m{number},sha256=x,1\n" for number in range(50)).encode() + f"{OWN},,\n".encode()
    record = parse(original)
    packed = record.updated({"m7": FACTS, "new": FACTS})
    undo = plan_record_undo(original, packed, {"m7", "new"})
    assert undo["rows"] == [[0, 7], "m7,sha256=x,1\n", [8, 42], [51, 1]]
    other = RowFacts(hash="sha256=other", size=77)
    assert apply_record_undo(record.updated({"m7": other, "new": other}).to_bytes(), undo) == original


def test_a_record_that_was_changed_again_is_refused() -> None:
    undo = plan_record_undo(b"a,,\n", parse(b"a,,\n").updated({}), ())
    with pytest.raises(WheelError):
        apply_record_undo(b"b,,\n", undo)


@pytest.mark.parametrize(
    "undo", [{}, {"rows": [["a"]], "sha256": ""}, {"rows": 1}, {"rows": [[0]]}, {"rows": [None]}]
)
def test_a_malformed_undo_is_our_error(undo: object) -> None:
    with pytest.raises(FormatError):
        apply_record_undo(b"a,,\n", cast("RecordUndo", undo))
