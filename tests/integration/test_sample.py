"""The sample builds in each of its ways, and computes the same wherever it is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import venv
from typing import TYPE_CHECKING

import pytest

from tests.fat import read_fat_binary
from tests.fixtures.build import llvm_tool
from tests.hip import HipRuntime, run_hip_command
from tests.sample import BINARIES, SAMPLE, SampleBuild, build_sample, install_sample
from tests.topology import write_topology

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hip import HipResult

__all__: list[str] = []

TARGETS = ("gfx90a", "gfx1100")
PROGRAM = textwrap.dedent(
    """
    import kpack_sample
    print(kpack_sample.backend(), kpack_sample.devices())
    print(kpack_sample.axpy(2.0, [1, 2, 3], [10, 20, 30]))
    print(kpack_sample.multiply([1, 2, 3, 4], [5, 6, 7, 8], 2))
    print(kpack_sample.polynomial([1, 0, 2], [0, 1, 2]))
    """
)
ANSWERS = ["[12.0, 24.0, 36.0]", "[19.0, 22.0, 43.0, 50.0]", "[1.0, 3.0, 9.0]"]
KERNELS = {"sample_axpy_kernel", "sample_multiply_kernel", "sample_polynomial_kernel"}


@pytest.fixture(scope="module", params=["clang", "prebuilt"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "clang":
        llvm_tool("clang++")
    build = SampleBuild(packed=False, targets=TARGETS, compiler=request.param)
    wheel = build_sample(build, tmp_path_factory.mktemp("wheel"))
    return install_sample(wheel, tmp_path_factory.mktemp("site"))


def run(site: Path, runtime: HipRuntime, program: str = PROGRAM) -> HipResult:
    return run_hip_command(
        [sys.executable, "-c", program], runtime=runtime, environment={"PYTHONPATH": str(site)}
    )


@pytest.mark.rocm
@pytest.mark.parametrize(
    ("runtime", "backend"),
    [
        (HipRuntime.NONE, "python 0"),
        (HipRuntime.STUB, "cpu 0"),
        (HipRuntime.FAT_ONLY, "cpu 0"),
        (HipRuntime.KPACK, "cpu 0"),
    ],
)
def test_it_computes_everywhere(installed: Path, runtime: HipRuntime, backend: str) -> None:
    result = run(installed, runtime)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [backend, *ANSWERS]


@pytest.mark.rocm
@pytest.mark.parametrize("runtime", [HipRuntime.FAT_ONLY, HipRuntime.KPACK])
def test_it_registers_with_a_runtime(installed: Path, runtime: HipRuntime) -> None:
    result = run(installed, runtime)
    places = [registration.path.relative_to(installed).as_posix() for registration in result.registrations]
    assert {place: places.count(place) for place in places} == BINARIES
    assert all(registration.accepted for registration in result.registrations)
    assert {name for registration in result.registrations for name in registration.functions} == KERNELS


def test_its_binaries_hold_the_targets(installed: Path) -> None:
    for name, count in BINARIES.items():
        wrappers = read_fat_binary(installed / name)
        assert [set(wrapper.code_objects) for wrapper in wrappers] == [set(TARGETS)] * count


@pytest.mark.rocm
@pytest.mark.parametrize(
    "call",
    ["axpy(1.0, [1], [1, 2])", "multiply([1], [1], 2)", "polynomial([], [1])", "axpy(1.0, ['x'], [1])"],
)
@pytest.mark.parametrize("runtime", [HipRuntime.NONE, HipRuntime.STUB])
def test_wrong_arguments_raise(installed: Path, runtime: HipRuntime, call: str) -> None:
    program = (
        f"import kpack_sample\ntry: kpack_sample.{call}\nexcept (TypeError, ValueError): print('raised')"
    )
    assert run(installed, runtime, program).stdout == "raised\n"


@pytest.mark.clang
def test_hipcc_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, hipcc = tmp_path / "log", tmp_path / "bin" / "hipcc"
    hipcc.parent.mkdir()
    # hipcc is a front end to clang; here it is one that also says that it was called.
    hipcc.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {llvm_tool("clang++")} "$@"\n', encoding="ascii")
    hipcc.chmod(0o755)
    monkeypatch.setenv("HIPCC", str(hipcc))
    wheel = build_sample(SampleBuild(packed=False, targets=("gfx1201",)), tmp_path / "wheel")
    site = install_sample(wheel, tmp_path / "site")
    assert len(log.read_text().splitlines()) == sum(BINARIES.values())
    assert [set(wrapper.code_objects) for wrapper in read_fat_binary(site / next(iter(BINARIES)))] == [
        {"gfx1201"}
    ]


def test_prebuilt_code_is_what_the_sources_give() -> None:
    version = subprocess.run(
        [llvm_tool("clang++"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    if "22.1.8" not in version:
        pytest.skip(f"the prebuilt code objects were made by clang 22.1.8, this is {version.splitlines()[0]}")
    script = SAMPLE / "prebuilt" / "build.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_sample(SampleBuild(packed=True, targets=TARGETS), tmp_path_factory.mktemp("packed-wheel"))
    return install_sample(wheel, tmp_path_factory.mktemp("packed-site"))


def run_packed(site: Path, runtime: HipRuntime, scratch: Path, processors: tuple[str, ...]) -> HipResult:
    environment = {
        "PYTHONPATH": str(site),
        "KPACK_TOPOLOGY_ROOT": str(write_topology(scratch / "topology", processors)),
    }
    return run_hip_command([sys.executable, "-c", PROGRAM], runtime=runtime, environment=environment)


@pytest.mark.rocm
def test_packed_sample_computes_without_a_runtime(packed: Path, tmp_path: Path) -> None:
    result = run_packed(packed, HipRuntime.NONE, tmp_path, ("gfx1100",))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["python 0", *ANSWERS]


@pytest.mark.rocm
def test_packed_sample_registers_with_a_runtime_with_kpack(packed: Path, tmp_path: Path) -> None:
    result = run_packed(packed, HipRuntime.KPACK, tmp_path, ("gfx1100",))
    assert result.stdout.splitlines() == ["cpu 0", *ANSWERS], result.stderr
    assert result.stderr == ""
    places = [registration.path.relative_to(packed).as_posix() for registration in result.registrations]
    assert {place: places.count(place) for place in places} == BINARIES
    assert {registration.magic for registration in result.registrations} == {b"HIPK"}
    assert all(registration.accepted for registration in result.registrations)


@pytest.mark.rocm
def test_packed_sample_computes_beside_a_runtime_without_kpack(packed: Path, tmp_path: Path) -> None:
    result = run_packed(packed, HipRuntime.FAT_ONLY, tmp_path, ("gfx1100",))
    assert result.stdout.splitlines() == ["cpu 0", *ANSWERS], result.stderr
    # That runtime knows fat binaries only; a program finds its kernels missing, as with a GPU without code.
    assert [registration.accepted for registration in result.registrations] == [False] * len(KERNELS)


@pytest.mark.rocm
def test_packed_sample_warns_about_a_gpu_without_code(packed: Path, tmp_path: Path) -> None:
    result = run_packed(packed, HipRuntime.KPACK, tmp_path, ("gfx1030",))
    assert result.stdout.splitlines() == ["cpu 0", *ANSWERS], result.stderr
    assert "gfx1030" in result.stderr
    assert all(target in result.stderr for target in TARGETS)


def run_on_gpus(site: Path, scratch: Path, gpus: tuple[str, ...]) -> HipResult:
    """Import the sample on made-up GPUs, the same ones in the driver's topology, and look its kernels up."""
    processors = [gpu.partition(":")[0] for gpu in gpus]
    environment = {
        "PYTHONPATH": f"{site}{os.pathsep}{SAMPLE.parent}",
        "KPACK_TOPOLOGY_ROOT": str(write_topology(scratch / "topology", processors)),
    }
    program = "import kpack_sample, tests.hip.worker; tests.hip.worker.look_up_kernels()"
    command = [sys.executable, "-c", program]
    return run_hip_command(command, runtime=HipRuntime.KPACK, gpus=gpus, environment=environment)


