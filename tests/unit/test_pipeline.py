"""A wheel in, a wheel out: outcomes, what is refused, and that the same input gives the same bytes."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.bundle import write_bundle
from kpack_build.compression import COMPRESSION_SCHEMES, NoOpCompressor
from kpack_build.config import Config, Loader
from kpack_build.errors import ConfigError, ConversionError, MissingDeviceCodeError, WheelError
from kpack_build.hostbinary import BinaryState, open_host_binary
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.report import BinaryAction, Outcome
from kpack_build.targets import GroupBy
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import fat_entries
from tests.synthetic import compressed, fat_library, with_entry, without_device_code
from tests.unit.wheels import FILE_NAME, write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = Config(level=1, workers=2)
INIT = {"pkg/__init__.py": b'"""A package."""\n'}
FAT = fat_library(["gfx1100", "gfx90a:xnack-"], ["gfx90a"])
SPIRV = with_entry("hip-spirv64-amd-amdhsa--amdgcnspirv", b"spirv", "gfx1100")


def stray() -> bytes:
    """Return a library that only shows while it is packed that it cannot be."""
    bundle = bytearray(write_bundle(fat_entries(["gfx1100"])))
    bundle[4095] = 1
    return build_elf(ElfOptions(bundles=(compressed(bytes(bundle)),)))


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def test_packed(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    before = wheel.read_bytes()
    report = pack(wheel, tmp_path / "a" / "b", CONFIG)
    assert report.outcome is Outcome.DONE
    assert report.output == tmp_path / "a" / "b" / FILE_NAME
    assert list(report.output.parent.iterdir()) == [report.output]
    assert wheel.read_bytes() == before
    found = members(report.output)
    assert {name for name in found if name.startswith("pkg/.kpack/")} == {
        "pkg/.kpack/thing-gfx110x.kpack",
        "pkg/.kpack/thing-gfx9_0.kpack",
        "pkg/.kpack/thing.json",
    }
    assert b"__CLANG_OFFLOAD_BUNDLE__" not in found["pkg/lib.so"]
    index = json.loads(found["pkg/.kpack/thing.json"])
    assert [row["family"] for row in index["archives"]] == ["gfx110x", "gfx9_0"]
    assert index["binaries"][0]["path"] == "pkg/lib.so"


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "compressed"])
def test_same_bytes_whatever_the_number_of_workers(tmp_path: Path, *, encoded: bool) -> None:
    files = {
        **INIT,
        "pkg/a.so": fat_library(["gfx1100", "gfx90a:xnack-"], ["gfx90a", "gfx11-generic"], encoded=encoded),
        "pkg/sub/b.so": fat_library(["gfx1030"], ["gfx1100"], seed=5, encoded=encoded),
        "top.so": fat_library(["gfx1201"], seed=9),
    }
    wheel = write_wheel_file(tmp_path, files)
    outputs = [
        pack(wheel, tmp_path / str(workers), replace(CONFIG, workers=workers)).output.read_bytes()
        for workers in (1, 2, 5)
    ]
    assert len(set(outputs)) == 1


def test_tree_gives_the_same_files_as_the_wheel(tmp_path: Path) -> None:
    files = {**INIT, "pkg/lib.so": FAT}
    packed = pack(write_wheel_file(tmp_path, files), tmp_path / "wheels", CONFIG)
    tree = write_tree_of_wheel(tmp_path / "trees" / "tree", files)
    from_tree = pack(tree, tmp_path / "out", replace(CONFIG, workers=None))
    assert from_tree.output == tmp_path / "out" / "tree"
    assert {
        path.relative_to(from_tree.output).as_posix(): path.read_bytes()
        for path in from_tree.output.rglob("*")
        if path.is_file()
    } == members(packed.output)


_OPENED: list[str] = []
_WATCHED: list[bool] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _WATCHED and event in {"open", "os.listdir", "os.scandir"}:
        _OPENED.append(str(arguments[0]))


def test_the_machine_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results depend on the wheel and the settings alone; builders have no GPUs, or other ones."""
    sys.addaudithook(_watch)
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    outputs = set()
    for number, targets in enumerate(("gfx942", "", "nonsense")):
        for variable in ("KPACK_TARGETS", "HSA_OVERRIDE_GFX_VERSION", "PYTORCH_ROCM_ARCH", "GPU_TARGETS"):
            monkeypatch.setenv(variable, targets)
        monkeypatch.setenv("KPACK_TOPOLOGY_ROOT", str(tmp_path / "nowhere"))
        _WATCHED.append(True)
        try:
            outputs.add(pack(wheel, tmp_path / str(number), CONFIG).output.read_bytes())
        finally:
            _WATCHED.clear()
    assert len(outputs) == 1
    assert str(wheel) in _OPENED
    assert not [path for path in _OPENED if path.startswith(("/sys", "/dev/kfd", "/dev/dri", "/dev/dxg"))]


