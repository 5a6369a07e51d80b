"""What `complete` lists, held against a plain model of the two loaders that choose code objects."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from kpack_build.processors import GENERIC_MEMBERS, PROCESSORS
from kpack_build.targets import TargetId, complete, feature_states, hip_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hypothesis.strategies import DrawFn

AGENT_PROCESSORS = (
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1300",
)
GENERICS = ("gfx9-generic", "gfx9-4-generic", "gfx11-generic")
STATES = (None, False, True)

Objects = dict[int, list[TargetId]]


def all_states(processor: str) -> Iterator[TargetId]:
    """Every state, full and partial, that a GPU may have: of processors that nobody knows, any."""
    known = PROCESSORS.get(processor)
    for sramecc, xnack in itertools.product(STATES, STATES):
        if known is None or ((sramecc is None or known.sramecc) and (xnack is None or known.xnack)):
            yield TargetId(processor=processor, sramecc=sramecc, xnack=xnack)


TARGETS = [state for name in (*AGENT_PROCESSORS, *GENERICS) for state in all_states(name)]
AGENTS = [state for name in AGENT_PROCESSORS for state in all_states(name)]

#: Bundles with any targets, also such as compilers refuse.
any_bundles = st.lists(st.sampled_from(TARGETS), max_size=8, unique=True)


@st.composite
def compiled_bundles(draw: DrawFn) -> list[TargetId]:
    """Draw the targets of a bundle that compilers make: all of a processor name the same features."""
    targets = []
    for processor in draw(st.sets(st.sampled_from((*AGENT_PROCESSORS, *GENERICS)), max_size=5)):
        states = list(all_states(processor))
        one = draw(st.sampled_from(states))
        alike = [state for state in states if _named(state) == _named(one)]
        targets += draw(st.lists(st.sampled_from(alike), min_size=1, unique=True))
    return draw(st.permutations(targets))


def _named(target: TargetId) -> tuple[bool, bool]:
    return target.sramecc is not None, target.xnack is not None


def wheels(bundles: st.SearchStrategy[list[TargetId]]) -> st.SearchStrategy[Objects]:
    """Draw the targets of each wrapper of a wheel."""
    return st.lists(bundles, max_size=5).map(lambda drawn: dict(enumerate(drawn)))


def parse_all(objects: Mapping[int, Iterable[str]]) -> Objects:
    return {wrapper: [TargetId.parse(text) for text in texts] for wrapper, texts in objects.items()}


def rocm_key(listed: Mapping[TargetId, object], agent: TargetId) -> TargetId | None:
    """Return the key under which ROCm's reader looks: of all that it tries, the first that is listed."""
    generics = [generic for generic, members in GENERIC_MEMBERS.items() if agent.processor in members]
    for processor in [agent.processor, *generics]:
        for sramecc, xnack in (
            (agent.sramecc, agent.xnack),
            (agent.sramecc, None),
            (None, agent.xnack),
            (None, None),
        ):
            key = TargetId(processor=processor, sramecc=sramecc, xnack=xnack)
            if key in listed:
                return key
    return None


def rocm_answer(
    listed: Mapping[TargetId, Mapping[int, TargetId]], agent: TargetId, wrapper: int
) -> TargetId | None:
    key = rocm_key(listed, agent)
    return None if key is None else listed[key].get(wrapper)


def hip_answer(agent: TargetId, available: Sequence[TargetId]) -> TargetId | None:
    """Choose as HIP does: native before generic, then the first that fits."""
    fitting = [target for target in available if target.serves(agent)]
    return min(fitting, key=lambda target: target.is_generic, default=None)


@given(wheels(compiled_bundles()))
@example(parse_all({0: ["gfx90a:xnack-"], 1: ["gfx90a"]}))
@example(parse_all({0: ["gfx1100"], 1: ["gfx11-generic"]}))
@example(parse_all({0: ["gfx90a:sramecc+"], 1: ["gfx90a:xnack-"], 2: ["gfx90a"]}))
@example(parse_all({0: ["gfx942"], 1: ["gfx9-4-generic:xnack-"], 2: ["gfx942:sramecc+"]}))
@example(parse_all({0: ["gfx942:xnack-"], 1: ["gfx9-4-generic"]}))
def test_rocms_reader_gives_every_gpu_what_hip_would_choose(objects: Objects) -> None:
    listed = complete(objects)
    for wrapper, available in objects.items():
        for agent in AGENTS:
            assert rocm_answer(listed, agent, wrapper) == hip_answer(agent, available), (agent, wrapper)


@given(wheels(any_bundles))
def test_bundles_that_no_compiler_makes_differ_at_most_under_an_objects_own_key(objects: Objects) -> None:
    listed = complete(objects)
    for wrapper, available in objects.items():
        for agent in AGENTS:
            key, found = rocm_key(listed, agent), rocm_answer(listed, agent, wrapper)
            assert found == (key if key in available else hip_answer(agent, available)), (agent, wrapper)


@given(wheels(any_bundles))
def test_each_object_answers_under_its_own_key(objects: Objects) -> None:
    listed = complete(objects)
    for wrapper, available in objects.items():
        for target in available:
            assert listed[target][wrapper] == target


@given(wheels(any_bundles))
def test_no_object_answers_under_a_less_specific_key(objects: Objects) -> None:
    for key, answers in complete(objects).items():
        assert answers
        for answer in answers.values():
            assert answer.serves(key)


@given(wheels(any_bundles))
def test_a_qualified_processor_is_listed_in_all_its_full_states(objects: Objects) -> None:
    listed = complete(objects)
    qualified = {
        target.processor for available in objects.values() for target in available if target.features
    }
    for processor in qualified:
        for state in feature_states(processor):
            served = any(hip_answer(state, available) for available in objects.values())
            assert (state in listed) == served


@given(wheels(any_bundles))
def test_what_is_listed_does_not_depend_on_order(objects: Objects) -> None:
    backwards = dict(reversed(objects.items()))
    assert list(complete(objects)) == list(complete(backwards))
    assert complete(objects) == complete(backwards)


@given(st.sampled_from(AGENTS), any_bundles)
def test_hips_choice_follows_the_model_but_for_states_that_the_generic_has_not(
    agent: TargetId, available: list[TargetId]
) -> None:
    expected = hip_answer(agent, available)
    if expected is not None and expected.is_generic and agent.sramecc is not None:
        # Only gfx906 has a generic without sramecc; HIP 7.14 finds nothing there.
        expected = None if agent.processor == "gfx906" else expected
    assert hip_choice(agent, available) == expected


@given(st.sampled_from(TARGETS))
def test_target_ids_survive_their_text(target: TargetId) -> None:
    assert TargetId.parse(str(target)) == target
