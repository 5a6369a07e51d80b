"""Write a changed wheel: a wheel file from a wheel file, a folder from a folder.

The result appears at its destination whole or not at all. Nothing is written from a source whose RECORD does
not hold. Members of a wheel file that do not change are copied as they are stored, never deflated again: that
is fast, and independent of the zlib at hand. New members get the date of `SOURCE_DATE_EPOCH`
(reproducible-builds.org), or 1980-01-01.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.errors import ConfigError, WheelError
from kpack_build.wheel.changes import (
    Change,
    Changes,
    base_record,
    check_changes,
    final_members,
    final_record,
)
from kpack_build.wheel.tree import TreeContents, iter_file
from kpack_build.wheel.verify import FactKeeper
from kpack_build.wheel.zipcontents import ZipContents
from kpack_build.wheel.zipwriter import DEFLATED, STORED, Packed, ZipEntry, ZipWriter, pack_data

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from typing import BinaryIO

    from kpack_build.wheel.contents import WheelContents

__all__ = ["Written", "check_destination", "copy_contents", "write_contents", "write_tree", "write_wheel"]

_EARLIEST = 315532800
"""1980-01-01 00:00:00 UTC, the first date that a zip file can hold, in seconds since 1970."""
_LATEST = 4354819198
"""2107-12-31 23:59:58 UTC, the last one."""
_PLAIN = 0o644
_EXECUTABLE = 0o755
_REGULAR = 0o100000
_WORKERS = 2
_MOST_WORKERS = 8
_CHUNK = 256 * 1024
_LARGE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written.

    Attributes:
        path: Where.
        size: Size of the wheel file in bytes; of all files, for a folder.
        installed_size: Size of all files in bytes, unpacked.
    """

    path: Path
    size: int
    installed_size: int


def write_contents(source: WheelContents, changes: Changes, destination: Path) -> Written:
    """Write a changed copy of a wheel, as a file or a folder as its source is.

    Args:
        source: The wheel.
        changes: What is changed.
        destination: Path of the result. A wheel file that is there is replaced, a folder is not.

    Raises:
        WheelError: The source is not sound, the changes make no sense, or the destination is in use.
        FormatError: The source is damaged.
        ConfigError: `SOURCE_DATE_EPOCH` is no number.
    """
    if isinstance(source, ZipContents):
        return write_wheel(source, changes, destination)
    if isinstance(source, TreeContents):
        return write_tree(source, changes, destination)
    raise TypeError(f"cannot write a {type(source).__name__}")


def copy_contents(source: WheelContents, destination: Path) -> Written:
    """Write an unchanged copy of a wheel, byte for byte, if its RECORD holds.

    Args:
        source: The wheel.
        destination: Path of the result. A wheel file that is there is replaced, a folder is not.

    Raises:
        WheelError: The source is not sound, or the destination is in use.
        FormatError: The source is damaged.
    """
    installed = sum(member.size for member in source.members)
    if isinstance(source, TreeContents):
        with _new_folder(source, destination) as root:
            _copy_members(source, root, [member.path for member in source.members])
            source.check()
        return Written(path=destination, size=installed, installed_size=installed)
    source.check()
    with _new_file(source.path, destination) as stream:
        stream.writelines(iter_file(source.path))
    return Written(path=destination, size=destination.stat().st_size, installed_size=installed)


def write_wheel(source: ZipContents, changes: Changes, destination: Path) -> Written:
    """Write a changed copy of a wheel file (see `write_contents`)."""
    check_changes(source, changes)
    source.check()
    facts = FactKeeper(base_record(source, changes))
    entries = {info.filename: info for info in source.entries}
    plan = _ZipPlan(source=source, changes=changes, entries=entries, date=_date(), facts=facts)
    with _new_file(source.path, destination) as stream, ExitStack() as stack:
        writer = ZipWriter(stream)
        deflated = _deflate_ahead(plan, destination.parent, stack)
        for name in _with_folders(source, changes):
            if name in deflated:
                writer.copy(plan.entry(name), *deflated[name].result())
            else:
                plan.write(writer, name)
        record = final_record(source, changes, facts.all())
        writer.add(plan.entry(source.record.own_path), len(record), [record])
        writer.close()
    return Written(
        path=destination,
        size=destination.stat().st_size,
        installed_size=_installed_size(source, changes, len(record)),
    )


