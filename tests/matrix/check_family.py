"""Build the sample for one family, install it into a fresh environment, and hold it against the fat build.

    python -m tests.matrix.check_family gfx110x

For each GPU of the family, made up in a topology of its own, the package is imported in the fresh
environment, beside the real HIP runtime with kpack, and the loader must name the family's archive. Then

* ROCm's reader is asked, by the installed binaries' metadata in memory, for every code object;
* the HIP runtime is given each GPU, in each state of its features, by a stand-in for the library below it,
  and every kernel is looked up, from the fat build and from the packed one, and launched.

What comes each time must be byte for byte what the fat build holds. The exit status is 0 if all of it holds.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rocm_bootstrap.targets import PackagingLevel, XnackMode, all_bundles, lookup_target

from tests.fat import read_fat_binary
from tests.hip import HipRuntime, run_hip, run_hip_command
from tests.runtime.comparison import GPUS, Subject, compare_all
from tests.sample import BINARIES, SampleBuild, build_sample, install_sample
from tests.topology import write_topology

__all__ = ["FAMILIES", "buildable_targets", "main"]

#: The sub-families of rocm-bootstrap, each the name of a tox environment.
FAMILIES = tuple(bundle.key for bundle in all_bundles(PackagingLevel.SUB_FAMILY))
#: GPUs that say whether their memory corrects errors.
SRAMECC = {"gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"}
#: Processors that the HIP runtime of the tests does not take for GPUs.
UNKNOWN_TO_HIP = {"gfx909", "gfx1251"}
#: Targets that no released clang compiles for.
NOT_COMPILABLE = {"gfx1250-strict"}
PROGRAM = (
    "import kpack_sample; assert kpack_sample.axpy(2.0, [1.0], [3.0]) == [5.0]; print(kpack_sample.backend())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One family's build.

    Attributes:
        family: Name of the sub-family.
        targets: The target ids that the sample was built for.
        fat: The installed fat build.
        python: Python of the fresh environment with the packed wheel.
        site: Where that environment's packages are.
        scratch: A directory for whatever else is needed.
    """

    family: str
    targets: tuple[str, ...]
    fat: Path
    python: Path
    site: Path
    scratch: Path


def buildable_targets(family: str) -> tuple[str, ...]:
    """Return the targets of a sub-family that the sample can be compiled for."""
    (bundle,) = (bundle for bundle in all_bundles(PackagingLevel.SUB_FAMILY) if bundle.key == family)
    names = (member.name for member in bundle.members)
    return tuple(name for name in names if name not in NOT_COMPILABLE)


def prepare(family: str, scratch: Path) -> Check:
    """Build both wheels; install the fat one aside and the packed one into a fresh environment."""
    targets = buildable_targets(family)
    fat = build_sample(SampleBuild(packed=False, targets=targets), scratch / "fat-wheel")
    packed = build_sample(SampleBuild(packed=True, targets=targets), scratch / "packed-wheel")
    environment = scratch / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    flags = ("--quiet", "--disable-pip-version-check", "--no-index")
    subprocess.run([python, "-m", "pip", "install", *flags, packed], check=True)
    program = "import sysconfig; print(sysconfig.get_path('platlib'))"
    located = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    sizes = f"fat wheel {fat.stat().st_size} bytes, packed {packed.stat().st_size}"
    sys.stdout.write(f"{family}: {' '.join(targets)}\n  {sizes}\n")
    return Check(
        family=family,
        targets=targets,
        fat=install_sample(fat, scratch / "fat"),
        python=python,
        site=Path(located.stdout.strip()),
        scratch=scratch,
    )


