"""Check a packed wheel: does every GPU that it has code for get the right code object?

Each wrapper and each target that its index answers is looked up as ROCm's reader does it, from the binary's
own map to the bytes of the code object, which must be for that target and have the index's SHA-256. For
every state that a GPU of a listed processor can have, the search must end with the object that HIP would
choose from the fat binary. Archives, RECORD and the layout of converted binaries are checked too. Binaries
that other tools converted are held to what can be known without an index. All faults are collected; nothing
is changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kpack_build.codeobject import parse_code_object
from kpack_build.comparison import compare
from kpack_build.elf.fatbin import find_device_code
from kpack_build.elf.image import parse_image
from kpack_build.elf.refusal import layout_faults
from kpack_build.errors import FormatError, KpackError, TargetError, VerificationError
from kpack_build.filesets import FoundFile, WheelFiles, map_file
from kpack_build.hostbinary import BinaryState, KpackReference, open_host_binary
from kpack_build.kernelsearch import Search, Shelf
from kpack_build.layout import find_home, toc_key
from kpack_build.magic import FileKind, detect
from kpack_build.packedwheel import Counts, Fault, PackedWheel
from kpack_build.targets import TargetId, feature_states, hip_choice
from kpack_build.wheel import open_wheel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kpack_build.elf.image import ElfImage
    from kpack_build.hostbinary import HostBinary
    from kpack_build.index import ArchiveRow, CodeObjectRow, Index
    from kpack_build.kernelsearch import Answer, OpenArchive
    from kpack_build.progress import Progress
    from kpack_build.report import JSONValue

__all__ = ["Verification", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result: what was checked, what is wrong, and what is worth knowing."""

    path: Path
    counts: Counts
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def raise_for_faults(self) -> None:
        """Raise `VerificationError` with all faults, if there are any."""
        if self.faults:
            raise VerificationError(self.path, [str(fault) for fault in self.faults])

    def to_json(self) -> JSONValue:
        """Return the result as JSON values."""
        return cast("JSONValue", {"sound": self.is_sound, **dataclasses.asdict(self), "path": str(self.path)})


def verify(
    source: Path,
    *,
    against: Path | None = None,
    targets: frozenset[str] | None = None,
    progress: Progress,
) -> Verification:
    """Check a packed wheel, or its unpacked tree.

    Args:
        source: The wheel.
        against: The fat wheel that it was made from: each of its code objects must come back byte for byte.
        targets: Processors and target ids that are expected of the fat wheel; None for all.
        progress: Is told how far the work is, in bytes.

    Raises:
        WheelError: The source (or the fat wheel) is no wheel.
        OSError: Something cannot be read.
    """
    with open_wheel(source) as contents, Shelf() as shelf:
        packed = PackedWheel(WheelFiles(contents), shelf)
        _check_record(packed)
        progress.start("verifying archives", sum(row["size"] for _, row in packed.archive_rows()))
        for index_path, index in packed.indexes.items():
            _IndexCheck(packed, index_path, index).run(progress)
        progress.finish()
        for name in packed.binaries:
            _check_binary(packed, name)
        if against is not None:
            compare(packed, against, targets=targets, progress=progress)
        _note_unused(packed)
        return Verification(
            path=source, counts=packed.counts, faults=tuple(packed.faults), notes=tuple(packed.notes)
        )


def _check_record(packed: PackedWheel) -> None:
    try:
        packed.files.contents.check()
    except KpackError as error:
        packed.fault(f"{packed.files.contents.dist_info}/RECORD", str(error))


def _note_unused(packed: PackedWheel) -> None:
    """Note the archives that no index names and no binary looks for: they take room and serve nobody."""
    indexed = {path for path, _ in packed.archive_rows()}
    packed.notes.extend(
        f"{name} is an archive that nothing in the wheel looks for"
        for name in packed.files.sizes
        if name not in packed.shelf.names | indexed and detect(packed.files, name) is FileKind.ARCHIVE
    )


