"""Target ids: which code object serves which GPU, and under which keys an archive must list it.

A target id is a processor and the states of its target features, as in `gfx90a:sramecc+:xnack-`. The
grammar is LLVM's ("User Guide for AMDGPU Backend", Target ID), the families come from `rocm-bootstrap`, and
the rules of choice are those of HIP and of ROCm's kpack reader. Reads no code object and no archive.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from rocm_bootstrap.targets import PackagingLevel, bundle_for_target

from kpack_build.errors import TargetError
from kpack_build.processors import GENERIC_MEMBERS, PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "GENERIC_MEMBERS",
    "GroupBy",
    "TargetId",
    "complete",
    "feature_states",
    "generic_of",
    "group_key",
    "hip_choice",
    "is_known",
    "lookup_order",
]

W = TypeVar("W", bound=Hashable)

_TARGET_ID = re.compile(r"(gfx[0-9a-z]+(?:-[0-9a-z]+)*)((?::(?:sramecc|xnack)[+-]){0,2})", re.ASCII)
_GENERIC_OF: Mapping[str, str] = {
    member: generic for generic, members in GENERIC_MEMBERS.items() for member in members
}


class GroupBy(str, Enum):
    """What shares an archive."""

    TARGET = "target"
    SUB_FAMILY = "sub-family"
    FAMILY = "family"


_LEVELS = {
    GroupBy.TARGET: PackagingLevel.TARGET,
    GroupBy.SUB_FAMILY: PackagingLevel.SUB_FAMILY,
    GroupBy.FAMILY: PackagingLevel.FAMILY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetId:
    """What a code object was built for, or what a GPU is.

    Attributes:
        processor: Name of the processor, as `gfx90a`, `gfx11-generic`, `gfx1250-strict`.
        sramecc: State of the feature; None if it is not named: any state (of code), or none (of a GPU).
        xnack: Likewise.
    """

    processor: str
    sramecc: bool | None = None
    xnack: bool | None = None

    @classmethod
    def parse(cls, text: str) -> TargetId:
        """Parse a target id; processors that nobody has heard of are kept as they are.

        Raises:
            TargetError: The text is no target id, or has a feature that is neither sramecc nor xnack.
        """
        return _parse(text)

    def __str__(self) -> str:
        return self.processor + "".join(
            f":{name}{'+' if state else '-'}"
            for name, state in (("sramecc", self.sramecc), ("xnack", self.xnack))
            if state is not None
        )

    def __lt__(self, other: TargetId) -> bool:
        """Order by text, so that sorted target ids do not depend on how they were found."""
        return str(self) < str(other)

    @property
    def features(self) -> frozenset[str]:
        """The named features with their states, as `{"sramecc+", "xnack-"}`."""
        return frozenset(str(self).split(":")[1:])

    @property
    def is_generic(self) -> bool:
        """Whether this is a generic target, known or not."""
        return self.processor.endswith("-generic")

    def serves(self, agent: TargetId) -> bool:
        """Tell whether code of this target runs on a GPU of `agent`."""
        covered = self.processor in (agent.processor, generic_of(agent.processor))
        return covered and self.features <= agent.features


@lru_cache(maxsize=4096)
def _parse(text: str) -> TargetId:
    match = _TARGET_ID.fullmatch(text)
    if match is None:
        raise TargetError(text)
    states = {feature[:-1]: feature.endswith("+") for feature in match[2].split(":")[1:]}
    if len(states) < match[2].count(":"):
        raise TargetError(text, "names a feature twice")
    return TargetId(processor=match[1], sramecc=states.get("sramecc"), xnack=states.get("xnack"))


def _processor_name(text: str) -> str:
    return text.partition(":")[0]


def generic_of(processor: str) -> str | None:
    """Return the generic processor whose code runs on `processor`, or None if there is none."""
    return _GENERIC_OF.get(processor)


def is_known(processor: str) -> bool:
    """Tell whether `group_key` knows the processor, or falls back to the processor's own name."""
    name = _processor_name(processor)
    return name in GENERIC_MEMBERS or _family_key(name, GroupBy.FAMILY) is not None


def group_key(processor: str, group_by: GroupBy) -> str:
    """Return the key of the archive that holds code for a processor.

    Args:
        processor: A processor, or a target id whose features are then of no account.
        group_by: What shares an archive.

    Returns:
        A key of `rocm-bootstrap`; the processor's own name if it is generic or not known there. Never has
        `:` or `+`, so that it can be part of a file name.
    """
    name = _processor_name(processor)
    return _family_key(name, group_by) or name


@lru_cache(maxsize=1024)
def _family_key(name: str, group_by: GroupBy) -> str | None:
    try:
        key: str = bundle_for_target(name, _LEVELS[group_by]).key
    except ValueError:
        return None
    return key


def feature_states(processor: str) -> tuple[TargetId, ...]:
    """Return every full state that a GPU of this processor can have.

    A full state names each feature that LLVM's table gives to the processor: four for gfx90a, one (without
    features) for gfx1030 and for processors that are not in the table.
    """
    known = PROCESSORS.get(processor)
    return _states(
        processor,
        sramecc=known is not None and known.sramecc,
        xnack=known is not None and known.xnack,
    )


