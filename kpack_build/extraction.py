"""Move code objects from binaries into archives: decoded, hashed, compressed, and written in a fixed order.

A code object is a view of the mapped file (or of its decoded bundle) until it is compressed, and is let go
then. The main thread decodes the next bundle while workers compress the last ones; the number of open
bundles and of compressed objects that wait for their turn is bounded by the number of workers, so memory
does not grow with the wheel.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpack_build.assignment import ObjectKey, Placement, Plan
from kpack_build.codeobject import parse_code_object
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpack_build.archive import PackedKernelArchive, PreparedKernel
    from kpack_build.bundle import BundleEntry, DecodedBundle
    from kpack_build.progress import Progress
    from kpack_build.scan import ScannedBinary

__all__ = ["ExtractedObject", "UnsafeBinaries", "extract"]

_WAITING_PER_WORKER = 2


class UnsafeBinaries(Exception):  # noqa: N818 - the pipeline starts over without them: no error by itself
    """Binaries that turned out, while decoding, to be unsafe to convert; nothing of the run may be kept.

    Attributes:
        reasons: For each binary's path in the wheel, why.
    """

    def __init__(self, reasons: Mapping[str, tuple[str, ...]]) -> None:
        self.reasons = dict(reasons)
        super().__init__(", ".join(self.reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedObject:
    """A stored code object: its size in bytes, its SHA-256, and its ordinal in each archive that has it."""

    size: int
    sha256: str
    ordinals: Mapping[int, int]


@dataclass(slots=True, eq=False)
class _OpenBundle:
    """A decoded bundle; `left` counts the code objects that are still to be collected from it."""

    scanned: ScannedBinary
    number: int
    decoded: DecodedBundle
    close: ExitStack
    left: int = 0


def extract(
    binaries: Sequence[ScannedBinary],
    plan: Plan,
    archives: Sequence[PackedKernelArchive],
    *,
    workers: int,
    progress: Progress,
) -> dict[ObjectKey, ExtractedObject]:
    """Store all code objects of a plan in its archives.

    Args:
        binaries: The binaries, in the order in which their code objects are stored.
        plan: What goes where.
        archives: The open archives of the plan.
        workers: How many threads hash and compress.
        progress: Is told of every code object, by its size in bytes.

    Returns:
        Where each code object of the plan went.

    Raises:
        UnsafeBinaries: A bundle has bytes that nothing accounts for, or cannot be decoded.
    """
    run = _Extraction(plan, archives, workers, progress)
    run.extract(binaries)
    if run.reasons:
        raise UnsafeBinaries(run.reasons)
    return run.stored


class _Extraction:
    def __init__(
        self, plan: Plan, archives: Sequence[PackedKernelArchive], workers: int, progress: Progress
    ) -> None:
        self._plan = plan
        self._archives = archives
        self._workers = workers
        self._progress = progress
        self._open: set[_OpenBundle] = set()
        self._alive = 0
        self._jobs: deque[tuple[_OpenBundle, ObjectKey, Future[PreparedKernel]]] = deque()
        self.stored: dict[ObjectKey, ExtractedObject] = {}
        self.reasons: dict[str, tuple[str, ...]] = {}

    def extract(self, binaries: Sequence[ScannedBinary]) -> None:
        decoding: deque[tuple[str, Future[_OpenBundle | str]]] = deque()
        with ThreadPoolExecutor(self._workers, thread_name_prefix="kpack-build") as pool:
            try:
                for scanned in binaries:
                    for number in range(len(scanned.binary.bundles)):
                        self._make_room()
                        job = pool.submit(self._open_bundle, scanned, number)
                        decoding.append((scanned.path, job))
                        if len(decoding) == self._workers:
                            self._submit(pool, *decoding.popleft())
                while decoding:
                    self._submit(pool, *decoding.popleft())
                while self._jobs:
                    self._collect()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                for opened in self._open:
                    opened.close.close()

    def _make_room(self) -> None:
        """Collect until one more bundle may be decoded."""
        while self._alive >= self._workers:
            self._collect()
        self._alive += 1

    def _open_bundle(self, scanned: ScannedBinary, number: int) -> _OpenBundle | str:
        """Decode a bundle and check that every byte of it is accounted for; return the reason if not."""
        with ExitStack() as stack:
            try:
                decoded = stack.enter_context(scanned.binary.bundles[number].open_decoded())
                stray = decoded.unaccounted()
            except FormatError as error:
                return error.clause
            if stray:
                offset, length = stray[0]
                return f"bundle {number} has {length} bytes at {offset:#x} that belong to no code object"
            opened = _OpenBundle(scanned, number, decoded, stack.pop_all())
            self._open.add(opened)
            return opened

    def _submit(self, pool: ThreadPoolExecutor, path: str, decoding: Future[_OpenBundle | str]) -> None:
        """Hand the code objects of a bundle to the workers as soon as it is decoded."""
        opened = decoding.result()
        if isinstance(opened, str):
            # Reasons are noted by this thread alone, so that they have one order.
            self._refuse(path, opened)
            self._alive -= 1
            return
        wanted = [
            (key, entry)
            for number, entry in enumerate(opened.scanned.binary.bundles[opened.number].entries)
            if (key := ObjectKey(opened.scanned.path, opened.number, number)) in self._plan.placements
        ]
        opened.left = len(wanted)
        for key, entry in wanted:
            while len(self._jobs) >= self._workers * _WAITING_PER_WORKER:
                self._collect()
            self._jobs.append((opened, key, pool.submit(self._prepare, opened, entry, key)))
        if not wanted:
            self._close(opened)

    def _close(self, opened: _OpenBundle) -> None:
        opened.close.close()
        self._open.discard(opened)
        self._alive -= 1

    def _refuse(self, path: str, reason: str) -> None:
        self.reasons[path] = (*self.reasons.get(path, ()), reason)

    def _prepare(self, opened: _OpenBundle, entry: BundleEntry, key: ObjectKey) -> PreparedKernel:
        first = self._plan.placements[key][0]
        data = opened.decoded.entry(entry)
        found = parse_code_object(data, path=opened.scanned.binary.path)
        if not found.agrees_with(first.target):
            raise FormatError(
                opened.scanned.binary.path,
                "a code object is for another target than its bundle says",
                expected=first.target,
                found=found.target,
            )
        return self._archives[first.archive].prepare_kernel(first.wrapper.toc_key, str(first.target), data)

    def _collect(self) -> None:
        """Take the oldest code object from the workers into its archives."""
        opened, key, job = self._jobs.popleft()
        try:
            prepared = job.result()
        except FormatError as error:
            self._refuse(opened.scanned.path, error.clause)
        else:
            self._store(key, prepared)
            self._progress.advance(prepared.original_size)
        opened.left -= 1
        if not opened.left:
            self._close(opened)

    def _store(self, key: ObjectKey, prepared: PreparedKernel) -> None:
        ordinals: dict[int, int] = {}
        for place in self._plan.placements[key]:
            self._place(place, prepared, ordinals)
        self.stored[key] = ExtractedObject(
            size=prepared.original_size, sha256=prepared.digest, ordinals=ordinals
        )

    def _place(self, place: Placement, prepared: PreparedKernel, ordinals: dict[int, int]) -> None:
        archive = self._archives[place.archive]
        if place.archive in ordinals:
            archive.add_alias(place.wrapper.toc_key, str(place.target), ordinal=ordinals[place.archive])
            return
        ordinals[place.archive] = archive.add_kernel(
            replace(
                prepared,
                relative_path=place.wrapper.toc_key,
                gfx_arch=str(place.target),
                kernel_id=f"{place.wrapper.toc_key}@{place.target}",
            )
        )
