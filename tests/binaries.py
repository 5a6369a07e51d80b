"""Binaries that exist in name only, for what plans archives without reading a byte of device code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kpack_build.bundle import BundleEntry, EntryKind
from kpack_build.hostbinary import Wrapper
from kpack_build.scan import ScannedBinary
from kpack_build.targets import TargetId
from tests.fixtures.bundles import entry_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpack_build.hostbinary import HostBinary
    from kpack_build.layout import Home

__all__ = ["binary_of"]


@dataclass(frozen=True, slots=True)
class _NamedBundle:
    entries: tuple[BundleEntry, ...]


@dataclass(frozen=True, slots=True)
class _NamedBinary:
    bundles: tuple[_NamedBundle, ...]
    wrappers: tuple[Wrapper, ...]


def binary_of(
    path: str,
    home: Home,
    units: Sequence[Sequence[str]],
    *,
    wrappers: Sequence[int | None] | None = None,
) -> ScannedBinary:
    """Return a binary with a bundle for each unit.

    Args:
        path: Its path in the wheel.
        home: Where its archives go.
        units: The targets of each bundle.
        wrappers: For each wrapper the number of its bundle; by default one for each bundle.
    """
    chosen = range(len(units)) if wrappers is None else wrappers
    binary = _NamedBinary(
        bundles=tuple(_NamedBundle(tuple(map(_entry, targets))) for targets in units),
        wrappers=tuple(
            Wrapper(index=index, address=0, file_offset=0, bundle=bundle)
            for index, bundle in enumerate(chosen)
        ),
    )
    return ScannedBinary(path=path, binary=cast("HostBinary", binary), home=home)


def _entry(target: str) -> BundleEntry:
    return BundleEntry(
        id=entry_id(target), kind=EntryKind.CODE_OBJECT, target=TargetId.parse(target), offset=0, size=1
    )
