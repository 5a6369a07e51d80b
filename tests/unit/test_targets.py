from __future__ import annotations

import pytest
from rocm_bootstrap.targets import ALL_TARGETS

from kpack_build.errors import TargetError
from kpack_build.processors import GENERIC_MEMBERS, PROCESSOR_OF_MACH, PROCESSORS
from kpack_build.targets import (
    GroupBy,
    TargetId,
    complete,
    feature_states,
    generic_of,
    group_key,
    hip_choice,
    is_known,
    lookup_order,
)


def target(text: str) -> TargetId:
    return TargetId.parse(text)


def targets(*texts: str) -> list[TargetId]:
    return [TargetId.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gfx1100", TargetId(processor="gfx1100")),
        ("gfx90a:sramecc+:xnack-", TargetId(processor="gfx90a", sramecc=True, xnack=False)),
        ("gfx90a:xnack+", TargetId(processor="gfx90a", xnack=True)),
        ("gfx90c", TargetId(processor="gfx90c")),
        ("gfx9-4-generic:sramecc-", TargetId(processor="gfx9-4-generic", sramecc=False)),
        ("gfx1250-strict", TargetId(processor="gfx1250-strict")),
        ("gfx9999", TargetId(processor="gfx9999")),
    ],
)
def test_target_ids_are_parsed_and_written_back(text: str, expected: TargetId) -> None:
    assert target(text) == expected
    assert str(expected) == text


def test_features_are_written_in_llvms_order() -> None:
    assert str(target("gfx90a:xnack-:sramecc+")) == "gfx90a:sramecc+:xnack-"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gfx",
        "sm_90",
        "GFX1100",
        "gfx1100 ",
        "gfx90a:",
        "gfx90a:xnack",
        "gfx90a:tgsplit+",
        "gfx90a:xnack+:xnack-",
        "gfx90a:xnack+:xnack+",
        "gfx90a:sramecc+:xnack-:xnack-",
        "gfx90a-",
        "gfx1100\n",
        "gfx\u0661",
        "amdgcnspirv",
        "../gfx1100",
    ],
)
def test_what_is_no_target_id_is_refused(text: str) -> None:
    with pytest.raises(TargetError) as raised:
        target(text)
    assert raised.value.text == text


def test_features() -> None:
    assert target("gfx90a:sramecc+:xnack-").features == {"sramecc+", "xnack-"}
    assert target("gfx90a").features == frozenset()


def test_target_ids_are_ordered_by_text() -> None:
    unsorted = targets("gfx90a:xnack-", "gfx1100", "gfx90a", "gfx90a:sramecc+")
    assert [str(item) for item in sorted(unsorted)] == [
        "gfx1100",
        "gfx90a",
        "gfx90a:sramecc+",
        "gfx90a:xnack-",
    ]


def test_generic_targets_are_told_by_name() -> None:
    assert target("gfx11-generic").is_generic
    assert target("gfx99-9-generic").is_generic
    assert not target("gfx1100").is_generic


