"""What `complete` lists, held against a plain model of the two loaders that choose code objects."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from kpack_build.processors import GENERIC_MEMBERS, PROCESSORS
from kpack_build.targets import TargetId, complete, feature_states, hip_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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

Objects = dict[int, frozenset[TargetId]]


def all_states(processor: str) -> Iterator[TargetId]:
    """Every state, full and partial, that a GPU may have: of processors that nobody knows, any."""
    known = PROCESSORS.get(processor)
    for sramecc, xnack in itertools.product(STATES, STATES):
        if known is None or ((sramecc is None or known.sramecc) and (xnack is None or known.xnack)):
            yield TargetId(processor=processor, sramecc=sramecc, xnack=xnack)


TARGETS = [state for name in (*AGENT_PROCESSORS, *GENERICS) for state in all_states(name)]
AGENTS = [state for name in AGENT_PROCESSORS for state in all_states(name)]

objects_of_a_wheel = st.dictionaries(
    st.integers(0, 4), st.frozensets(st.sampled_from(TARGETS), max_size=8), max_size=5
)


def parse_all(objects: Mapping[int, Iterable[str]]) -> Objects:
    return {wrapper: frozenset(map(TargetId.parse, texts)) for wrapper, texts in objects.items()}


def rocm_answer(
    listed: Mapping[TargetId, Mapping[int, TargetId]], agent: TargetId, wrapper: int
) -> TargetId | None:
    """Answer as ROCm's reader does: of all keys that it tries, the first that is listed decides."""
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
                return listed[key].get(wrapper)
    return None


def hip_answer(agent: TargetId, available: frozenset[TargetId]) -> TargetId | None:
    """Choose as HIP does: native before generic, then as many named features as fit."""
    fitting = [target for target in available if target.serves(agent)]
    return max(
        fitting,
        key=lambda target: (not target.is_generic, len(target.features), target.sramecc is not None),
        default=None,
    )


@given(objects_of_a_wheel)
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


@given(objects_of_a_wheel)
def test_each_object_answers_under_its_own_key(objects: Objects) -> None:
    listed = complete(objects)
    for wrapper, available in objects.items():
        for target in available:
            assert listed[target][wrapper] == target


@given(objects_of_a_wheel)
def test_no_object_answers_under_a_less_specific_key(objects: Objects) -> None:
    for key, answers in complete(objects).items():
        assert answers
        for answer in answers.values():
            assert answer.serves(key)


@given(objects_of_a_wheel)
def test_a_qualified_processor_is_listed_in_all_its_full_states(objects: Objects) -> None:
    listed = complete(objects)
    qualified = {
        target.processor for available in objects.values() for target in available if target.features
    }
    for processor in qualified:
        for state in feature_states(processor):
            served = any(hip_answer(state, available) for available in objects.values())
            assert (state in listed) == served


@given(objects_of_a_wheel)
def test_what_is_listed_does_not_depend_on_order(objects: Objects) -> None:
    backwards = dict(reversed(objects.items()))
    assert list(complete(objects)) == list(complete(backwards))
    assert complete(objects) == complete(backwards)


@given(st.sampled_from(AGENTS), st.frozensets(st.sampled_from(TARGETS), max_size=12))
def test_hips_choice_follows_the_model_but_for_states_that_the_generic_has_not(
    agent: TargetId, available: frozenset[TargetId]
) -> None:
    expected = hip_answer(agent, available)
    if expected is not None and expected.is_generic and agent.sramecc is not None:
        # Only gfx906 has a generic without sramecc; HIP 7.14 finds nothing there.
        expected = None if agent.processor == "gfx906" else expected
    assert hip_choice(agent, available) == expected


@given(st.sampled_from(TARGETS))
def test_target_ids_survive_their_text(target: TargetId) -> None:
    assert TargetId.parse(str(target)) == target
