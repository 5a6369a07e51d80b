"""Wheel files and unpacked wheels: what they say of themselves, and which are refused."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import threading
import zipfile
from typing import TYPE_CHECKING, Literal

import pytest

from kpack_build.errors import FormatError, WheelError
from kpack_build.wheel import TreeContents, ZipContents, open_wheel
from tests.unit.wheel.builder import INFO, NAME, RECORD_PATH, WheelRecipe, row, sound_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__: list[str] = []

Kind = Literal["file", "tree"]


@pytest.fixture(params=["file", "tree"])
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


def make(recipe: WheelRecipe, folder: Path, kind: Kind) -> Path:
    return recipe.write(folder) if kind == "file" else recipe.write_tree(folder / "tree")


def check(path: Path) -> None:
    with open_wheel(path) as contents:
        contents.check()


def refuse(path: Path) -> WheelError:
    with pytest.raises(WheelError) as caught:
        check(path)
    assert caught.value.remedy
    return caught.value


def test_what_a_wheel_says_of_itself(tmp_path: Path, kind: Kind) -> None:
    recipe = WheelRecipe(modes={"pkg/ext.so": 0o100755})
    with open_wheel(make(recipe, tmp_path, kind)) as contents:
        contents.check()
        contents.check()
        assert (contents.name, contents.version, contents.build) == ("thing", "1.0", "1")
        assert {str(tag) for tag in contents.tags} == {"py2-none-any", "py3-none-any"}
        assert contents.dist_info == INFO
        assert contents.notes == ()
        assert not contents.is_signed
        files = recipe.all_files()
        assert {member.path: member.size for member in contents.members} == {
            path: len(data) for path, data in files.items()
        }
        assert {m.path: m.mode for m in contents.members}["pkg/ext.so"] == 0o755
        assert {m.path: m.mode for m in contents.members}["pkg/__init__.py"] == 0o644
        for path, data in files.items():
            assert contents.read(path) == data
            assert contents.materialise(path).read_bytes() == data
            with contents.open(path) as stream:
                assert stream.read(3) + stream.read() == data
            assert contents.facts(path).size == len(data)


def test_a_member_is_unpacked_once_and_vanishes_at_the_end(tmp_path: Path) -> None:
    with ZipContents(WheelRecipe().write(tmp_path)) as contents:
        seen: list[Path] = []
        threads = [
            threading.Thread(target=lambda: seen.append(contents.materialise("pkg/ext.so"))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 1
        assert seen[0].exists()
    assert not seen[0].exists()


def test_errors_name_the_member_and_not_its_unpacked_file(tmp_path: Path) -> None:
    wheel = WheelRecipe().write(tmp_path)
    member = "pkg/ext.so"

    def fail_in(path: Callable[[ZipContents], Path]) -> FormatError:
        with pytest.raises(FormatError) as caught, ZipContents(wheel) as contents:
            raise FormatError(path(contents), "is cut short", offset=3)
        return caught.value

    error = fail_in(lambda contents: contents.materialise(member))
    assert error.path == wheel / member
    assert str(error).startswith(f"{wheel / member}, byte 0x3: ")
    elsewhere = tmp_path / "elsewhere"
    assert fail_in(lambda contents: (contents.materialise(member), elsewhere)[1]).path == elsewhere
    assert fail_in(lambda _: elsewhere).path == elsewhere


def test_a_member_that_is_not_there(tmp_path: Path, kind: Kind) -> None:
    with open_wheel(make(WheelRecipe(folders=("pkg/",)), tmp_path, kind)) as contents:
        for name in ("nope", "pkg/"):
            with pytest.raises(WheelError):
                contents.materialise(name)


def test_a_folder_around_the_tree(tmp_path: Path) -> None:
    WheelRecipe().write_tree(tmp_path / "outer" / "thing-1.0")
    with TreeContents(tmp_path / "outer") as contents:
        contents.check()
        assert contents.root == tmp_path / "outer" / "thing-1.0"


@pytest.mark.parametrize("algorithm", ["sha384", "sha512", "blake2b", "sha3_256"])
def test_better_hashes_are_accepted(tmp_path: Path, kind: Kind, algorithm: str) -> None:
    files = {path: data for path, data in WheelRecipe().all_files().items() if path != RECORD_PATH}
    check(make(WheelRecipe(record=sound_record(files, algorithm=algorithm)), tmp_path, kind))


def test_a_record_without_hashes_is_accepted(tmp_path: Path, kind: Kind) -> None:
    recipe = WheelRecipe()
    rows = [f"{path},,{len(data)}" for path, data in recipe.all_files().items() if path != RECORD_PATH]
    recipe.record = ("\r\n".join([*rows, f"{RECORD_PATH},,"])).encode()
    check(make(recipe, tmp_path, kind))


def test_a_signature_needs_no_row(tmp_path: Path, kind: Kind) -> None:
    recipe = WheelRecipe()
    recipe.record = sound_record({path: d for path, d in recipe.all_files().items() if path != RECORD_PATH})
    recipe.info["RECORD.jws"] = b"{}"
    with open_wheel(make(recipe, tmp_path, kind)) as contents:
        contents.check()
        assert contents.is_signed


def _without(path: str) -> Callable[[str], str]:
    return lambda text: "".join(line for line in text.splitlines(keepends=True) if not line.startswith(path))


def _instead(path: str, new: str) -> Callable[[str], str]:
    return lambda text: _without(path)(text) + new + "\n"


INIT = b"x = 1\n"
LIES: dict[str, tuple[Callable[[str], str], str]] = {
    "no row": (_without("pkg/ext.so"), "pkg/ext.so"),
    "no file": (lambda text: text + row("pkg/gone.py", b"") + "\n", "pkg/gone.py"),
    "two rows": (lambda text: text + row("pkg/__init__.py", INIT) + "\n", "pkg/__init__.py"),
    "wrong hash": (_instead("pkg/__init__.py", row("pkg/__init__.py", b"y = 1\n")), "pkg/__init__.py"),
    "wrong size": (
        _instead("pkg/__init__.py", row("pkg/__init__.py", INIT)[:-1] + "7"),
        "pkg/__init__.py",
    ),
    "no size": (_instead("pkg/__init__.py", row("pkg/__init__.py", INIT)[:-1] + "x"), "pkg/__init__.py"),
    "md5": (
        _instead("pkg/__init__.py", row("pkg/__init__.py", INIT, algorithm="md5")),
        "pkg/__init__.py",
    ),
    "sha1": (
        _instead("pkg/__init__.py", row("pkg/__init__.py", INIT, algorithm="sha1")),
        "pkg/__init__.py",
    ),
    "unknown": (_instead("pkg/__init__.py", "pkg/__init__.py,rot13=abc,6"), "pkg/__init__.py"),
    "hexadecimal": (
        _instead("pkg/__init__.py", f"pkg/__init__.py,sha256={hashlib.sha256(INIT).hexdigest()},6"),
        "hexadecimal",
    ),
    "padding": (
        _instead("pkg/__init__.py", row("pkg/__init__.py", INIT).replace(",6", "=,6")),
        "pkg/__init__.py",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_record_that_lies(tmp_path: Path, kind: Kind, lie: str) -> None:
    change, culprit = LIES[lie]
    recipe = WheelRecipe()
    recipe.record = change(recipe.all_files()[RECORD_PATH].decode()).encode()
    error = refuse(make(recipe, tmp_path, kind))
    assert culprit in error.problem


def test_all_lies_are_counted(tmp_path: Path, kind: Kind) -> None:
    error = refuse(make(WheelRecipe(record=b""), tmp_path, kind))
    assert "3 more" in error.problem


def _info_change(name: str, data: bytes | None) -> WheelRecipe:
    recipe = WheelRecipe()
    if data is None:
        del recipe.info[name]
    else:
        recipe.info[name] = data
    return recipe


@pytest.mark.parametrize(
    "recipe",
    [
        _info_change("METADATA", None),
        _info_change("WHEEL", None),
        WheelRecipe(record=None),
        WheelRecipe(files={"other-2.dist-info/METADATA": b""}),
        _info_change("METADATA", b"Metadata-Version: 2.1\nVersion: 1.0\n"),
        _info_change("METADATA", b"Name: thing\n"),
        _info_change("METADATA", b"Name: other\nVersion: 1.0\n"),
        _info_change("METADATA", b"Name: thing\nVersion: 2.0\n"),
        _info_change("WHEEL", b"Wheel-Version: 2.0\n"),
        _info_change("WHEEL", b"Tag: py3-none-any\n"),
        _info_change("WHEEL", b""),
    ],
)
def test_wheels_that_contradict_themselves(tmp_path: Path, kind: Kind, recipe: WheelRecipe) -> None:
    refuse(make(recipe, tmp_path, kind))


def test_a_folder_that_is_no_wheel(tmp_path: Path) -> None:
    refuse(tmp_path)
    (tmp_path / "x").write_bytes(b"")
    refuse(tmp_path)
    refuse(tmp_path / "missing")


@pytest.mark.parametrize("name", ["other-1.0-py3-none-any.whl", "thing-2-py3-none-any.whl", "thing.whl"])
def test_a_file_name_that_contradicts_the_wheel(tmp_path: Path, name: str) -> None:
    refuse(WheelRecipe().write(tmp_path, name=name))


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("Thing-1.0.0-py2.py3-none-any.whl", b"Name: THING\nVersion: 1.0\n"),
        ("thing-1.0-py2.py3-none-any.whl", b"Name: thing\nVersion: 1\n"),
    ],
)
def test_other_spellings_of_name_and_version(tmp_path: Path, name: str, metadata: bytes) -> None:
    check(_info_change("METADATA", metadata).write(tmp_path, name=name))


@pytest.mark.parametrize(
    "wheel", [b"", b"Tag: py3-none-any\n", b"Tag: \n", b"Tag: py3-none-any\nTag: x-y-z\n"]
)
def test_tags_that_differ_are_noted(tmp_path: Path, wheel: bytes) -> None:
    recipe = _info_change("WHEEL", b"Wheel-Version: 1.0\n" + wheel)
    with open_wheel(recipe.write(tmp_path)) as contents:
        contents.check()
        assert len(contents.notes) == 1
        assert {str(tag) for tag in contents.tags} == {"py2-none-any", "py3-none-any"}


@pytest.mark.parametrize("make_special", [lambda file: file.symlink_to("__init__.py"), os.mkfifo])
def test_a_tree_with_links_or_special_files(tmp_path: Path, make_special: Callable[[Path], None]) -> None:
    tree = WheelRecipe().write_tree(tmp_path / "tree")
    make_special(tree / "pkg" / "special.py")
    assert "pkg/special.py" in refuse(tree).problem


def test_a_tree_with_a_linked_folder(tmp_path: Path) -> None:
    tree = WheelRecipe().write_tree(tmp_path / "tree")
    (tree / "again").symlink_to("pkg", target_is_directory=True)
    assert "again" in refuse(tree).problem


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "pkg\\x.py", "c:/x.py", "pkg/./x.py", "pkg//x.py"])
def test_unsafe_names_in_a_file(tmp_path: Path, name: str) -> None:
    error = refuse(WheelRecipe(files={"pkg/__init__.py": b"", name: b""}).write(tmp_path))
    assert repr(name) in error.problem


def test_a_name_with_a_nul(tmp_path: Path) -> None:
    path = WheelRecipe(files={"pkg/a?b.py": b""}).write(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"pkg/a?b.py", b"pkg/a\0b.py"))
    refuse(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pkg/__init__.py", b"x = 1\n")
    assert "pkg/__init__.py" in refuse(path).problem


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o020644])
def test_links_and_special_files_in_a_file(tmp_path: Path, mode: int) -> None:
    error = refuse(WheelRecipe(modes={"pkg/ext.so": mode}).write(tmp_path))
    assert "pkg/ext.so" in error.problem


def test_other_methods_are_refused(tmp_path: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pkg/b.py", b"x" * 100, zipfile.ZIP_BZIP2)
    assert "pkg/b.py" in refuse(path).problem


def test_a_folder_with_contents(tmp_path: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pkg/sub/", b"x")
    assert "pkg/sub/" in refuse(path).problem


def patch(path: Path, member: str, *, local: dict[int, bytes], central: dict[int, bytes]) -> Path:
    """Overwrite bytes of a member's headers, by their offset there."""
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        start = archive.start_dir
    name = member.encode()
    place = data.index(name, start) - 46
    for offset, value in local.items():
        data[info.header_offset + offset : info.header_offset + offset + len(value)] = value
    for offset, value in central.items():
        data[place + offset : place + offset + len(value)] = value
    path.write_bytes(data)
    return path


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = patch(WheelRecipe().write(tmp_path), "pkg/ext.so", local={6: b"\1"}, central={8: b"\1"})
    assert "encrypted" in refuse(path).problem


