"""Which archive holds which code object, and under which keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kpack_build.assignment import ObjectKey, Placement, WrapperKey, is_wanted, plan_archives
from kpack_build.layout import Home
from kpack_build.targets import GroupBy, TargetId
from tests.binaries import binary_of

if TYPE_CHECKING:
    from kpack_build.assignment import Plan

HOME = Home(folder="pkg", is_package=True)
LIB = "pkg/lib.so"


def target(text: str) -> TargetId:
    return TargetId.parse(text)


def keys_of(plan: Plan) -> list[tuple[str, ...]]:
    return [tuple(map(str, archive.targets)) for archive in plan.archives]


def plan(
    *units: tuple[str, ...], group_by: GroupBy = GroupBy.SUB_FAMILY, wanted: frozenset[str] | None = None
) -> Plan:
    return plan_archives([binary_of(LIB, HOME, units)], group_by=group_by, wanted=wanted)


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("gfx90a:xnack-", None, True),
        ("gfx90a:xnack-", {"gfx90a"}, True),
        ("gfx90a:xnack-", {"gfx90a:xnack-"}, True),
        ("gfx90a:xnack-", {"gfx90a:xnack+"}, False),
        ("gfx90a", {"gfx90a:xnack-"}, False),
        ("gfx11-generic", {"gfx1103"}, True),
        ("gfx11-generic", {"gfx11-generic"}, True),
        ("gfx11-generic", {"gfx1200"}, False),
        ("gfx1100", {"gfx11-generic"}, False),
        ("gfx1999", {"gfx1999"}, True),
    ],
)
def test_what_is_wanted(found: str, wanted: set[str] | None, expected: bool) -> None:  # noqa: FBT001
    assert is_wanted(target(found), None if wanted is None else frozenset(wanted)) is expected


@pytest.mark.parametrize(
    ("group_by", "families"),
    [
        (GroupBy.TARGET, ["gfx1100", "gfx1101", "gfx90a"]),
        (GroupBy.SUB_FAMILY, ["gfx110x", "gfx9_0"]),
        (GroupBy.FAMILY, ["gfx11", "gfx9"]),
    ],
)
def test_groups(group_by: GroupBy, families: list[str]) -> None:
    found = plan(("gfx1101", "gfx90a"), ("gfx1100",), group_by=group_by)
    assert [archive.family for archive in found.archives] == families
    assert found.group_by is group_by


def test_all_variants_of_a_processor_lie_in_one_archive() -> None:
    found = plan(("gfx90a:xnack+", "gfx90a:xnack-"), ("gfx90a",), group_by=GroupBy.TARGET)
    [keys] = keys_of(found)
    assert {"gfx90a", "gfx90a:xnack+", "gfx90a:xnack-", "gfx90a:sramecc-:xnack+"} <= set(keys)


def test_bare_object_answers_under_every_qualified_key() -> None:
    found = plan(("gfx90a:xnack-",), ("gfx90a",))
    bare = {str(place.target) for place in found.placements[ObjectKey(LIB, 1, 0)]}
    qualified = {str(place.target) for place in found.placements[ObjectKey(LIB, 0, 0)]}
    [keys] = keys_of(found)
    assert bare == set(keys)
    assert qualified == {"gfx90a:xnack-", "gfx90a:sramecc+:xnack-", "gfx90a:sramecc-:xnack-"}


def test_first_placement_is_under_the_own_target() -> None:
    found = plan(("gfx90a", "gfx11-generic"), ("gfx90a:xnack-", "gfx1100"))
    for key, places in found.placements.items():
        own = (("gfx90a", "gfx11-generic"), ("gfx90a:xnack-", "gfx1100"))[key.bundle][key.entry]
        assert str(places[0].target) == own
        assert len(set(places)) == len(places)


def test_generic_object_is_placed_beside_native_ones_too() -> None:
    found = plan(("gfx1100",), ("gfx11-generic",))
    assert [archive.family for archive in found.archives] == ["gfx11-generic", "gfx110x"]
    wrapper = WrapperKey(LIB, 1)
    assert found.placements[ObjectKey(LIB, 1, 0)] == (
        Placement(archive=0, wrapper=wrapper, target=target("gfx11-generic")),
        Placement(archive=1, wrapper=wrapper, target=target("gfx1100")),
    )


def test_wrappers_of_one_bundle_share_its_objects() -> None:
    shared = binary_of(LIB, HOME, [("gfx1100",)], wrappers=(0, 0, None))
    found = plan_archives([shared], group_by=GroupBy.SUB_FAMILY, wanted=None)
    [places] = found.placements.values()
    assert {place.wrapper.toc_key for place in places} == {f"{LIB}#0", f"{LIB}#1"}


def test_filter() -> None:
    found = plan(("gfx1100", "gfx90a"), ("gfx90a",), wanted=frozenset({"gfx1100"}))
    assert keys_of(found) == [("gfx1100",)]
    assert list(found.placements) == [ObjectKey(LIB, 0, 0)]
    assert plan(("gfx90a",), wanted=frozenset({"gfx1100"})).archives == ()


def test_homes_have_archives_of_their_own() -> None:
    other = Home(folder="other", is_package=False)
    found = plan_archives(
        [binary_of(LIB, HOME, [("gfx90a:xnack-",)]), binary_of("other/x.so", other, [("gfx90a",)])],
        group_by=GroupBy.SUB_FAMILY,
        wanted=None,
    )
    assert [archive.home for archive in found.archives] == [other, HOME]
    # Nothing is completed across homes: a binary's search paths never leave its own.
    assert found.archives[0].targets == (target("gfx90a"),)
    assert target("gfx90a") not in found.archives[1].targets