class _IndexCheck:
    """Checks the archives and code objects of one index."""

    def __init__(self, packed: PackedWheel, path: str, index: Index) -> None:
        self._packed = packed
        self._path = path
        self._index = index

    def run(self, progress: Progress) -> None:
        objects = self._index["code_objects"]
        for number, row in enumerate(self._index["archives"]):
            name = posixpath.join(posixpath.dirname(self._path), row["file"])
            self._packed.counts.archives += 1
            own = [found for found in objects if found["archive"] == number]
            try:
                self._check_archive(name, row, own)
            except (FormatError, TargetError) as error:
                self._packed.damage(name, error)
            progress.advance(row["size"])
        for binary in self._index["binaries"]:
            if binary["path"] not in self._packed.binaries:
                self._packed.fault(binary["path"], f"{self._path} names it, but there is no such library")
        self._check_kept()
        self._check_added()

    def _check_added(self) -> None:
        """Check that the loader is whole: what lies beside the index has checks of its own."""
        undo = self._index["restore"]
        for name in sorted({*undo["added"], *undo["files"]} - self._packed.files.sizes.keys()):
            if posixpath.dirname(name) == posixpath.dirname(self._path):
                continue
            self._packed.fault(name, f"{self._path} names it, but it is not in the wheel")

    def _check_kept(self) -> None:
        """Check the stored bytes of compressed bundles that are kept for the way back."""
        if not self._index["kept"]:
            return
        name = posixpath.join(posixpath.dirname(self._path), f"{self._index['group']}.ccob")
        if name not in self._packed.files.sizes:
            self._packed.fault(name, f"{self._path} names it, but it is not in the wheel")
            return
        with map_file(self._packed.files.file(name)) as view:
            for row in self._index["kept"]:
                stored = view[row["offset"] : row["offset"] + row["size"]]
                if hashlib.sha256(stored).hexdigest() != row["sha256"]:
                    self._packed.fault(name, f"the bundle at {row['offset']:#x} has another SHA-256")

    def _check_archive(self, name: str, row: ArchiveRow, objects: Sequence[CodeObjectRow]) -> None:
        if name not in self._packed.files.sizes:
            self._packed.fault(name, f"{self._path} names it, but it is not in the wheel")
            return
        file = self._packed.files.file(name)
        if _sha256(file) != row["sha256"]:
            self._packed.fault(name, f"its SHA-256 is not that of {self._path}")
        archive = self._packed.shelf.open(FoundFile(name, file))
        if archive.targets != frozenset(row["targets"]):
            self._packed.fault(name, f"it lists other targets than {self._path} says")
        places: dict[tuple[int, int, int], tuple[str, str]] = {}
        for entry, place in archive.places.items():
            places.setdefault((place.offset, place.stored_size, place.original_size), entry)
        for found in objects:
            entry_of = places.get((found["offset"], found["stored_size"], found["size"]))
            if entry_of is None:
                problem = f"it has no code object of {found['size']} bytes at {found['offset']:#x}"
                self._packed.fault(name, f"{problem}, as {self._path} says")
            else:
                self._check_object(archive, entry_of, found)

    def _check_object(self, archive: OpenArchive, entry: tuple[str, str], row: CodeObjectRow) -> None:
        self._packed.counts.code_objects += 1
        data = archive.read(*entry)
        where = f"the code object for {row['target']} at {row['offset']:#x}"
        if hashlib.sha256(data).hexdigest() != row["sha256"]:
            self._packed.fault(archive.name, f"{where} has another SHA-256 than {self._path} says")
            return
        if not parse_code_object(data, path=archive.file).agrees_with(TargetId.parse(row["target"])):
            self._packed.fault(archive.name, f"{where} was built for another target")


def _check_binary(packed: PackedWheel, name: str) -> None:
    try:
        binary = open_host_binary(packed.files.file(name))
        if binary is None:
            return
        with binary:
            if binary.reference is not None:
                _check_converted(packed, name, binary, binary.reference)
            elif packed.row_of(name) is not None:
                packed.fault(name, "the index says that it was converted, but it has no kpack map")
            elif binary.state is BinaryState.FAT:
                _check_fat(packed, name, binary)
    except (FormatError, TargetError) as error:
        packed.damage(name, error)


def _check_fat(packed: PackedWheel, name: str, binary: HostBinary) -> None:
    """Accept a binary with device code where there is a reason for it to stay as it is."""
    reasons = binary.refusals() or tuple(_hidden_reasons(binary))
    if find_home(name, frozenset(packed.files.sizes)) is None:
        reasons += ("it is installed outside of site-packages",)
    if reasons:
        packed.notes.append(f"{name} keeps its device code: {'; '.join(reasons)}")
    else:
        packed.fault(name, "it still holds its device code, and could be converted")


def _hidden_reasons(binary: HostBinary) -> Iterator[str]:
    """Iterate over the reasons to stay fat that only decoding a bundle shows."""
    for number, bundle in enumerate(binary.bundles):
        with bundle.open_decoded() as decoded:
            if decoded.unaccounted():
                yield f"bundle {number} has bytes that belong to no code object"


