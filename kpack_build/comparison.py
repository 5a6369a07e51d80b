"""Hold a packed wheel against the fat one: each code object must come back under its own target.

The packed side is asked as ROCm's reader would be asked; a binary that stayed fat is read itself.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from kpack_build.assignment import is_wanted
from kpack_build.errors import FormatError, WheelError
from kpack_build.export import iter_bundle_objects
from kpack_build.filesets import WheelFiles
from kpack_build.hostbinary import BinaryState, open_host_binary
from kpack_build.kernelsearch import Search
from kpack_build.layout import toc_key
from kpack_build.magic import FileKind, detect
from kpack_build.wheel import open_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpack_build.hostbinary import HostBinary
    from kpack_build.packedwheel import PackedWheel
    from kpack_build.progress import Progress
    from kpack_build.targets import TargetId

__all__ = ["compare"]


def compare(packed: PackedWheel, fat: Path, *, targets: frozenset[str] | None, progress: Progress) -> None:
    """Compare every code object of a fat wheel with the packed wheel's; faults and counts go to `packed`.

    Args:
        packed: The packed wheel.
        fat: The fat wheel, or its unpacked tree.
        targets: Processors and target ids that are expected; None for all.
        progress: Is told how far the work is, in bytes.

    Raises:
        WheelError: The fat wheel is damaged, or is itself packed and has nothing to compare.
        FormatError: A binary of it is damaged.
    """
    with open_wheel(fat) as contents:
        files = WheelFiles(contents)
        names = [name for name in files.sizes if detect(files, name) is FileKind.HOST_BINARY]
        progress.start("comparing code objects", sum(files.sizes[name] for name in names))
        states = set()
        for name in names:
            original = open_host_binary(files.file(name))
            if original is not None:
                with original:
                    states.add(original.state)
                    if original.state is BinaryState.FAT:
                        _compare_binary(packed, name, original, targets)
            progress.advance(files.sizes[name])
        progress.finish()
    if BinaryState.CONVERTED in states and BinaryState.FAT not in states:
        problem = "is packed itself: there is nothing to compare with"
        raise WheelError(fat, problem, remedy="give the fat wheel")


def _compare_binary(
    packed: PackedWheel, name: str, original: HostBinary, targets: frozenset[str] | None
) -> None:
    if name not in packed.files.sizes:
        packed.fault(name, "the fat wheel has it, this one does not")
        return
    with ExitStack() as stack:
        try:
            digests = _open_side(packed, name, stack)
            for wrapper, target, data in _iter_objects(original):
                if is_wanted(target, targets):
                    packed.counts.compared += 1
                    _compare_object(packed, name, (wrapper, target, data), digests)
        except FormatError as error:
            packed.damage(name, error)


def _compare_object(
    packed: PackedWheel, name: str, found: tuple[int, TargetId, memoryview], digests: _Digests
) -> None:
    wrapper, target, data = found
    digest = digests.find(wrapper, target)
    if digest is None:
        packed.fault(name, f"wrapper {wrapper} has nothing for {target}, which the fat wheel has")
    elif digest != hashlib.sha256(data).digest():
        packed.fault(name, f"wrapper {wrapper} for {target}: the code object is not that of the fat wheel")


def _open_side(packed: PackedWheel, name: str, stack: ExitStack) -> _Digests:
    binary = open_host_binary(packed.files.file(name))
    if binary is None:
        return _FatDigests({})
    stack.enter_context(binary)
    if binary.reference is None:
        return _FatDigests(
            {
                (wrapper, target): hashlib.sha256(data).digest()
                for wrapper, target, data in _iter_objects(binary)
            }
        )
    search = Search(packed.files, packed.shelf, name, binary.reference.search_paths)
    return _ArchiveDigests(search, binary.reference.kernel_name)


class _Digests(Protocol):
    """The code objects of the packed side, by their SHA-256."""

    def find(self, wrapper: int, target: TargetId) -> bytes | None:
        """Return the digest of what a wrapper has for a target."""


class _FatDigests:
    def __init__(self, digests: dict[tuple[int, TargetId], bytes]) -> None:
        self._digests = digests

    def find(self, wrapper: int, target: TargetId) -> bytes | None:
        return self._digests.get((wrapper, target))


class _ArchiveDigests:
    def __init__(self, search: Search, kernel_name: str) -> None:
        self._search = search
        self._kernel_name = kernel_name

    def find(self, wrapper: int, target: TargetId) -> bytes | None:
        answer = self._search.answer(toc_key(self._kernel_name, wrapper), target)
        if answer is None or answer.target != target:
            return None
        return hashlib.sha256(answer.read()).digest()


def _iter_objects(binary: HostBinary) -> Iterator[tuple[int, TargetId, memoryview]]:
    """Iterate over (wrapper, target, bytes) of a fat binary; each bundle is decoded once."""
    for number, bundle in enumerate(binary.bundles):
        wrappers = [wrapper.index for wrapper in binary.wrappers if wrapper.bundle == number]
        for target, data in iter_bundle_objects(bundle):
            for wrapper in wrappers:
                yield wrapper, target, data
