"""Find this package's archives on disk, as the loader sees them and as ROCm's reader will.

ROCm's reader starts at the folder of the binary that is mapped, symbolic links resolved. Where an installer
links single files into site-packages, or keeps archives elsewhere, that way may end nowhere although the
archives lie in the package. Then, and only then, `ROCM_KPACK_PATH_PREFIX` can name them.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from ._status import Status

__all__ = [
    "PREFIX",
    "archive_path",
    "has_direct_path",
    "hip_is_loaded",
    "is_installed",
    "mend_search",
    "offer_prefix",
    "package_folder",
]

PREFIX = "ROCM_KPACK_PATH_PREFIX"

_ARCHIVE_FOLDER = ".kpack"


def package_folder() -> str:
    """Return the folder of the package that this loader belongs to."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_installed(folder: str) -> bool:
    """Tell whether the package lies in a folder; inside a zip file it has no archives that HIP could open."""
    return os.path.isdir(folder)


def archive_path(folder: str, file: str) -> str:
    """Return the path of an archive of the package in this folder."""
    return os.path.join(folder, _ARCHIVE_FOLDER, file)


def has_direct_path(folder: str, binaries: Sequence[str], archives: Sequence[str]) -> bool:
    """Tell whether ROCm's reader finds the archives by the paths that the binaries hold.

    Args:
        folder: The package's folder.
        binaries: The binaries' paths from there; those that are not there do not count.
        archives: Names of archives.
    """
    starts: dict[str, str] = {}
    checked = set()
    for binary in binaries:
        path = os.path.join(folder, binary)
        start = _real_folder(path, starts)
        way = os.path.join(start, *[os.pardir] * binary.count("/"), _ARCHIVE_FOLDER)
        if way in checked or not os.path.exists(path):
            continue
        checked.add(way)
        if not all(os.path.exists(os.path.join(way, archive)) for archive in archives):
            return False
    return True


def _real_folder(path: str, known: dict[str, str]) -> str:
    """Return the real folder of a file; resolving is slow, so folders are resolved once."""
    if os.path.islink(path):
        return os.path.dirname(os.path.realpath(path))
    folder = os.path.dirname(path)
    if folder not in known:
        known[folder] = os.path.realpath(folder)
    return known[folder]


def hip_is_loaded(maps: str = "/proc/self/maps") -> bool:
    """Tell whether a HIP runtime is in this process already; it reads its environment once."""
    try:
        with open(maps, "rb") as stream:
            return b"/libamdhip64" in stream.read()
    except OSError:
        return False


def offer_prefix(paths: Sequence[str], variables: MutableMapping[str, str]) -> tuple[str, ...]:
    """Add archives to `ROCM_KPACK_PATH_PREFIX`, and return those that were added.

    What is there stays in front: the reader stops at the first archive that lists a GPU's target, so an
    archive that is put before others hides theirs.

    Args:
        paths: The archives.
        variables: The environment to change.
    """
    present = [path for path in variables.get(PREFIX, "").split(os.pathsep) if path]
    added = [path for path in paths if path not in present]
    if added:
        variables[PREFIX] = os.pathsep.join(present + added)
    return tuple(added)


def mend_search(status: Status) -> None:
    """Let ROCm's reader find archives to which the binaries' own paths do not lead; mostly there are none.

    The change holds for the whole process and for those that it starts, so it is as small as can be, and the
    status shows it.

    Args:
        status: What is known; where GPUs are not, every archive counts as needed.
    """
    from ._table import BINARIES  # noqa: PLC0415 - the status has imported it already

    needed = [row.archive for row in status.gpus if row.is_served]
    archives = [
        archive
        for archive in status.archives
        if archive.state == "present" and (archive.file in needed or status.state == "unknown")
    ]
    binaries = [binary[0] for binary in BINARIES]
    if not archives or has_direct_path(status.folder, binaries, [archive.file for archive in archives]):
        return
    paths = [archive.path for archive in archives]
    if any(os.pathsep in path for path in paths):
        status.warnings += (_unreachable(status, f"no variable can name a path with {os.pathsep!r} in it"),)
    elif hip_is_loaded():
        setting = f"{PREFIX}={os.pathsep.join(paths)}"
        reason = f"HIP was loaded first: import {status.package} before it, or start Python with {setting}"
        status.warnings += (_unreachable(status, reason),)
    else:
        status.search_prefix = offer_prefix(paths, os.environ)


def _unreachable(status: Status, reason: str) -> str:
    return (
        f"HIP cannot find the GPU code of {status.distribution}, because its binaries are links to files"
        f" elsewhere, and {reason}."
    )
