"""What is in a path, as data: binaries, archives, loose code objects, per target and with sizes.

Headers alone are read (of a compressed bundle, what its entry table needs), so time does not grow with the
device code; kernels are read on demand. Damaged files of a folder or wheel are reported among the results,
a single damaged file is an error. Sizes and offsets are bytes. Nothing is judged here: `verification` does
that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from kpack_build.bundle import EntryKind, iter_bundles
from kpack_build.codeobject import Kernel, parse_code_object, read_kernels
from kpack_build.errors import FormatError
from kpack_build.filesets import FileSet, FoundFile, SourceKind, WheelFiles, map_file, open_files
from kpack_build.hostbinary import BinaryState, open_host_binary
from kpack_build.inventory import (
    ArchiveInfo,
    BinaryInfo,
    BundleInfo,
    DamagedFile,
    EntryInfo,
    Inspection,
    LooseInfo,
    StoredInfo,
    WrapperInfo,
)
from kpack_build.kernelsearch import OpenArchive, Search, Shelf
from kpack_build.layout import toc_key
from kpack_build.magic import FileKind, detect
from kpack_build.targets import GroupBy, group_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kpack_build.bundle import Bundle, BundleEntry
    from kpack_build.hostbinary import HostBinary

__all__ = ["encoding_name", "family_of", "inspect"]


def inspect(path: Path, *, kernels: bool = False) -> Inspection:
    """Find out what is in a path.

    Args:
        path: A wheel, its unpacked tree, any folder, a library, executable, archive, or code objects.
        kernels: Whether to read the kernels of every code object too, which needs its bytes.

    Raises:
        FormatError: A single file is damaged.
        WheelError: A wheel is damaged.
        OSError: Something cannot be read.
    """
    with ExitStack() as stack:
        files = stack.enter_context(open_files(path))
        return _Inspector(files, stack, kernels=kernels).run()


def family_of(target: str) -> str:
    """Return the sub-family of a target id."""
    return group_key(target, GroupBy.SUB_FAMILY)


def encoding_name(bundle: Bundle) -> str:
    """Name a bundle's encoding: "plain", or as "CCOB v3 zstd"."""
    if bundle.ccob is None:
        return "plain"
    return f"CCOB v{bundle.ccob.version} {bundle.ccob.method.name.lower()}"


