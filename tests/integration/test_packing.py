"""Published wheels, packed and installed: ROCm's own reader gives back every code object of the original.

Where a library can be loaded here, the reader is called in its process with the metadata that the loader put
into memory, as HIP does; where something is missing that the library needs, with the metadata in its file.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from kpack_build.report import BinaryAction, Outcome
from kpack_build.targets import TargetId, feature_states, hip_choice, lookup_order
from tests.corpus import CORPUS, FAT_CORPUS
from tests.hip import HipRuntime, run_hip, stand_ins
from tests.packing import INSTALLERS, answers_from_files, indexes_of, original_wrappers, run_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.packing import Answers, PackedCorpus, Wrapper

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang]


class Reach(str, Enum):
    """Where the metadata of a wheel's libraries is taken from."""

    MEMORY = "loaded"
    STAND_INS = "loaded beside stand-ins"
    FILE = "from the file"


#: bm3dhip brings its own HIP. Stand-ins are for hipBLAS and its kin, and for the HIP that nlm-hip brings: it
#: needs a newer C++ library than Debian's. What PyTorch's extensions need, data among it, has no stand-in.
REACHED = {
    "bitsandbytes": Reach.STAND_INS,
    "gafime-rocm": Reach.MEMORY,
    "jax-rocm7-plugin": Reach.STAND_INS,
    "torch-scatter-rocm": Reach.FILE,
    "torch-spline-conv-rocm": Reach.FILE,
    "vapoursynth-bm3dhip": Reach.MEMORY,
    "vapoursynth-nlm-hip": Reach.STAND_INS,
}
REACHED_PARAMETERS = [pytest.param(name, id=f"{name}, {how.value}") for name, how in REACHED.items()]


def test_every_fat_wheel_is_reached() -> None:
    assert set(REACHED) == set(FAT_CORPUS)


def test_counts_are_those_of_the_original(fat_corpus_name: str, packed_corpus: PackedCorpus) -> None:
    expected, packed = CORPUS[fat_corpus_name], packed_corpus.pack(fat_corpus_name)
    assert packed.report.outcome is Outcome.DONE
    assert packed.wheel.name == packed.source.name
    assert tuple(binary.wrappers for binary in packed.report.binaries) == expected.wrappers
    assert {binary.action for binary in packed.report.binaries} == {BinaryAction.CONVERTED}
    assert sum(binary.code_objects for binary in packed.report.binaries) == expected.code_objects
    assert (
        sum(len(wrapper.digests) for wrapper in original_wrappers(fat_corpus_name)) == expected.code_objects
    )
    [index] = indexes_of(packed.wheel).values()
    rows = {binary["path"]: binary["wrappers"] for binary in index["binaries"]}
    found = [
        (target, index["code_objects"][rows[wrapper.path][wrapper.index][target]])
        for wrapper in original_wrappers(fat_corpus_name)
        for target in wrapper.digests
    ]
    assert all(target == row["target"] for target, row in found)
    assert len({target for target, _ in found}) == expected.targets
    assert sum(row["size"] for _, row in found) == expected.device_bytes


@pytest.mark.parametrize("installer", INSTALLERS)
def test_installed_files_are_those_of_the_wheel(
    fat_corpus_name: str, installer: str, packed_corpus: PackedCorpus
) -> None:
    site = packed_corpus.install(fat_corpus_name, installer)
    [(index_path, index)] = indexes_of(packed_corpus.pack(fat_corpus_name).wheel).items()
    folder = (site / index_path).parent
    for row in index["archives"]:
        archive = (folder / row["file"]).read_bytes()
        assert (hashlib.sha256(archive).hexdigest(), len(archive)) == (row["sha256"], row["size"])
    for wrapper in original_wrappers(fat_corpus_name):
        library = (site / wrapper.path).read_bytes()
        # Device code is no longer in the file: neither its bundles nor their compressed form.
        assert b"__CLANG_OFFLOAD_BUNDLE__" not in library
        assert b"amdgcn-amd-amdhsa--gfx" not in library


