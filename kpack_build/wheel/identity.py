"""What a wheel says of itself: its dist-info folder, METADATA, WHEEL and file name, held against each other.

Follows PyPA's binary distribution format and core metadata specification. A wheel that contradicts itself in
name or version is refused, as installers do; tags that differ between WHEEL and the file name are only noted,
since installers go by the file name.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.parser import BytesHeaderParser
from typing import TYPE_CHECKING

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name, canonicalize_version

from kpack_build.errors import WheelError
from kpack_build.wheel.names import WheelName, parse_wheel_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from email.message import Message
    from pathlib import Path

__all__ = ["Identified", "Identity", "find_dist_info", "read_identity", "require_dist_info"]

_SUFFIX = ".dist-info"
_MAJOR = "1"
_REMEDY = "build the wheel again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a wheel says of itself.

    Attributes:
        dist_info: Name of its dist-info folder.
        name: The distribution's name, from METADATA.
        version: Its version, from METADATA.
        build: Its build tag, "" where there is none.
        tags: Its tags: of the file name, or of WHEEL for an unpacked tree.
        notes: What is odd about it but does not keep it from being installed.
    """

    dist_info: str
    name: str
    version: str
    build: str
    tags: frozenset[Tag]
    notes: tuple[str, ...]


def require_dist_info(path: Path, folders: Iterable[str]) -> None:
    """Raise `WheelError` where none of the folders at the top of `path` is a dist-info folder."""
    if not any(folder.endswith(_SUFFIX) for folder in folders):
        raise WheelError(
            path,
            "there is no .dist-info folder in it",
            remedy="give a wheel, or the folder of its unpacked files",
        )


class Identified:
    """An open wheel whose identity was read; what `WheelContents` documents of it."""

    _identity: Identity

    @property
    def name(self) -> str:
        return self._identity.name

    @property
    def version(self) -> str:
        return self._identity.version

    @property
    def build(self) -> str:
        return self._identity.build

    @property
    def tags(self) -> frozenset[Tag]:
        return self._identity.tags

    @property
    def notes(self) -> tuple[str, ...]:
        return self._identity.notes


def find_dist_info(path: Path, members: Collection[str]) -> str:
    """Return the name of the only dist-info folder.

    Args:
        path: The wheel, for errors.
        members: The paths of all its files.

    Raises:
        WheelError: There is none, or more than one.
    """
    folders = {member.partition("/")[0] for member in members if "/" in member}
    found = sorted(folder for folder in folders if folder.endswith(_SUFFIX))
    require_dist_info(path, found)
    if len(found) > 1:
        raise WheelError(path, f"there are several .dist-info folders: {', '.join(found)}", remedy=_REMEDY)
    for file in ("METADATA", "WHEEL", "RECORD"):
        if f"{found[0]}/{file}" not in members:
            raise WheelError(path, f"there is no {found[0]}/{file}", remedy=_REMEDY)
    return found[0]


def read_identity(path: Path, dist_info: str, read: Callable[[str], bytes], *, is_file: bool) -> Identity:
    """Read what a wheel says of itself.

    Args:
        path: The wheel.
        dist_info: The name of its dist-info folder.
        read: Returns the bytes of a member.
        is_file: Whether it is a wheel file, whose name counts.

    Raises:
        WheelError: It contradicts itself, or is of a version of the format that is not known.
    """
    metadata = BytesHeaderParser().parsebytes(read(f"{dist_info}/METADATA"))
    wheel = BytesHeaderParser().parsebytes(read(f"{dist_info}/WHEEL"))
    _check_version(path, _field(path, wheel, "Wheel-Version", f"{dist_info}/WHEEL"))
    name = _field(path, metadata, "Name", f"{dist_info}/METADATA")
    version = _field(path, metadata, "Version", f"{dist_info}/METADATA")
    _check_same(path, (name, version), dist_info.removesuffix(_SUFFIX).rpartition("-"), dist_info)
    inner = _wheel_tags(wheel)
    if not is_file:
        build = str(wheel.get("Build", "")).strip()
        return Identity(dist_info=dist_info, name=name, version=version, build=build, tags=inner, notes=())
    outer = parse_wheel_name(path)
    _check_same(path, (name, version), (outer.distribution, "-", outer.version), "the file's name")
    return Identity(
        dist_info=dist_info,
        name=name,
        version=version,
        build=outer.build,
        tags=outer.tags,
        notes=_tag_notes(outer, inner),
    )


def _field(path: Path, message: Message, key: str, member: str) -> str:
    value = str(message.get(key, "")).strip()
    if not value:
        raise WheelError(path, f"{member} has no {key}", remedy=_REMEDY)
    return value


def _check_version(path: Path, version: str) -> None:
    if version.partition(".")[0] != _MAJOR:
        raise WheelError(
            path,
            f"its Wheel-Version is {version}, and only versions 1.x are known",
            remedy="use a newer kpack-build",
        )


def _check_same(path: Path, metadata: tuple[str, str], other: tuple[str, str, str], where: str) -> None:
    """Check that name and version are METADATA's; escapes of any age (`-`, `_`, `+`) count as equal."""
    name, version = metadata
    other_name, _, other_version = other
    if canonicalize_name(name) != canonicalize_name(other_name) or _plain(version) != _plain(other_version):
        raise WheelError(path, f"METADATA says {name} {version}, {where} says otherwise", remedy=_REMEDY)


def _plain(version: str) -> str:
    return canonicalize_version(version.replace("_", "-")).replace("+", "-").replace(".", "-")


def _wheel_tags(wheel: Message) -> frozenset[Tag]:
    tags: set[Tag] = set()
    for line in wheel.get_all("Tag", []):
        text = str(line).strip()
        if text.count("-") == len(("python", "abi")):
            tags |= parse_tag(text)
    return frozenset(tags)


def _tag_notes(outer: WheelName, inner: frozenset[Tag]) -> tuple[str, ...]:
    if outer.tags == inner:
        return ()
    named, written = (", ".join(sorted(map(str, tags))) or "none" for tags in (outer.tags, inner))
    return (f"the file's name has the tags {named}, but its WHEEL file {written}",)
