"""Every GPU that there is gets from packed libraries the code that it gets from the fat ones.

Each processor that rocm-bootstrap knows is made up below the real HIP runtime, in each state of its features.
All kernels and variables of all libraries are looked up there, and in one state of each processor the kernels
are launched, too: once from the fat library and once from the packed one.

Libraries that need HIP alone are loaded as they are; those of bitsandbytes and jax beside empty stand-ins for
hipBLAS and its kin, whose functions they bind when they call them. The ones of torch-scatter and
torch-spline-conv need data symbols of PyTorch and cannot be loaded without it: for these ROCm's own reader is
asked, in `test_packing`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import parse_config
from kpack_build.pipeline import pack
from tests.corpus import corpus_tree
from tests.fixtures.build import build_variant
from tests.hip import stand_ins
from tests.runtime.comparison import ONE_STATE, Difference, Subject, compare_all
from tests.runtime.plugin import binaries_below
from tests.sample import SampleBuild, build_sample, install_sample
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.packing import PackedCorpus

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang, pytest.mark.matrix]

#: Libraries of the corpus that need nothing but HIP.
ALONE = ("vapoursynth-bm3dhip", "gafime-rocm", "vapoursynth-nlm-hip")
#: Compiled for this: wrappers that differ in their targets, generic and qualified targets, 130 wrappers.
VARIANTS = (
    "many-units",
    "features-22",
    "features-mixed-22",
    "generic-22",
    "generic-only-in-one-22",
    "units-differ-22",
    "rdc-compressed-22",
    "page-64k-22",
)
#: Where a GPU gets other code from archives than from the fat library, and why: library, GPU, both targets.
DIFFERENCES = {
    # HIP looks for a generic target with the GPU's own features appended; gfx9-generic has no sramecc, so it
    # finds nothing. ROCm's reader of archives also asks for the generic target without them, and the packed
    # library works.
    ("libgeneric-22.so", "gfx906:sramecc+:xnack+", "", "gfx9-generic"),
    ("libgeneric-22.so", "gfx906:sramecc+:xnack-", "", "gfx9-generic"),
    ("libgeneric-22.so", "gfx906:sramecc-:xnack+", "", "gfx9-generic"),
    ("libgeneric-22.so", "gfx906:sramecc-:xnack-", "", "gfx9-generic"),
}


def rows(differences: Sequence[Difference]) -> set[tuple[str, str, str, str]]:
    return {(row.library, row.gpu, row.fat, row.packed) for row in differences}


def expected_rows(subject: Subject) -> set[tuple[str, str, str, str]]:
    names = {path.name for path in subject.fat}
    return {row for row in DIFFERENCES if row[0] in names}


def corpus_subject(corpus: PackedCorpus, *names: str) -> Subject:
    fat, packed = [], []
    for name in names:
        tree, site = corpus_tree(name), corpus.install(name, "pip")
        found = binaries_below(tree)
        fat += found
        packed += [site / path.relative_to(tree) for path in found]
    return Subject(fat=tuple(fat), packed=tuple(packed), preload=tuple(stand_ins(fat)))


def variants_subject(directory: Path) -> Subject:
    paths = [build_variant(name) for name in VARIANTS]
    files = {f"thing/{path.name}": path.read_bytes() for path in paths}
    source = write_tree_of_wheel(directory / "fat", {"thing/__init__.py": b"", **files})
    pack(source, directory / "packed", parse_config({"level": 1}, source="the test"))
    return Subject(
        fat=tuple(paths), packed=tuple(directory / "packed" / "fat" / "thing" / path.name for path in paths)
    )


def test_libraries_that_need_hip_alone(packed_corpus: PackedCorpus) -> None:
    subject = corpus_subject(packed_corpus, *ALONE)
    assert rows(compare_all(subject)) == expected_rows(subject)


def test_libraries_that_were_compiled_for_this(tmp_path: Path) -> None:
    subject = variants_subject(tmp_path)
    assert rows(compare_all(subject)) == expected_rows(subject)


@pytest.mark.parametrize("name", ["jax-rocm7-plugin", "bitsandbytes"])
def test_libraries_that_need_more_than_hip(packed_corpus: PackedCorpus, name: str) -> None:
    if name.startswith("jax") and sys.version_info < (3, 11):
        pytest.skip("jax's modules need symbols of Python 3.11")
    subject = corpus_subject(packed_corpus, name)
    assert rows(compare_all(subject, ONE_STATE)) == expected_rows(subject)


def test_sample_project(tmp_path: Path) -> None:
    sites = [
        install_sample(
            build_sample(SampleBuild(packed=packed), tmp_path / f"wheel-{packed}"), tmp_path / name
        )
        for packed, name in ((False, "fat"), (True, "packed"))
    ]
    fat, packed = (tuple(binaries_below(site)) for site in sites)
    subject = Subject(fat=fat, packed=packed)
    assert rows(compare_all(subject, ONE_STATE)) == set()
