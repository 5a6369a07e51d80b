"""auditwheel before packing, and after it: what it moves, and what is said where that breaks something.

The wheel has a library with device code that needs the HIP library, which is excluded, as every ROCm wheel
does it, and another library of the build machine with device code of its own, which auditwheel puts into the
wheel under another name. The measure is ROCm's reader: it has to give every code object of the libraries as
they were compiled.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import zipfile
from inspect import getsource
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import Config
from kpack_build.errors import RestorationError
from kpack_build.inspection import inspect
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.report import BinaryAction, Outcome
from kpack_build.restoration import restore
from kpack_build.verification import verify
from tests.cache import cache_directory, make_once
from tests.fat import read_fat_binary
from tests.fixtures.build import SOURCES, llvm_tool, stub_library
from tests.hip import HipRuntime, run_hip
from tests.hipk import read_converted_binary
from tests.missing import missing
from tests.rocm import RocmKpackCache
from tests.toolchain import PATCHELF_VERSIONS, STEPS, patchelf
from tests.unit.wheel.builder import WheelRecipe

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.verification import Verification

pytestmark = [pytest.mark.clang, pytest.mark.rocm, pytest.mark.corpus]

TARGETS = ("gfx90a", "gfx1100")
NAME = "thing-1.0-py3-none-linux_x86_64.whl"
INFO = {
    "METADATA": b"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
    "WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
}
OWN, INNER, GRAFT = "pkg/lib.so", "pkg/libinner.so", "libgraft.so.1"
CONFIG = Config(level=1)


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _compile(output: Path, source: str, *needed: Path) -> None:
    targets = [f"--offload-arch={target}" for target in TARGETS]
    device = ["-x", "hip", "-nogpuinc", "-nogpulib", "-fPIC", "-O1", *targets]
    _run(llvm_tool("clang++"), *device, "-c", SOURCES / source, "-o", output.with_suffix(".o"))
    flags = ["-shared", "-nostdlib++", "-fuse-ld=lld", "-Wl,--build-id", "-Wl,--no-as-needed"]
    flags += [f"-Wl,-soname,{output.name}", "-Wl,-rpath,$ORIGIN"]
    _run(llvm_tool("clang++"), *flags, output.with_suffix(".o"), *needed, stub_library(), "-o", output)
    output.with_suffix(".o").unlink()


def _build(folder: Path) -> None:
    _compile(folder / GRAFT, "vectors.hip")
    _compile(folder / "libinner.so", "tiny.hip")
    _compile(folder / "lib.so", "matrices.hip", folder / GRAFT, folder / "libinner.so")


@functools.cache
def libraries() -> Path:
    """Return the folder of the three libraries."""
    digest = hashlib.sha256((getsource(_compile) + getsource(_build)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return make_once(cache_directory("fixtures") / f"auditwheel-{digest.hexdigest()[:16]}", _build)


def fat_wheel(folder: Path) -> Path:
    """Write the wheel as a build leaves it: the graft is not in it."""
    files = {
        "pkg/__init__.py": b"",
        OWN: (libraries() / "lib.so").read_bytes(),
        INNER: (libraries() / "libinner.so").read_bytes(),
    }
    return WheelRecipe(files=files, info=INFO).write(folder, name=NAME)


def repair(wheel: Path, folder: Path, *options: str, version: str = PATCHELF_VERSIONS[-1]) -> Path:
    """Run `auditwheel repair`; return the repaired wheel."""
    command = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libamdhip64.so.*", *options]
    variables = {
        **os.environ,
        "PATH": f"{patchelf(version).parent}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, (libraries(), stub_library().parent))),
    }
    done = subprocess.run(
        [*command, "-w", str(folder), str(wheel)], env=variables, capture_output=True, text=True, check=False
    )
    if "No module named auditwheel" in done.stderr:
        missing("auditwheel (PyPI)")
    assert done.returncode == 0, done.stderr
    [repaired] = folder.glob("*.whl")
    return repaired


def install(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def grafted(site: Path) -> str:
    """Return the path in the wheel of the library that auditwheel put into it."""
    [found] = (site / "thing.libs").glob("libgraft-*.so*")
    return found.relative_to(site).as_posix()


def check(wheel: Path) -> Verification:
    return verify(wheel, progress=SilentProgress())


def answers(library: Path) -> list[dict[str, bytes | int]]:
    """Ask ROCm's reader for all targets of all wrappers of a converted library, by the map in its file."""
    with RocmKpackCache() as cache:
        return [
            {
                target: cache.load_code_object(wrapper.metadata, library, wrapper.index, [target])
                for target in TARGETS
            }
            for wrapper in read_converted_binary(library)
        ]


def compiled(name: str) -> list[dict[str, bytes]]:
    return [dict(wrapper.code_objects) for wrapper in read_fat_binary(libraries() / name)]


def check_loads(site: Path, *names: str) -> None:
    """Load libraries with the real HIP runtime, which has to accept every wrapper as converted."""
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[site / name for name in names])
    assert result.load_errors == {}
    # One that came along with another was found through its rpath, "pkg/../thing.libs".
    loaded = {registration.path.resolve() for registration in result.registrations}
    assert loaded == {site / name for name in names}
    assert {(found.magic, found.accepted) for found in result.registrations} == {(b"HIPK", True)}


def test_fixture_is_what_the_tests_need() -> None:
    for name in (GRAFT, "lib.so", "libinner.so"):
        [objects] = compiled(name)
        assert set(objects) == set(TARGETS)


