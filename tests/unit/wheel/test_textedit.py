"""The undo of changed texts."""

from __future__ import annotations

from typing import cast

import pytest

from kpack_build.errors import FormatError, WheelError
from kpack_build.wheel.textedit import TextUndo, apply_text_undo, plan_text_undo

__all__: list[str] = []


def test_an_insertion_costs_nothing_but_its_place() -> None:
    original = b'"""Doc."""\r\nx = 1'
    changed = b'"""Doc."""\r\nfrom . import _kpack\r\nx = 1'
    undo = plan_text_undo(original, changed)
    assert undo["original"] == ""
    assert undo["length"] == len(b"from . import _kpack\r\n")
    assert apply_text_undo(changed, undo) == original


def test_a_file_that_was_changed_again_is_refused() -> None:
    undo = plan_text_undo(b"a", b"ab")
    with pytest.raises(WheelError) as caught:
        apply_text_undo(b"abc", undo, path="m")
    assert caught.value.path.name == "m"


@pytest.mark.parametrize("key", ["offset", "length", "original", "sha256"])
@pytest.mark.parametrize("value", [None, "x", -7, [1], 1.5])
def test_a_malformed_undo_is_our_error(key: str, value: object) -> None:
    undo = cast("TextUndo", {**plan_text_undo(b"abc", b"axc"), key: value})
    with pytest.raises((FormatError, WheelError)):
        apply_text_undo(b"axc", undo)


def test_an_undo_without_a_key_is_our_error() -> None:
    with pytest.raises(FormatError):
        apply_text_undo(b"", cast("TextUndo", {}))