@pytest.mark.parametrize(
    ("files", "action"),
    [
        ({"pkg/x.py": b""}, None),
        ({"pkg/lib.so": without_device_code()}, None),
        ({"pkg/lib.so": SPIRV}, BinaryAction.KEPT_FAT),
        ({"pkg/lib.so": FAT[:300]}, BinaryAction.KEPT_FAT),
        ({"pkg/lib.so": stray()}, BinaryAction.KEPT_FAT),
    ],
    ids=["pure", "host code", "spirv", "damaged", "stray bytes"],
)
def test_nothing_to_do(tmp_path: Path, files: dict[str, bytes], action: BinaryAction | None) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, **files})
    report = pack(wheel, tmp_path / "out", CONFIG)
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.output.read_bytes() == wheel.read_bytes()
    assert list((tmp_path / "out").iterdir()) == [report.output]
    assert [binary.action for binary in report.binaries] == ([] if action is None else [action])
    assert all(binary.reasons for binary in report.binaries)


def test_what_cannot_be_packed_stays_beside_what_can(tmp_path: Path) -> None:
    files = {**INIT, "pkg/a.so": stray(), "pkg/b.so": FAT, "pkg/c.so": SPIRV}
    report = pack(write_wheel_file(tmp_path, files), tmp_path / "out", CONFIG)
    assert [(binary.path, binary.action) for binary in report.binaries] == [
        ("pkg/a.so", BinaryAction.KEPT_FAT),
        ("pkg/b.so", BinaryAction.CONVERTED),
        ("pkg/c.so", BinaryAction.KEPT_FAT),
    ]
    found = members(report.output)
    assert (found["pkg/a.so"], found["pkg/c.so"]) == (files["pkg/a.so"], files["pkg/c.so"])


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    """Neither what was packed nor what had to stay fat is touched again."""
    files = {**INIT, "pkg/a.so": stray(), "pkg/b.so": FAT}
    once = pack(write_wheel_file(tmp_path, files), tmp_path / "once", CONFIG).output
    report = pack(once, tmp_path / "twice", CONFIG)
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.output.read_bytes() == once.read_bytes()
    assert [binary.action for binary in report.binaries] == [
        BinaryAction.KEPT_FAT,
        BinaryAction.ALREADY_CONVERTED,
    ]


def test_second_run_packs_what_lies_elsewhere(tmp_path: Path) -> None:
    """A tool put a library beside the package in between; what was kept stays as it is."""
    files = {**INIT, "pkg/a.so": stray(), "pkg/b.so": FAT}
    once = members(pack(write_wheel_file(tmp_path, files), tmp_path / "once", CONFIG).output)
    later = {"pkg/later.so": FAT, "thing.libs/c.so": FAT}
    for name in list(once):
        if name.startswith("thing-1.0.dist-info/"):
            del once[name]
    report = pack(write_wheel_file(tmp_path, {**once, **later}), tmp_path / "twice", CONFIG)
    assert {binary.path: (binary.action, bool(binary.reasons)) for binary in report.binaries} == {
        "pkg/a.so": (BinaryAction.KEPT_FAT, True),
        "pkg/b.so": (BinaryAction.ALREADY_CONVERTED, False),
        "pkg/later.so": (BinaryAction.KEPT_FAT, True),
        "thing.libs/c.so": (BinaryAction.CONVERTED, False),
    }


def test_nothing_wanted(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    report = pack(wheel, tmp_path / "out", replace(CONFIG, targets=("gfx1201",)))
    assert report.outcome is Outcome.NOTHING_WANTED
    assert report.output.read_bytes() == wheel.read_bytes()


def test_host_binary_of_a_filtered_wheel_is_converted_all_the_same(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    report = pack(wheel, tmp_path / "out", replace(CONFIG, targets=("gfx1100",)))
    assert (report.outcome, report.dropped) == (Outcome.DONE, ("gfx90a", "gfx90a:xnack-"))
    with zipfile.ZipFile(report.output) as archive:
        library = archive.extract("pkg/lib.so", tmp_path / "x")
    binary = open_host_binary(tmp_path / "x" / "pkg" / "lib.so")
    assert library
    assert binary is not None
    with binary:
        assert binary.state is BinaryState.CONVERTED
    assert [found.targets for found in report.archives] == [("gfx1100",)]


class Noted(SilentProgress):
    """Keeps what it is told: of each work the total, then the amounts."""

    def __init__(self) -> None:
        self.works: list[list[int]] = []

    def start(self, label: str, total: int) -> None:
        assert label
        self.works.append([total])

    def advance(self, amount: int) -> None:
        self.works[-1].append(amount)


@pytest.mark.parametrize("targets", [None, ("gfx1100",)])
def test_progress_comes_to_its_end(tmp_path: Path, targets: tuple[str, ...] | None) -> None:
    wheel, progress = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT}), Noted()
    pack(wheel, tmp_path / "out", replace(CONFIG, targets=targets), progress=progress)
    [(total, *amounts)] = progress.works
    assert total == sum(amounts) > 0


