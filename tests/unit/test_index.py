"""The index of what was packed: written, read, and refused where it is damaged."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from kpack_build.errors import FormatError
from kpack_build.index import INDEX_FORMAT, parse_index, write_index

if TYPE_CHECKING:
    from collections.abc import Callable

INDEX: Any = {
    "format": INDEX_FORMAT,
    "group": "thing",
    "distribution": "thing",
    "version": "1.0",
    "package": None,
    "scheme": "none",
    "archives": [{"file": "a.kpack", "sha256": "0", "size": 1, "family": "gfx110x", "targets": ["gfx1100"]}],
    "code_objects": [
        {"archive": 0, "offset": 64, "stored_size": 9, "size": 9, "target": "gfx1100", "sha256": "1"}
    ],
    "kept": [],
    "binaries": [
        {
            "path": "ü.so",
            "kernel_name": "ü.so",
            "hip_library": None,
            "wrappers": [{"gfx1100": 0}, {}],
            "restore": {},
        }
    ],
    "restore": {"files": {}, "added": [], "record": None},
}


def test_written_and_read() -> None:
    assert parse_index(write_index(INDEX), "x.json") == INDEX
    assert write_index(INDEX) == write_index(copy.deepcopy(INDEX))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"3", b"\xff", b'{"format": "1"}', b"[" * 100_000]
)
def test_no_index(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_index(data, "x.json")


@pytest.mark.parametrize("number", [0, INDEX_FORMAT + 1])
def test_other_format(number: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_index(json.dumps({"format": number}).encode(), "x.json")
    assert (caught.value.expected, caught.value.found) == (INDEX_FORMAT, number)


@pytest.mark.parametrize("key", [key for key in INDEX if key != "format"])
def test_missing_key(key: str) -> None:
    index = {name: value for name, value in INDEX.items() if name != key}
    with pytest.raises(FormatError) as caught:
        parse_index(json.dumps(index).encode(), "x.json")
    assert key in caught.value.problem


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index["code_objects"][0].update(archive=1),
        lambda index: index["code_objects"][0].update(archive=-1),
        lambda index: index["binaries"][0]["wrappers"][0].update(gfx1100=1),
        lambda index: index["binaries"][0]["wrappers"][0].update(gfx1100=-1),
        lambda index: index["binaries"][0]["wrappers"][0].update(gfx1100=None),
        lambda index: index["archives"][0].pop("sha256"),
        lambda index: index["archives"].append(None),
        lambda index: index["archives"][0].update(size=-1),
        lambda index: index["binaries"][0]["restore"].update(size=1 << 63),
        lambda index: index["binaries"][0].update(restore=[]),
    ],
)
def test_parts_that_do_not_fit(damage: Callable[[Any], object]) -> None:
    index = copy.deepcopy(INDEX)
    damage(index)
    with pytest.raises(FormatError):
        parse_index(json.dumps(index).encode(), "x.json")


def test_index_has_a_row_on_each_line() -> None:
    lines = write_index(INDEX).decode().splitlines()
    assert json.loads("\n".join(lines)) == INDEX
    for row in INDEX["code_objects"]:
        assert any(json.loads(line.strip().rstrip(",")) == row for line in lines if '"stored_size"' in line)
