"""The contents of a wheel file.

Members are unpacked in streams, with bounded memory. A member that has to be a real file, to be mapped, is
unpacked once into a private temporary folder, and checked on the way.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kpack_build.errors import FormatError, WheelError
from kpack_build.outputs import naming_full_disk
from kpack_build.wheel.contents import Member
from kpack_build.wheel.identity import Identified, find_dist_info, read_identity
from kpack_build.wheel.names import check_member_names
from kpack_build.wheel.record import Record
from kpack_build.wheel.verify import FactKeeper, check_against_record
from kpack_build.wheel.zipreader import ZipReader

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator
    from types import TracebackType
    from typing import BinaryIO

    from typing_extensions import Self

    from kpack_build.wheel.record import RowFacts

__all__ = ["ZipContents"]

_PERMISSIONS = 0o777
_PLAIN_MODE = 0o644


class ZipContents(Identified):
    """An open wheel file (see `WheelContents`).

    Args:
        path: The file.

    Raises:
        FormatError: It is no zip file, or a damaged one.
        WheelError: It is no sound wheel.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = ZipReader(path)
        try:
            self._load()
        except BaseException:
            self._zip.close()
            raise

    def _load(self) -> None:
        names = [info.filename for info in self._zip.infos if not info.is_dir()]
        folders = [info.filename for info in self._zip.infos if info.is_dir()]
        check_member_names(self.path, names, folders)
        self._infos = {info.filename: info for info in self._zip.infos}
        self._checked = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[str, Path] = {}
        self._locks = {name: Lock() for name in names}
        self._folder_lock = Lock()
        self.members = tuple(_member(info) for info in self._zip.infos if not info.is_dir())
        self.dist_info = find_dist_info(self.path, self._infos.keys())
        own_path = f"{self.dist_info}/RECORD"
        self.record = Record.parse(self.read(own_path), own_path=own_path, source=self.path)
        self._facts = FactKeeper(self.record)
        self._identity = read_identity(self.path, self.dist_info, self.read, is_file=True)

    @property
    def is_signed(self) -> bool:
        return any(self.record.is_signature(name) for name in self._infos)

    @property
    def entries(self) -> tuple[zipfile.ZipInfo, ...]:
        """All entries of the zip file in their order, folders included."""
        return self._zip.infos

    def iter_raw(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Iterate over an entry's bytes as they are stored."""
        return self._zip.iter_raw(info)

    def open(self, member: str) -> BinaryIO:
        return self._zip.open(self._info(member))

    def read(self, member: str) -> bytes:
        return b"".join(self._zip.iter_content(self._info(member)))

    def materialise(self, member: str) -> Path:
        info = self._info(member)
        with self._locks[member]:
            if member not in self._files:
                self._files[member] = self._unpack(info)
            return self._files[member]

    def check(self) -> None:
        if not self._checked:
            self._zip.check_layout()
            check_against_record(self, read_all=True)
            self._checked = True

    def facts(self, member: str) -> RowFacts:
        known = self._facts.get(member)
        if known is None:
            for _ in self._iter_content(member):
                pass
            known = self._facts.of(member)
        return known

    def close(self) -> None:
        self._zip.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FormatError):
            self._name_member(error)
        self.close()

    def _name_member(self, error: FormatError) -> None:
        """Let an error about a file that was unpacked here name the member: the file is about to vanish."""
        if self._folder is not None and error.path.is_relative_to(self._folder.name):
            error.call_file(self.path / error.path.relative_to(self._folder.name))

    def _info(self, member: str) -> zipfile.ZipInfo:
        info = self._infos.get(member)
        if info is None or info.is_dir():
            raise WheelError(self.path, f"there is no member {member}", remedy="name one that it has")
        return info

    def _unpack(self, info: zipfile.ZipInfo) -> Path:
        file = self._private_folder() / info.filename
        file.parent.mkdir(parents=True, exist_ok=True)
        with naming_full_disk(file), file.open("wb") as stream:
            stream.writelines(self._iter_content(info.filename))
        return file

    def _iter_content(self, member: str) -> Iterator[bytes]:
        """Iterate over a member's bytes; its facts are known when all are read."""
        hashing = self._facts.hashing(member)
        yield from hashing.watch(self._zip.iter_content(self._info(member)))
        self._facts.keep(member, hashing.facts)

    def _private_folder(self) -> Path:
        with self._folder_lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="kpack-wheel-")
            return Path(self._folder.name)


def _member(info: zipfile.ZipInfo) -> Member:
    mode = (info.external_attr >> 16) & _PERMISSIONS
    return Member(path=info.filename, size=info.file_size, mode=mode or _PLAIN_MODE)