PATCHES: dict[str, tuple[dict[int, bytes], dict[int, bytes]]] = {
    "no local header": ({0: b"XX"}, {}),
    "other name": ({30: b"q"}, {}),
    "other method": ({8: b"\0"}, {}),
    "local encryption": ({6: b"\1"}, {}),
    "checksum": ({14: b"abcd"}, {16: b"abcd"}),
    "too short": ({}, {24: struct.pack("<L", 10_241)}),
    "too long": ({}, {24: struct.pack("<L", 10_239)}),
    "cut": ({}, {20: struct.pack("<L", 8)}),
    "overlap": ({}, {20: struct.pack("<L", 700)}),
    "behind the end": ({}, {20: struct.pack("<L", 70_000)}),
    "no place": ({}, {42: struct.pack("<L", 70_000)}),
    "extra": ({28: b"\xff\xff"}, {}),
}


@pytest.mark.parametrize("name", PATCHES)
def test_headers_that_lie(tmp_path: Path, name: str) -> None:
    local, central = PATCHES[name]
    recipe = WheelRecipe()
    path = patch(recipe.write(tmp_path), "pkg/ext.so", local=local, central=central)
    with pytest.raises((FormatError, WheelError)) as caught:
        check(path)
    assert str(caught.value).startswith(str(path))


