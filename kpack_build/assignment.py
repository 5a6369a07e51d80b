"""Decide which archive holds which code object, and under which keys it answers there.

ROCm's reader stops at the first target that any archive on a binary's path lists, even where a less specific
target or the next archive has the kernel (ROCm/rocm-systems#9874, #9953). So all keys of one processor live
in one archive, and under each key that is listed every wrapper of the home that HIP could serve is answered:
`kpack_build.targets.complete` says by which object, generic ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.layout import Home, toc_key
from kpack_build.targets import GENERIC_MEMBERS, GroupBy, TargetId, complete, group_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpack_build.scan import ScannedBinary

__all__ = ["ArchivePlan", "ObjectKey", "Placement", "Plan", "WrapperKey", "is_wanted", "plan_archives"]


@dataclass(frozen=True, slots=True, order=True)
class WrapperKey:
    """A wrapper: its binary's path in the wheel and its index there."""

    path: str
    index: int

    @property
    def toc_key(self) -> str:
        """The key of the wrapper in an archive's TOC."""
        return toc_key(self.path, self.index)


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """A code object: its binary's path in the wheel, its bundle and its entry there."""

    path: str
    bundle: int
    entry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One TOC entry: the archive's number, the wrapper that asks, and the target under which it asks."""

    archive: int
    wrapper: WrapperKey
    target: TargetId


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """One archive to write: where it goes, the key of its family, and the targets that it lists."""

    home: Home
    family: str
    targets: tuple[TargetId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All archives of a wheel.

    Attributes:
        group_by: What makes an archive.
        archives: The archives, in a fixed order.
        placements: For each code object that is kept, its TOC entries; the first is under its own target.
    """

    group_by: GroupBy
    archives: tuple[ArchivePlan, ...]
    placements: Mapping[ObjectKey, tuple[Placement, ...]]


_Objects = dict[WrapperKey, dict[TargetId, ObjectKey]]


def is_wanted(found: TargetId, wanted: frozenset[str] | None) -> bool:
    """Tell whether a code object is for one of the wanted targets.

    A wanted processor takes all its feature variants and the generic code objects that run on it; a target id
    with features takes itself alone.
    """
    if wanted is None or str(found) in wanted:
        return True
    return not wanted.isdisjoint((found.processor, *GENERIC_MEMBERS.get(found.processor, ())))


def plan_archives(
    binaries: Sequence[ScannedBinary], *, group_by: GroupBy, wanted: frozenset[str] | None
) -> Plan:
    """Plan the archives of a wheel.

    Args:
        binaries: The binaries that are converted.
        group_by: What makes an archive.
        wanted: Processors and target ids to keep, or None for all.
    """
    archives: list[ArchivePlan] = []
    placements: dict[ObjectKey, list[Placement]] = {}
    for home in sorted({binary.home for binary in binaries}):
        objects = _objects([binary for binary in binaries if binary.home == home], wanted)
        for family, answers in _families(objects, group_by).items():
            for target, wrappers in answers.items():
                for wrapper, source in wrappers.items():
                    place = Placement(archive=len(archives), wrapper=wrapper, target=target)
                    own = source == target
                    found = placements.setdefault(objects[wrapper][source], [])
                    found.insert(0 if own else len(found), place)
            archives.append(ArchivePlan(home=home, family=family, targets=tuple(answers)))
    return Plan(
        group_by=group_by,
        archives=tuple(archives),
        placements={key: tuple(found) for key, found in placements.items()},
    )


def _objects(binaries: Sequence[ScannedBinary], wanted: frozenset[str] | None) -> _Objects:
    objects: _Objects = {}
    for scanned in binaries:
        by_bundle: dict[int, dict[TargetId, ObjectKey]] = {}
        for bundle, number, entry in scanned.code_objects():
            if entry.target is not None and is_wanted(entry.target, wanted):
                by_bundle.setdefault(bundle, {})[entry.target] = ObjectKey(scanned.path, bundle, number)
        for wrapper in scanned.binary.wrappers:
            if wrapper.bundle in by_bundle:
                objects[WrapperKey(scanned.path, wrapper.index)] = by_bundle[wrapper.bundle]
    return objects


def _families(objects: _Objects, group_by: GroupBy) -> dict[str, dict[TargetId, dict[WrapperKey, TargetId]]]:
    listed = complete(objects)
    families: dict[str, dict[TargetId, dict[WrapperKey, TargetId]]] = {}
    for target in sorted(listed, key=str):
        answers = {wrapper: listed[target][wrapper] for wrapper in sorted(listed[target])}
        families.setdefault(group_key(target.processor, group_by), {})[target] = answers
    return dict(sorted(families.items()))
