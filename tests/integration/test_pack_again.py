"""The same in gives the same out, and what needs no packing passes through as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import ConfigError, MissingDeviceCodeError
from kpack_build.pipeline import pack
from kpack_build.report import BinaryAction, Outcome
from tests.corpus import corpus_tree, corpus_wheel
from tests.fixtures.build import build_variant
from tests.packing import make_config, members_of
from tests.synthetic import fat_library, without_device_code
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.packing import PackedCorpus

__all__: list[str] = []

SMALL = ("gafime-rocm", "jax-rocm7-plugin", "torch-spline-conv-rocm")
FILES = {
    "pkg/__init__.py": b"",
    "pkg/a.so": fat_library(["gfx90a:xnack+", "gfx90a:xnack-"], ["gfx1100", "gfx11-generic"], encoded=True),
    "pkg/b.so": fat_library(["gfx1100", "gfx942"], ["gfx1201", "gfx942"], seed=9),
    "other/__init__.py": b"x = 1\n",
    "other/c.so": fat_library(["gfx1100"], seed=20),
}
#: 2020-02-03 04:05:06, and the year before which zip files have no dates.
EPOCHS = {"1580702706": (2020, 2, 3, 4, 5, 6), "0": (1980, 1, 1, 0, 0, 0), "": (1980, 1, 1, 0, 0, 0)}


def is_new(path: str) -> bool:
    return ".kpack/" in path or "/_kpack/" in path


@pytest.mark.corpus
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("name", SMALL)
def test_any_number_of_workers_gives_the_same_bytes(
    name: str, workers: int, packed_corpus: PackedCorpus, tmp_path: Path
) -> None:
    again = pack(corpus_wheel(name), tmp_path, make_config(workers=workers))
    assert again.output.read_bytes() == packed_corpus.pack(name).wheel.read_bytes()


@pytest.mark.corpus
def test_many_bundles_and_workers_give_the_same_bytes(packed_corpus: PackedCorpus, tmp_path: Path) -> None:
    again = pack(corpus_wheel("bitsandbytes"), tmp_path, make_config(workers=7))
    assert again.output.read_bytes() == packed_corpus.pack("bitsandbytes").wheel.read_bytes()


@pytest.mark.clang
@pytest.mark.parametrize("group_by", ["target", "family"])
def test_many_wrappers_give_the_same_bytes(group_by: str, tmp_path: Path) -> None:
    files = {"pkg/__init__.py": b"", "pkg/lib.so": build_variant("many-units").read_bytes()}
    source = write_wheel_file(tmp_path, files)
    packed = {
        pack(
            source, tmp_path / str(workers), make_config(workers=workers, group_by=group_by)
        ).output.read_bytes()
        for workers in (1, 2, 5)
    }
    assert len(packed) == 1


def test_other_process_place_time_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, FILES)
    expected = pack(source, tmp_path / "here", make_config(level=3)).output.read_bytes()
    (tmp_path / "moved").mkdir()
    moved = shutil.copyfile(source, tmp_path / "moved" / source.name)
    os.utime(moved, (1, 1))
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = ["-m", "kpack_build", "pack", "--level", "3", str(moved), "-o", str(tmp_path / seed)]
        subprocess.run([sys.executable, *command, "--quiet"], check=True, env=environment)
        assert (tmp_path / seed / source.name).read_bytes() == expected


@pytest.mark.parametrize("epoch", EPOCHS)
def test_source_date_epoch(epoch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_wheel_file(tmp_path, FILES)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    packed = pack(source, tmp_path / "packed", make_config()).output
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(source) as old:
        dates = {member.filename: member.date_time for member in archive.infolist()}
        before = {member.filename: member.date_time for member in old.infolist()}
    assert {date for path, date in dates.items() if is_new(path)} == {EPOCHS[epoch]}
    assert {path: dates[path] for path in before} == before


def test_source_date_epoch_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_wheel_file(tmp_path, FILES)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ConfigError):
        pack(source, tmp_path / "packed", make_config())
    assert list((tmp_path / "packed").glob("*")) == []


@pytest.mark.corpus
@pytest.mark.parametrize("name", SMALL)
def test_tree_in_gives_the_files_of_wheel_in(name: str, packed_corpus: PackedCorpus, tmp_path: Path) -> None:
    packed = pack(corpus_tree(name), tmp_path, make_config()).output
    assert packed.is_dir()
    wheel = members_of(packed_corpus.pack(name).wheel)
    assert {path: digest for path, (digest, _) in members_of(packed).items()} == {
        path: digest for path, (digest, _) in wheel.items() if not path.endswith("/")
    }


def test_modes_of_a_tree_are_those_of_the_wheel(tmp_path: Path) -> None:
    tree = write_tree_of_wheel(tmp_path / "thing", FILES)
    (tree / "pkg/a.so").chmod(0o755)
    (tree / "pkg/b.so").chmod(0o640)
    packed = pack(tree, tmp_path / "packed", make_config()).output
    assert (packed / "pkg/a.so").stat().st_mode & 0o777 == 0o755
    assert (packed / "pkg/b.so").stat().st_mode & 0o777 == 0o640
    assert {file.stat().st_mode & 0o777 for file in packed.rglob(".kpack/*")} == {0o644}


@pytest.mark.corpus
@pytest.mark.parametrize("name", SMALL)
def test_packing_twice_changes_nothing(name: str, packed_corpus: PackedCorpus, tmp_path: Path) -> None:
    once = packed_corpus.pack(name)
    twice = pack(once.wheel, tmp_path, make_config(require_device_code=True, strict=True))
    assert twice.outcome is Outcome.NOTHING_TO_DO
    assert twice.output.read_bytes() == once.wheel.read_bytes()
    assert {binary.action for binary in twice.binaries} == {BinaryAction.ALREADY_CONVERTED}
    assert twice.warnings == ()


def test_packing_a_packed_tree_changes_nothing(tmp_path: Path) -> None:
    once = pack(write_tree_of_wheel(tmp_path / "thing", FILES), tmp_path / "once", make_config()).output
    twice = pack(once, tmp_path / "twice", make_config())
    assert twice.outcome is Outcome.NOTHING_TO_DO
    assert members_of(twice.output) == members_of(once)


@pytest.mark.parametrize("settings", [{}, {"group": "another"}, {"targets": ["gfx1100"]}, {"scheme": "none"}])
def test_packing_twice_with_a_kept_binary_changes_nothing(
    settings: Mapping[str, object], tmp_path: Path
) -> None:
    """What was fat after the first run is fat for a reason, which is found again whatever the settings."""
    hidden = bytearray(FILES["pkg/b.so"])
    hidden[hidden.index(b"__CLANG_OFFLOAD_BUNDLE__") + 4000] = 1
    source = write_wheel_file(tmp_path, {**FILES, "pkg/kept.so": bytes(hidden)})
    once = pack(source, tmp_path / "once", make_config())
    assert once.outcome is Outcome.DONE
    twice = pack(once.output, tmp_path / "twice", make_config(**settings))
    assert twice.outcome is Outcome.NOTHING_TO_DO
    assert twice.output.read_bytes() == once.output.read_bytes()


def test_library_that_came_after_packing_is_named(tmp_path: Path) -> None:
    tree = pack(write_tree_of_wheel(tmp_path / "thing", FILES), tmp_path / "once", make_config()).output
    (tree / "pkg/late.so").write_bytes(FILES["pkg/b.so"])
    record = tree / "thing-1.0.dist-info/RECORD"
    record.write_text(record.read_text() + "pkg/late.so,,\n")
    report = pack(tree, tmp_path / "twice", make_config())
    assert report.outcome is Outcome.NOTHING_TO_DO
    [late] = [binary for binary in report.binaries if binary.action is BinaryAction.KEPT_FAT]
    assert (late.path, len(late.reasons)) == ("pkg/late.so", 1)
    assert members_of(report.output) == members_of(tree)


PASSING = {
    "pure": {"pkg/__init__.py": b"", "pkg/module.py": b"x = 1\n"},
    "CPU": {"pkg/__init__.py": b"", "pkg/ext.so": without_device_code()},
    "CUDA": {
        "pkg/__init__.py": b"",
        # What nvcc leaves in a library: sections of its own, named otherwise than HIP's.
        "pkg/ext.so": without_device_code().replace(b".hip_fatbin\0", b".nv_fatbin\0\0"),
    },
    "names only": {
        "pkg/__init__.py": b"",
        "pkg/lib.so": b"",
        "pkg/x.hsaco": b"\x7fELF",
        "pkg/y.kpack": b"KPAK",
    },
}


@pytest.mark.parametrize("form", ["wheel", "tree"])
@pytest.mark.parametrize("name", PASSING)
def test_wheel_without_hip_code_passes_through(name: str, form: str, tmp_path: Path) -> None:
    if form == "wheel":
        source = write_wheel_file(tmp_path, PASSING[name])
    else:
        source = write_tree_of_wheel(tmp_path / "thing", PASSING[name])
    report = pack(source, tmp_path / "packed", make_config(strict=True))
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert (report.binaries, report.archives, report.warnings) == ((), (), ())
    assert report.wheel.growth == report.installed.growth == 0
    assert members_of(report.output) == members_of(source)
    if form == "wheel":
        assert report.output.read_bytes() == source.read_bytes()
    with pytest.raises(MissingDeviceCodeError):
        pack(source, tmp_path / "required", make_config(require_device_code=True))
    assert list((tmp_path / "required").glob("*")) == []


@pytest.mark.clang
@pytest.mark.parametrize("variant", ["no-device-code-22", "only-keep-debug-22"])
def test_real_library_without_device_code_passes_through(variant: str, tmp_path: Path) -> None:
    files = {"pkg/__init__.py": b"", "pkg/lib.so": build_variant(variant).read_bytes()}
    source = write_wheel_file(tmp_path, files)
    report = pack(source, tmp_path / "packed", make_config(strict=True))
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.output.read_bytes() == source.read_bytes()


@pytest.mark.corpus
def test_wheel_whose_archives_were_lost_is_reported(tmp_path: Path) -> None:
    source = corpus_wheel("vapoursynth-dfttest2-hip")
    report = pack(source, tmp_path, make_config())
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.output.read_bytes() == source.read_bytes()
    [binary] = report.binaries
    assert binary.action is BinaryAction.ALREADY_CONVERTED
    assert any(binary.path in warning and "fft_lib_@GFXARCH@" in warning for warning in report.warnings)