def write_tree(source: TreeContents, changes: Changes, destination: Path) -> Written:
    """Write a changed copy of an unpacked wheel (see `write_contents`)."""
    check_changes(source, changes)
    facts = FactKeeper(base_record(source, changes))
    modes = {member.path: member.mode for member in source.members}
    members = final_members(source, changes)

    def write(member: str) -> None:
        hashing = facts.hashing(member)
        mode = modes.get(member, _EXECUTABLE if member in changes.executable else _PLAIN)
        change = changes.files[member]
        if isinstance(change, Path) and member in changes.given:
            deque(hashing.watch(iter_file(change)), maxlen=0)
            _move_file(change, root / member, mode)
        else:
            _write_file(root / member, hashing.watch(_iter_change(change)), mode)
        facts.keep(member, hashing.facts)

    with _new_folder(source, destination) as root:
        own_path = source.record.own_path
        kept = [member for member in members if member not in changes.files and member != own_path]
        _copy_members(source, root, kept)
        source.check()
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="kpack-wheel") as pool:
            for _ in pool.map(write, changes.files):
                pass
        record = final_record(source, changes, facts.all())
        _write_file(root / own_path, [record], modes[own_path])
        size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    return Written(path=destination, size=size, installed_size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ZipPlan:
    """How the members of a changed wheel file are written."""

    source: ZipContents
    changes: Changes
    entries: dict[str, zipfile.ZipInfo]
    date: tuple[int, int, int, int, int, int]
    facts: FactKeeper

    def write(self, writer: ZipWriter, name: str) -> None:
        change = self.changes.files.get(name)
        if change is None:
            info = self.entries[name]
            packed = Packed(crc=info.CRC, size=info.file_size, stored_size=info.compress_size)
            writer.copy(self.entry(name), packed, self.source.iter_raw(info))
            return
        hashing = self.facts.hashing(name)
        writer.add(self.entry(name), _size(change), hashing.watch(_iter_change(change)))
        self.facts.keep(name, hashing.facts)

    def deflate(self, name: str, stream: BinaryIO) -> tuple[Packed, Iterator[bytes]]:
        """Deflate a changed member into a stream; return what `ZipWriter.copy` wants of it."""
        change = self.changes.files[name]
        hashing = self.facts.hashing(name)
        chunks = hashing.watch(_iter_change(change))
        packed = pack_data(self.entry(name), _size(change), chunks, stream)
        self.facts.keep(name, hashing.facts)
        stream.seek(0)
        return packed, iter(partial(stream.read, _CHUNK), b"")

    def entry(self, name: str) -> ZipEntry:
        info = self.entries.get(name)
        if info is None:
            mode = _EXECUTABLE if name in self.changes.executable else _PLAIN
            method = STORED if name in self.changes.stored else DEFLATED
            attributes = (_REGULAR | mode) << 16
            return ZipEntry(name=name, date_time=self.date, method=method, external_attr=attributes)
        return ZipEntry(
            name=name,
            date_time=info.date_time,
            method=STORED if name in self.changes.stored else info.compress_type,
            external_attr=info.external_attr,
            create_system=info.create_system,
        )


def _deflate_ahead(
    plan: _ZipPlan, folder: Path, stack: ExitStack
) -> dict[str, Future[tuple[Packed, Iterator[bytes]]]]:
    """Start to deflate large changed members on other threads, each into an unnamed file of its own.

    Deflating takes far longer than all other work of writing. The members are written in their order all the
    same, with the same bytes, so that the number of threads does not show.
    """
    names = sorted(
        name
        for name, change in plan.changes.files.items()
        if plan.entry(name).method == DEFLATED and _size(change) >= _LARGE
    )
    streams: dict[str, BinaryIO] = {}
    for name in names:
        stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller's stack closes it
        streams[name] = stack.enter_context(stream)
    pool = ThreadPoolExecutor(min(_MOST_WORKERS, os.cpu_count() or 1), thread_name_prefix="kpack-wheel")
    stack.callback(pool.shutdown, cancel_futures=True)
    return {name: pool.submit(plan.deflate, name, streams[name]) for name in names}


def _with_folders(source: ZipContents, changes: Changes) -> Iterator[str]:
    """Iterate over all entries but RECORD in their order; a folder's stays before what it stood before."""
    folders: dict[str, list[str]] = {}
    pending: list[str] = []
    for info in source.entries:
        if info.is_dir():
            pending.append(info.filename)
        elif info.filename not in changes.removed:
            folders[info.filename] = pending
            pending = []
    for member in final_members(source, changes):
        yield from folders.get(member, ())
        if member != source.record.own_path:
            yield member
    yield from pending


def _size(change: Change) -> int:
    return len(change) if isinstance(change, bytes) else change.stat().st_size


def _iter_change(change: Change) -> Iterator[bytes]:
    return iter((change,)) if isinstance(change, bytes) else iter_file(change)


def _installed_size(source: WheelContents, changes: Changes, record_size: int) -> int:
    gone = changes.removed | changes.files.keys() | {source.record.own_path}
    kept = sum(member.size for member in source.members if member.path not in gone)
    return kept + sum(map(_size, changes.files.values())) + record_size


def _date() -> tuple[int, int, int, int, int, int]:
    text = os.environ.get("SOURCE_DATE_EPOCH") or str(_EARLIEST)
    try:
        epoch = min(max(int(text), _EARLIEST), _LATEST)
    except ValueError as error:
        raise ConfigError(
            "SOURCE_DATE_EPOCH",
            f"{text!r} is no number",
            allowed="seconds since 1970-01-01, as a whole number",
            source="environment",
        ) from error
    return time.gmtime(epoch)[:6]


def _copy_members(source: TreeContents, root: Path, members: list[str]) -> None:
    """Copy files of a tree and hash them on the way, so that a `check` after it need not read them again."""
    modes = {member.path: member.mode for member in source.members}

    def copy(member: str) -> None:
        _write_file(root / member, source.iter_content(member), modes[member])

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="kpack-wheel") as pool:
        for _ in pool.map(copy, members):
            pass


