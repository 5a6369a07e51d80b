"""Converted libraries survive what people run on libraries, wherever the fat library does.

Each sequence of tools is run on the fat library and on the converted one; both are loaded in a fresh process
with the real HIP runtime. The measure: if the fat one loads and registers, so does the converted one. And
what loads after tools touched the fat library can be converted then.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.hostbinary import BinaryState, open_host_binary, restore
from tests.converted import REFERENCE, convert
from tests.corpus import corpus_tree
from tests.fixtures.build import build_variant, stub_library
from tests.hip import HipRuntime, run_hip
from tests.missing import missing
from tests.toolchain import PATCHELF_VERSIONS, patchelf, run_steps
from tests.unit.wheels import write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__: list[str] = []

pytestmark = [pytest.mark.rocm, pytest.mark.clang]

STRIPS = ("strip", "llvm-strip", "objcopy", "eu-strip")
SEQUENCES: tuple[tuple[str, ...], ...] = (
    *((step,) for step in (*STRIPS, "strip-sections")),
    *((f"rpath-{version}",) for version in PATCHELF_VERSIONS),
    *((f"needed-{version}",) for version in PATCHELF_VERSIONS),
    *((f"rpath-{version}", f"needed-{version}") for version in PATCHELF_VERSIONS),
    *((f"rpath-{version}", step) for version, step in itertools.product(PATCHELF_VERSIONS, STRIPS)),
    *(("strip", f"rpath-{version}") for version in PATCHELF_VERSIONS),
    *((f"rpath-{version}", f"needed-{version}", "strip") for version in PATCHELF_VERSIONS),
    ("rpath-0.14.5.0", "rpath-0.19.3.0", "strip"),
    ("rpath-0.17.2.4", "strip-sections"),
    ("rpath-0.19.3.0", "rpath-0.17.2.4", "llvm-strip"),
)
VARIANTS = (
    *("plain-22", "gnu-ld-22", "compressed-22", "rdc-22", "relr-22", "relr-gnu-ld-22"),
    *("page-64k-gnu-ld-22", "no-build-id-22", "one-segment-22", "debug-22", "tiny-19", "rdc-19"),
)
CORPUS = {
    "vapoursynth-bm3dhip": "vapoursynth/plugins/bm3dhip/libbm3dhip.so",
    "gafime-rocm": "gafime_rocm/libgafime_rocm.so",
}


def library(name: str) -> Path:
    return corpus_tree(name) / CORPUS[name] if name in CORPUS else build_variant(name)


def registered(paths: Sequence[Path]) -> dict[Path, set[bytes]]:
    """Load libraries; return the magics of those that load and whose wrappers HIP all accepts."""
    result = run_hip(runtime=HipRuntime.KPACK, libraries=paths)
    if result.returncode:
        # One of them brought the process down: each on its own.
        if len(paths) == 1:
            return {}
        return {path: magics for path in paths for path, magics in registered([path]).items()}
    found: dict[Path, set[bytes]] = {}
    for path in paths:
        registrations = [item for item in result.registrations if item.path == path]
        if path not in result.load_errors and registrations and all(item.accepted for item in registrations):
            found[path] = {item.magic for item in registrations}
    return found


def edited(source: Path, directory: Path) -> dict[tuple[str, ...], Path]:
    """Return a copy of a library for each sequence, with its tools run on it; those that no tool refused."""
    directory.mkdir()
    copies = {}
    for number, steps in enumerate(SEQUENCES):
        copy = directory / f"{number:02}-{source.name}"
        shutil.copy(source, copy)
        if run_steps(copy, steps):
            copies[steps] = copy
    return copies


@pytest.mark.parametrize(
    "name", [*VARIANTS, *(pytest.param(name, marks=pytest.mark.corpus) for name in CORPUS)]
)
def test_survives_what_the_fat_library_survives(name: str, tmp_path: Path) -> None:
    fat, converted = library(name), convert(library(name), tmp_path / library(name).name)
    fat_copies = edited(fat, tmp_path / "fat")
    copies = edited(converted.path, tmp_path / "converted")
    surviving = registered([fat, *fat_copies.values()])
    assert surviving[fat] == {b"FPIH"}
    wanted = [steps for steps, path in fat_copies.items() if path in surviving]
    # Most sequences are harmless; a sequence that breaks the fat library proves nothing.
    assert len(wanted) > len(SEQUENCES) // 2
    found = registered([converted.path, *copies.values()])
    assert found[converted.path] == {b"HIPK"}
    broken = [steps for steps in wanted if found.get(copies.get(steps, fat)) != {b"HIPK"}]
    assert broken == []
    for steps in wanted:
        binary = open_host_binary(copies[steps])
        assert binary is not None
        with binary:
            assert (binary.state, binary.reference) == (BinaryState.CONVERTED, REFERENCE)


@pytest.mark.parametrize("name", ["plain-22", "gnu-ld-22", "relr-gnu-ld-22", "rdc-19", "debug-22"])
def test_what_tools_left_can_be_converted(name: str, tmp_path: Path) -> None:
    copies = edited(library(name), tmp_path / "fat")
    surviving = registered(list(copies.values()))
    (tmp_path / "converted").mkdir()
    results = []
    for steps, path in copies.items():
        if path not in surviving:
            continue
        converted = convert(path, tmp_path / "converted" / path.name)
        results.append(converted.path)
        back = tmp_path / "back"
        restore(converted.path, converted.record, converted.objects.__getitem__, back)
        assert back.read_bytes() == path.read_bytes(), steps
    assert registered(results) == {result: {b"HIPK"} for result in results}


def repaired(library: Path, directory: Path, version: str) -> Path:
    """Return a library out of a wheel that auditwheel repaired with a version of patchelf."""
    wheels = [directory / "before", directory / "after"]
    for folder in wheels:
        folder.mkdir(parents=True)
    wheel = write_wheel_file(wheels[0], {"package/__init__.py": b"", "package/lib.so": library.read_bytes()})
    # auditwheel looks at platforms by name; what kind of system this is, is not the question.
    command = [
        sys.executable,
        "-m",
        "auditwheel",
        "repair",
        "--plat",
        "auto",
        "--exclude",
        "libamdhip64.so.7",
    ]
    command += ["--wheel-dir", str(wheels[1]), str(wheel)]
    search = f"{patchelf(version).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": search})
    [result] = wheels[1].iterdir()
    with zipfile.ZipFile(result) as archive:
        archive.extractall(directory)
    # The library that was grafted lies in a folder beside the package.
    assert list(directory.glob("*.libs/liblzma-*.so*"))
    return directory / "package" / "lib.so"


@pytest.mark.parametrize("version", PATCHELF_VERSIONS)
@pytest.mark.parametrize("name", ["plain-22", "gnu-ld-22", "relr-gnu-ld-22", "no-build-id-19"])
def test_repaired_by_auditwheel_before_or_after(name: str, version: str, tmp_path: Path) -> None:
    fat = tmp_path / "fat.so"
    shutil.copy(library(name), fat)
    assert run_steps(fat, ("graft",))
    fat_repaired = repaired(fat, tmp_path / "fat", version)
    before = repaired(convert(fat, tmp_path / "before.so").path, tmp_path / "before", version)
    after = fat_repaired.with_name("converted.so")
    result = convert(fat_repaired, after)
    assert registered([fat_repaired]) == {fat_repaired: {b"FPIH"}}
    assert registered([before, after]) == {before: {b"HIPK"}, after: {b"HIPK"}}
    restore(after, result.record, result.objects.__getitem__, tmp_path / "back.so")
    assert (tmp_path / "back.so").read_bytes() == fat_repaired.read_bytes()


@pytest.mark.parametrize("page", ["4096", "65536"])
@pytest.mark.parametrize("name", ["aarch64-22", "aarch64-relr-22", "aarch64-page-4k-19"])
@pytest.mark.parametrize(
    "steps", [(), ("llvm-strip",), ("rpath-0.14.5.0",), ("rpath-0.17.2.4", "llvm-strip"), ("rpath-0.19.3.0",)]
)
def test_libraries_load_on_aarch64(name: str, steps: tuple[str, ...], page: str, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        missing("qemu-aarch64 (Debian: qemu-user)")
    program, stub = build_variant("aarch64-executable-22"), stub_library(machine="aarch64")
    fat, converted = tmp_path / "fat.so", convert(build_variant(name), tmp_path / "converted.so").path
    shutil.copy(build_variant(name), fat)
    results = []
    for path in (fat, converted):
        done = run_steps(path, steps)
        command = [emulator, "-p", page, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={path}"]
        command += ["-E", f"LD_LIBRARY_PATH={stub.parent}", str(program)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        # The loader says so when it cannot load what is preloaded, and goes on.
        results.append((done, result.returncode, "cannot be preloaded" in result.stderr))
    assert results[0] == results[1]
    assert results[0][:2] == (True, 0)
    if steps != ("rpath-0.17.2.4", "llvm-strip") and (page == "4096" or "4k" not in name):
        assert not results[0][2]
