"""The contents of an unpacked wheel: a folder with the files of exactly one.

The folder may also be the one around the `<name>-<version>` folder that `wheel unpack` makes. Links and
special files are refused, since a wheel cannot hold them. Empty folders do not count.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from kpack_build.errors import WheelError
from kpack_build.wheel.contents import Member
from kpack_build.wheel.identity import Identified, find_dist_info, read_identity, require_dist_info
from kpack_build.wheel.names import check_member_names
from kpack_build.wheel.record import Record
from kpack_build.wheel.verify import FactKeeper, check_against_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.wheel.record import RowFacts

__all__ = ["TreeContents", "iter_file"]

_CHUNK = 256 * 1024


class TreeContents(Identified):
    """An open unpacked wheel (see `WheelContents`).

    Attributes:
        root: The folder that holds the dist-info folder: `path`, or the only folder in it.

    Args:
        path: The folder.

    Raises:
        WheelError: It does not hold the files of one sound wheel.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = _find_root(path)
        # Before all else: any folder at all may have been given, and walking through it may take long.
        require_dist_info(path, (entry.name for entry in self.root.iterdir()))
        self.members = tuple(sorted(_walk(self.root, ""), key=lambda member: member.path))
        names = [member.path for member in self.members]
        check_member_names(path, names)
        self._names = frozenset(names)
        self._checked = False
        self.dist_info = find_dist_info(path, self._names)
        own_path = f"{self.dist_info}/RECORD"
        self.record = Record.parse(self.read(own_path), own_path=own_path, source=path)
        self._facts = FactKeeper(self.record)
        self._identity = read_identity(path, self.dist_info, self.read, is_file=False)

    @property
    def is_signed(self) -> bool:
        return any(self.record.is_signature(name) for name in self._names)

    def open(self, member: str) -> BinaryIO:
        return self.materialise(member).open("rb")

    def read(self, member: str) -> bytes:
        return self.materialise(member).read_bytes()

    def materialise(self, member: str) -> Path:
        if member not in self._names:
            raise WheelError(self.path, f"there is no member {member}", remedy="name one that it has")
        return self.root / member

    def iter_content(self, member: str) -> Iterator[bytes]:
        """Iterate over a member's bytes; its facts are known when all are read."""
        hashing = self._facts.hashing(member)
        yield from hashing.watch(iter_file(self.materialise(member)))
        self._facts.keep(member, hashing.facts)

    def check(self) -> None:
        if not self._checked:
            check_against_record(self, read_all=False)
            self._checked = True

    def facts(self, member: str) -> RowFacts:
        known = self._facts.get(member)
        if known is None:
            for _ in self.iter_content(member):
                pass
            known = self._facts.of(member)
        return known

    def close(self) -> None:
        """Do nothing: nothing was made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def iter_file(file: Path) -> Iterator[bytes]:
    """Iterate over a file's bytes in chunks."""
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _find_root(path: Path) -> Path:
    entries = list(path.iterdir())
    if len(entries) == 1 and not entries[0].is_symlink() and any(entries[0].glob("*.dist-info")):
        return entries[0]
    return path


def _walk(root: Path, prefix: str) -> Iterator[Member]:
    with os.scandir(root / prefix) as entries:
        for entry in entries:
            name = prefix + entry.name
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                yield from _walk(root, name + "/")
            elif stat.S_ISREG(facts.st_mode):
                yield Member(path=name, size=facts.st_size, mode=stat.S_IMODE(facts.st_mode))
            else:
                kind = "a symbolic link" if entry.is_symlink() else "no regular file"
                raise WheelError(
                    root,
                    f"{name} is {kind}, which a wheel cannot hold",
                    remedy="put a plain file in its place",
                )
