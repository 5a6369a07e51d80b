"""Machines with GPUs of different targets, as an APU beside a card.

HIP 7.14 looks a converted wrapper up once, in a list of candidates for all GPUs, and gives what it finds to
each of them. So a pure HIPK library serves the first GPU that has code, and a launch on the others ends in a
crash inside HIP; the fat library works on all. The loader tells users, and how to get out of it.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import parse_config
from kpack_build.pipeline import pack
from tests.fixtures.build import build_variant
from tests.topology import write_topology
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hip import HipResult
    from tests.runtime.plugin import HipCases

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang]

#: A library, and GPUs that its fat form serves, each with code of its own.
MACHINES = (
    ("plain-22", ("gfx1100", "gfx1030")),
    ("plain-22", ("gfx1030", "gfx90a:sramecc+:xnack-", "gfx1100")),
    ("compressed-22", ("gfx90a:sramecc+:xnack-", "gfx1100")),
    ("generic-22", ("gfx1100", "gfx1102")),
)
#: Both states of xnack in one process, each with code of its own; no driver makes such a machine.
BOTH_STATES = (("features-22", ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack+")),)
#: Several GPUs that one code object serves: there a converted library is as good as a fat one.
EQUAL_MACHINES = (
    ("plain-22", ("gfx1100", "gfx1100")),
    ("generic-22", ("gfx1101", "gfx1102")),
)
#: GPUs of one processor in different states that one code object serves: HIP finds none in the fat library
#: for the second of them, or for any, and one for all in archives.
STATES = (
    ("features-22", ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc-:xnack-")),
    ("plain-22", ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc+:xnack+")),
)


@pytest.fixture
def packed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The library of a machine's row, packed, with the loader in its package `thing`."""
    path = build_variant(request.param)
    files = {"thing/__init__.py": b"", f"thing/{path.name}": path.read_bytes()}
    source = write_tree_of_wheel(tmp_path / "fat", files)
    output = pack(source, tmp_path / "packed", parse_config({"level": 1}, source="the test")).output
    return output / "thing" / path.name


def with_packed(rows: tuple[tuple[str, tuple[str, ...]], ...]) -> pytest.MarkDecorator:
    """Run a test for each row, with its library packed."""
    names = [f"{variant}-{'+'.join(gpus)}" for variant, gpus in rows]
    values = [(variant, variant, gpus) for variant, gpus in rows]
    return pytest.mark.parametrize(("packed", "variant", "gpus"), values, indirect=["packed"], ids=names)


def run_with_loader(
    hip_runtime: HipCases, library: Path, gpus: tuple[str, ...], scratch: Path, mask: str | None = None
) -> HipResult:
    """Import the package, on whose GPUs the driver and HIP agree, and launch all kernels on all of them."""
    root = write_topology(scratch / f"topology-{mask}", [gpu.partition(":")[0] for gpu in gpus])
    environment = {"PYTHONPATH": str(library.parents[1]), "KPACK_TOPOLOGY_ROOT": str(root)}
    if mask is not None:
        environment["HIP_VISIBLE_DEVICES"] = mask
    return hip_runtime(gpus, library, imports=["thing"], launch=True, environment=environment)


def check_works_as_fat(hip_runtime: HipCases, variant: str, gpus: tuple[str, ...], result: HipResult) -> None:
    fat = hip_runtime(gpus, build_variant(variant), launch=True)
    assert fat.returncode == 0
    assert set(fat.codes.values()) == {(0,)}
    assert result.returncode == 0, result.signal
    assert result.reached == fat.reached
    assert result.codes == fat.codes
    assert sorted(result.executed) == sorted(fat.executed)


@with_packed(EQUAL_MACHINES)
def test_gpus_that_share_code_are_served(
    hip_runtime: HipCases, packed: Path, variant: str, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    result = run_with_loader(hip_runtime, packed, gpus, tmp_path)
    check_works_as_fat(hip_runtime, variant, gpus, result)
    assert result.stderr == ""


@with_packed(STATES)
def test_states_of_one_processor_are_served_better(
    hip_runtime: HipCases, packed: Path, variant: str, gpus: tuple[str, ...]
) -> None:
    fat = hip_runtime(gpus, build_variant(variant), launch=True)
    result = hip_runtime(gpus, packed, launch=True)
    assert (fat.returncode, result.returncode) == (0, 0)
    assert {gpu for gpu, _, _ in fat.reached} < {0, 1}
    assert fat.reached.items() < result.reached.items()
    assert set(result.codes.values()) == {(0,)}


@with_packed(MACHINES)
@pytest.mark.xfail(
    reason="converted libraries serve one target at a time; fat copies have to be served on such machines"
)
def test_mixed_machines_are_served(
    hip_runtime: HipCases, packed: Path, variant: str, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    result = run_with_loader(hip_runtime, packed, gpus, tmp_path)
    check_works_as_fat(hip_runtime, variant, gpus, result)


@with_packed(MACHINES + BOTH_STATES)
def test_a_converted_library_serves_the_first_gpu(
    hip_runtime: HipCases, packed: Path, variant: str, gpus: tuple[str, ...]
) -> None:
    """What the report of `pack` says; without the loader it stays so."""
    fat = hip_runtime(gpus, build_variant(variant))
    looked_up = hip_runtime(gpus, packed)
    assert looked_up.returncode == 0
    assert looked_up.reached == {key: code for key, code in fat.reached.items() if key[0] == 0}
    launched = hip_runtime(gpus, packed, launch=True)
    assert launched.signal is signal.SIGSEGV
    assert {gpu for gpu, _ in launched.executed} == {0}
    assert {kernel.code for kernel in launched.launches} == {0}


@pytest.mark.parametrize("gpus", [("gfx1100", "gfx1101"), ("gfx1101", "gfx1100")])
@pytest.mark.parametrize("packed", ["plain-22"], indirect=True)
def test_a_gpu_without_code_fails_on_its_own_only_in_a_fat_library(
    hip_runtime: HipCases, packed: Path, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    fat = hip_runtime(gpus, build_variant("plain-22"), launch=True)
    assert fat.returncode == 0
    assert all(0 not in codes for (gpu, _, _), codes in fat.codes.items() if gpus[gpu] == "gfx1101")
    result = run_with_loader(hip_runtime, packed, gpus, tmp_path)
    assert result.signal is signal.SIGSEGV
    (mask,) = re.findall(r"HIP_VISIBLE_DEVICES=([\d,]+)", result.stderr)
    assert mask == str(gpus.index("gfx1100"))
    masked = run_with_loader(hip_runtime, packed, gpus, tmp_path, mask)
    assert masked.returncode == 0
    assert set(masked.codes.values()) == {(0,)}


@with_packed(MACHINES)
def test_the_loaders_way_out_works(
    hip_runtime: HipCases, packed: Path, variant: str, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    warned = run_with_loader(hip_runtime, packed, gpus, tmp_path)
    masks = re.findall(r"HIP_VISIBLE_DEVICES=([\d,]+)", warned.stderr)
    assert [mask.split(",") for mask in masks] == [[str(number)] for number in range(len(gpus))]
    for mask in masks:
        result = run_with_loader(hip_runtime, packed, gpus, tmp_path, mask)
        seen_gpu = gpus[int(mask)]
        alone = hip_runtime([seen_gpu], build_variant(variant), launch=True)
        assert result.returncode == 0
        assert {key[1:]: code for key, code in result.reached.items()} == {
            key[1:]: code for key, code in alone.reached.items()
        }
        assert set(result.codes.values()) == {(0,)}
        assert result.stderr == ""