def _write_file(file: Path, chunks: Iterable[bytes], mode: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb", buffering=0) as stream:
        for chunk in chunks:
            stream.write(chunk)
    file.chmod(mode)


def _move_file(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    target.chmod(mode)


def check_destination(source: Path, destination: Path) -> None:
    """Check that a result may be written: a file may replace a file, and that is all.

    It is worth asking before any work. Nothing is made, not even a folder.

    Args:
        source: A wheel or an unpacked tree.
        destination: The file or folder that is to be written from it.

    Raises:
        WheelError: The result would replace its source, lie inside it, or take the place of something else.
    """
    # Path.resolve raises RuntimeError for links in a circle before Python 3.13.
    place, origin = Path(os.path.realpath(destination)), Path(os.path.realpath(source))
    if place == origin:
        raise WheelError(source, "the result would replace the source", remedy="name another output folder")
    if place.is_relative_to(origin):
        raise WheelError(
            destination, "the result would lie inside its source", remedy="name another output folder"
        )
    if destination.is_dir() or (destination.exists() and source.is_dir()):
        raise WheelError(destination, "something is there already", remedy="remove it or name another folder")


@contextmanager
def _new_file(source: Path, destination: Path) -> Iterator[BinaryIO]:
    """Open a file beside the destination, which takes its name if all goes well and vanishes otherwise."""
    check_destination(source, destination)
    private = _private_name(destination)
    try:
        with private.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        private.replace(destination)
    finally:
        private.unlink(missing_ok=True)
    _sync_folder(destination.parent)


@contextmanager
def _new_folder(source: TreeContents, destination: Path) -> Iterator[Path]:
    """Make a folder beside the destination in the same way; yield the place of the dist-info folder in it.

    Its files are not synced one by one, which takes longer than all the rest: a tree is a step of a build.
    """
    check_destination(source.path, destination)
    private = _private_name(destination)
    try:
        root = private / source.root.relative_to(source.path)
        root.mkdir(parents=True)
        yield root
        private.rename(destination)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _private_name(destination: Path) -> Path:
    # The destination's name may be as long as a file system allows, so it is no part of this one.
    return destination.with_name(f".kpack-build-{secrets.token_hex(8)}.tmp")


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
