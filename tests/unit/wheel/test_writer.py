"""Changed wheels, as files and as folders."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING, Literal, cast

import pytest

from kpack_build.errors import ConfigError, FormatError, KpackError, WheelError
from kpack_build.wheel import (
    Change,
    Changes,
    TreeContents,
    WheelContents,
    Written,
    apply_record_undo,
    copy_contents,
    open_wheel,
    record_undo,
    write_contents,
    zipwriter,
)
from tests.missing import missing
from tests.unit.wheel.builder import INFO, NAME, RECORD_PATH, WheelRecipe, row, sound_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO

__all__: list[str] = []

Kind = Literal["file", "tree"]


@pytest.fixture(params=["file", "tree"])
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / NAME


def make(recipe: WheelRecipe, folder: Path, kind: Kind) -> Path:
    return recipe.write(folder) if kind == "file" else recipe.write_tree(folder / "tree")


def change(source: Path, changes: Changes, destination: Path) -> Written:
    """Write a changed wheel, and see to it that the source stays as it was."""
    before = snapshot(source)
    with open_wheel(source) as contents:
        written = write_contents(contents, changes, destination)
    assert snapshot(source) == before
    with open_wheel(destination) as contents:
        contents.check()
        assert sum(member.size for member in contents.members) == written.installed_size
        assert contents.members[-1].path == RECORD_PATH or isinstance(contents, TreeContents)
    return written


def snapshot(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and mode of all files of a tree, or of a file."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mode) for file in files}


def members(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and mode of all members of a wheel."""
    with open_wheel(path) as contents:
        return {member.path: (contents.read(member.path), member.mode) for member in contents.members}


def test_members_are_added_replaced_and_removed(tmp_path: Path, kind: Kind, out: Path) -> None:
    recipe = WheelRecipe(modes={"pkg/ext.so": 0o100755})
    recipe.files["pkg/old.py"] = b""
    new = tmp_path / "new.bin"
    new.write_bytes(os.urandom(600_000))
    changes = Changes(
        files={"pkg/ext.so": b"new", "pkg/.kpack/a.kpack": new, "pkg/tool": b"#!", "a.py": b"a"},
        removed=frozenset({"pkg/old.py"}),
        stored=frozenset({"pkg/.kpack/a.kpack"}),
        executable=frozenset({"pkg/tool"}),
    )
    written = change(make(recipe, tmp_path, kind), changes, out)
    assert written.path == out
    result = members(out)
    before = recipe.all_files()
    assert result.keys() == (before.keys() | changes.files.keys()) - {"pkg/old.py"}
    assert result["pkg/ext.so"] == (b"new", 0o755)
    assert result["pkg/tool"] == (b"#!", 0o755)
    assert result["pkg/.kpack/a.kpack"] == (new.read_bytes(), 0o644)
    assert result["pkg/__init__.py"] == (b"x = 1\n", 0o644)
    rows = result[RECORD_PATH][0].decode().splitlines()
    assert rows == [
        row("pkg/__init__.py", b"x = 1\n"),
        row("pkg/ext.so", b"new"),
        row(f"{INFO}/METADATA", before[f"{INFO}/METADATA"]),
        row(f"{INFO}/WHEEL", before[f"{INFO}/WHEEL"]),
        row("a.py", b"a"),
        row("pkg/.kpack/a.kpack", new.read_bytes()),
        row("pkg/tool", b"#!"),
        f"{RECORD_PATH},,",
    ]
    if kind == "file":
        assert written.size == out.stat().st_size
    else:
        assert written.size == written.installed_size


def test_the_order_of_members(tmp_path: Path, out: Path) -> None:
    recipe = WheelRecipe(folders=("pkg/", f"{INFO}/", "empty/"))
    changes = Changes(files={"z": b"", "b/c": b"", "pkg/__init__.py": b"y"})
    change(recipe.write(tmp_path), changes, out)
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == [
            "pkg/",
            f"{INFO}/",
            "empty/",
            "pkg/__init__.py",
            "pkg/ext.so",
            "b/c",
            "z",
            f"{INFO}/METADATA",
            f"{INFO}/WHEEL",
            RECORD_PATH,
        ]