@pytest.mark.parametrize(
    ("code", "agent", "runs"),
    [
        ("gfx90a", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", False),
        # A device that reports no xnack state refuses code that names one (ROCm/rocm-libraries#11211).
        ("gfx90c:xnack-", "gfx90c", False),
        ("gfx11-generic", "gfx1151", True),
        ("gfx11-generic", "gfx1200", False),
        ("gfx9-4-generic:xnack-", "gfx942:sramecc+:xnack-", True),
        ("gfx1100", "gfx1101", False),
        ("gfx1100", "gfx11-generic", False),
    ],
)
def test_serves(code: str, agent: str, runs: bool) -> None:  # noqa: FBT001 - a column of the table
    assert target(code).serves(target(agent)) is runs


@pytest.mark.parametrize(
    ("processor", "group_by", "key"),
    [
        ("gfx1100", GroupBy.TARGET, "gfx1100"),
        ("gfx1100", GroupBy.SUB_FAMILY, "gfx110x"),
        ("gfx1100", GroupBy.FAMILY, "gfx11"),
        ("gfx90a:sramecc+:xnack-", GroupBy.TARGET, "gfx90a"),
        ("gfx90a:xnack-", GroupBy.SUB_FAMILY, "gfx9_0"),
        ("gfx1250-strict", GroupBy.TARGET, "gfx1250"),
        ("gfx9-4-generic", GroupBy.SUB_FAMILY, "gfx9-4-generic"),
        ("gfx11-generic", GroupBy.FAMILY, "gfx11-generic"),
        ("gfx803", GroupBy.SUB_FAMILY, "gfx803"),
        ("gfx940", GroupBy.FAMILY, "gfx940"),
        ("gfx1300", GroupBy.FAMILY, "gfx1300"),
    ],
)
def test_group_keys(processor: str, group_by: GroupBy, key: str) -> None:
    assert group_key(processor, group_by) == key


@pytest.mark.parametrize("group_by", GroupBy)
def test_group_keys_can_be_part_of_a_file_name(group_by: GroupBy) -> None:
    keys = {group_key(f"{name}:sramecc+:xnack-", group_by) for name in PROCESSORS}
    assert not {key for key in keys if set(key) & set(":+/\\ ")}


def test_which_names_fall_back() -> None:
    assert is_known("gfx1100")
    assert is_known("gfx90a:xnack-")
    assert is_known("gfx11-generic")
    assert not is_known("gfx803")
    assert not is_known("gfx1300")


def test_rocm_bootstraps_targets_are_all_in_the_table() -> None:
    assert {item.name for item in ALL_TARGETS} <= PROCESSORS.keys()


def test_members_of_generics_are_processors_with_features_that_the_generic_has() -> None:
    for generic, members in GENERIC_MEMBERS.items():
        for member in members:
            assert generic_of(member) == generic
            assert PROCESSORS[member].xnack == PROCESSORS[generic].xnack, member
            # gfx906 has sramecc and gfx9-generic has not: the one exception, and a known one.
            assert PROCESSORS[member].sramecc == PROCESSORS[generic].sramecc or member == "gfx906"
    assert generic_of("gfx90a") is None


def test_numbers_are_unique() -> None:
    assert len(PROCESSOR_OF_MACH) == len(PROCESSORS) - 1
    assert PROCESSOR_OF_MACH[PROCESSORS["gfx1250-strict"].mach].name == "gfx1250"


@pytest.mark.parametrize(
    ("processor", "states"),
    [
        ("gfx1030", ["gfx1030"]),
        ("gfx1300", ["gfx1300"]),
        ("gfx900", ["gfx900:xnack-", "gfx900:xnack+"]),
        (
            "gfx942",
            [
                "gfx942:sramecc-:xnack-",
                "gfx942:sramecc-:xnack+",
                "gfx942:sramecc+:xnack-",
                "gfx942:sramecc+:xnack+",
            ],
        ),
    ],
)
def test_feature_states(processor: str, states: list[str]) -> None:
    assert [str(state) for state in feature_states(processor)] == states


def test_lookup_order_is_that_of_rocms_reader() -> None:
    assert lookup_order(target("gfx942:sramecc+:xnack-")) == tuple(
        targets(
            "gfx942:sramecc+:xnack-",
            "gfx942:sramecc+",
            "gfx942:xnack-",
            "gfx942",
            "gfx9-4-generic:sramecc+:xnack-",
            "gfx9-4-generic:sramecc+",
            "gfx9-4-generic:xnack-",
            "gfx9-4-generic",
        )
    )
    assert lookup_order(target("gfx90a:xnack-")) == tuple(targets("gfx90a:xnack-", "gfx90a"))
    assert lookup_order(target("gfx1300")) == tuple(targets("gfx1300"))


@pytest.mark.parametrize(
    ("agent", "available", "choice"),
    [
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack+", "gfx90a:xnack-"], "gfx90a:xnack-"),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack+"], None),
        ("gfx90a:sramecc+:xnack-", ["gfx90a"], "gfx90a"),
        # No compiler puts these into one bundle; HIP takes the first that fits.
        ("gfx90a:sramecc+:xnack-", ["gfx90a", "gfx90a:xnack-"], "gfx90a"),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack-", "gfx90a:sramecc+"], "gfx90a:xnack-"),
        ("gfx1151", ["gfx11-generic", "gfx1151"], "gfx1151"),
        ("gfx1151", ["gfx11-generic", "gfx1150"], "gfx11-generic"),
        ("gfx942:sramecc+:xnack-", ["gfx9-4-generic:xnack-"], "gfx9-4-generic:xnack-"),
        ("gfx900:xnack-", ["gfx9-generic"], "gfx9-generic"),
        # Seen with HIP 7.14: gfx9-generic:sramecc+:xnack- is no target that it knows.
        ("gfx906:sramecc+:xnack-", ["gfx9-generic"], None),
        ("gfx906", ["gfx9-generic"], "gfx9-generic"),
        ("gfx1100", [], None),
    ],
)
def test_hips_choice(agent: str, available: list[str], choice: str | None) -> None:
    assert hip_choice(target(agent), targets(*available)) == (None if choice is None else target(choice))


