"""The commands on real wheels, from a fat wheel to a packed one and back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kpack_build.cli import main
from tests.corpus import CORPUS, corpus_tree, corpus_wheel
from tests.fat import read_fat_binary
from tests.fixtures.build import build_variant
from tests.unit.wheels import write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., Any]

#: A small wheel with plain bundles, and one whose bundles are compressed.
PACKED = ("torch-spline-conv-rocm", "jax-rocm7-plugin")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command with `--json`; return its exit code's meaning checked, and what it printed."""

    def run(*words: str | Path, code: int = 0) -> Any:  # noqa: ANN401 - what JSON holds
        capsys.readouterr()
        assert main([*map(str, words), "--json"]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture(scope="module", params=PACKED)
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A wheel of the corpus, packed: its name and the result."""
    output = tmp_path_factory.mktemp("packed")
    wheel = corpus_wheel(request.param)
    assert main(["pack", str(wheel), "-o", str(output), "--quiet", "--level", "1"]) == 0
    return request.param, output / wheel.name


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.corpus
def test_pack_reports(tmp_path: Path, command: Command) -> None:
    wheel = corpus_wheel("torch-spline-conv-rocm")
    report = command("pack", wheel, "-o", tmp_path / "out", "--targets", "gfx90a,gfx1100")
    assert report["outcome"] == "done"
    assert Path(report["output"]).name == wheel.name
    assert {binary["action"] for binary in report["binaries"]} == {"converted"}
    listed = {target.partition(":")[0] for archive in report["archives"] for target in archive["targets"]}
    assert listed == {"gfx90a", "gfx1100"}
    assert report["dropped"]


@pytest.mark.corpus
def test_pack_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = corpus_wheel("torch-spline-conv-rocm")
    assert main(["pack", str(wheel), "-o", str(tmp_path), "--group-by", "family"]) == 0
    captured = capsys.readouterr()
    assert "converted" in captured.out
    assert "wheel:" in captured.out


@pytest.mark.corpus
def test_verify(packed: tuple[str, Path], command: Command) -> None:
    name, wheel = packed
    result = command("verify", wheel, "--against", corpus_wheel(name))
    assert result["sound"]
    assert result["faults"] == []
    assert result["counts"]["compared"] == CORPUS[name].code_objects
    assert result["counts"]["wrappers"] == sum(CORPUS[name].wrappers)


@pytest.mark.corpus
def test_verify_for_people(packed: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(packed[1])]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["verify", str(packed[1]), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.corpus
def test_fat_and_packed_wheels_export_the_same_files(
    packed: tuple[str, Path], tmp_path: Path, command: Command
) -> None:
    name, wheel = packed
    fat = command("extract", corpus_wheel(name), "-o", tmp_path / "fat")
    command("extract", wheel, "-o", tmp_path / "packed")
    assert len(fat["objects"]) == CORPUS[name].code_objects
    assert _tree(tmp_path / "fat") == _tree(tmp_path / "packed")


@pytest.mark.corpus
def test_bundles_kept_for_the_way_back_are_no_code_objects(tmp_path: Path, command: Command) -> None:
    wheel = corpus_wheel("jax-rocm7-plugin")
    command("pack", wheel, "-o", tmp_path, "--keep-ccob", "--level", "1")
    objects = command("extract", tmp_path / wheel.name, "-o", tmp_path / "objects")["objects"]
    assert len(objects) == CORPUS["jax-rocm7-plugin"].code_objects
    assert command("verify", tmp_path / wheel.name)["sound"]
    assert main(["restore", str(tmp_path / wheel.name), "-o", str(tmp_path / "fat"), "--quiet"]) == 0
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(tmp_path / "fat" / wheel.name) as after:
        assert {name: before.read(name) for name in before.namelist()} == {
            name: after.read(name) for name in after.namelist()
        }


@pytest.mark.corpus
def test_restore(packed: tuple[str, Path], tmp_path: Path, command: Command) -> None:
    name, wheel = packed
    result = command("restore", wheel, "-o", tmp_path)
    assert Path(result["output"]) == tmp_path / wheel.name
    verified = command("verify", wheel, "--against", tmp_path / wheel.name)
    assert verified["counts"]["compared"] == CORPUS[name].code_objects


@pytest.mark.corpus
def test_inspect_says_the_same_of_fat_and_packed(packed: tuple[str, Path], command: Command) -> None:
    name, wheel = packed
    fat = command("inspect", corpus_wheel(name))
    converted = command("inspect", wheel)
    states = {binary["state"] for binary in converted["binaries"] if binary["wrappers"]}
    assert states == {"converted"}
    assert [archive["scheme"] for archive in converted["archives"]] != []
    for before, after in zip(fat["binaries"], converted["binaries"], strict=True):
        assert len(before["wrappers"]) == len(after["wrappers"])
        assert after["missing"] == []
        for wrapper, new in zip(before["wrappers"], after["wrappers"], strict=True):
            entries = before["bundles"][wrapper["bundle"]]["entries"]
            known = {(entry["target"], entry["size"]) for entry in entries if entry["target"]}
            assert known <= {(answer["target"], answer["size"]) for answer in new["answers"]}


@pytest.mark.corpus
def test_inspect_finds_what_an_independent_reader_finds(fat_corpus_tree: Path, command: Command) -> None:
    found = command("inspect", fat_corpus_tree)
    for binary in found["binaries"]:
        expected = read_fat_binary(fat_corpus_tree / binary["path"])
        assert len(binary["wrappers"]) == len(expected)
        for wrapper, truth in zip(binary["wrappers"], expected, strict=True):
            entries = binary["bundles"][wrapper["bundle"]]["entries"]
            assert {entry["id"]: entry["size"] for entry in entries} == {
                name: len(data) for name, data in truth.entries.items()
            }


@pytest.mark.corpus
def test_inspect_for_people(packed: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(packed[1]), "--kernels"]) == 0
    out = capsys.readouterr().out
    assert all(title in out for title in ("binaries", "archives", "code objects", "targets", "kernels"))


@pytest.mark.corpus
def test_wheel_with_lost_archives_is_broken(command: Command) -> None:
    result = command("verify", corpus_wheel("vapoursynth-dfttest2-hip"), code=1)
    assert not result["sound"]
    assert any("@GFXARCH@" in fault["problem"] for fault in result["faults"])
    found = command("inspect", corpus_wheel("vapoursynth-dfttest2-hip"))
    [binary] = [binary for binary in found["binaries"] if binary["state"] == "converted"]
    assert binary["missing"]


@pytest.mark.corpus
def test_fat_wheel_is_not_packed(command: Command) -> None:
    result = command("verify", corpus_wheel("torch-spline-conv-rocm"), code=1)
    assert len(result["faults"]) == len(CORPUS["torch-spline-conv-rocm"].wrappers)


@pytest.mark.corpus
def test_missing_targets_are_faults_unless_they_were_not_expected(tmp_path: Path, command: Command) -> None:
    wheel = corpus_wheel("torch-spline-conv-rocm")
    command("pack", wheel, "-o", tmp_path, "--targets", "gfx90a")
    assert command("verify", tmp_path / wheel.name)["sound"]
    result = command("verify", tmp_path / wheel.name, "--against", wheel, code=1)
    assert all("gfx90a " not in fault["problem"] for fault in result["faults"])
    assert command("verify", tmp_path / wheel.name, "--against", wheel, "--target", "gfx90a")["sound"]


@pytest.mark.corpus
def test_changed_archive_is_found(packed: tuple[str, Path], tmp_path: Path, command: Command) -> None:
    tree = _unpack(packed[1], tmp_path / "tree")
    archive = min(tree.rglob("?*.kpack"))
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    faults = command("verify", tree, code=1)["faults"]
    assert archive.relative_to(tree).as_posix() in {fault["path"] for fault in faults}
    assert any(fault["path"].endswith("/RECORD") for fault in faults)


@pytest.mark.corpus
def test_lost_archive_is_found(packed: tuple[str, Path], tmp_path: Path, command: Command) -> None:
    tree = _unpack(packed[1], tmp_path / "tree")
    archive = min(tree.rglob("?*.kpack"))
    archive.unlink()
    faults = command("verify", tree, code=1)["faults"]
    assert archive.relative_to(tree).as_posix() in {fault["path"] for fault in faults}
    assert any(archive.name in fault["problem"] for fault in faults)


@pytest.mark.corpus
def test_index_that_lies_is_found(packed: tuple[str, Path], tmp_path: Path, command: Command) -> None:
    tree = _unpack(packed[1], tmp_path / "tree")
    [file] = tree.rglob(".kpack/*.json")
    index = json.loads(file.read_text())
    answers = index["binaries"][0]["wrappers"][0]
    first, second = list(answers)[:2]
    answers[first], answers[second] = answers[second], answers[first]
    index["code_objects"][0]["sha256"] = "0" * 64
    file.write_text(json.dumps(index))
    problems = " ".join(fault["problem"] for fault in command("verify", tree, code=1)["faults"])
    assert first in problems
    assert "SHA-256" in problems


@pytest.mark.corpus
def test_fat_binary_put_back_is_found(packed: tuple[str, Path], tmp_path: Path, command: Command) -> None:
    name, wheel = packed
    tree = _unpack(wheel, tmp_path / "tree")
    [index] = tree.rglob(".kpack/*.json")
    binary = json.loads(index.read_text())["binaries"][0]["path"]
    shutil.copyfile(corpus_tree(name) / binary, tree / binary)
    assert binary in {fault["path"] for fault in command("verify", tree, code=1)["faults"]}


@pytest.mark.clang
def test_inspect_and_extract_single_files(tmp_path: Path, command: Command) -> None:
    library = build_variant("units-differ-22")
    [binary] = command("inspect", library)["binaries"]
    assert (binary["state"], len(binary["wrappers"])) == ("fat", 3)
    objects = command("extract", library, "-o", tmp_path / "out", "--target", "gfx90a")["objects"]
    assert [(found["wrapper"], found["target"]) for found in objects] == [(1, "gfx90a"), (2, "gfx90a")]


@pytest.mark.clang
def test_extract_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = build_variant("units-differ-22")
    assert main(["extract", str(library), "-o", str(tmp_path / "out"), "--target", "gfx1250"]) == 0
    assert "gfx1250" in capsys.readouterr().err
    assert main(["extract", str(library), "-o", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.clang
def test_library_without_device_code(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    library = build_variant("no-device-code-22")
    [binary] = command("inspect", library)["binaries"]
    assert (binary["state"], binary["wrappers"], binary["refusals"]) == ("no device code", [], [])
    assert main(["inspect", str(library)]) == 0
    assert library.name in capsys.readouterr().out


@pytest.mark.clang
def test_kept_binary_is_noted_and_strict_refuses(tmp_path: Path, command: Command) -> None:
    """A sanitizer pads the wrappers, so that the library stays fat."""
    files = {"pkg/__init__.py": b"", "pkg/lib.so": build_variant("sanitized-22").read_bytes()}
    wheel = write_wheel_file(tmp_path, files)
    report = command("pack", wheel, "-o", tmp_path / "out")
    [binary] = report["binaries"]
    assert binary["action"] == "kept fat"
    assert binary["reasons"]
    result = command("verify", tmp_path / "out" / wheel.name)
    assert any("pkg/lib.so" in note for note in result["notes"])
    error = command("pack", wheel, "-o", tmp_path / "strict", "--strict", code=1)
    assert error["error"]["type"] == "ConversionError"
    assert not list((tmp_path / "strict").glob("*"))


def test_nothing_to_do(tmp_path: Path, command: Command) -> None:
    wheel = write_wheel_file(tmp_path, {"pkg/__init__.py": b""})
    assert command("pack", wheel, "-o", tmp_path / "out")["outcome"] == "nothing to do"
    assert (tmp_path / "out" / wheel.name).read_bytes() == wheel.read_bytes()
    assert command("verify", tmp_path / "out" / wheel.name)["sound"]
    assert command("pack", wheel, "-o", tmp_path / "more", "--require-device-code", code=1)["error"]


@pytest.mark.parametrize(
    "words",
    [
        ["pack", "x.whl", "-o", "out", "--level", "99"],
        ["pack", "x.whl", "-o", "out", "--scheme", "zst"],
        ["pack", "x.whl", "-o", "out", "--targets", "sm_90"],
        ["pack", "x.whl", "-o", "out", "--config", "absent.toml"],
        ["extract", "x.whl", "-o", "out", "--target", "sm_90"],
        ["verify", "x.whl", "--target", "gfx90a"],
    ],
)
def test_wrong_values_are_wrong_use(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_settings_are_read_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    wheel = write_wheel_file(tmp_path, {"pkg/__init__.py": b""})
    Path("pyproject.toml").write_text("[tool.kpack-build]\nrequire-device-code = true\n")
    command("pack", wheel, "-o", "one")
    command("pack", wheel, "-o", "two", "--config", "pyproject.toml", code=1)
    command("pack", wheel, "-o", "three", "--config", "pyproject.toml", "--no-require-device-code")
    Path("pyproject.toml").write_text("[tool.kpack-build]\nlevle = 3\n")
    assert (
        command("pack", wheel, "-o", "four", "--config", "pyproject.toml", code=1)["error"]["type"]
        == "ConfigError"
    )


@pytest.mark.corpus
def test_interrupted_pack_leaves_nothing(tmp_path: Path) -> None:
    wheel = corpus_wheel("torch-scatter-rocm")
    command = [
        sys.executable,
        "-m",
        "kpack_build",
        "pack",
        str(wheel),
        "-o",
        str(tmp_path / "out"),
        "--level",
        "19",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out").glob(".kpack-build-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.corpus
def test_dropped_targets_cannot_come_back(tmp_path: Path, command: Command) -> None:
    wheel = corpus_wheel("torch-spline-conv-rocm")
    command("pack", wheel, "-o", tmp_path, "--targets", "gfx90a")
    error = command("restore", tmp_path / wheel.name, "-o", tmp_path / "fat", code=1)["error"]
    assert error["type"] == "RestorationError"
    assert f"{tmp_path / wheel.name}/torch_spline_conv/" in error["message"]
    assert not (tmp_path / "fat").exists()
