"""What `complete` lists, asked of ROCm's own reader: every GPU gets what HIP would choose."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kpack_build.archive import PackedKernelArchive
from kpack_build.processors import PROCESSORS
from kpack_build.targets import GroupBy, TargetId, complete, group_key, hip_choice, lookup_order
from tests.rocm import RocmKpackCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hypothesis.strategies import DrawFn

pytestmark = [pytest.mark.corpus, pytest.mark.rocm]

NATIVE = ("gfx90a", "gfx942", "gfx1100", "gfx1101")
GENERIC = ("gfx9-4-generic", "gfx11-generic")
KERNEL_NAME = "package/library.so"

Objects = dict[int, list[TargetId]]


def all_states(processor: str) -> list[TargetId]:
    known = PROCESSORS[processor]
    return [
        TargetId(processor=processor, sramecc=sramecc, xnack=xnack)
        for sramecc, xnack in itertools.product(
            (None, False, True) if known.sramecc else (None,), (None, False, True) if known.xnack else (None,)
        )
    ]


TARGETS = [state for name in (*NATIVE, *GENERIC) for state in all_states(name)]
AGENTS = [state for name in NATIVE for state in all_states(name)]


@st.composite
def wheels(draw: DrawFn) -> Objects:
    """Draw the targets of each wrapper of a wheel, of a processor always such as name the same features."""
    objects = {}
    for wrapper in range(draw(st.integers(1, 3))):
        drawn = draw(st.lists(st.sampled_from(TARGETS), max_size=5, unique=True))
        first = {target.processor: _named(target) for target in reversed(drawn)}
        objects[wrapper] = [target for target in drawn if _named(target) == first[target.processor]]
    return objects


def _named(target: TargetId) -> tuple[bool, bool]:
    return target.sramecc is not None, target.xnack is not None


def parse_all(objects: Mapping[int, Iterable[str]]) -> Objects:
    return {wrapper: [TargetId.parse(text) for text in texts] for wrapper, texts in objects.items()}


def code_of(wrapper: int, target: TargetId) -> bytes:
    return f"code {wrapper} for {target}".encode()


def write_archives(directory: Path, objects: Objects, group_by: GroupBy) -> list[str]:
    """Write what is listed for the objects, a group to an archive; return the file names."""
    families: defaultdict[str, dict[TargetId, dict[int, TargetId]]] = defaultdict(dict)
    for key, answers in complete(objects).items():
        families[group_key(key.processor, group_by)][key] = answers
    for family, listed in families.items():
        path = directory / f"g-{family}.kpack"
        with PackedKernelArchive("g", family, [str(key) for key in listed], output_path=path) as archive:
            for key, answers in listed.items():
                for wrapper, target in answers.items():
                    name, code = f"{KERNEL_NAME}#{wrapper}", code_of(wrapper, target)
                    archive.add_kernel(archive.prepare_kernel(name, str(key), code))
    return [f"g-{family}.kpack" for family in families]


def check(objects: Objects, group_by: GroupBy, *, backwards: bool) -> None:
    with tempfile.TemporaryDirectory() as name, RocmKpackCache() as cache:
        files = sorted(write_archives(Path(name), objects, group_by), reverse=backwards)
        metadata = msgpack.packb({"kernel_name": KERNEL_NAME, "kpack_search_paths": files})
        for wrapper, agent in itertools.product(objects, AGENTS):
            keys = [str(key) for key in lookup_order(agent)]
            found = cache.load_code_object(metadata, Path(name, "library.so"), wrapper, keys)
            choice = hip_choice(agent, objects[wrapper])
            if choice is None:
                assert isinstance(found, int), (agent, wrapper, found)
            else:
                assert found == code_of(wrapper, choice), (agent, wrapper, found)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(objects=wheels(), group_by=st.sampled_from(GroupBy), backwards=st.booleans())
@example(
    objects=parse_all({0: ["gfx90a:xnack-"], 1: ["gfx90a"]}), group_by=GroupBy.SUB_FAMILY, backwards=False
)
@example(
    objects=parse_all({0: ["gfx1100"], 1: ["gfx11-generic"]}), group_by=GroupBy.SUB_FAMILY, backwards=False
)
@example(objects=parse_all({0: ["gfx1100"], 1: ["gfx11-generic"]}), group_by=GroupBy.TARGET, backwards=True)
@example(
    objects=parse_all({0: ["gfx942"], 1: ["gfx9-4-generic:xnack-"]}),
    group_by=GroupBy.FAMILY,
    backwards=False,
)
def test_rocms_reader_gives_every_gpu_what_hip_would_choose(
    *, objects: Objects, group_by: GroupBy, backwards: bool
) -> None:
    check(objects, group_by, backwards=backwards)


def test_the_reader_really_stops_at_the_first_key_that_is_listed(tmp_path: Path) -> None:
    """Without completion a wrapper is lost; should this fail one day, readers have become better."""
    archive = PackedKernelArchive("g", "gfx9_0", ["gfx90a:xnack-", "gfx90a"], tmp_path / "g-gfx9_0.kpack")
    with archive:
        archive.add_kernel(archive.prepare_kernel(f"{KERNEL_NAME}#0", "gfx90a:xnack-", b"first"))
        archive.add_kernel(archive.prepare_kernel(f"{KERNEL_NAME}#1", "gfx90a", b"second"))
    metadata = msgpack.packb({"kernel_name": KERNEL_NAME, "kpack_search_paths": ["g-gfx9_0.kpack"]})
    keys = [str(key) for key in lookup_order(TargetId.parse("gfx90a:sramecc+:xnack-"))]
    with RocmKpackCache() as cache:
        assert cache.load_code_object(metadata, tmp_path / "library.so", 0, keys) == b"first"
        assert isinstance(cache.load_code_object(metadata, tmp_path / "library.so", 1, keys), int)