def listed(objects: dict[int, list[str]]) -> dict[str, dict[int, str]]:
    completed = complete({wrapper: targets(*texts) for wrapper, texts in objects.items()})
    return {
        str(key): {wrapper: str(answer) for wrapper, answer in answers.items()}
        for key, answers in completed.items()
    }


def test_plain_targets_need_no_completion() -> None:
    assert listed({0: ["gfx1100", "gfx1030"], 1: ["gfx1100"]}) == {
        "gfx1030": {0: "gfx1030"},
        "gfx1100": {0: "gfx1100", 1: "gfx1100"},
    }


def test_bare_objects_are_repeated_under_the_full_states() -> None:
    completed = listed({0: ["gfx90a:xnack-"], 1: ["gfx90a"]})
    assert completed == {
        "gfx90a": {1: "gfx90a"},
        "gfx90a:xnack-": {0: "gfx90a:xnack-", 1: "gfx90a"},
        "gfx90a:sramecc-:xnack-": {0: "gfx90a:xnack-", 1: "gfx90a"},
        "gfx90a:sramecc+:xnack-": {0: "gfx90a:xnack-", 1: "gfx90a"},
        "gfx90a:sramecc-:xnack+": {1: "gfx90a"},
        "gfx90a:sramecc+:xnack+": {1: "gfx90a"},
    }


def test_generic_objects_are_repeated_under_native_targets() -> None:
    assert listed({0: ["gfx1100"], 1: ["gfx11-generic"]}) == {
        "gfx11-generic": {1: "gfx11-generic"},
        "gfx1100": {0: "gfx1100", 1: "gfx11-generic"},
    }


def test_generic_objects_with_features_qualify_the_native_target() -> None:
    completed = listed({0: ["gfx942"], 1: ["gfx9-4-generic:xnack+"]})
    assert completed["gfx942"] == {0: "gfx942"}
    assert completed["gfx942:sramecc+:xnack+"] == {0: "gfx942", 1: "gfx9-4-generic:xnack+"}
    assert completed["gfx942:xnack+"] == {0: "gfx942", 1: "gfx9-4-generic:xnack+"}


def test_a_key_without_an_answer_is_not_listed() -> None:
    completed = listed({0: ["gfx90a:xnack-"]})
    assert {key for key in completed if "xnack+" in key} == set()


def test_unknown_processors_are_completed_by_the_features_that_they_name() -> None:
    completed = listed({0: ["gfx1300:xnack-"], 1: ["gfx1300:xnack+"], 2: ["gfx1300"]})
    assert completed == {
        "gfx1300": {2: "gfx1300"},
        "gfx1300:xnack-": {0: "gfx1300:xnack-", 2: "gfx1300"},
        "gfx1300:xnack+": {1: "gfx1300:xnack+", 2: "gfx1300"},
    }


def test_objects_that_hip_never_chooses_stay_under_their_own_key() -> None:
    completed = listed({0: ["gfx90a", "gfx90a:xnack-"]})
    assert completed["gfx90a:xnack-"] == {0: "gfx90a:xnack-"}
    assert completed["gfx90a:sramecc+:xnack-"] == {0: "gfx90a"}


def test_completion_of_nothing() -> None:
    assert complete({}) == {}
    assert complete({0: []}) == {}