def check_import(check: Check, processor: str) -> None:
    """Import the package beside the real runtime, with one GPU of the family in the topology."""
    root = write_topology(check.scratch / "topology" / processor, [processor])
    environment = {"KPACK_TOPOLOGY_ROOT": str(root)}
    result = run_hip_command(
        [check.python, "-W", "error", "-c", PROGRAM], runtime=HipRuntime.KPACK, environment=environment
    )
    assert result.returncode == 0, result.stderr
    # The GPU is in the topology only, so HIP itself sees none.
    assert result.stdout.split() == ["cpu"], result.stdout
    assert len(result.registrations) == sum(BINARIES.values())
    assert all(registration.accepted for registration in result.registrations)
    assert {registration.magic for registration in result.registrations} == {b"HIPK"}
    table = run_hip_command(
        [check.python, "-m", "kpack_sample._kpack"], runtime=HipRuntime.KPACK, environment=environment
    )
    assert table.returncode == 0, table.stderr
    assert processor in table.stdout, table.stdout
    assert f"{check.family}.kpack" in table.stdout, table.stdout


def expected_code(check: Check) -> dict[tuple[Path, int, str], str]:
    """Return binary, wrapper and target → digest of the code object, from the fat build."""
    return {
        (check.site / name, wrapper.index, target): hashlib.sha256(code).hexdigest()
        for name in BINARIES
        for wrapper in read_fat_binary(check.fat / name)
        for target, code in wrapper.code_objects.items()
    }


def check_code(check: Check) -> int:
    """Ask ROCm's reader for each code object; return how many there are."""
    expected = expected_code(check)
    assert {target for _, _, target in expected} == set(check.targets)
    result = run_hip(
        runtime=HipRuntime.KPACK,
        libraries=[check.site / name for name in reversed(BINARIES)],
        targets=[[target] for target in check.targets],
    )
    assert result.load_errors == {}, result.load_errors
    answers = {(answer.binary, answer.index, answer.archs[0]): answer.sha256 for answer in result.answers}
    assert answers == expected
    return len(expected)


def target_id_of(processor: str) -> str:
    """Return what a GPU of this processor calls itself, with the state of each feature that it has."""
    sramecc = ":sramecc+" if processor in SRAMECC else ""
    xnack = ":xnack-" if lookup_target(processor).xnack is XnackMode.SUPPORTED else ""
    return processor + sramecc + xnack


def check_runtime(check: Check, processor: str) -> None:
    """Let the HIP runtime choose and load for one GPU."""
    if processor in UNKNOWN_TO_HIP:
        return
    expected = expected_code(check)
    libraries = [check.site / name for name in reversed(BINARIES)]
    result = run_hip(runtime=HipRuntime.KPACK, libraries=libraries, gpus=[target_id_of(processor)])
    assert result.returncode == 0, result.stderr
    assert {kernel.code for kernel in result.kernels} == {0}, result.kernels
    wanted = sorted(digest for (_, _, target), digest in expected.items() if target == processor)
    assert sorted(code.sha256 for code in result.loaded) == wanted
    subject = Subject(fat=tuple(check.fat / name for name in reversed(BINARIES)), packed=tuple(libraries))
    gpus = [gpu for gpu in GPUS if gpu.partition(":")[0] == processor]
    assert gpus
    assert compare_all(subject, gpus) == []


def check_no_device_code_left(check: Check) -> None:
    """See that the installed binaries have no code object in them any more."""
    for name in BINARIES:
        data = (check.site / name).read_bytes()
        assert b"__CLANG_OFFLOAD_BUNDLE__" not in data
        assert b"amdgcn-amd-amdhsa" not in data


def main(arguments: list[str]) -> int:
    """Check the family named on the command line."""
    if len(arguments) != 1 or arguments[0] not in FAMILIES:
        sys.stderr.write(f"usage: check_family ({' | '.join(FAMILIES)})\n")
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        check = prepare(arguments[0], Path(scratch).resolve())
        check_no_device_code_left(check)
        for processor in check.targets:
            check_import(check, processor)
            check_runtime(check, processor)
        count = check_code(check)
    sys.stdout.write(f"  {len(check.targets)} GPUs, {count} code objects: as in the fat build\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