@pytest.mark.parametrize("strip", [(), ("--strip",)], ids=["unstripped", "stripped"])
@pytest.mark.parametrize("version", PATCHELF_VERSIONS)
def test_repaired_then_packed(tmp_path: Path, version: str, strip: tuple[str, ...]) -> None:
    repaired = repair(fat_wheel(tmp_path), tmp_path / "repaired", *strip, version=version)
    report = pack(repaired, tmp_path / "packed", CONFIG)
    assert report.outcome is Outcome.DONE
    assert {binary.action for binary in report.binaries} == {BinaryAction.CONVERTED}
    result = verify(report.output, against=repaired, progress=SilentProgress())
    assert result.faults == ()
    site = install(report.output, tmp_path / "site")
    graft = grafted(site)
    assert answers(site / OWN) == compiled("lib.so")
    assert answers(site / INNER) == compiled("libinner.so")
    assert answers(site / graft) == compiled(GRAFT)
    check_loads(site, OWN, INNER, graft)
    # No package: its archives lie beside it, which the report says.
    assert any(warning.startswith("thing.libs is no package") for warning in report.warnings)
    restored = restore(report.output, tmp_path / "restored")
    assert restored.recompressed == ()
    with zipfile.ZipFile(repaired) as before, zipfile.ZipFile(restored.output) as after:
        assert {name: before.read(name) for name in before.namelist()} == {
            name: after.read(name) for name in after.namelist()
        }


@pytest.mark.parametrize("strip", [(), ("--strip",)], ids=["unstripped", "stripped"])
@pytest.mark.parametrize("version", PATCHELF_VERSIONS)
def test_packed_then_repaired(tmp_path: Path, version: str, strip: tuple[str, ...]) -> None:
    """What was in the wheel keeps its path and works; what is put in is fat, which is said."""
    packed = pack(fat_wheel(tmp_path), tmp_path / "packed", CONFIG).output
    repaired = repair(packed, tmp_path / "repaired", *strip, version=version)
    site = install(repaired, tmp_path / "site")
    assert answers(site / OWN) == compiled("lib.so")
    assert answers(site / INNER) == compiled("libinner.so")
    graft = grafted(site)
    assert [fault.path for fault in check(repaired).faults] == [graft]
    # A second run takes what the first one could not see, and leaves the rest as it is.
    report = pack(repaired, tmp_path / "again", CONFIG)
    assert {binary.path: binary.action for binary in report.binaries} == {
        OWN: BinaryAction.ALREADY_CONVERTED,
        INNER: BinaryAction.ALREADY_CONVERTED,
        graft: BinaryAction.CONVERTED,
    }
    assert check(report.output).faults == ()
    site = install(report.output, tmp_path / "second")
    assert answers(site / graft) == compiled(GRAFT)
    assert answers(site / OWN) == compiled("lib.so")
    check_loads(site, OWN, INNER, graft)


def test_repaired_after_packing_there_is_no_way_back(tmp_path: Path) -> None:
    packed = pack(fat_wheel(tmp_path), tmp_path / "packed", CONFIG).output
    repaired = repair(packed, tmp_path / "repaired")
    with pytest.raises(RestorationError) as caught:
        restore(repaired, tmp_path / "restored")
    assert caught.value.path == repaired / OWN
    assert not list((tmp_path / "restored").glob("*"))


def test_converted_library_is_moved_away_from_its_archives(tmp_path: Path) -> None:
    """It is taken out of a packed package and put into the wheel of another project."""
    files = {"graft/__init__.py": b"", f"graft/{GRAFT}": (libraries() / GRAFT).read_bytes()}
    other = pack(WheelRecipe(files=files, info=INFO).write(tmp_path, name=NAME), tmp_path / "other", CONFIG)
    folder = install(other.output, tmp_path / "elsewhere") / "graft"
    assert answers(folder / GRAFT) == compiled(GRAFT)
    repaired = repair(
        fat_wheel(tmp_path), tmp_path / "repaired", "--ldpaths", f"{folder}:{stub_library().parent}"
    )
    site = install(repaired, tmp_path / "site")
    graft = grafted(site)
    assert all(isinstance(found, int) for wrapper in answers(site / graft) for found in wrapper.values())
    report = pack(repaired, tmp_path / "packed", CONFIG)
    assert {binary.path: binary.action for binary in report.binaries}[graft] is BinaryAction.ALREADY_CONVERTED
    missing_paths = [f".kpack/thing-{family}.kpack" for family in ("gfx110x", "gfx9_0")]
    for path in missing_paths:
        assert any(graft in warning and path in warning for warning in report.warnings)
    assert [fault.path for fault in check(report.output).faults] == [graft] * len(missing_paths)
    [found] = [info for info in inspect(report.output).binaries if info.path == graft]
    assert found.missing == tuple(missing_paths)


@pytest.mark.parametrize("tool", ["strip", "llvm-strip", "eu-strip", "objcopy"])
def test_binaries_of_a_packed_wheel_are_stripped(tmp_path: Path, tool: str) -> None:
    """They work as before; that they are not what was packed is seen by RECORD and by the way back."""
    packed = pack(fat_wheel(tmp_path), tmp_path / "packed", CONFIG).output
    site = install(packed, tmp_path / "site")
    before = (site / OWN).read_bytes()
    assert STEPS[tool].run(site / OWN)
    assert (site / OWN).read_bytes() != before
    assert answers(site / OWN) == compiled("lib.so")
    faults = check(site).faults
    assert [fault.path for fault in faults] == ["thing-1.0.dist-info/RECORD"]
    assert OWN in faults[0].problem
    with pytest.raises(RestorationError) as caught:
        restore(site, tmp_path / "restored")
    assert caught.value.path == site / OWN