def test_data_behind_a_deflated_stream(tmp_path: Path) -> None:
    """The last member's data is followed by junk that its header counts in."""
    path = WheelRecipe().write(tmp_path)
    with zipfile.ZipFile(path) as archive:
        info, start = archive.infolist()[-1], archive.start_dir
    data = path.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    moved = data[:start] + b"junk" + data[start : end + 16] + struct.pack("<LH", start + 4, 0)
    path.write_bytes(moved)
    patch(path, info.filename, local={}, central={20: struct.pack("<L", info.compress_size + 4)})
    with pytest.raises(FormatError):
        check(path)


def test_a_checksum_is_checked_when_a_member_is_read(tmp_path: Path) -> None:
    path = patch(WheelRecipe().write(tmp_path), "pkg/ext.so", local={}, central={16: b"abcd"})
    with open_wheel(path) as contents, pytest.raises(FormatError), contents.open("pkg/ext.so") as stream:
        stream.read()


def test_a_bomb_is_stopped_at_the_announced_size(tmp_path: Path) -> None:
    path = WheelRecipe(files={"pkg/bomb": bytes(3_000_000)}).write(tmp_path)
    patch(path, "pkg/bomb", local={}, central={24: struct.pack("<L", 10)})
    with open_wheel(path) as contents:
        stream = contents.open("pkg/bomb")
        pieces: list[bytes] = []
        with pytest.raises(FormatError):
            pieces.extend(iter(lambda: stream.read(1000), b""))
        stream.close()
        assert sum(map(len, pieces)) < 300_000


