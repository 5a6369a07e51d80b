"""`hip_choice`, asked of the real HIP runtime on GPUs that are made up.

A library of ours is given other bundles, with targets that no compiler would put together too.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kpack_build.bundle import write_bundle
from kpack_build.targets import TargetId, hip_choice
from tests.fixtures.build import SOURCES, build_variant, llvm_tool
from tests.fixtures.bundles import HOST_ID, entry_id
from tests.hip import HipRuntime, run_hip

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang]


@functools.cache
def compile_for(target: str) -> bytes:
    """Return the code object of the library's kernels for a target."""
    version = 6 if TargetId.parse(target).is_generic else 5
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "code")
        command: list[str | Path] = [
            llvm_tool("clang++"),
            "-x",
            "hip",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
        ]
        command += [f"--offload-arch={target}", f"-mcode-object-version={version}", "-nogpuinc", "-nogpulib"]
        command += ["-O2", "-I", SOURCES, "-o", output, SOURCES / "vectors.hip"]
        subprocess.run(command, check=True, capture_output=True)
        return output.read_bytes()


def library_with(targets: list[str], directory: Path) -> Path:
    """Write a library whose one bundle has code for the targets, in that order."""
    original = build_variant("one-unit-22")
    with original.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".hip_fatbin")
        assert section is not None
        offset, size = section["sh_offset"], section["sh_size"]
    bundle = write_bundle([(HOST_ID, b""), *((entry_id(target), compile_for(target)) for target in targets)])
    assert len(bundle) <= size
    data = bytearray(original.read_bytes())
    data[offset : offset + size] = bundle.ljust(size, b"\0")
    path = directory / "library.so"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("gpu", "targets"),
    [
        ("gfx90a:sramecc+:xnack-", ["gfx90a"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack+", "gfx90a:xnack-"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack+"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a", "gfx90a:xnack-"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack-", "gfx90a"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack-", "gfx90a:sramecc+"]),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:sramecc+", "gfx90a:xnack-"]),
        ("gfx90c", ["gfx90c:xnack-"]),
        ("gfx90c", ["gfx90c"]),
        ("gfx1100", ["gfx11-generic", "gfx1100"]),
        ("gfx1101", ["gfx11-generic", "gfx1100"]),
        ("gfx1201", ["gfx11-generic", "gfx1200"]),
        ("gfx942:sramecc+:xnack-", ["gfx9-4-generic:xnack-", "gfx942"]),
        ("gfx942:sramecc+:xnack-", ["gfx9-4-generic:xnack-", "gfx9-4-generic"]),
        ("gfx942:sramecc+:xnack-", ["gfx9-4-generic", "gfx9-4-generic:xnack-"]),
        ("gfx942:sramecc+:xnack-", ["gfx9-4-generic:xnack+"]),
        ("gfx900:xnack-", ["gfx9-generic"]),
        ("gfx906:sramecc+:xnack-", ["gfx9-generic"]),
    ],
)
def test_hip_chooses_as_we_think(gpu: str, targets: list[str], tmp_path: Path) -> None:
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[library_with(targets, tmp_path)], gpus=[gpu])
    assert result.returncode == 0
    assert result.load_errors == {}
    names = {hashlib.sha256(compile_for(target)).hexdigest(): target for target in targets}
    choice = hip_choice(TargetId.parse(gpu), map(TargetId.parse, targets))
    assert [names[code.sha256] for code in result.loaded] == ([] if choice is None else [str(choice)])
