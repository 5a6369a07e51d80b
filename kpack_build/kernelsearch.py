"""Find a converted binary's code objects in archives, by the rules of ROCm's kpack reader.

The reader tries the keys of a GPU's target id, most specific first, and for each key the archives on the
binary's path in their order. It stops at the first archive that lists the key, whether or not that archive
has the kernel (ROCm/rocm-systems#9874, #9953): `Search.answer` does the same, and `Search.rest` gives what
is never reached.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.archive import PackedKernelArchive
from kpack_build.errors import FormatError, TargetError
from kpack_build.targets import TargetId, lookup_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.archive import KernelLocation
    from kpack_build.filesets import FileSet, FoundFile

__all__ = ["Answer", "OpenArchive", "Search", "Shelf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenArchive:
    """An archive that can be read: its name, the targets that it lists, the place of each entry.

    Attributes:
        name: Its name in the set of files.
        file: The file.
        reader: What reads it.
        targets: The targets that it lists.
        places: For each key (binary and wrapper) and target, the place of the code object.
    """

    name: str
    file: Path
    reader: PackedKernelArchive
    targets: frozenset[str]
    places: Mapping[tuple[str, str], KernelLocation]

    def read(self, key: str, target: str) -> memoryview:
        """Return a code object's bytes, decompressed, or none where the archive has no such entry.

        Raises:
            FormatError: The archive is damaged.
        """
        return memoryview(self.reader.get_kernel(key, target) or b"")

    def parse_target(self, text: str) -> TargetId:
        """Parse a target that the archive names.

        Raises:
            FormatError: It is none.
        """
        try:
            return TargetId.parse(text)
        except TargetError as error:
            raise FormatError(self.file, "a target of the archive is no gfx target id", found=text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A code object that a search ended with: archive, the key under which it was found, its place."""

    archive: OpenArchive
    key: str
    target: TargetId
    place: KernelLocation

    def read(self) -> memoryview:
        """Return the code object's bytes, decompressed.

        Raises:
            FormatError: The archive is damaged.
        """
        return self.archive.read(self.key, str(self.target))


class Shelf:
    """Archives that are open, each once; a context manager that closes them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._archives: dict[str, OpenArchive] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def names(self) -> frozenset[str]:
        """The names of the archives that were opened."""
        return frozenset(self._archives)

    def open(self, found: FoundFile) -> OpenArchive:
        """Return an open archive.

        Raises:
            FormatError: The file is no sound archive.
        """
        if found.name not in self._archives:
            reader = self._stack.enter_context(PackedKernelArchive.read(found.file))
            self._archives[found.name] = OpenArchive(
                name=found.name,
                file=found.file,
                reader=reader,
                targets=frozenset(reader.gfx_arches),
                places={(key, target): place for key, target, place in reader.entries()},
            )
        return self._archives[found.name]


class Search:
    """The archives of one binary, in the order in which ROCm's reader opens them.

    Attributes:
        archives: The archives that its search paths lead to.
        missing: The search paths that lead to no file.
    """

    def __init__(self, files: FileSet, shelf: Shelf, binary: str, search_paths: Sequence[str]) -> None:
        found = [(search_path, files.find(binary, search_path)) for search_path in search_paths]
        self.missing = tuple(search_path for search_path, places in found if not places)
        self.archives = tuple(shelf.open(place) for _, places in found for place in places)

    @property
    def listed(self) -> tuple[TargetId, ...]:
        """The targets that any of the archives lists, sorted."""
        return tuple(
            sorted({archive.parse_target(target) for archive in self.archives for target in archive.targets})
        )

    def answer(self, key: str, agent: TargetId) -> Answer | None:
        """Return what ROCm's reader gives to a GPU, or None where its search ends without.

        Args:
            key: The binary's kernel name and the wrapper's index, as `kpack_build.layout.toc_key` makes it.
            agent: The GPU's target id.
        """
        for target, archive in self._visited(agent):
            place = archive.places.get((key, str(target)))
            return None if place is None else Answer(archive=archive, key=key, target=target, place=place)
        return None

    def rest(self, key: str, agent: TargetId) -> Answer | None:
        """Return the first code object for a GPU that lies anywhere, behind the end of the search too."""
        for target, archive in self._visited(agent):
            place = archive.places.get((key, str(target)))
            if place is not None:
                return Answer(archive=archive, key=key, target=target, place=place)
        return None

    def _visited(self, agent: TargetId) -> Iterator[tuple[TargetId, OpenArchive]]:
        for target in lookup_order(agent):
            for archive in self.archives:
                if str(target) in archive.targets:
                    yield target, archive
