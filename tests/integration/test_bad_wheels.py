"""Damaged and hostile wheels: an error that names the file, no partial output, and the source as it was."""

from __future__ import annotations

import random
import struct
import warnings
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import FormatError, KpackError, WheelError
from kpack_build.pipeline import pack
from kpack_build.restoration import restore
from tests.packing import make_config, members_of
from tests.synthetic import fat_library
from tests.unit.wheel.builder import NAME, RECORD_PATH, WheelRecipe, row, sound_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__: list[str] = []

FILES = {"pkg/__init__.py": b"x = 1\n", "pkg/lib.so": fat_library(["gfx90a", "gfx1100"])}
LIBRARY = "pkg/lib.so"


def recipe() -> WheelRecipe:
    return WheelRecipe(files=dict(FILES))


def check_refused(source: Path, output: Path, *, mentions: str = "") -> None:
    before = source.read_bytes() if source.is_file() else members_of(source)
    with pytest.raises((WheelError, FormatError)) as caught:
        pack(source, output, make_config())
    assert source.name in str(caught.value)
    assert mentions in str(caught.value)
    assert list(output.glob("*")) == []
    assert (source.read_bytes() if source.is_file() else members_of(source)) == before


HOSTILE_NAMES = [
    "../outside.py",
    "pkg/../../outside.py",
    "/absolute.py",
    "pkg/./x.py",
    "pkg//x.py",
    "C:/x.py",
    "pkg\\x.py",
    "pkg/x\0.py",
    "PKG/__init__.py",
    "pkg/lib.so/x",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=repr)
def test_hostile_names(name: str, tmp_path: Path) -> None:
    """Python's own writer changes some names, so the name is put into the finished file."""
    wheel = recipe()
    stand_in = "pkg/" + "n" * (len(name) - 4) if len(name) > 4 else "n" * len(name)
    wheel.files[stand_in] = b"hostile"
    source = wheel.write(tmp_path)
    data = source.read_bytes()
    assert data.count(stand_in.encode()) == 2
    source.write_bytes(data.replace(stand_in.encode(), name.encode()))
    check_refused(source, tmp_path / "packed")
    assert not (tmp_path / "outside.py").exists()