def test_large_members_come_in_pieces(tmp_path: Path) -> None:
    data = os.urandom(700_000) + bytes(2_000_000)
    with open_wheel(WheelRecipe(files={"pkg/large": data}).write(tmp_path)) as contents:
        contents.check()
        assert contents.read("pkg/large") == data


def test_every_prefix_of_a_file_is_refused(tmp_path: Path) -> None:
    data = WheelRecipe(files={"pkg/__init__.py": b"x"}).write(tmp_path).read_bytes()
    path = tmp_path / "cut" / NAME
    path.parent.mkdir()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises((FormatError, WheelError)):
            check(path)


def is_refused(path: Path) -> bool:
    try:
        check(path)
    except (FormatError, WheelError):
        return True
    return False


def test_every_flipped_bit_gives_our_error_or_none(tmp_path: Path) -> None:
    data = bytearray(WheelRecipe(files={"pkg/__init__.py": b"x"}).write(tmp_path).read_bytes())
    path = tmp_path / "flipped" / NAME
    path.parent.mkdir()
    refused = 0
    for number in range(0, len(data) * 8, 3):
        data[number // 8] ^= 1 << number % 8
        path.write_bytes(data)
        refused += is_refused(path)
        data[number // 8] ^= 1 << number % 8
    assert refused > len(data)


def test_a_file_that_is_cut_while_it_is_open(tmp_path: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with open_wheel(path) as contents:
        with path.open("r+b") as stream:
            stream.truncate(path.read_bytes().index(b"pkg/ext.so") + 20)
        with pytest.raises(FormatError) as caught:
            contents.read("pkg/ext.so")
    assert caught.value.path == path


def test_offsets_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_offset(_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    path = WheelRecipe().write(tmp_path)
    monkeypatch.setattr(zipfile, "ZipFile", refuse_offset)
    with pytest.raises(FormatError):
        ZipContents(path)


def test_a_file_that_cannot_be_read_is_the_systems_error(tmp_path: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with open_wheel(path) as contents:
        path.unlink()
        contents.check()
    with pytest.raises(OSError, match="No such file"):
        ZipContents(path)


def test_file_that_is_no_zip_file(tmp_path: Path) -> None:
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(b"hello")
    with pytest.raises(FormatError) as caught:
        open_wheel(path)
    assert (caught.value.path, caught.value.found) == (path, None)


def test_folder_that_is_no_unpacked_wheel_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "link").symlink_to("elsewhere")
    (tmp_path / "file").touch()
    with pytest.raises(WheelError, match=r"no \.dist-info folder"):
        open_wheel(tmp_path)
