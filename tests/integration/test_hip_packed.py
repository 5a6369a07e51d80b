"""A packed library gets from the real HIP runtime the same code objects as the fat one, for every GPU.

The GPUs are made up by a stand-in for the library below HIP; HIP itself searches the archives, chooses and
hands the code objects down.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import parse_config
from kpack_build.pipeline import pack
from tests.fixtures.build import build_variant
from tests.hip import HipRuntime, run_hip
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

pytestmark = [pytest.mark.clang, pytest.mark.rocm]

LIBRARY = "thing/libthing.so"
GFX90A = tuple(f"gfx90a:sramecc{sramecc}:xnack{xnack}" for sramecc in "+-" for xnack in "+-")
#: Variants whose wrappers differ in what they hold, and the GPUs that are asked about.
CASES = {
    "features-22": (*GFX90A, "gfx942:sramecc+:xnack-", "gfx942:sramecc-:xnack-", "gfx1100", "gfx1030"),
    "features-mixed-22": (*GFX90A, "gfx1100"),
    "features-mixed-19": (*GFX90A, "gfx1100"),
    "generic-22": ("gfx1100", "gfx1101", "gfx1151", "gfx1036", "gfx90a:sramecc+:xnack-", "gfx900:xnack-"),
    "generic-only-in-one-22": ("gfx1100", "gfx1101", "gfx1102", "gfx1201"),
    "units-differ-22": ("gfx1100", "gfx90a:sramecc+:xnack-"),
    "rdc-compressed-22": ("gfx1100", "gfx1030"),
    "compressed-19": ("gfx1100", "gfx90a:sramecc+:xnack+"),
}
GROUPINGS = ("target", "sub-family", "family")

Outcome = tuple[list[str], dict[str, bool]]


def packed_library(variant: str, group_by: str, directory: Path) -> Path:
    files = {"thing/__init__.py": b"", LIBRARY: build_variant(variant).read_bytes()}
    source = write_tree_of_wheel(directory / "fat", files)
    config = parse_config({"loader": "none", "group-by": group_by}, source="the test")
    pack(source, directory / "packed", config)
    return directory / "packed" / "fat" / LIBRARY


def outcome(library: Path, gpu: str) -> Outcome:
    """Return the digests of what was loaded, and which kernels were found."""
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[library], gpus=[gpu])
    assert result.returncode == 0, result.stderr
    assert result.load_errors == {}
    digests = sorted(code.sha256 for code in result.loaded)
    return digests, {kernel.name: kernel.code == 0 for kernel in result.kernels}


@functools.cache
def fat_outcome(variant: str, gpu: str) -> Outcome:
    return outcome(build_variant(variant), gpu)


@pytest.mark.parametrize("group_by", GROUPINGS)
@pytest.mark.parametrize("variant", CASES)
def test_hip_loads_from_archives_what_it_loads_from_the_fat_binary(
    variant: str, group_by: str, tmp_path: Path
) -> None:
    packed = packed_library(variant, group_by, tmp_path)
    assert b"amdgcn-amd-amdhsa" not in packed.read_bytes()
    for gpu in CASES[variant]:
        assert outcome(packed, gpu) == fat_outcome(variant, gpu), gpu
