"""Whatever a wheel has code for: the plan of its archives gives every GPU what HIP would choose.

ROCm's reader is played here as `kpack_build.targets.lookup_order` describes it; that the real one does the
same is what `tests/integration/test_completion.py` holds.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from kpack_build.assignment import ObjectKey, plan_archives
from kpack_build.layout import Home
from kpack_build.targets import GroupBy, TargetId, feature_states, hip_choice, lookup_order
from tests.binaries import binary_of

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from kpack_build.assignment import Plan
    from kpack_build.scan import ScannedBinary

__all__: list[str] = []

NATIVE = ("gfx90a", "gfx942", "gfx906", "gfx1100", "gfx1101", "gfx1999")
GENERIC = ("gfx9-4-generic", "gfx11-generic", "gfx9-generic")
FEATURES = ("", ":xnack-", ":xnack+", ":sramecc+:xnack-", ":sramecc-")
HOMES = (Home(folder="pkg", is_package=True), Home(folder="plugins", is_package=False))
PLAIN = {"gfx1100", "gfx1101", "gfx11-generic", "gfx1999"}


@st.composite
def units(draw: DrawFn) -> list[str]:
    """Draw the targets of a bundle: of a processor all name the same features, as compilers demand."""
    targets = []
    for processor in draw(st.lists(st.sampled_from(NATIVE + GENERIC), max_size=4, unique=True)):
        if processor in PLAIN:
            targets.append(processor)
        elif draw(st.booleans()):
            targets += [
                f"{processor}:xnack{state}" for state in draw(st.sampled_from(["+", "-", "+-", "-+"]))
            ]
        else:
            targets.append(processor + draw(st.sampled_from(FEATURES)))
    return draw(st.permutations(targets))


@st.composite
def wheels(draw: DrawFn) -> list[ScannedBinary]:
    binaries = []
    for number in range(draw(st.integers(1, 3))):
        home = draw(st.sampled_from(HOMES))
        bundles = draw(st.lists(units(), min_size=1, max_size=3))
        wrappers = draw(st.lists(st.sampled_from([*range(len(bundles)), None]), min_size=1, max_size=4))
        path = f"{home.folder}/{number}.so"
        binaries.append(binary_of(path, home, bundles, wrappers=wrappers))
    return binaries


def answers_of(plan: Plan, path: str) -> dict[tuple[int, TargetId], ObjectKey]:
    """Return which object answers each wrapper of a binary under each target."""
    found: dict[tuple[int, TargetId], ObjectKey] = {}
    for key, places in plan.placements.items():
        for place in places:
            if place.wrapper.path == path:
                assert (place.wrapper.index, place.target) not in found
                found[place.wrapper.index, place.target] = key
    return found


def listed_for(plan: Plan, path: str) -> set[TargetId]:
    """Return what the archives on a binary's search paths list: those that hold anything for it."""
    used = {
        place.archive for places in plan.placements.values() for place in places if place.wrapper.path == path
    }
    return {target for number in used for target in plan.archives[number].targets}


@given(binaries=wheels(), group_by=st.sampled_from(GroupBy))
def test_every_gpu_gets_what_hip_would_choose(binaries: list[ScannedBinary], group_by: GroupBy) -> None:
    plan = plan_archives(binaries, group_by=group_by, wanted=None)
    agents = [agent for processor in NATIVE for agent in feature_states(processor)]
    for scanned in binaries:
        answers, listed = answers_of(plan, scanned.path), listed_for(plan, scanned.path)
        for wrapper, agent in itertools.product(scanned.binary.wrappers, agents):
            if wrapper.bundle is None:
                continue
            entries = scanned.binary.bundles[wrapper.bundle].entries
            targets = [entry.target for entry in entries if entry.target is not None]
            choice = hip_choice(agent, targets)
            if choice is None:
                continue
            stop = next(key for key in lookup_order(agent) if key in listed)
            expected = ObjectKey(scanned.path, wrapper.bundle, targets.index(choice))
            assert answers.get((wrapper.index, stop)) == expected


@given(binaries=wheels(), group_by=st.sampled_from(GroupBy))
def test_all_keys_of_a_processor_lie_in_one_archive_of_a_home(
    binaries: list[ScannedBinary], group_by: GroupBy
) -> None:
    plan = plan_archives(binaries, group_by=group_by, wanted=None)
    archives: defaultdict[tuple[Home, str], set[int]] = defaultdict(set)
    placed: defaultdict[int, set[TargetId]] = defaultdict(set)
    for number, archive in enumerate(plan.archives):
        assert len(set(archive.targets)) == len(archive.targets)
        for target in archive.targets:
            archives[archive.home, target.processor].add(number)
    assert all(len(numbers) == 1 for numbers in archives.values())
    for places in plan.placements.values():
        for place in places:
            placed[place.archive].add(place.target)
    assert placed == {number: set(archive.targets) for number, archive in enumerate(plan.archives)}
    names = [(archive.home, archive.family) for archive in plan.archives]
    assert len(set(names)) == len(names)


@given(binaries=wheels(), group_by=st.sampled_from(GroupBy))
def test_each_original_target_answers_with_its_own_object(
    binaries: list[ScannedBinary], group_by: GroupBy
) -> None:
    plan = plan_archives(binaries, group_by=group_by, wanted=None)
    for scanned in binaries:
        answers = answers_of(plan, scanned.path)
        for wrapper in scanned.binary.wrappers:
            if wrapper.bundle is None:
                continue
            for number, entry in enumerate(scanned.binary.bundles[wrapper.bundle].entries):
                assert entry.target is not None
                key = ObjectKey(scanned.path, wrapper.bundle, number)
                assert answers[wrapper.index, entry.target] == key
                assert plan.placements[key][0].target == entry.target


@given(binaries=wheels(), group_by=st.sampled_from(GroupBy), data=st.data())
def test_what_is_not_wanted_is_nowhere(
    binaries: list[ScannedBinary], group_by: GroupBy, data: st.DataObject
) -> None:
    wanted = frozenset(data.draw(st.lists(st.sampled_from(NATIVE), min_size=1)))
    plan = plan_archives(binaries, group_by=group_by, wanted=wanted)
    whole = plan_archives(binaries, group_by=group_by, wanted=None)
    assert plan.placements.keys() <= whole.placements.keys()
    for key, places in plan.placements.items():
        own = places[0].target
        assert any(own.processor in (name, *map(_generic, [name])) for name in wanted), key


def _generic(processor: str) -> str | None:
    return next(
        (key.processor for key in lookup_order(TargetId.parse(processor)) if key.processor != processor), None
    )