def _check_converted(packed: PackedWheel, name: str, binary: HostBinary, reference: KpackReference) -> None:
    packed.counts.binaries += 1
    packed.counts.wrappers += len(binary.wrappers)
    with map_file(binary.path) as view:
        image = parse_image(view, binary.path)
        for problem in (*layout_faults(image), *_wrapper_faults(image, reference)):
            packed.fault(name, problem)
    search = Search(packed.files, packed.shelf, name, reference.search_paths)
    for missing in search.missing:
        packed.fault(name, f"it looks for {missing}, which is not in the wheel")
    row = packed.row_of(name)
    if row is None:
        _check_foreign(packed, name, binary, search)
        return
    index, facts = row
    if reference.kernel_name != facts["kernel_name"]:
        packed.fault(name, f"its kernel name is {reference.kernel_name}, not {facts['kernel_name']}")
    if len(binary.wrappers) != len(facts["wrappers"]):
        packed.fault(name, f"it has {len(binary.wrappers)} wrappers, not {len(facts['wrappers'])}")
        return
    check = _AnswerCheck(packed, name, search, index["code_objects"])
    for wrapper, answers in zip(binary.wrappers, facts["wrappers"], strict=True):
        check.run(toc_key(reference.kernel_name, wrapper.index), answers)


def _wrapper_faults(image: ElfImage, reference: KpackReference) -> Iterator[str]:
    """Iterate over what is wrong with the wrappers themselves: the runtime goes by nothing else."""
    code = find_device_code(image)
    for index, wrapper in enumerate(code.wrappers if code is not None else ()):
        if wrapper.reserved != index:
            yield f"wrapper {index} asks for the code objects of wrapper {wrapper.reserved}"
        offset = None if wrapper.pointer is None else image.offset_of(wrapper.pointer.value)
        if offset is None:
            yield f"wrapper {index} points to nothing in the file"
        elif KpackReference.parse(image.data[offset:], path=image.path, offset=offset) != reference:
            yield f"wrapper {index} points to another kpack map than the first one"


def _check_foreign(packed: PackedWheel, name: str, binary: HostBinary, search: Search) -> None:
    """Check a binary that another tool converted: something must answer, and nothing be out of reach."""
    packed.notes.append(f"{name} was converted by another tool; no index says what it had")
    if binary.reference is None or not search.archives:
        return
    for wrapper in binary.wrappers:
        key = toc_key(binary.reference.kernel_name, wrapper.index)
        answered = False
        for target in search.listed:
            packed.counts.answers += 1
            answer = search.answer(key, target)
            answered = answered or answer is not None
            if answer is None and search.rest(key, target) is not None:
                packed.fault(name, f"a GPU of {target} does not find {key}, which lies behind another target")
        if not answered:
            packed.fault(name, f"no archive has anything for {key}")


class _AnswerCheck:
    """Checks that one binary's wrappers get what the index says, and what HIP would choose."""

    def __init__(
        self, packed: PackedWheel, name: str, search: Search, objects: Sequence[CodeObjectRow]
    ) -> None:
        self._packed = packed
        self._name = name
        self._search = search
        self._objects = objects

    def run(self, key: str, answers: Mapping[str, int]) -> None:
        for text, number in answers.items():
            self._packed.counts.answers += 1
            answer = self._search.answer(key, TargetId.parse(text))
            if answer is None or str(answer.target) != text:
                self._fault(key, text, "ROCm's search does not find it in the archives")
            elif not self._is_object(answer, number):
                self._fault(key, text, "the archives answer with another code object than the index says")
        self._check_gpus(key, {self._objects[number]["target"] for number in answers.values()}, answers)

    def _check_gpus(self, key: str, available: Iterable[str], answers: Mapping[str, int]) -> None:
        targets = {TargetId.parse(text) for text in available}
        # An object may be stored in several archives: any copy of the right one will do.
        digests = {
            TargetId.parse(self._objects[number]["target"]): self._objects[number]["sha256"]
            for number in answers.values()
        }
        for agent in self._agents():
            choice = hip_choice(agent, targets)
            if choice is None:
                continue
            self._packed.counts.gpus += 1
            answer = self._search.answer(key, agent)
            number = None if answer is None else answers.get(str(answer.target))
            if number is None or self._objects[number]["sha256"] != digests[choice]:
                self._fault(key, str(agent), f"HIP would choose {choice}, but ROCm's search ends elsewhere")

    def _agents(self) -> Iterator[TargetId]:
        for processor in sorted({target.processor for target in self._search.listed}):
            yield from feature_states(processor)

    def _is_object(self, answer: Answer, number: int) -> bool:
        row = self._objects[number]
        return (answer.place.offset, answer.place.stored_size, answer.place.original_size) == (
            row["offset"],
            row["stored_size"],
            row["size"],
        )

    def _fault(self, key: str, target: str, problem: str) -> None:
        self._packed.fault(self._name, f"{key} for {target}: {problem}")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
