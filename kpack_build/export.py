"""Write the code objects of anything to files: `<output>/<binary>/<wrapper>/<target>.hsaco`.

A code object is written under its own target, so a fat wheel and the packed one give the same files;
targets that an archive only answers with another target's object are left out, unless the archive is all
there is. In file names the features of a target are spelled out, as `gfx90a_sramecc-on_xnack-off.hsaco`:
`:` and `+` fail on some systems. Files of equal content are hard links of one, where the file system has
them. The output folder appears whole or not at all. Entries of bundles that are no code objects (SPIR-V,
host code) are not written.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from kpack_build.assignment import is_wanted
from kpack_build.bundle import EntryKind, iter_bundles
from kpack_build.codeobject import parse_code_object
from kpack_build.errors import WheelError
from kpack_build.filesets import FoundFile, map_file, open_files
from kpack_build.hostbinary import open_host_binary
from kpack_build.kernelsearch import Search, Shelf
from kpack_build.layout import ARCHIVE_FOLDER, toc_key
from kpack_build.magic import FileKind, detect
from kpack_build.outputs import output_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kpack_build.bundle import Bundle
    from kpack_build.filesets import FileSet
    from kpack_build.hostbinary import HostBinary, KpackReference
    from kpack_build.kernelsearch import OpenArchive
    from kpack_build.progress import Progress
    from kpack_build.report import JSONValue
    from kpack_build.targets import TargetId

__all__ = ["Export", "ExportedObject", "export_code_objects", "file_name", "iter_bundle_objects"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_STATES = {True: "on", False: "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedObject:
    """One file: its path below the output folder, whose code object it holds, its size and SHA-256."""

    path: str
    binary: str
    wrapper: int
    target: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """All files that were written."""

    source: Path
    output: Path
    objects: tuple[ExportedObject, ...]

    def to_json(self) -> JSONValue:
        """Return all of it as JSON values."""
        return cast(
            "JSONValue",
            {**dataclasses.asdict(self), "source": str(self.source), "output": str(self.output)},
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """A code object in a source; the bytes are valid until the next one is asked for."""

    binary: str
    wrapper: int
    target: TargetId
    data: memoryview


def export_code_objects(
    source: Path, output: Path, *, targets: frozenset[str] | None, progress: Progress
) -> Export:
    """Write the code objects of a source to files.

    Args:
        source: A wheel, its unpacked tree, any folder, a binary, an archive, or a file of code objects.
        output: The folder to make; it may be there if it is empty.
        targets: Processors and target ids to write, or None for all.
        progress: Is told of every file of the source, by its size in bytes.

    Raises:
        WheelError: The output folder is in use or inside the source, or the source is a damaged wheel.
        FormatError: A file of the source is damaged.
    """
    output = Path(os.path.realpath(output))
    if output.is_relative_to(os.path.realpath(source)):
        raise WheelError(
            output, "the result would lie inside its source", remedy="name another output folder"
        )
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise _in_use(output)
    with (
        output_folder(output.parent),
        tempfile.TemporaryDirectory(prefix=".kpack-build-", dir=output.parent) as private,
    ):
        folder = Path(private, output.name)
        folder.mkdir()
        with open_files(source) as files:
            progress.start("extracting code objects", sum(files.sizes.values()))
            objects = tuple(_write_all(_iter_wanted(files, targets, progress), folder))
            progress.finish()
        _move(folder, output)
    return Export(source=source, output=output, objects=objects)


def _in_use(output: Path) -> WheelError:
    return WheelError(output, "is there already and not empty", remedy="remove it or name another folder")


def _move(folder: Path, output: Path) -> None:
    """Give the result its name, which another run may have taken meanwhile."""
    try:
        folder.rename(output)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise _in_use(output) from error
        raise


def file_name(target: TargetId) -> str:
    """Return the name of the file for a target, without `:` and `+`."""
    name = target.processor
    for feature, state in (("sramecc", target.sramecc), ("xnack", target.xnack)):
        if state is not None:
            name += f"_{feature}-{_STATES[state]}"
    return f"{name}.hsaco"


def iter_bundle_objects(bundle: Bundle) -> Iterator[tuple[TargetId, memoryview]]:
    """Iterate over the code objects of a bundle, which is decoded once; bytes last until the next step."""
    with bundle.open_decoded() as decoded:
        for entry in bundle.entries:
            if entry.kind is EntryKind.CODE_OBJECT and entry.target is not None:
                yield entry.target, decoded.entry(entry)


def _write_all(found: Iterable[_Found], folder: Path) -> Iterator[ExportedObject]:
    """Write code objects; the same ones of a binary once, equal ones as links."""
    first: dict[str, Path] = {}
    written: dict[Path, str] = {}
    for item in found:
        digest = hashlib.sha256(item.data).hexdigest()
        place = _place(item, digest, written)
        if place in written:
            continue
        written[place] = digest
        _write(folder / place, item.data, folder / first[digest] if digest in first else None)
        first.setdefault(digest, place)
        yield ExportedObject(
            path=place.as_posix(),
            binary=item.binary,
            wrapper=item.wrapper,
            target=str(item.target),
            size=len(item.data),
            sha256=digest,
        )


def _place(item: _Found, digest: str, written: dict[Path, str]) -> Path:
    """Return where a code object goes; names that became equal by being made safe get a number."""
    folder = Path(*_safe_parts(item.binary), str(item.wrapper))
    name = Path(file_name(item.target))
    place, number = folder / name, 1
    while written.get(place, digest) != digest:
        number += 1
        place = folder / f"{name.stem}-{number}{name.suffix}"
    return place


def _safe_parts(name: str) -> list[str]:
    """Return the parts of a path below the output: names come from archives that anyone may have made."""
    parts = [part for part in PurePosixPath(name).parts if part.strip("/")]
    return [_UNSAFE.sub("_", part) if part.strip(".") else "_" * len(part) for part in parts] or ["_"]


def _write(file: Path, data: memoryview, equal: Path | None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if equal is None:
        file.write_bytes(data)
        return
    try:
        os.link(equal, file)
    except OSError:
        shutil.copyfile(equal, file)


def _iter_wanted(files: FileSet, targets: frozenset[str] | None, progress: Progress) -> Iterator[_Found]:
    with Shelf() as shelf:
        reader = _Reader(files, shelf)
        for name in reader.order():
            for found in reader.iter_file(name):
                if is_wanted(found.target, targets):
                    yield found
            progress.advance(files.sizes[name])


class _Reader:
    """Reads the code objects of a set of files: of binaries first, then what archives have beside them."""

    def __init__(self, files: FileSet, shelf: Shelf) -> None:
        self._files = files
        self._shelf = shelf
        self._kinds = {name: detect(files, name) for name in files.sizes}
        self._covered: set[str] = set()

    def order(self) -> list[str]:
        return sorted(self._kinds, key=lambda name: (self._kinds[name] is FileKind.ARCHIVE, name))

    def iter_file(self, name: str) -> Iterator[_Found]:
        kind = self._kinds[name]
        if kind is FileKind.OTHER or self._is_kept(name):
            return iter(())
        if kind is FileKind.HOST_BINARY:
            return self._iter_host_binary(name)
        if kind is FileKind.ARCHIVE:
            return self._iter_archive(name)
        return _iter_loose(name, self._files.file(name), kind)

    def _is_kept(self, name: str) -> bool:
        """Tell the bundles that a packed wheel keeps for the way back: their code objects are in archives."""
        in_archive_folder = PurePosixPath(name).parent.name == ARCHIVE_FOLDER
        return in_archive_folder and self._kinds[name] is FileKind.BUNDLE

    def _iter_host_binary(self, name: str) -> Iterator[_Found]:
        binary = open_host_binary(self._files.file(name))
        if binary is None:
            return
        with binary:
            if binary.reference is not None:
                yield from self._iter_converted(name, binary, binary.reference)
                return
            for number, bundle in enumerate(binary.bundles):
                wrappers = [wrapper.index for wrapper in binary.wrappers if wrapper.bundle == number]
                for target, data in iter_bundle_objects(bundle):
                    for wrapper in wrappers:
                        yield _Found(name, wrapper, target, data)

    def _iter_converted(self, name: str, binary: HostBinary, reference: KpackReference) -> Iterator[_Found]:
        search = Search(self._files, self._shelf, name, reference.search_paths)
        for wrapper in binary.wrappers:
            key = toc_key(reference.kernel_name, wrapper.index)
            self._covered.add(key)
            for archive in search.archives:
                for target, data in _own_objects(archive, key):
                    yield _Found(name, wrapper.index, target, data)

    def _iter_archive(self, name: str) -> Iterator[_Found]:
        archive = self._shelf.open(FoundFile(name, self._files.file(name)))
        for key, target in archive.places:
            if key not in self._covered:
                binary, wrapper = _split_key(key)
                yield _Found(binary, wrapper, archive.parse_target(target), archive.read(key, target))


def _own_objects(archive: OpenArchive, key: str) -> Iterator[tuple[TargetId, memoryview]]:
    """Iterate over what an archive has for a wrapper, without answers that are another target's object."""
    for name, text in archive.places:
        if name != key:
            continue
        data, target = archive.read(key, text), archive.parse_target(text)
        if parse_code_object(data, path=archive.file).agrees_with(target):
            yield target, data


def _split_key(key: str) -> tuple[str, int]:
    """Split an archive's key into binary and wrapper index; other tools may use keys without one."""
    binary, _, index = key.rpartition("#")
    if binary and index.isascii() and index.isdigit():
        return binary, int(index)
    return key, 0


def _iter_loose(name: str, file: Path, kind: FileKind) -> Iterator[_Found]:
    with map_file(file) as view:
        if kind is FileKind.CODE_OBJECT:
            yield _Found(name, 0, parse_code_object(view, path=file).target, view)
            return
        for number, bundle in enumerate(iter_bundles(view, 0, len(view), file)):
            for target, data in iter_bundle_objects(bundle):
                yield _Found(name, number, target, data)
