from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kpack_build.runtime._serving import binaries_without, find_service
from tests.loaders import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILIES = {
    "gfx110x": ("gfx1100", "gfx1101"),
    "gfx9_0": ("gfx90a:xnack+", "gfx90a:xnack-", "gfx908:sramecc-:xnack+"),
    "gfx11-generic": ("gfx11-generic",),
    "gfx9-4-generic": ("gfx9-4-generic:xnack-",),
}


@pytest.mark.parametrize(
    ("target", "archive", "processor", "listed", "condition"),
    [
        ("gfx1100", 0, "gfx1100", ("gfx1100",), ""),
        ("gfx1102", 2, "gfx11-generic", ("gfx11-generic",), ""),
        ("gfx11-generic", 2, "gfx11-generic", ("gfx11-generic",), ""),
        ("gfx90a", 1, "gfx90a", ("gfx90a:xnack+", "gfx90a:xnack-"), ""),
        ("gfx90a:xnack-", 1, "gfx90a", ("gfx90a:xnack-",), ""),
        ("gfx908", 1, "gfx908", ("gfx908:sramecc-:xnack+",), "sramecc- xnack+"),
        ("gfx908:xnack+", 1, "gfx908", ("gfx908:sramecc-:xnack+",), "sramecc-"),
        ("gfx942", 3, "gfx9-4-generic", ("gfx9-4-generic:xnack-",), "xnack-"),
    ],
)
def test_a_gpu_is_served(  # noqa: PLR0917 - a row of the table
    use_table: Callable[[Recipe], None],
    target: str,
    archive: int,
    processor: str,
    listed: tuple[str, ...],
    condition: str,
) -> None:
    use_table(Recipe(families=FAMILIES))
    service = find_service(target, range(len(FAMILIES)))
    assert service is not None
    assert (service.archive, service.processor) == (archive, processor)
    assert (service.targets, service.condition) == (listed, condition)


@pytest.mark.parametrize(
    "target", ["gfx1030", "gfx908:xnack-", "gfx942:xnack+", "gfx110", "gfx11001", "gfx1170"]
)
def test_a_gpu_is_not_served(use_table: Callable[[Recipe], None], target: str) -> None:
    use_table(Recipe(families=FAMILIES))
    assert find_service(target, range(len(FAMILIES))) is None


def test_only_the_archives_asked_for_count(use_table: Callable[[Recipe], None]) -> None:
    use_table(Recipe(families=FAMILIES))
    service = find_service("gfx1100", [2, 3])
    assert service is not None
    assert service.processor == "gfx11-generic"
    assert find_service("gfx1100", []) is None


def test_binaries_without_code_are_named(use_table: Callable[[Recipe], None]) -> None:
    binaries = {"a.so": ("gfx1100",), "b.so": ("gfx1101", "gfx1100"), "c.so": ()}
    use_table(Recipe(families=FAMILIES, binaries=binaries))
    assert binaries_without(("gfx1100",)) == ("c.so",)
    assert binaries_without(("gfx1101",)) == ("a.so", "c.so")
    assert binaries_without(("gfx1101", "gfx1100")) == ("c.so",)
