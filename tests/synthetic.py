"""Fat libraries and wheels made from nothing, as small as can be packed.

A library has one wrapper for each unit, and each unit names its targets. All code objects of a wheel are
different, unless a seed is used twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kpack_build.bundle import CcobMethod, write_bundle, write_ccob
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import entry_id, fat_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["code_of", "compressed", "fat_library", "with_entry", "without_device_code"]


def code_of(target: str, targets: Sequence[str], *, seed: int = 0) -> bytes:
    """Return the code object that a unit with these targets has for one of them."""
    return dict(fat_entries(targets, seed=seed))[entry_id(target)]


def fat_library(
    *units: Sequence[str], seed: int = 0, encoded: bool = False, options: ElfOptions | None = None
) -> bytes:
    """Return a library with a wrapper and a bundle for each unit.

    Args:
        units: The targets of each unit.
        seed: The first unit's seed; each further unit has the next one.
        encoded: Whether the bundles are compressed.
        options: What else the library is like.
    """
    bundles = [write_bundle(fat_entries(targets, seed=seed + number)) for number, targets in enumerate(units)]
    if encoded:
        bundles = [compressed(bundle) for bundle in bundles]
    return build_elf(
        replace(options or ElfOptions(), bundles=tuple(bundles), wrappers=tuple(range(len(units))))
    )


def compressed(bundle: bytes) -> bytes:
    """Return a bundle compressed as compilers do it today."""
    return write_ccob(bundle, version=3, method=CcobMethod.ZSTD, level=3)


def with_entry(name: str, data: bytes, *targets: str) -> bytes:
    """Return a library with one bundle that has another entry in front of those for its targets."""
    return build_elf(ElfOptions(bundles=(write_bundle([(name, data), *fat_entries(targets)]),)))


def without_device_code() -> bytes:
    """Return a library that has nothing for a GPU."""
    return build_elf(ElfOptions(bundles=(), wrappers=(), pointers="none", fatbin_name=".rodata.more"))
