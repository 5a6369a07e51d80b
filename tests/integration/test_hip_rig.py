"""The rig of made-up GPUs tells right from wrong, and says the same each time."""

from __future__ import annotations

import resource
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from kpack_build.archive import PackedKernelArchive
from kpack_build.config import parse_config
from kpack_build.pipeline import pack
from tests.corpus import corpus_wheel
from tests.fat import read_fat_binary
from tests.fixtures.build import build_variant
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.hip import HipResult
    from tests.runtime.plugin import HipCases

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang]

GPU = "gfx1100"
OTHER_GPU = "gfx90a:sramecc+:xnack-"
RUNS = 50
#: Offset of a wrapper's index in it.
INDEX = 16
INVALID_DEVICE_FUNCTION = 98


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A packed library of two wrappers, its archives stored without compression."""
    original = build_variant("features-mixed-22")
    files = {"thing/__init__.py": b"", f"thing/{original.name}": original.read_bytes()}
    source = write_tree_of_wheel(tmp_path / "fat", files)
    pack(source, tmp_path / "packed", parse_config({"scheme": "none"}, source="the test"))
    return tmp_path / "packed" / "fat" / "thing" / original.name


def archive_of(library: Path, family: str) -> Path:
    (path,) = (library.parent / ".kpack").glob(f"*-{family}.kpack")
    return path


def flip_last_byte_of_code(library: Path, wrapper: int) -> None:
    """Change the last byte of what the archive has for a wrapper, which is padding of a section."""
    path = archive_of(library, "gfx110x")
    archive = PackedKernelArchive.read(path)
    place = archive.location(f"thing/{library.name}#{wrapper}", GPU)
    archive.close()
    data = bytearray(path.read_bytes())
    data[place.offset + place.stored_size - 1] ^= 0xFF
    path.write_bytes(data)


def set_index(library: Path, wrapper: int, index: int) -> None:
    with library.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".hipFatBinSegment")
        assert section is not None
        offset = section["sh_offset"] + 24 * wrapper + INDEX
    data = bytearray(library.read_bytes())
    assert struct.unpack_from("<I", data, offset) == (wrapper,)
    struct.pack_into("<I", data, offset, index)
    library.write_bytes(data)


@pytest.mark.parametrize("hip_first", [False, True])
def test_right_code_reaches_the_gpu(hip_runtime: HipCases, library: Path, *, hip_first: bool) -> None:
    result = hip_runtime([GPU], library, hip_first=hip_first, launch=True)
    fat = hip_runtime([GPU], build_variant("features-mixed-22"))
    assert result.returncode == 0
    assert result.reached == fat.reached
    assert set(result.reached) == {(0, library.name, 0), (0, library.name, 1)}
    assert set(result.codes.values()) == {(0,)}
    assert sorted(result.executed) == sorted((0, kernel.name) for kernel in result.kernels)
    assert {code.wrapper for code in result.loaded} == {0, 1}
    assert [{"bias", "weights"} <= set(code.variables) for code in result.loaded] == [True, False]
    assert {variable.name: variable.size for variable in result.variables} == {
        "bias": 4,
        "weights": 256,
        "calls": 8,
    }
    assert {kernel.name for kernel in result.kernels} == {
        name for code in result.loaded for name in code.kernels
    }


def test_a_changed_byte_is_seen(hip_runtime: HipCases, library: Path) -> None:
    right = hip_runtime([GPU], library).reached
    flip_last_byte_of_code(library, 1)
    wrong = hip_runtime([GPU], library).reached
    assert wrong[0, library.name, 0] == right[0, library.name, 0]
    assert wrong[0, library.name, 1] != right[0, library.name, 1]


def test_a_missing_archive_is_seen(hip_runtime: HipCases, library: Path) -> None:
    archive_of(library, "gfx110x").unlink()
    result = hip_runtime([GPU], library)
    assert result.reached == {}
    assert {code for kernel in result.kernels for code in (kernel.code,)} == {INVALID_DEVICE_FUNCTION}
    # The archive of the other GPU is there.
    assert len(hip_runtime([OTHER_GPU], library).reached) == 2


def test_a_changed_index_is_seen(hip_runtime: HipCases, library: Path) -> None:
    right = hip_runtime([GPU], library).reached
    set_index(library, 1, 0)
    wrong = hip_runtime([GPU], library)
    # HIP has the code of the first wrapper twice, and looks for the second one's kernels in it in vain.
    assert wrong.loaded[-1].sha256 == right[0, library.name, 0][1]
    assert wrong.codes[0, library.name, 0] == (0,)
    assert 0 not in {kernel.code for kernel in wrong.kernels if kernel.wrapper == 1}


def test_each_gpu_of_a_machine_is_reported(hip_runtime: HipCases) -> None:
    fat = build_variant("features-mixed-22")
    result = hip_runtime([GPU, OTHER_GPU], fat)
    targets = {(gpu, place): target for (gpu, _, place), (target, _) in result.reached.items()}
    assert targets == {(0, 0): "gfx1100", (0, 1): "gfx1100", (1, 0): "gfx90a:xnack-", (1, 1): "gfx90a"}


def test_whole_wheels_are_loaded(hip_runtime: HipCases, tmp_path: Path) -> None:
    files = {f"thing/{name}.so": build_variant(name).read_bytes() for name in ("plain-22", "one-unit-22")}
    tree = write_tree_of_wheel(tmp_path / "tree", {"thing/__init__.py": b"", **files})
    result = hip_runtime([GPU], tree)
    assert {(library, place) for _, library, place in result.reached} == {
        ("one-unit-22.so", 0),
        ("plain-22.so", 0),
        ("plain-22.so", 1),
    }


def test_a_wheel_file_is_unpacked(hip_runtime: HipCases) -> None:
    result = hip_runtime([GPU], corpus_wheel("gafime-rocm"), hip_first=True)
    assert {key: target for key, (target, _) in result.reached.items()} == {(0, "libgafime_rocm.so", 0): GPU}


def seen(result: HipResult) -> tuple[object, ...]:
    """Return all that does not change with the addresses of a process."""
    return (
        result.returncode,
        result.stdout,
        result.stderr,
        result.reached,
        result.codes,
        result.loaded,
        result.kernels,
        result.variables,
        result.launches,
        result.executed,
        result.refused,
    )


def test_fifty_runs_say_the_same(hip_runtime: HipCases, library: Path) -> None:
    def run(_: int) -> tuple[object, ...]:
        return seen(hip_runtime([GPU], library, launch=True))

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(run, range(RUNS))
    assert others == [first] * (RUNS - 1)


def test_a_case_takes_less_than_half_a_second(hip_runtime: HipCases, library: Path) -> None:
    assert min(_seconds(lambda: hip_runtime([GPU], library)) for _ in range(5)) < 0.5


def _seconds(run: Callable[[], object]) -> float:
    """Return the processor time of the processes that `run` starts, whatever else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_wrappers_are_where_another_reader_finds_them(hip_runtime: HipCases) -> None:
    library = build_variant("many-units")
    result = hip_runtime([GPU], library)
    wrappers = read_fat_binary(library)
    assert len(result.reached) == len(wrappers) == 130
    assert {place for _, _, place in result.reached} == {wrapper.index for wrapper in wrappers}