class _Inspector:
    def __init__(self, files: FileSet, stack: ExitStack, *, kernels: bool) -> None:
        self._files = files
        self._shelf = stack.enter_context(Shelf())
        self._kernels = kernels
        self._stored: dict[str, tuple[StoredInfo, ...]] = {}
        self._read: dict[tuple[str, int], tuple[Kernel, ...]] = {}

    def run(self) -> Inspection:
        found: list[BinaryInfo | ArchiveInfo | LooseInfo | DamagedFile] = []
        for name in self._files.sizes:
            found.extend(self._look(name))
        contents = self._files.contents if isinstance(self._files, WheelFiles) else None
        return Inspection(
            path=self._files.path,
            kind=self._files.kind,
            files=len(self._files.sizes),
            size=sum(self._files.sizes.values()),
            distribution=contents.name if contents else None,
            version=contents.version if contents else None,
            binaries=tuple(info for info in found if isinstance(info, BinaryInfo)),
            archives=tuple(info for info in found if isinstance(info, ArchiveInfo)),
            loose=tuple(info for info in found if isinstance(info, LooseInfo)),
            damaged=tuple(info for info in found if isinstance(info, DamagedFile)),
        )

    def _look(self, name: str) -> Iterator[BinaryInfo | ArchiveInfo | LooseInfo | DamagedFile]:
        try:
            kind = detect(self._files, name)
            if kind is FileKind.ARCHIVE:
                yield self._archive(name)
            elif kind is FileKind.HOST_BINARY:
                yield from self._binary(name)
            elif kind is not FileKind.OTHER:
                yield self._loose(name, kind)
        except FormatError as error:
            if self._files.kind is SourceKind.FILE:
                raise
            yield DamagedFile(path=name, problem=error.clause)

    def _archive(self, name: str) -> ArchiveInfo:
        archive = self._shelf.open(FoundFile(name, self._files.file(name)))
        return ArchiveInfo(
            path=name,
            size=self._files.sizes[name],
            group=archive.reader.group_name,
            family=archive.reader.gfx_arch_family,
            targets=tuple(archive.reader.gfx_arches),
            scheme=archive.reader.compression_scheme,
            entries=self._entries_of(archive),
        )

    def _entries_of(self, archive: OpenArchive) -> tuple[StoredInfo, ...]:
        if archive.name not in self._stored:
            self._stored[archive.name] = tuple(
                StoredInfo(
                    key=key,
                    target=target,
                    family=family_of(target),
                    archive=archive.name,
                    ordinal=place.ordinal,
                    size=place.original_size,
                    stored_size=place.stored_size,
                    kernels=self._stored_kernels(archive, key, target),
                )
                for (key, target), place in archive.places.items()
            )
        return self._stored[archive.name]

    def _stored_kernels(self, archive: OpenArchive, key: str, target: str) -> tuple[Kernel, ...] | None:
        """Read a stored code object's kernels; entries that share a blob share them."""
        if not self._kernels:
            return None
        blob = (archive.name, archive.places[key, target].ordinal)
        if blob not in self._read:
            self._read[blob] = read_kernels(archive.read(key, target), path=archive.file)
        return self._read[blob]

    def _binary(self, name: str) -> Iterator[BinaryInfo]:
        binary = open_host_binary(self._files.file(name))
        if binary is None:
            return
        with binary:
            answers, missing = self._answers(name, binary)
            yield BinaryInfo(
                path=name,
                size=binary.size,
                state=binary.state.name.lower().replace("_", " "),
                machine=binary.machine,
                hip_library=binary.hip_library,
                device_bytes=binary.device_bytes,
                wrappers=tuple(
                    WrapperInfo(
                        index=wrapper.index, bundle=wrapper.bundle, answers=answers.get(wrapper.index, ())
                    )
                    for wrapper in binary.wrappers
                ),
                bundles=self._bundles(binary.bundles),
                refusals=binary.refusals() if binary.state is BinaryState.FAT else (),
                kernel_name=binary.reference.kernel_name if binary.reference else None,
                search_paths=binary.reference.search_paths if binary.reference else (),
                missing=missing,
            )

    def _answers(
        self, name: str, binary: HostBinary
    ) -> tuple[dict[int, tuple[StoredInfo, ...]], tuple[str, ...]]:
        """Return what archives have for each wrapper, and the search paths that lead to none."""
        if binary.reference is None:
            return {}, ()
        search = Search(self._files, self._shelf, name, binary.reference.search_paths)
        by_key: dict[str, list[StoredInfo]] = {}
        for archive in search.archives:
            for entry in self._entries_of(archive):
                by_key.setdefault(entry.key, []).append(entry)
        answers = {
            wrapper.index: tuple(by_key.get(toc_key(binary.reference.kernel_name, wrapper.index), ()))
            for wrapper in binary.wrappers
        }
        return answers, search.missing

    def _bundles(self, bundles: Iterable[Bundle]) -> tuple[BundleInfo, ...]:
        return tuple(
            BundleInfo(
                offset=bundle.offset,
                stored_size=bundle.stored_size,
                decoded_size=bundle.decoded_size,
                encoding=encoding_name(bundle),
                entries=self._entries(bundle),
            )
            for bundle in bundles
        )

    def _entries(self, bundle: Bundle) -> tuple[EntryInfo, ...]:
        if not self._kernels:
            return tuple(_entry(entry) for entry in bundle.entries)
        with bundle.open_decoded() as decoded:
            return tuple(
                _entry(
                    entry,
                    read_kernels(decoded.entry(entry), path=bundle.path)
                    if entry.kind is EntryKind.CODE_OBJECT
                    else None,
                )
                for entry in bundle.entries
            )

    def _loose(self, name: str, kind: FileKind) -> LooseInfo:
        file = self._files.file(name)
        size = self._files.sizes[name]
        with map_file(file) as view:
            if kind is FileKind.BUNDLE:
                return LooseInfo(
                    path=name, size=size, bundles=self._bundles(iter_bundles(view, 0, len(view), file))
                )
            target = str(parse_code_object(view, path=file).target)
            return LooseInfo(
                path=name,
                size=size,
                code_object=EntryInfo(
                    id="",
                    kind="code object",
                    target=target,
                    family=family_of(target),
                    size=size,
                    kernels=read_kernels(view, path=file) if self._kernels else None,
                ),
            )


def _entry(entry: BundleEntry, kernels: tuple[Kernel, ...] | None = None) -> EntryInfo:
    target = None if entry.target is None else str(entry.target)
    return EntryInfo(
        id=entry.id,
        kind=entry.kind.name.lower().replace("_", " "),
        target=target,
        family=None if target is None else family_of(target),
        size=entry.size,
        kernels=kernels,
    )
