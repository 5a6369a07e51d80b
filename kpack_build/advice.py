"""What a user should know about a packed wheel beyond what was done to it, one sentence for each thing."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from kpack_build.targets import GroupBy, is_known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.assignment import Plan
    from kpack_build.scan import Scan
    from kpack_build.wheel import WheelContents

__all__ = ["iter_missing_archives", "iter_size_warnings", "iter_warnings"]

_GIB = 1 << 30

_FIRST_WITH_KPACK = (7, 14)
"""Version of the first HIP runtimes that read kpack."""
_HIP_VERSION = re.compile(r"\.so\.(?P<major>\d+)(\.(?P<minor>\d+))?")
_RUNTIME = re.compile(r"^lib(amdhip64|hsa-runtime64|rocm_kpack)(-[^.]*)?\.so(\.|$)")


def iter_warnings(contents: WheelContents, scan: Scan, plan: Plan) -> Iterator[str]:
    """Iterate over the warnings of a wheel that is packed.

    Args:
        contents: The wheel.
        scan: Its binaries.
        plan: Its archives.
    """
    yield from contents.notes
    if contents.is_signed:
        yield "RECORD is signed; the signature does not hold for the packed wheel, so sign it again"
    yield from _unknown_names(plan)
    yield from _homes_without_loader(plan)
    yield from _copies(contents, scan)
    yield from _runtimes(contents)
    yield from _old_runtimes(scan)
    yield from iter_missing_archives(contents, scan)


def _unknown_names(plan: Plan) -> Iterator[str]:
    if plan.group_by is GroupBy.TARGET:
        return
    names = {target.processor for archive in plan.archives for target in archive.targets}
    unknown = sorted(name for name in names if not is_known(name))
    if unknown:
        yield f"no family is known for {', '.join(unknown)}: each has an archive of its own name"


def _homes_without_loader(plan: Plan) -> Iterator[str]:
    for home in sorted({archive.home for archive in plan.archives}):
        if not home.is_package:
            yield (
                f"{home.folder or 'the top level'} is no package of this wheel: its archives lie beside the"
                " binaries, and no loader tells users which GPUs are served"
            )


def _copies(contents: WheelContents, scan: Scan) -> Iterator[str]:
    """Name libraries that are in the wheel more than once, as zip files turn symbolic links into copies."""
    rows = contents.record.by_path()
    same: dict[tuple[str, int], list[str]] = defaultdict(list)
    for scanned in scan.fat:
        row = rows.get(scanned.path)
        if row is not None and row.hash:
            same[row.hash, scanned.binary.size].append(scanned.path)
    for (_, size), paths in same.items():
        if len(paths) > 1:
            yield f"{', '.join(paths)} are copies of one file: {size * (len(paths) - 1)} bytes are wasted"


def _runtimes(contents: WheelContents) -> Iterator[str]:
    found = [member.path for member in contents.members if _RUNTIME.match(posixpath.basename(member.path))]
    if found:
        yield (
            f"the wheel has a HIP runtime of its own ({', '.join(sorted(found))}): in a process that loads"
            " another one, for example PyTorch's, its libraries may fail"
        )


def iter_size_warnings(size: int) -> Iterator[str]:
    """Say what installers make of a large wheel (pypa/pip#6589, pypa/pip#9549).

    Args:
        size: Size of the wheel file in bytes.
    """
    if size > 4 * _GIB:
        yield f"the wheel has {size} bytes: pip cannot keep wheels over 4 GiB in its cache"
    elif size > 2 * _GIB:
        yield f"the wheel has {size} bytes: over 2 GiB, pip fails on machines with little memory"


def _old_runtimes(scan: Scan) -> Iterator[str]:
    """Name the HIP libraries that binaries ask for and of which no version reads kpack."""
    wanted = {scanned.binary.hip_library for scanned in scan.fat} - {None}
    for name in sorted(filter(None, wanted)):
        match = _HIP_VERSION.search(name)
        if match is None:
            continue
        version = (int(match["major"]), int(match["minor"] or _FIRST_WITH_KPACK[1]))
        if version < _FIRST_WITH_KPACK:
            yield (
                f"the binaries ask for {name}, and no HIP runtime of that name reads kpack: users get no GPU"
                " code from this wheel unless it is built for HIP 7.14 or later"
            )


def iter_missing_archives(contents: WheelContents, scan: Scan) -> Iterator[str]:
    """Name the search paths of binaries converted elsewhere that lead to nothing in this wheel."""
    members = {member.path for member in contents.members}
    folders = {posixpath.dirname(member) for member in members}
    for converted in scan.converted:
        start = posixpath.dirname(converted.path)
        for path in converted.search_paths:
            place = posixpath.normpath(posixpath.join(start, path))
            found = posixpath.dirname(place) in folders if "@GFXARCH@" in path else place in members
            if not found:
                yield (
                    f"{converted.path} was converted to kpack before and looks for {path},"
                    " which is not in this wheel"
                )
