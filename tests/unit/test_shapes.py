"""Shapes of parsed JSON."""

from __future__ import annotations

import pytest

from kpack_build.errors import FormatError
from kpack_build.shapes import MAX_NATURAL, MapOf, Shape, check_naturals, check_shape

SHAPE: Shape = {
    "name": str,
    "maybe": (str, type(None)),
    "rows": [{"size": int}],
    "answers": MapOf(int),
}
GOOD = {"name": "a", "maybe": None, "rows": [{"size": 1}, {"size": 2, "more": 3}], "answers": {"x": 1}}


def test_good() -> None:
    check_shape(GOOD, SHAPE, "f")
    check_shape({**GOOD, "maybe": "text", "rows": [], "answers": {}}, SHAPE, "f")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": 1}, "name"),
        ({"maybe": 1}, "maybe"),
        ({"rows": {}}, "rows"),
        ({"rows": [{"size": 1}, {}]}, "rows[1].size"),
        ({"rows": [{"size": True}]}, "rows[0].size"),
        ({"rows": [[]]}, "rows[0]"),
        ({"answers": []}, "answers"),
        ({"answers": {"x": "y"}}, "answers['x']"),
    ],
)
def test_bad(change: dict[str, object], place: str) -> None:
    with pytest.raises(FormatError) as caught:
        check_shape({**GOOD, **change}, SHAPE, "some.json")
    assert place in caught.value.problem
    assert str(caught.value.path) == "some.json"


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_no_map_at_all(value: object) -> None:
    with pytest.raises(FormatError):
        check_shape(value, SHAPE, "f")


@pytest.mark.parametrize("key", GOOD)
def test_missing_key(key: str) -> None:
    with pytest.raises(FormatError) as caught:
        check_shape({name: value for name, value in GOOD.items() if name != key}, SHAPE, "f")
    assert key in caught.value.problem


def test_numbers_that_files_can_have() -> None:
    check_naturals({"a": [0, {"b": MAX_NATURAL}], "c": "text", "d": None, "e": True}, "f")


@pytest.mark.parametrize("number", [-1, MAX_NATURAL + 1, 1.5, float("inf")])
def test_numbers_that_no_file_has(number: float) -> None:
    with pytest.raises(FormatError) as caught:
        check_naturals({"a": [0, {"b": number}]}, "f")
    assert caught.value.problem.startswith("['a'][1]['b']")