def _states(processor: str, *, sramecc: bool, xnack: bool) -> tuple[TargetId, ...]:
    return tuple(
        TargetId(processor=processor, sramecc=ecc, xnack=retry)
        for ecc in ((False, True) if sramecc else (None,))
        for retry in ((False, True) if xnack else (None,))
    )


@lru_cache(maxsize=4096)
def lookup_order(agent: TargetId) -> tuple[TargetId, ...]:
    """Return the keys that ROCm's kpack reader tries for a GPU, in its order.

    Subsets of the features, most specific first, then the same for the generic processor.
    """
    generic = generic_of(agent.processor)
    return tuple(
        dict.fromkeys(
            TargetId(processor=processor, sramecc=sramecc, xnack=xnack)
            for processor in (agent.processor, *((generic,) if generic else ()))
            for sramecc, xnack in (
                (agent.sramecc, agent.xnack),
                (agent.sramecc, None),
                (None, agent.xnack),
                (None, None),
            )
        )
    )


def hip_choice(agent: TargetId, available: Iterable[TargetId]) -> TargetId | None:
    """Return which of the targets in a bundle HIP's fat-binary loader picks for a GPU, or None.

    Native code goes before generic code, and among what fits the first in the bundle is taken (seen with HIP
    7.14; compilers refuse targets of which two fit one GPU). HIP appends all of the GPU's features to the
    generic processor's name; where the generic processor does not have one of them (gfx9-generic on a gfx906
    that reports sramecc), it finds nothing, although ROCm's kpack reader does find the code there.

    Args:
        agent: The GPU, with the states of its features.
        available: The bundle's targets, in their order there.
    """
    found = _first_fit(agent, tuple(available))
    if found is None or found.processor == agent.processor:
        return found
    generic = PROCESSORS[found.processor]
    refused = (agent.sramecc is not None and not generic.sramecc) or (
        agent.xnack is not None and not generic.xnack
    )
    return None if refused else found


def _first_fit(agent: TargetId, available: tuple[TargetId, ...]) -> TargetId | None:
    fitting = frozenset(lookup_order(agent))
    found = [target for target in available if target in fitting]
    native = [target for target in found if target.processor == agent.processor]
    return next(iter(native or found), None)


def complete(objects: Mapping[W, Iterable[TargetId]]) -> dict[TargetId, dict[W, TargetId]]:
    """Work out what archives must list so that ROCm's reader gives every GPU what HIP would choose.

    The reader stops at the first key that any archive lists, whether or not that key has the wrapper it asks
    for (ROCm/rocm-systems#9874, #9953). So each processor's keys are closed under union of compatible
    features; a GPU's first listed key then names every feature that any object it can use names, and under
    that key each wrapper can be answered with HIP's choice, generic objects included. An object only ever
    stands under its own key or a more specific one, never under a less specific one.

    Args:
        objects: For each wrapper, the targets that its bundle has code for, in their order there.

    Returns:
        For each key to list, and each wrapper that has an answer there, the target whose object answers. Each
        target of each wrapper answers under its own key, or its object could not be found again; only there,
        and only in bundles that compilers refuse to make, HIP would choose another one.
    """
    available = {wrapper: tuple(targets) for wrapper, targets in objects.items()}
    # Most wrappers of a library have code for the same targets: each kind of bundle is looked at once.
    kinds = frozenset(available.values())
    listed = frozenset[TargetId]().union(*kinds)
    completed: dict[TargetId, dict[W, TargetId]] = {}
    for processor in sorted({target.processor for target in listed}):
        for key in sorted(_keys(processor, listed)):
            answers = {kind: key if key in kind else _first_fit(key, kind) for kind in kinds}
            found = {
                wrapper: target
                for wrapper, kind in available.items()
                if (target := answers[kind]) is not None
            }
            # A key without an answer would hide the generic keys behind it, and serve nobody.
            if found:
                completed[key] = found
    return completed


def _keys(processor: str, listed: frozenset[TargetId]) -> set[TargetId]:
    """Return the keys of a processor: those of its own and its generic's objects, full states, and unions."""
    sources = [target for target in listed if target.processor in (processor, generic_of(processor))]
    keys = {TargetId(processor=processor, sramecc=target.sramecc, xnack=target.xnack) for target in sources}
    if any(key.features for key in keys):
        keys.update(
            feature_states(processor)
            if processor in PROCESSORS
            else _states(
                processor,
                sramecc=any(key.sramecc is not None for key in keys),
                xnack=any(key.xnack is not None for key in keys),
            )
        )
    # There are two features, so the union of any number of compatible sets is that of some two of them.
    return keys | {
        TargetId(processor=processor, sramecc=first.sramecc, xnack=second.xnack)
        for first in keys
        for second in keys
        if None not in (first.sramecc, second.xnack)
        and (first.xnack is None or first.xnack == second.xnack)
        and (second.sramecc is None or second.sramecc == first.sramecc)
    }