@pytest.mark.rocm
@pytest.mark.parametrize("gpu", ["gfx1100", "gfx90a:sramecc+:xnack-", "gfx90a:sramecc-:xnack+"])
def test_packed_sample_works_on_a_made_up_gpu(packed: Path, tmp_path: Path, gpu: str) -> None:
    result = run_on_gpus(packed, tmp_path, (gpu,))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert {kernel.name: kernel.code for kernel in result.kernels} == dict.fromkeys(KERNELS, 0)
    assert len(result.loaded) == len(KERNELS)


@pytest.mark.rocm
def test_packed_sample_says_that_hip_serves_one_target_only(packed: Path, tmp_path: Path) -> None:
    result = run_on_gpus(packed, tmp_path, ("gfx1100", "gfx90a:sramecc+:xnack-"))
    assert result.returncode == 0, result.stderr
    assert {kernel.name for kernel in result.kernels if kernel.code == 0 and kernel.gpu == 0} == KERNELS
    assert all(word in result.stderr for word in ("gfx1100", "gfx90a", "HIP_VISIBLE_DEVICES"))


def copy_of_sample(directory: Path) -> Path:
    return shutil.copytree(SAMPLE, directory, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))


def test_sample_installs_in_place(tmp_path: Path) -> None:
    project, environment = copy_of_sample(tmp_path / "sample"), tmp_path / "environment"
    venv.create(environment, with_pip=False)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index"]
    command += ["--prefix", str(environment), "--editable", str(project)]
    variables = {**os.environ, "KPACK_SAMPLE_COMPILER": "prebuilt", "KPACK_SAMPLE_TARGETS": "gfx1100"}
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    # An editable install stays fat: it is not a wheel that anybody is given.
    for name, count in BINARIES.items():
        assert len(read_fat_binary(project / "src" / name)) == count
    imported = run_hip_command([environment / "bin" / "python", "-c", PROGRAM], runtime=HipRuntime.STUB)
    assert imported.stdout.splitlines() == ["cpu 0", *ANSWERS], imported.stderr


def test_source_distribution_has_what_a_build_needs(tmp_path: Path) -> None:
    project = copy_of_sample(tmp_path / "sample")
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as stream:
        names = {name.partition("/")[2] for name in stream.getnames()}
    wanted = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    generated = {name for name in wanted if ".egg-info" in name or "__pycache__" in name}
    assert wanted - generated <= names | {"MANIFEST.in"}
