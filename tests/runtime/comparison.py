"""Hold packed libraries against the fat ones: what the real HIP runtime gives each GPU of each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocm_bootstrap import ALL_TARGETS

from kpack_build.targets import TargetId, feature_states
from tests.hip import HipRuntime, run_hip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.hip import HipResult

__all__ = ["GPUS", "ONE_STATE", "Difference", "Subject", "compare", "compare_all"]

#: Each processor that rocm-bootstrap knows, in each state that its features can have.
GPUS = tuple(str(state) for target in ALL_TARGETS for state in feature_states(target.name))
#: One state of the features for each processor. Only there kernels are launched: the first launch takes
#: longer than all the rest, and what HIP chooses is known before.
ONE_STATE = tuple({gpu.partition(":")[0]: gpu for gpu in GPUS}.values())
WORKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Libraries before and after packing, under the same file names, each name once.

    Attributes:
        fat: The original libraries.
        packed: The same after packing, in the same order.
        preload: What they need besides HIP.
    """

    fat: tuple[Path, ...]
    packed: tuple[Path, ...]
    preload: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        names = [path.name for path in self.fat]
        assert names == [path.name for path in self.packed]
        assert len(set(names)) == len(names)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Difference:
    """A wrapper that a GPU gets other code for, once its library is packed.

    Attributes:
        gpu: The GPU's target id.
        library: File name of the library.
        place: Which of its wrappers.
        fat: Target of the code that HIP takes from the fat library; empty for none.
        packed: Target of the code that it takes from archives; empty for none.
    """

    gpu: str
    library: str
    place: int
    fat: str
    packed: str


def compare_all(subject: Subject, gpus: Sequence[str] = GPUS) -> list[Difference]:
    """Return all differences on machines with one of these GPUs each, sorted."""
    with ThreadPoolExecutor(WORKERS) as pool:
        found = pool.map(lambda gpu: list(compare(subject, gpu)), gpus)
        return sorted(difference for differences in found for difference in differences)


def compare(subject: Subject, gpu: str) -> Iterator[Difference]:
    """Run both on a machine with one GPU, touch all kernels, and iterate over the differences.

    Whatever is no matter of choice has to be the same: that the process ends well, which wrappers there are,
    and, for wrappers that get the same code, HIP's error codes.
    """
    fat, packed = _run(subject, subject.fat, gpu), _run(subject, subject.packed, gpu)
    assert {registration.magic for registration in packed.registrations} == {b"HIPK"}
    assert fat.device_code == packed.device_code
    assert _places(fat) == _places(packed)
    for library, place in _places(fat):
        key = 0, library, place
        before, after = fat.reached.get(key), packed.reached.get(key)
        if before == after:
            assert fat.codes.get(key) == packed.codes.get(key), (gpu, key)
        else:
            targets = [code[0] if code else "" for code in (before, after)]
            yield Difference(gpu=gpu, library=library, place=place, fat=targets[0], packed=targets[1])


def _run(subject: Subject, libraries: Sequence[Path], gpu: str) -> HipResult:
    result = run_hip(
        runtime=HipRuntime.KPACK,
        libraries=libraries,
        preload=subject.preload,
        gpus=[gpu],
        launch=gpu in ONE_STATE,
    )
    assert result.returncode == 0, (gpu, result.signal, result.stderr)
    assert result.load_errors == {}
    assert [code for code in result.loaded if code.status] == [], gpu
    assert all(TargetId.parse(code.target).serves(TargetId.parse(gpu)) for code in result.loaded)
    served = {key for key, codes in result.codes.items() if codes == (0,)}
    assert served >= result.reached.keys(), gpu
    launched = [(kernel.gpu, kernel.name) for kernel in result.launches if kernel.code == 0]
    assert sorted(result.executed) == sorted(launched), gpu
    return result


def _places(result: HipResult) -> list[tuple[str, int]]:
    return [(registration.path.name, registration.place) for registration in result.registrations]
