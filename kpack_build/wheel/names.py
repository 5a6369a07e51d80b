"""The names of a wheel: of its file, of its members.

Follows PyPA's binary distribution format (file names, build tags, compressed tag sets). A member's name is a
relative POSIX path; whatever an installer or an unzip could write elsewhere than below its destination, or
not at all, is refused. It does not look at contents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from kpack_build.errors import PathLike, WheelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.tags import Tag

__all__ = ["WheelName", "check_member_names", "member_name_problem", "parse_wheel_name"]

_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: In bytes. Linux allows 255 for a part and 4096 in all, which leaves room for where it is installed.
_LONGEST_PART = 255
_LONGEST_NAME = 3072
_BAD_PARTS = frozenset({"", ".", ".."})
_REMEDY = "build the wheel again with a tool that writes plain relative names"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelName:
    """What the file name of a wheel says.

    Attributes:
        distribution: The name as it is written there.
        version: The version as it is written there.
        build: The build tag, "" where there is none.
        tags: All tags, compressed sets expanded.
    """

    distribution: str
    version: str
    build: str
    tags: frozenset[Tag]


def parse_wheel_name(path: PathLike) -> WheelName:
    """Parse the file name of a wheel.

    Args:
        path: The wheel's path; only its last part is looked at.

    Raises:
        WheelError: It is no wheel's name.
    """
    name = Path(path).name
    try:
        _, _, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise WheelError(
            path,
            "the file's name is no wheel's name",
            remedy="name it <name>-<version>[-<build>]-<python>-<abi>-<platform>.whl, as it was built",
        ) from error
    parts = name.removesuffix(".whl").split("-")
    build = parts[2] if len(parts) > len(("name", "version", "python", "abi", "platform")) else ""
    return WheelName(distribution=parts[0], version=parts[1], build=build, tags=tags)


def member_name_problem(name: str) -> str | None:
    """Say what is wrong with a member's name (of a file, without a slash at the end); None if nothing is."""
    problems = {
        "is empty": not name,
        "holds a control character": _CONTROL.search(name),
        "holds a backslash": "\\" in name,
        "is an absolute path": name.startswith("/"),
        "starts with a drive": _DRIVE.match(name),
        'has an empty part, "." or ".."': not _BAD_PARTS.isdisjoint(name.split("/")),
        "is longer than file systems allow": _is_too_long(name),
    }
    return next((problem for problem, is_so in problems.items() if is_so), None)


def _is_too_long(name: str) -> bool:
    # Names come from text of any kind: lone surrogates stand for bytes that were no text.
    encoded = name.encode("utf-8", "surrogatepass")
    return len(encoded) > _LONGEST_NAME or max(map(len, encoded.split(b"/"))) > _LONGEST_PART


def check_member_names(path: Path, names: Iterable[str], empty_folders: Iterable[str] = ()) -> None:
    """Check the names of all files of a wheel.

    Args:
        path: The wheel, for errors.
        names: The names.
        empty_folders: Folders that have an entry of their own, each with a slash at the end.

    Raises:
        WheelError: A name is unsafe or there twice, or a file's name is that of another's folder too.
    """
    seen: set[str] = set()
    for name in names:
        problem = member_name_problem(name)
        if problem is not None:
            raise WheelError(path, f"the name of member {name!r} {problem}", remedy=_REMEDY)
        if name in seen:
            raise WheelError(path, f"member {name} is there twice", remedy=_REMEDY)
        seen.add(name)
    folders = _folders([*empty_folders, *seen])
    for name in sorted(seen & folders.keys()):
        raise WheelError(path, f"member {name} is the folder of {folders[name]} too", remedy=_REMEDY)


def _folders(names: Iterable[str]) -> dict[str, str]:
    """Return all folders above some names, each with one of the names."""
    folders: dict[str, str] = {}
    for name in sorted(names):
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders[folder] = name
            folder = folder.rpartition("/")[0]
    return folders
