"""Wheels, folders and single files as sets of files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kpack_build.errors import KpackError
from kpack_build.filesets import SourceKind, map_file, open_files
from kpack_build.magic import FileKind, detect
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

FILES = {"pkg/__init__.py": b"", "pkg/lib.so": b"\x7fELF" + bytes(60), "pkg/.kpack/a_gfx1100.kpack": b"KPAK"}


def test_wheel(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, FILES)
    with open_files(wheel) as files:
        assert files.kind is SourceKind.WHEEL
        assert files.path == wheel
        assert set(FILES) < set(files.sizes)
        assert list(files.sizes) == sorted(files.sizes)
        assert files.sizes["pkg/lib.so"] == 64
        assert files.head("pkg/lib.so", 4) == b"\x7fELF"
        assert files.file("pkg/lib.so").read_bytes() == FILES["pkg/lib.so"]


def test_unpacked_wheel(tmp_path: Path) -> None:
    with open_files(write_tree_of_wheel(tmp_path / "tree", FILES)) as files:
        assert files.kind is SourceKind.TREE
        assert files.head("pkg/lib.so", 2) == b"\x7fE"


def test_search_in_a_wheel_stays_inside(tmp_path: Path) -> None:
    write_archive = tmp_path / "outside.kpack"
    write_archive.write_bytes(b"KPAK")
    tree = write_tree_of_wheel(tmp_path / "tree", FILES)
    with open_files(tree) as files:
        [found] = files.find("pkg/lib.so", ".kpack/a_gfx1100.kpack")
        assert found.name == "pkg/.kpack/a_gfx1100.kpack"
        assert files.find("pkg/sub/lib.so", "../.kpack/a_@GFXARCH@.kpack") == (found,)
        assert files.find("pkg/lib.so", "../../outside.kpack") == ()
        assert files.find("pkg/lib.so", str(write_archive)) == ()
        assert files.find("pkg/lib.so", ".kpack/b_@GFXARCH@.kpack") == ()


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "lib.so.1").write_bytes(b"CCOB")
    (tmp_path / "a" / "lib.so").symlink_to("b/lib.so.1")
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "x.kpack").write_bytes(b"KPAK")
    with open_files(tmp_path / "a") as files:
        assert files.kind is SourceKind.FOLDER
        assert files.sizes == {"b/lib.so.1": 4}
        assert files.head("b/lib.so.1", 2) == b"CC"
        [found] = files.find("b/lib.so.1", "../../x.kpack")
        assert found.name == str(tmp_path / "x.kpack")
        assert files.find("b/lib.so.1", "../b") == ()


def test_single_file(tmp_path: Path) -> None:
    file = tmp_path / "thing.bin"
    file.write_bytes(b"")
    (tmp_path / "k_gfx90a.kpack").write_bytes(b"KPAK")
    with open_files(file) as files:
        assert files.kind is SourceKind.FILE
        assert files.sizes == {"thing.bin": 0}
        assert files.file("thing.bin") == file
        assert [found.name for found in files.find("thing.bin", "k_@GFXARCH@.kpack")] == ["k_gfx90a.kpack"]


def test_device_is_refused() -> None:
    with pytest.raises(KpackError), open_files(Path("/dev/null")):
        pass


def test_absent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_files(tmp_path / "absent.whl"):
        pass


def test_folder_of_several_wheels_is_a_folder(tmp_path: Path) -> None:
    tree = write_tree_of_wheel(tmp_path / "tree", FILES)
    shutil.copytree(tree / "thing-1.0.dist-info", tree / "other-1.0.dist-info")
    with open_files(tree) as files:
        assert files.kind is SourceKind.FOLDER


def test_map_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"content")
    with map_file(file) as view:
        assert bytes(view) == b"content"
    file.write_bytes(b"")
    with map_file(file) as view:
        assert len(view) == 0


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", FileKind.OTHER),
        (b"\x7fEL", FileKind.OTHER),
        (b"\x7fELF" + bytes(14) + b"\xe0\x00" + bytes(44), FileKind.CODE_OBJECT),
        (b"\x7fELF" + bytes(14) + b"\x3e\x00" + bytes(44), FileKind.HOST_BINARY),
        (b"\x7fELF", FileKind.HOST_BINARY),
        (b"KPAK", FileKind.ARCHIVE),
        (b"CCOB", FileKind.BUNDLE),
        (b"__CLANG_OFFLOAD_BUNDLE__", FileKind.BUNDLE),
        (b"\x10\xff\x10\xad", FileKind.BUNDLE),
        (b"__CLANG_OFFLOAD", FileKind.OTHER),
    ],
)
def test_detect(tmp_path: Path, head: bytes, kind: FileKind) -> None:
    (tmp_path / "f").write_bytes(head)
    with open_files(tmp_path) as files:
        assert detect(files, "f") is kind
