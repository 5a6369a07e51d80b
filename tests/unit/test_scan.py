"""Which members of a wheel carry device code, and which of these can be packed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast
from unittest.mock import MagicMock

import pytest

from kpack_build.hostbinary import BinaryState, open_host_binary
from kpack_build.layout import Home
from kpack_build.scan import describe_binary, scan_wheel
from kpack_build.wheel import open_wheel
from tests.converted import REFERENCE, convert
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.code_objects import write_code_object
from tests.synthetic import fat_library, with_entry, without_device_code
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.hostbinary import HostBinary
    from kpack_build.scan import Scan

FAT = fat_library(["gfx1100"], ["gfx90a:xnack-", "gfx1100"])
HOME = Home(folder="pkg", is_package=True)
INIT = {"pkg/__init__.py": b""}


def scanned(folder: Path, files: dict[str, bytes]) -> Scan:
    """Scan a tree; its files stay readable when the scan is closed."""
    tree = write_tree_of_wheel(folder / "tree", {**INIT, **files})
    with open_wheel(tree) as contents, scan_wheel(contents) as scan:
        return scan


def test_what_is_fat(tmp_path: Path) -> None:
    scan = scanned(tmp_path, {"pkg/b.so": FAT, "pkg/a.anything": FAT})
    assert [binary.path for binary in scan.fat] == ["pkg/a.anything", "pkg/b.so"]
    assert {binary.home for binary in scan.fat} == {HOME}
    assert (scan.kept, scan.converted) == ([], [])
    found = [(bundle, number, str(entry.target)) for bundle, number, entry in scan.fat[0].code_objects()]
    assert found == [(0, 1, "gfx1100"), (1, 1, "gfx90a:xnack-"), (1, 2, "gfx1100")]


def test_what_is_of_no_account(tmp_path: Path) -> None:
    """Code for GPUs alone, other files, and libraries for the host alone: nothing is said of them."""
    scan = scanned(
        tmp_path,
        {
            "pkg/bare.hsaco": write_code_object("gfx1100"),
            "pkg/host.so": without_device_code(),
            "pkg/short": b"\x7fELF",
            "pkg/text.so": b"!<arch>\n" * 20,
            "pkg/empty.so": b"",
        },
    )
    assert (scan.fat, scan.kept, scan.converted) == ([], [], [])


def test_separated_debug_file(tmp_path: Path) -> None:
    debug = build_elf(ElfOptions(debug=True))
    scan = scanned(tmp_path, {"pkg/lib.so.debug": debug})
    assert (scan.fat, scan.kept, scan.converted) == ([], [], [])


def test_damaged_binary_is_kept(tmp_path: Path) -> None:
    scan = scanned(tmp_path, {"pkg/lib.so": FAT[:200]})
    [kept] = scan.kept
    assert (kept.path, kept.size, kept.state) == ("pkg/lib.so", 200, BinaryState.NO_DEVICE_CODE)
    assert len(kept.reasons) == 1


@pytest.mark.parametrize("entry", ["hip-spirv64-amd-amdhsa--amdgcnspirv", "hipv4-nvptx64-nvidia-cuda--sm_80"])
def test_entries_that_no_archive_can_hold(tmp_path: Path, entry: str) -> None:
    scan = scanned(tmp_path, {"pkg/lib.so": with_entry(entry, b"\x03\x02\x23\x07code", "gfx1100")})
    [kept] = scan.kept
    assert scan.fat == []
    assert entry in kept.reasons[0]
    assert (kept.state, kept.wrappers, kept.code_objects) == (BinaryState.FAT, 1, 1)
    assert kept.device_bytes > 0


def test_outside_of_site_packages(tmp_path: Path) -> None:
    scan = scanned(tmp_path, {"thing-1.0.data/scripts/run": FAT, "thing-1.0.data/platlib/pkg/lib.so": FAT})
    [kept] = scan.kept
    assert (kept.path, len(kept.reasons)) == ("thing-1.0.data/scripts/run", 1)
    assert [binary.path for binary in scan.fat] == ["thing-1.0.data/platlib/pkg/lib.so"]


def test_all_reasons_are_given(tmp_path: Path) -> None:
    spirv = with_entry("hip-spirv64-amd-amdhsa--amdgcnspirv", b"code")
    [kept] = scanned(tmp_path, {"thing-1.0.data/scripts/run": spirv}).kept
    assert len(kept.reasons) == 2


def test_converted_before(tmp_path: Path) -> None:
    (tmp_path / "fat.so").write_bytes(FAT)
    converted = convert(tmp_path / "fat.so", tmp_path / "lib.so").path
    scan = scanned(tmp_path, {"pkg/lib.so": converted.read_bytes()})
    [found] = scan.converted
    assert (found.state, found.wrappers, found.reasons) == (BinaryState.CONVERTED, 2, ())
    assert found.search_paths == REFERENCE.search_paths
    assert (scan.fat, scan.kept) == ([], [])


@pytest.mark.parametrize(
    ("encoded", "names"), [(False, ("plain",)), (True, ("CCOB v3",))], ids=["plain", "compressed"]
)
def test_description(tmp_path: Path, *, encoded: bool, names: tuple[str, ...]) -> None:
    data = fat_library(["gfx1100"], ["gfx1101", "gfx1102"], encoded=encoded)
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": data})
    with open_wheel(wheel) as contents, scan_wheel(contents) as scan:
        described = describe_binary(scan.fat[0])
        assert (described.size, described.state) == (len(data), BinaryState.FAT)
        assert (described.wrappers, described.code_objects) == (2, 3)
        assert (described.encodings, described.search_paths) == (names, ())
        scan.keep("pkg/lib.so", ("because",))
        assert scan.fat == []
        assert scan.kept == [replace(described, reasons=("because",))]


def test_binaries_are_closed_when_a_member_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[MagicMock] = []

    def open_first(path: Path) -> HostBinary | None:
        if opened:
            raise PermissionError(path)
        opened.append(MagicMock(wraps=open_host_binary(path), state=BinaryState.CONVERTED, bundles=()))
        opened[0].__exit__.side_effect = lambda *_: opened[0].close()
        return cast("HostBinary", opened[0])

    monkeypatch.setattr("kpack_build.scan.open_host_binary", open_first)
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/a.so": FAT, "pkg/b.so": FAT})
    with open_wheel(tree) as contents, pytest.raises(PermissionError):
        scan_wheel(contents)
    opened[0].close.assert_called_once_with()