def test_a_record_in_the_middle_goes_to_the_end_and_folders_stay(tmp_path: Path, out: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("tail/", b"")
    change(path, Changes(files={"a": b""}, removed=frozenset({"pkg/ext.so"})), out)
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist()[-2:] == ["tail/", RECORD_PATH]


def test_unchanged_members_are_copied_as_they_are_stored(tmp_path: Path, out: Path) -> None:
    """Stored data that no zlib at hand would write is copied, headers are made afresh."""
    path = tmp_path / NAME
    recipe = WheelRecipe()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in recipe.all_files().items():
            info = zipfile.ZipInfo(name, date_time=(1999, 1, 2, 3, 4, 6))
            info.external_attr = 0o100600 << 16
            info.create_system = 0
            info.extra = b"\x99\x99\x04\x00abcd"
            info.comment = b"comment"
            level = 1 if name == "pkg/ext.so" else 9
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, level)
    change(path, Changes(files={"new": b"n"}), out)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out) as new:
        for name in recipe.all_files().keys() - {RECORD_PATH}:
            before, after = old.getinfo(name), new.getinfo(name)
            assert raw(path, before) == raw(out, after)
            assert (after.date_time, after.external_attr, after.create_system) == (
                before.date_time,
                before.external_attr,
                0,
            )
            assert (after.extra, after.comment, after.flag_bits) == (b"", b"", 0)


def raw(path: Path, info: zipfile.ZipInfo) -> bytes:
    data = path.read_bytes()
    names = int.from_bytes(data[info.header_offset + 26 : info.header_offset + 28], "little")
    extra = int.from_bytes(data[info.header_offset + 28 : info.header_offset + 30], "little")
    start = info.header_offset + 30 + names + extra
    return data[start : start + info.compress_size]


def test_data_descriptors_and_zip64_fields_do_not_come_along(tmp_path: Path, out: Path) -> None:
    path = tmp_path / NAME
    recipe = WheelRecipe()
    # A stream that cannot seek makes zipfile write data descriptors; `force_zip64` ZIP64 fields.
    with path.open("wb") as stream, zipfile.ZipFile(cast("BinaryIO", _Unseekable(stream)), "w") as archive:
        for name, data in recipe.all_files().items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("pkg/ext.so").flag_bits & 0x8
    change(path, Changes(files={"new": b"n"}), out)
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        assert not any(info.flag_bits & 0x8 or info.extra for info in archive.infolist())
    assert b"PK\x07\x08" not in out.read_bytes()