def test_wheel_unpacks_and_installer_checks_it(
    fat_corpus_name: str, packed_corpus: PackedCorpus, tmp_path: Path
) -> None:
    sources = pytest.importorskip("installer.sources", reason="missing: the package installer")
    wheel = packed_corpus.pack(fat_corpus_name).wheel
    with sources.WheelFile.open(wheel) as source:
        source.validate_record(validate_contents=True)
    run_module("wheel", "unpack", "--dest", str(tmp_path), str(wheel))
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("installer", INSTALLERS)
@pytest.mark.parametrize("name", REACHED_PARAMETERS)
def test_rocm_gives_back_every_code_object(name: str, installer: str, packed_corpus: PackedCorpus) -> None:
    site, wrappers = packed_corpus.install(name, installer), original_wrappers(name)
    targets = sorted({target for wrapper in wrappers for target in wrapper.digests})
    answers = _answers(name, site, [(target,) for target in targets])
    asked = [
        ((wrapper.path, wrapper.index, (target,)), digest)
        for wrapper in wrappers
        for target, digest in wrapper.digests.items()
    ]
    assert len(asked) == CORPUS[name].code_objects
    assert [answers[key] for key, _ in asked] == [digest for _, digest in asked]


@pytest.mark.parametrize("name", REACHED_PARAMETERS)
def test_rocm_gives_every_gpu_what_hip_would_choose(name: str, packed_corpus: PackedCorpus) -> None:
    site, wrappers = packed_corpus.install(name, "pip"), original_wrappers(name)
    agents = {tuple(map(str, lookup_order(agent))): agent for agent in _agents(wrappers)}
    answers = _answers(name, site, list(agents))
    found = Counter[bool]()
    for candidates, agent in agents.items():
        for wrapper in wrappers:
            choice = hip_choice(agent, map(TargetId.parse, wrapper.digests))
            answer = answers[wrapper.path, wrapper.index, candidates]
            assert answer == (wrapper.digests[str(choice)] if choice else None), (wrapper.path, agent)
            found[answer is not None] += 1
    assert found[True]


@pytest.mark.parametrize("name", [name for name, how in REACHED.items() if how is not Reach.FILE])
def test_hip_loads_from_archives_what_was_in_the_bundles(name: str, packed_corpus: PackedCorpus) -> None:
    """HIP itself looks up each kernel on a made-up GPU; a HIP library of the wheel's own is stood in for."""
    if name.startswith("jax") and sys.version_info < (3, 11):
        pytest.skip("jax's modules need symbols of Python 3.11")
    site, wrappers = packed_corpus.install(name, "uv"), original_wrappers(name)
    libraries = [site / path for path in dict.fromkeys(wrapper.path for wrapper in wrappers)]
    others = stand_ins(libraries)
    result = run_hip(runtime=HipRuntime.KPACK, libraries=libraries, preload=others, gpus=["gfx1100"])
    assert result.returncode == 0, result.stderr
    assert {kernel.code for kernel in result.kernels} == {0}
    expected = Counter(wrapper.digests["gfx1100"] for wrapper in wrappers)
    assert Counter(code.sha256 for code in result.loaded) == expected


def _agents(wrappers: tuple[Wrapper, ...]) -> Iterator[TargetId]:
    """Iterate over all states of all GPUs that the wheel has something for, and of one that it has not."""
    processors = {TargetId.parse(target).processor for wrapper in wrappers for target in wrapper.digests}
    for processor in sorted(processors | {"gfx90c"}):
        yield from feature_states(processor)


def _answers(name: str, site: Path, targets: Sequence[tuple[str, ...]]) -> Answers:
    """Ask ROCm's reader for each list of targets of every wrapper of an installed wheel."""
    libraries = [site / path for path in dict.fromkeys(w.path for w in original_wrappers(name))]
    # Jax's modules need symbols of Python 3.11; their files can be read by any.
    too_old = name.startswith("jax") and sys.version_info < (3, 11)
    if REACHED[name] is Reach.FILE or too_old:
        return answers_from_files(site, libraries, targets)
    others = stand_ins(libraries) if REACHED[name] is Reach.STAND_INS else []
    result = run_hip(runtime=HipRuntime.KPACK, libraries=libraries, preload=others, targets=targets)
    assert result.returncode == 0, result.stderr
    assert result.load_errors == {}
    assert {registration.path for registration in result.registrations} == set(libraries)
    assert all(registration.accepted for registration in result.registrations)
    assert {registration.magic for registration in result.registrations} == {b"HIPK"}
    return {
        (answer.binary.relative_to(site).as_posix(), answer.index, answer.archs): answer.sha256
        for answer in result.answers
    }
