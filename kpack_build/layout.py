"""Where archives lie in a wheel, how they are named, and by which paths a binary finds them.

A *home* is a folder of a wheel that holds the archives of some binaries: `<package>/.kpack`, where
`<package>` is the nearest folder above the binary whose `__init__` is in the wheel; or `.kpack` beside the
binary where there is no such folder (a top-level module, a plugin that lives in another distribution's
package). All paths are POSIX paths relative to the wheel's root, or to site-packages once installed.

ROCm's reader starts relative search paths at the folder of the binary that holds them, so a binary is told
the direct path from its own folder to each archive.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "ARCHIVE_FOLDER",
    "LOADER_FOLDER",
    "Home",
    "archive_path",
    "find_home",
    "group_name",
    "index_path",
    "installed_path",
    "kept_path",
    "search_paths",
    "toc_key",
]

ARCHIVE_FOLDER = ".kpack"
LOADER_FOLDER = "_kpack"

_DATA_FOLDER = re.compile(r"^[^/]+\.data/(?P<scheme>[^/]+)/(?P<rest>.+)$")
_SITE_SCHEMES = frozenset({"platlib", "purelib"})
_INIT_NAMES = re.compile(r"^__init__\.(py|pyc|[^/]*\.so|so)$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Home:
    """A folder of the wheel in which the archives of some binaries lie.

    Attributes:
        folder: The folder that holds `.kpack`, as a path in the wheel ("" for its root).
        is_package: Whether the folder is a package of this wheel, so that a loader can live in it.
    """

    folder: str
    is_package: bool

    @property
    def archive_folder(self) -> str:
        """Path in the wheel of the folder that holds the archives."""
        return posixpath.join(self.folder, ARCHIVE_FOLDER)

    @property
    def loader_folder(self) -> str:
        """Path in the wheel of the loader's package."""
        return posixpath.join(self.folder, LOADER_FOLDER)

    @property
    def init_path(self) -> str:
        """Path in the wheel of the package's source file."""
        return posixpath.join(self.folder, "__init__.py")

    @property
    def package(self) -> str | None:
        """The package's import name, or None where the folder is no package of this wheel."""
        if not self.is_package:
            return None
        return (installed_path(self.folder + "/") or "").strip("/").replace("/", ".")


def installed_path(member: str) -> str | None:
    """Return the path below site-packages to which an installer writes a member of a wheel.

    Args:
        member: Path in the wheel.

    Returns:
        The path, or None for a member of `.data` that goes elsewhere (scripts, headers, data).
    """
    match = _DATA_FOLDER.match(member)
    if match is None:
        return member
    return match["rest"] if match["scheme"] in _SITE_SCHEMES else None


def find_home(binary: str, members: Collection[str]) -> Home | None:
    """Find the home of a binary's archives.

    Args:
        binary: The binary's path in the wheel.
        members: All paths in the wheel (a set, for its speed).

    Returns:
        The home, or None where the binary is installed outside of site-packages, so that no relative path
        leads from it to an archive.
    """
    if installed_path(binary) is None:
        return None
    match = _DATA_FOLDER.match(binary)
    root = binary[: match.start("rest")] if match else ""
    for folder in PurePosixPath(binary[len(root) :]).parents:
        if folder == PurePosixPath():
            break
        if _has_init(root + folder.as_posix(), members):
            return Home(folder=root + folder.as_posix(), is_package=True)
    return Home(folder=posixpath.dirname(binary), is_package=False)


def _has_init(folder: str, members: Collection[str]) -> bool:
    if f"{folder}/__init__.py" in members:
        return True
    prefix = f"{folder}/__init__."
    return any(
        member.startswith(prefix) and _INIT_NAMES.match(posixpath.basename(member)) for member in members
    )


def group_name(distribution: str, configured: str | None, home: Home) -> str:
    """Name the group of archives of a home.

    The distribution's normalised name is the default. Where archives lie in a folder that other distributions
    may share, the name contains it in any case.

    Args:
        distribution: The distribution's name, in any spelling.
        configured: The name that the project asks for, if any.
        home: Where the archives go.
    """
    name = canonicalize_name(distribution)
    if configured is None:
        return name
    if home.is_package or name in configured:
        return configured
    return f"{name}-{configured}"


def archive_path(home: Home, file_name: str) -> str:
    """Return the path in the wheel of an archive."""
    return posixpath.join(home.archive_folder, file_name)


def index_path(home: Home, group: str) -> str:
    """Return the path in the wheel of the index of a group's archives."""
    return posixpath.join(home.archive_folder, f"{group}.json")


def kept_path(home: Home, group: str) -> str:
    """Return the path in the wheel of the file that keeps a group's compressed bundles."""
    return posixpath.join(home.archive_folder, f"{group}.ccob")


def search_paths(binary: str, archives: Iterable[str]) -> tuple[str, ...]:
    """Return the relative paths from a binary's folder to its archives, sorted.

    Args:
        binary: The binary's path in the wheel.
        archives: The archives' paths in the wheel.
    """
    start = posixpath.dirname(binary) or "."
    return tuple(sorted(posixpath.relpath(archive, start) for archive in archives))


def toc_key(kernel_name: str, wrapper: int) -> str:
    """Return the key under which ROCm's reader looks for a wrapper's code objects.

    Args:
        kernel_name: The binary's path in the wheel, as its metadata holds it.
        wrapper: Index of the wrapper in `.hipFatBinSegment`.
    """
    return f"{kernel_name}#{wrapper}"
