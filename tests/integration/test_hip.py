"""The HIP runtimes answer as they are known to, and the runner reports it."""

from __future__ import annotations

import hashlib
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.corpus import corpus_tree
from tests.fat import read_fat_binary
from tests.fixtures.build import build_variant
from tests.fixtures.variants import COMPILERS
from tests.hip import HipRuntime, run_aarch64, run_hip, run_hip_command, stand_ins

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

pytestmark = [pytest.mark.rocm, pytest.mark.clang]

NO_DEVICE = 100
RUNTIMES = (HipRuntime.KPACK, HipRuntime.FAT_ONLY, HipRuntime.STUB)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_fat_library_is_accepted(runtime: HipRuntime, compiler: int) -> None:
    library = build_variant(f"plain-{compiler}")
    result = run_hip(runtime=runtime, libraries=[library])
    assert result.returncode == 0
    assert result.load_errors == {}
    assert [registration.path for registration in result.registrations] == [library, library]
    assert all(registration.accepted for registration in result.registrations)
    assert {registration.magic for registration in result.registrations} == {b"FPIH"}
    vectors, matrices = result.registrations
    assert {"_Z11vectors_addPKfS0_Pfj", "_Z13vectors_weighPKiPij"} <= set(vectors.functions)
    assert {"bias", "weights"} <= set(vectors.variables)
    assert "calls" in matrices.variables


@pytest.mark.parametrize("name", ["hip6", "relr", "rdc", "compressed", "page-64k"])
def test_other_libraries_load_too(name: str) -> None:
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[build_variant(f"{name}-22")], initialise=True)
    assert result.load_errors == {}
    # With relocatable device code the units share one handle: the first registers for all.
    assert len(result.registrations) == (1 if name == "rdc" else 2)
    assert result.device_code == NO_DEVICE


def test_converted_magic_is_refused_by_a_runtime_without_kpack(tmp_path: Path) -> None:
    fat = build_variant("one-unit-22").read_bytes()
    library = tmp_path / "libhipk.so"
    # A wrapper that only claims to be converted: enough for the question whether the magic is known.
    assert fat.count(b"FPIH\1\0\0\0") == 1
    library.write_bytes(fat.replace(b"FPIH\1\0\0\0", b"HIPK\1\0\0\0"))
    old = run_hip(runtime=HipRuntime.FAT_ONLY, libraries=[library])
    new = run_hip(runtime=HipRuntime.KPACK, libraries=[library])
    assert [registration.accepted for registration in old.registrations] == [False]
    assert [registration.accepted for registration in new.registrations] == [True]
    assert new.registrations[0].magic == b"HIPK"


def test_library_without_its_runtime_does_not_load() -> None:
    library = build_variant("hip6-22")
    result = run_hip(runtime=HipRuntime.NONE, libraries=[library])
    assert result.returncode == 0
    assert "libamdhip64.so.6" in result.load_errors[library]


@pytest.mark.parametrize("name", ["pie", "executable", "static-pie"])
def test_executables_run(name: str) -> None:
    result = run_hip_command([build_variant(f"{name}-22")], runtime=HipRuntime.KPACK)
    assert result.returncode == 0
    assert f"hipGetLastError {NO_DEVICE}" in result.stdout
    # The recorder cannot stand in front of a library that is linked in.
    assert len(result.registrations) == (0 if name == "static-pie" else 2)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_aarch64_libraries_load(compiler: int) -> None:
    names = ("aarch64", "aarch64-relr", "aarch64-page-4k")
    libraries = [build_variant(f"{name}-{compiler}") for name in names]
    result = run_aarch64(libraries=libraries)
    assert result.returncode == 0, result.stderr
    assert result.load_errors == {}
    assert [outcome.path for outcome in result.loads] == libraries
    assert [registration.path for registration in result.registrations] == [
        library for library in libraries for _ in range(2)
    ]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_aarch64_executables_run(compiler: int) -> None:
    result = run_aarch64(executable=build_variant(f"aarch64-executable-{compiler}"))
    assert result.returncode == 0, result.stderr
    assert f"hipGetLastError {NO_DEVICE}" in result.stdout
    assert len(result.registrations) == 2


def test_aarch64_errors_are_reported(tmp_path: Path) -> None:
    (tmp_path / "libnone.so").write_bytes(b"none")
    result = run_aarch64(libraries=[tmp_path / "libnone.so"])
    assert list(result.load_errors) == [tmp_path / "libnone.so"]


def test_signals_are_reported() -> None:
    result = run_hip_command(["sh", "-c", "kill -SEGV $$"], runtime=HipRuntime.NONE)
    assert result.signal is signal.SIGSEGV


@pytest.mark.corpus
def test_corpus_library_with_its_own_runtime_loads() -> None:
    library = corpus_tree("vapoursynth-bm3dhip") / "vapoursynth/plugins/bm3dhip/libbm3dhip.so"
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[library])
    assert result.load_errors == {}
    assert [registration.accepted for registration in result.registrations] == [True]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "pattern", "wrappers"),
    [
        ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm*.so", 12),
        ("jax-rocm7-plugin", "jax_rocm7_plugin/_*.so", 4),
        ("gafime-rocm", "gafime_rocm/libgafime_rocm.so", 1),
    ],
)
def test_corpus_libraries_load_beside_stand_ins(name: str, pattern: str, wrappers: int) -> None:
    if name.startswith("jax") and sys.version_info < (3, 11):
        pytest.skip("jax's modules need symbols of Python 3.11")
    candidates = sorted(corpus_tree(name).glob(pattern))
    libraries = [library for library in candidates if read_fat_binary(library)]
    result = run_hip(runtime=HipRuntime.KPACK, libraries=libraries, preload=stand_ins(libraries))
    assert result.load_errors == {}
    assert len(result.registrations) == wrappers
    assert all(registration.accepted for registration in result.registrations)


def digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


@pytest.mark.parametrize(
    ("gpu", "chosen"),
    [
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack-", "gfx90a"]),
        ("gfx90a:sramecc+:xnack+", ["gfx90a:xnack+", "gfx90a"]),
        ("gfx1100", ["gfx1100", "gfx1100"]),
        ("gfx1030", []),
    ],
)
def test_hip_loads_its_choice_on_a_made_up_gpu(gpu: str, chosen: list[str]) -> None:
    library = build_variant("features-mixed-22")
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[library], gpus=[gpu])
    assert result.device_code == 0
    wrappers = read_fat_binary(library)
    expected = [
        digest(wrapper.code_objects[target]) for wrapper, target in zip(wrappers, chosen, strict=False)
    ]
    assert [code.sha256 for code in result.loaded] == expected
    assert {kernel.code == 0 for kernel in result.kernels} == {bool(chosen)}


def test_each_made_up_gpu_gets_its_own_code() -> None:
    library = build_variant("one-unit-22")
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[library], gpus=["gfx1100", "gfx1030"])
    (wrapper,) = read_fat_binary(library)
    assert [(code.gpu, code.sha256) for code in result.loaded] == [
        (0, digest(wrapper.code_objects["gfx1100"])),
        (1, digest(wrapper.code_objects["gfx1030"])),
    ]