def test_two_members_of_one_name(tmp_path: Path) -> None:
    source = recipe().write(tmp_path)
    with zipfile.ZipFile(source, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr("pkg/lib.so", b"another")
    check_refused(source, tmp_path / "packed", mentions="pkg/lib.so")


def lie(change: Callable[[dict[str, bytes]], bytes]) -> bytes:
    wheel = recipe()
    wheel.record = None
    return change(wheel.all_files())


def without(path: str, files: Mapping[str, bytes]) -> bytes:
    return sound_record({name: data for name, data in files.items() if name != path})


LYING_RECORDS: dict[str, bytes | None] = {
    "wrong hash": lie(lambda files: sound_record({**files, LIBRARY: bytes(len(files[LIBRARY]))})),
    "wrong size": lie(
        lambda files: sound_record(files).replace(f",{len(files[LIBRARY])}\n".encode(), b",7\n")
    ),
    "size that is none": lie(
        lambda files: sound_record(files).replace(f",{len(files[LIBRARY])}\n".encode(), b",big\n")
    ),
    "missing row": lie(lambda files: without(LIBRARY, files)),
    "row of nothing": lie(lambda files: row("pkg/gone.py", b"").encode() + b"\n" + sound_record(files)),
    "row of a place outside": lie(lambda files: row("../x.py", b"").encode() + b"\n" + sound_record(files)),
    "row twice": lie(lambda files: row(LIBRARY, files[LIBRARY]).encode() + b"\n" + sound_record(files)),
    "weak hash": lie(lambda files: sound_record(files, algorithm="md5").replace(b"md5=", b"unknown=")),
    "no UTF-8": lie(lambda files: sound_record(files).replace(b"pkg/lib", b"pkg/\xff\xfe")),
    "open quotes": lie(lambda files: b'"' + sound_record(files)),
    "empty": b"",
    "none": None,
}


@pytest.mark.parametrize("form", ["wheel", "tree"])
@pytest.mark.parametrize("name", LYING_RECORDS)
def test_lying_record(name: str, form: str, tmp_path: Path) -> None:
    wheel = recipe()
    wheel.record = LYING_RECORDS[name]
    source = wheel.write(tmp_path) if form == "wheel" else wheel.write_tree(tmp_path / "thing")
    check_refused(source, tmp_path / "packed")


def test_wheels_that_are_none(tmp_path: Path) -> None:
    for content in (b"", b"no wheel", b"PK\3\4", b"PK\5\6" + bytes(18)):
        source = tmp_path / NAME
        source.write_bytes(content)
        check_refused(source, tmp_path / "packed")


def test_paths_that_are_no_wheels(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_refused(tmp_path / "empty", tmp_path / "packed")
    with pytest.raises(KpackError):
        pack(tmp_path / "missing.whl", tmp_path / "packed", make_config())
    assert list((tmp_path / "packed").glob("*")) == []


def test_wheel_without_its_metadata(tmp_path: Path) -> None:
    for name in ("METADATA", "WHEEL"):
        wheel = recipe()
        del wheel.info[name]
        check_refused(wheel.write(tmp_path), tmp_path / "packed")
    wheel = recipe()
    wheel.files["other-1.0.dist-info/RECORD"] = b""
    check_refused(wheel.write(tmp_path), tmp_path / "packed")


def test_every_cut_is_refused(tmp_path: Path) -> None:
    whole = recipe().write(tmp_path).read_bytes()
    source = tmp_path / "cut" / NAME
    source.parent.mkdir()
    places = [*range(0, len(whole), 97), *range(len(whole) - 30, len(whole))]
    for place in places:
        source.write_bytes(whole[:place])
        check_refused(source, tmp_path / "packed")


def test_flipped_bits_give_our_error_or_a_wheel_that_is_whole(tmp_path: Path) -> None:
    original = recipe().write(tmp_path)
    whole = original.read_bytes()
    expected = members_of(original)
    source = tmp_path / "flipped" / NAME
    source.parent.mkdir()
    chooser, refused = random.Random(5), 0  # noqa: S311 - the same bits each time
    places = [chooser.randrange(len(whole)) for _ in range(120)]
    # The directory at the end, where all depends on all.
    places += range(whole.index(b"PK\1\2"), len(whole), 7)
    for number, place in enumerate(places):
        data = bytearray(whole)
        data[place] ^= 1 << chooser.randrange(8)
        source.write_bytes(data)
        output = tmp_path / f"packed-{number}"
        try:
            packed = pack(source, output, make_config()).output
        except KpackError:
            refused += 1
            assert list(output.glob("*")) == []
            continue
        # The bit was in a date, a mode or the like: what the wheel holds is what it held.
        back = restore(packed, output / "back").output
        assert {name: digest for name, (digest, _) in members_of(back).items()} == {
            name: digest for name, (digest, _) in expected.items()
        }
    assert refused > len(places) // 2


def test_member_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    source = recipe().write(tmp_path)
    data = bytearray(source.read_bytes())
    size = len(FILES[LIBRARY])
    for start in (data.index(b"pkg/lib.so") - 30 + 22, data.rindex(b"pkg/lib.so") - 46 + 24):
        assert struct.unpack_from("<I", data, start) == (size,)
        struct.pack_into("<I", data, start, size - 1000)
    source.write_bytes(data)
    check_refused(source, tmp_path / "packed", mentions=LIBRARY)


def test_source_is_not_replaced(tmp_path: Path) -> None:
    source = recipe().write(tmp_path)
    before = source.read_bytes()
    with pytest.raises(WheelError):
        pack(source, tmp_path, make_config())
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(WheelError):
        pack(source, tmp_path / "link", make_config())
    assert source.read_bytes() == before


def test_tree_is_not_written_into_itself(tmp_path: Path) -> None:
    tree = recipe().write_tree(tmp_path / "thing")
    before = members_of(tree)
    for output in (tree, tree / "pkg", tree / "new" / "folder"):
        with pytest.raises(WheelError):
            pack(tree, output, make_config())
        assert members_of(tree) == before
        assert not (tree / "new").exists()


def test_output_folder_that_is_there(tmp_path: Path) -> None:
    tree = recipe().write_tree(tmp_path / "thing")
    (tmp_path / "packed" / "thing").mkdir(parents=True)
    (tmp_path / "packed" / "thing" / "mine").write_bytes(b"mine")
    with pytest.raises(WheelError):
        pack(tree, tmp_path / "packed", make_config())
    assert (tmp_path / "packed" / "thing" / "mine").read_bytes() == b"mine"


def test_output_folder_that_is_a_file(tmp_path: Path) -> None:
    source = recipe().write(tmp_path)
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises((KpackError, OSError)):
        pack(source, tmp_path / "file", make_config())
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("target", ["outside", "inside", "nothing"])
def test_links_in_a_tree(target: str, tmp_path: Path) -> None:
    """A wheel has no links; one that leads out of the tree would bring in what is not its own."""
    tree = recipe().write_tree(tmp_path / "thing")
    (tmp_path / "secret").write_bytes(b"secret")
    places = {"outside": tmp_path / "secret", "inside": tree / LIBRARY, "nothing": tmp_path / "gone"}
    (tree / "pkg/link.so").symlink_to(places[target])
    with pytest.raises((WheelError, FormatError)) as caught:
        pack(tree, tmp_path / "packed", make_config())
    assert tree.name in str(caught.value)
    assert list((tmp_path / "packed").glob("*")) == []


def test_record_in_another_case(tmp_path: Path) -> None:
    wheel = recipe()
    wheel.record = None
    wheel.files[RECORD_PATH.lower()] = b""
    check_refused(wheel.write(tmp_path), tmp_path / "packed")