@pytest.mark.parametrize(
    ("files", "targets"),
    [({}, None), ({"pkg/lib.so": FAT}, ("gfx1201",)), ({"pkg/lib.so": SPIRV}, None)],
    ids=["none", "none wanted", "none that can be packed"],
)
def test_device_code_is_required(
    tmp_path: Path, files: dict[str, bytes], targets: tuple[str, ...] | None
) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, **files})
    config = replace(CONFIG, require_device_code=True, targets=targets)
    with pytest.raises(MissingDeviceCodeError) as caught:
        pack(wheel, tmp_path / "out", config)
    assert caught.value.path == wheel
    assert not list((tmp_path / "out").glob("*"))


def test_required_device_code_may_be_packed_already(tmp_path: Path) -> None:
    config = replace(CONFIG, require_device_code=True)
    once = pack(write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT}), tmp_path / "once", config)
    assert once.outcome is Outcome.DONE
    assert pack(once.output, tmp_path / "twice", config).outcome is Outcome.NOTHING_TO_DO


@pytest.mark.parametrize("library", [SPIRV, stray(), FAT[:300]], ids=["spirv", "stray bytes", "damaged"])
def test_strict(tmp_path: Path, library: bytes) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/a.so": FAT, "pkg/b.so": library})
    with pytest.raises(ConversionError) as caught:
        pack(wheel, tmp_path / "out", replace(CONFIG, strict=True))
    assert caught.value.path == wheel / "pkg/b.so"
    assert not list((tmp_path / "out").glob("*"))


def test_result_in_the_place_of_the_source(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    before = wheel.read_bytes()
    with pytest.raises(WheelError):
        pack(wheel, tmp_path, CONFIG)
    assert wheel.read_bytes() == before


def test_tree_that_is_there_already(tmp_path: Path) -> None:
    tree = write_tree_of_wheel(tmp_path / "tree", {**INIT, "pkg/lib.so": FAT})
    (tmp_path / "out" / "tree").mkdir(parents=True)
    with pytest.raises(WheelError):
        pack(tree, tmp_path / "out", CONFIG)
    assert list((tmp_path / "out" / "tree").iterdir()) == []


def test_old_wheel_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / FILE_NAME).write_bytes(b"old")
    assert zipfile.is_zipfile(pack(wheel, tmp_path / "out", CONFIG).output)


def test_nothing_appears_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("kpack_build.pipeline.write_contents", full)
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    with pytest.raises(OSError, match="space"):
        pack(wheel, tmp_path / "out", CONFIG)
    assert not list((tmp_path / "out").glob("*"))


def test_several_homes(tmp_path: Path) -> None:
    """Packages have a loader each, other places have none, and names that say whose archives they are."""
    files = {
        "one/__init__.py": b"",
        "one/lib.so": fat_library(["gfx1100"]),
        "two/__init__.py": b"x = 2\n",
        "two/sub/lib.so": fat_library(["gfx90a"], seed=3),
        "plugins/lib.so": fat_library(["gfx1030"], seed=6),
        "top.so": fat_library(["gfx1201"], seed=8),
    }
    report = pack(write_wheel_file(tmp_path, files), tmp_path / "out", replace(CONFIG, group="mine"))
    assert [archive.path for archive in report.archives] == [
        ".kpack/thing-mine-gfx12_0.kpack",
        "one/.kpack/mine-gfx110x.kpack",
        "plugins/.kpack/thing-mine-gfx10_3.kpack",
        "two/.kpack/mine-gfx9_0.kpack",
    ]
    found = members(report.output)
    loaders = {name.partition("/_kpack/")[0] for name in found if "/_kpack/" in name}
    assert loaders == {"one", "two"}
    undo = [json.loads(data)["restore"] for name, data in found.items() if name.endswith(".json")]
    assert sorted(row["record"] is not None for row in undo) == [False, False, False, True]


class ForeignCompressor(NoOpCompressor):
    """A scheme of somebody's own."""

    SCHEME_NAME = "foreign"
    READ_BY_ROCM = False


@pytest.mark.parametrize("scheme", ["foreign", "no-such-scheme"])
def test_scheme_that_runtimes_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setitem(COMPRESSION_SCHEMES, "foreign", ForeignCompressor)
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    with pytest.raises(ConfigError) as caught:
        pack(wheel, tmp_path / "out", replace(CONFIG, scheme=scheme))
    assert caught.value.key == "scheme"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("group_by", GroupBy)
@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
def test_schemes_and_groups(tmp_path: Path, group_by: GroupBy, scheme: str) -> None:
    wheel = write_wheel_file(tmp_path, {**INIT, "pkg/lib.so": FAT})
    config = replace(CONFIG, scheme=scheme, group_by=group_by, loader=Loader.NONE)
    report = pack(wheel, tmp_path / "out", config)
    assert report.scheme == scheme
    families = {
        GroupBy.TARGET: "gfx1100 gfx90a",
        GroupBy.SUB_FAMILY: "gfx110x gfx9_0",
        GroupBy.FAMILY: "gfx11 gfx9",
    }
    assert [archive.family for archive in report.archives] == families[group_by].split()
    for name in members(report.output):
        assert not set(name) & set(":+")