class _Unseekable(io.RawIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._stream.write(data)


def test_a_stored_member_stays_stored_when_replaced(tmp_path: Path, out: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    change(
        path,
        Changes(files={"a.kpack": b"k" * 500, "b": b"b" * 500}, stored=frozenset({"a.kpack"})),
        out,
    )
    again = out.with_name("again") / NAME
    again.parent.mkdir()
    change(out, Changes(files={"a.kpack": b"q" * 700, "b": b"c" * 700}), again)
    with zipfile.ZipFile(again) as archive:
        assert archive.getinfo("a.kpack").compress_type == zipfile.ZIP_STORED
        assert archive.getinfo("b").compress_type == zipfile.ZIP_DEFLATED


@pytest.mark.parametrize(
    ("epoch", "date"),
    [
        (None, (1980, 1, 1, 0, 0, 0)),
        ("", (1980, 1, 1, 0, 0, 0)),
        ("0", (1980, 1, 1, 0, 0, 0)),
        ("1700000000", (2023, 11, 14, 22, 13, 20)),
        ("99999999999999999999", (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_the_date_of_new_members(
    tmp_path: Path,
    out: Path,
    epoch: str | None,
    date: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    change(WheelRecipe().write(tmp_path), Changes(files={"new": b"", "pkg/ext.so": b"x"}), out)
    with zipfile.ZipFile(out) as archive:
        assert archive.getinfo("new").date_time == date
        assert archive.getinfo("pkg/ext.so").date_time == (2020, 2, 3, 4, 5, 6)
        assert archive.getinfo(RECORD_PATH).date_time == (2020, 2, 3, 4, 5, 6)


def test_an_epoch_that_is_no_number(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ConfigError) as caught, open_wheel(WheelRecipe().write(tmp_path)) as contents:
        write_contents(contents, Changes(), out)
    assert caught.value.key == "SOURCE_DATE_EPOCH"
    assert list(out.parent.iterdir()) == []


def test_equal_changes_give_equal_bytes(tmp_path: Path, out: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    other = out.with_name(f"x-{NAME}").with_name(NAME.replace("-1-", "-2-"))
    files = {f"d/{number}": bytes([number]) * 1000 for number in range(20)}
    change(path, Changes(files=files), out)
    change(path, Changes(files=dict(reversed(files.items()))), other)
    assert out.read_bytes() == other.read_bytes()


def test_rows_without_hashes_are_completed(tmp_path: Path, kind: Kind, out: Path) -> None:
    recipe = WheelRecipe()
    files = [path for path in recipe.all_files() if path != RECORD_PATH]
    recipe.record = "\r\n".join([f"{path},," for path in files] + [f"{RECORD_PATH},,"]).encode()
    change(make(recipe, tmp_path, kind), Changes(files={"new": b"n"}), out)
    text = members(out)[RECORD_PATH][0].decode()
    assert (
        text
        == sound_record({**{p: recipe.all_files()[p] for p in files}, "new": b"n"}, newline="\r\n").decode()
    )


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("hashes", [True, False])
def test_back_to_the_original(tmp_path: Path, kind: Kind, out: Path, algorithm: str, *, hashes: bool) -> None:
    recipe = WheelRecipe(modes={"pkg/ext.so": 0o100755})
    plain = {path: data for path, data in recipe.all_files().items() if path != RECORD_PATH}
    record = sound_record(dict(reversed(plain.items())), newline="\r\n", algorithm=algorithm).rstrip()
    if not hashes:
        record = "\r\n".join(f"{path},,{len(data)}" for path, data in plain.items()).encode()
    recipe.record = record
    source = make(recipe, tmp_path, kind)
    names = {"pkg/ext.so": b"", "pkg/.kpack/i.json": b"", "pkg/__init__.py": b""}
    with open_wheel(source) as contents:
        undo = record_undo(contents, Changes(files=names))
    change(source, Changes(files={name: b"changed" + name.encode() for name in names}), out)
    back = out.with_name("back") / NAME
    back.parent.mkdir()
    with open_wheel(out) as packed:
        original = apply_record_undo(packed.read(RECORD_PATH), undo)
    assert original == record
    files = {name: data for name, data in recipe.files.items() if name in names}
    change(out, Changes(files=files, removed=frozenset({"pkg/.kpack/i.json"}), record=original), back)
    assert members(back) == members(source)


def test_a_given_record_is_corrected_where_it_is_wrong(tmp_path: Path, kind: Kind, out: Path) -> None:
    """A compressed bundle may come back as other bytes: its row has to be right all the same."""
    recipe = WheelRecipe()
    source = make(recipe, tmp_path, kind)
    record = recipe.all_files()[RECORD_PATH]
    change(source, Changes(files={"pkg/ext.so": b"other", "n": b""}, record=record), out)
    text = members(out)[RECORD_PATH][0].decode()
    assert row("pkg/ext.so", b"other") in text
    assert row("n", b"") in text
    assert row("pkg/__init__.py", b"x = 1\n") in text


@pytest.mark.parametrize(
    "changes",
    [
        Changes(files={RECORD_PATH: b""}),
        Changes(removed=frozenset({RECORD_PATH})),
        Changes(removed=frozenset({"nope"})),
        Changes(files={"pkg/ext.so": b""}, removed=frozenset({"pkg/ext.so"})),
        Changes(stored=frozenset({"pkg/ext.so"})),
        Changes(executable=frozenset({"pkg/ext.so"})),
        Changes(files={"../x": b""}),
        Changes(files={"pkg/ext.so/x": b""}),
        Changes(files={"pkg": b""}),
    ],
)
def test_changes_that_make_no_sense(tmp_path: Path, kind: Kind, out: Path, changes: Changes) -> None:
    with open_wheel(make(WheelRecipe(), tmp_path, kind)) as contents, pytest.raises(WheelError):
        write_contents(contents, changes, out)
    assert list(out.parent.iterdir()) == []


def act_write(contents: WheelContents, destination: Path) -> object:
    return write_contents(contents, Changes(files={"n": b""}), destination)


@pytest.mark.parametrize("action", [act_write, copy_contents])
def test_nothing_is_written_from_a_lying_source(
    tmp_path: Path, kind: Kind, out: Path, action: Callable[[WheelContents, Path], object]
) -> None:
    recipe = WheelRecipe()
    lie = row("pkg/ext.so", b"other" * 2048)
    recipe.record = recipe.all_files()[RECORD_PATH].replace(
        row("pkg/ext.so", recipe.files["pkg/ext.so"]).encode(), lie.encode()
    )
    with open_wheel(make(recipe, tmp_path, kind)) as contents, pytest.raises(WheelError):
        action(contents, out)
    assert list(out.parent.iterdir()) == []


def test_nothing_remains_after_an_exception(tmp_path: Path, kind: Kind, out: Path) -> None:
    gone = tmp_path / "gone"
    with open_wheel(make(WheelRecipe(), tmp_path, kind)) as contents, pytest.raises(FileNotFoundError):
        write_contents(contents, Changes(files={"n": gone}), out)
    assert list(out.parent.iterdir()) == []


def test_a_file_that_grows_while_it_is_written(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kpack_build.wheel.writer._size", lambda _: 3)
    with open_wheel(WheelRecipe().write(tmp_path)) as contents, pytest.raises(KpackError):
        write_contents(contents, Changes(files={"n": b"four"}), out)
    assert list(out.parent.iterdir()) == []


def test_a_copy_is_the_same_byte_for_byte(tmp_path: Path, kind: Kind, out: Path) -> None:
    source = make(WheelRecipe(modes={"pkg/ext.so": 0o100755}), tmp_path, kind)
    with open_wheel(source) as contents:
        written = copy_contents(contents, out)
    assert members(out) == members(source)
    if kind == "file":
        assert out.read_bytes() == source.read_bytes()
        assert written.size == out.stat().st_size
    assert [path.name for path in out.parent.iterdir()] == [NAME]


def test_the_folder_around_a_tree_is_kept(tmp_path: Path, out: Path) -> None:
    WheelRecipe().write_tree(tmp_path / "outer" / "thing-1.0")
    change(tmp_path / "outer", Changes(files={"n": b"1"}), out)
    assert (out / "thing-1.0" / "n").read_bytes() == b"1"


def test_a_source_is_not_replaced(tmp_path: Path, kind: Kind) -> None:
    source = make(WheelRecipe(), tmp_path, kind)
    before = snapshot(source)
    with open_wheel(source) as contents:
        for action in (act_write, copy_contents):
            with pytest.raises(WheelError):
                action(contents, source)
    assert snapshot(source) == before


def test_nothing_is_written_into_a_source(tmp_path: Path) -> None:
    source = WheelRecipe().write_tree(tmp_path / "tree")
    before = snapshot(source)
    with open_wheel(source) as contents, pytest.raises(WheelError):
        act_write(contents, source / "pkg" / "out")
    assert snapshot(source) == before


def test_a_folder_is_not_replaced(tmp_path: Path, kind: Kind, out: Path) -> None:
    out.mkdir()
    with open_wheel(make(WheelRecipe(), tmp_path, kind)) as contents, pytest.raises(WheelError):
        act_write(contents, out)
    assert list(out.iterdir()) == []


def test_a_wheel_file_is_replaced(tmp_path: Path, out: Path) -> None:
    out.write_bytes(b"old")
    change(WheelRecipe().write(tmp_path), Changes(), out)
    assert [path.name for path in out.parent.iterdir()] == [NAME]


def test_a_wheel_has_the_modes_of_new_files(tmp_path: Path, out: Path) -> None:
    change(WheelRecipe().write(tmp_path), Changes(), out)
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode


def test_only_known_contents_can_be_written(out: Path) -> None:
    with pytest.raises(TypeError):
        write_contents(object(), Changes(), out)  # type: ignore[arg-type]


def test_zip64_wheels_are_read_by_other_readers(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipwriter, "ZIP64_LIMIT", 1000)
    big = os.urandom(30_000)
    change(WheelRecipe().write(tmp_path), Changes(files={"big": big}, stored=frozenset({"big"})), out)
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
    if shutil.which("unzip") is None:
        missing("unzip, of the system's package of that name")
    subprocess.run(["unzip", "-tq", out], check=True, capture_output=True)


def test_a_changed_file_is_hashed_as_it_is_written(tmp_path: Path, kind: Kind, out: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(1_000_003))
    change(make(WheelRecipe(), tmp_path, kind), Changes(files={"d": file}), out)
    with open_wheel(out) as contents:
        assert hashlib.sha256(contents.read("d")).digest() == hashlib.sha256(file.read_bytes()).digest()


def test_large_members_deflated_ahead_are_the_same_bytes(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, Change] = {}
    for number in range(5):
        files[f"pkg/{number}"] = tmp_path / f"{number}"
        (tmp_path / f"{number}").write_bytes(os.urandom(9) * 40_000 + bytes([number]) * 9)
    path = WheelRecipe().write(tmp_path)
    change(path, Changes(files=files, stored=frozenset({"pkg/3"})), out)
    monkeypatch.setattr("kpack_build.wheel.writer._LARGE", 1000)
    ahead = out.with_name("ahead") / NAME
    ahead.parent.mkdir()
    change(path, Changes(files=files, stored=frozenset({"pkg/3"})), ahead)
    assert ahead.read_bytes() == out.read_bytes()
    assert [file.name for file in ahead.parent.iterdir()] == [NAME]


def test_an_error_on_another_thread_leaves_nothing(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kpack_build.wheel.writer._size", lambda _: 2 << 20)
    files = {"pkg/a": b"a", "pkg/b": b"b", "pkg/c": b"c"}
    with open_wheel(WheelRecipe().write(tmp_path)) as contents, pytest.raises(KpackError):
        write_contents(contents, Changes(files=files), out)
    assert list(out.parent.iterdir()) == []


def test_damage_that_appears_later_is_an_error(tmp_path: Path, out: Path) -> None:
    path = WheelRecipe().write(tmp_path)
    with open_wheel(path) as contents:
        contents.check()
        with path.open("r+b") as stream:
            stream.truncate(30)
        with pytest.raises(FormatError):
            act_write(contents, out)
    assert list(out.parent.iterdir()) == []
