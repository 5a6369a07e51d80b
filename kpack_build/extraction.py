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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from kpack_build.assignment import ObjectKey, Placement, Plan
from kpack_build.codeobject import parse_code_object
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpack_build.archive import PackedKernelArchive, PreparedKernel
    from kpack_build.bundle import BundleEntry, DecodedBundle
    from kpack_build.scan import ScannedBinary

__all__ = ["ExtractedObject", "Progress", "UnsafeBinaries", "extract"]

_WAITING_PER_WORKER = 2


class Progress(Protocol):
    """Somebody who is told how a long work goes."""

    def start(self, label: str, total: int) -> None:
        """Begin a work of `total` bytes."""

    def advance(self, amount: int) -> None:
        """Count `amount` more bytes as done."""

    def finish(self) -> None:
        """End the work."""


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


@dataclass(slots=True)
class _OpenBundle:
    scanned: ScannedBinary
    number: int
    decoded: DecodedBundle
    close: ExitStack
    jobs: deque[tuple[ObjectKey, Future[PreparedKernel]]] = field(default_factory=deque)


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
        self._open: deque[_OpenBundle] = deque()
        self.stored: dict[ObjectKey, ExtractedObject] = {}
        self.reasons: dict[str, tuple[str, ...]] = {}

    def extract(self, binaries: Sequence[ScannedBinary]) -> None:
        with ThreadPoolExecutor(self._workers, thread_name_prefix="kpack-build") as pool:
            try:
                for scanned in binaries:
                    for number in range(len(scanned.binary.bundles)):
                        self._extract_bundle(pool, scanned, number)
                while self._open:
                    self._collect_bundle()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                for opened in self._open:
                    opened.close.close()

    def _extract_bundle(self, pool: ThreadPoolExecutor, scanned: ScannedBinary, number: int) -> None:
        while len(self._open) >= self._workers:
            self._collect_bundle()
        opened = self._open_bundle(scanned, number)
        if opened is None:
            return
        self._open.append(opened)
        for entry_number, entry in enumerate(scanned.binary.bundles[number].entries):
            key = ObjectKey(scanned.path, number, entry_number)
            if key not in self._plan.placements:
                continue
            while self._waiting() >= self._workers * _WAITING_PER_WORKER:
                self._collect_one()
            opened.jobs.append((key, pool.submit(self._prepare, opened, entry, key)))

    def _open_bundle(self, scanned: ScannedBinary, number: int) -> _OpenBundle | None:
        """Decode a bundle and check that every byte of it is accounted for; note the reason if not."""
        with ExitStack() as stack:
            try:
                decoded = stack.enter_context(scanned.binary.bundles[number].open_decoded())
                stray = decoded.unaccounted()
            except FormatError as error:
                self._refuse(scanned.path, str(error))
                return None
            if stray:
                offset, length = stray[0]
                self._refuse(
                    scanned.path,
                    f"bundle {number} has {length} bytes at {offset:#x} that belong to no code object",
                )
                return None
            return _OpenBundle(scanned, number, decoded, stack.pop_all())

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

    def _waiting(self) -> int:
        return sum(len(opened.jobs) for opened in self._open)

    def _collect_bundle(self) -> None:
        """Collect all that the oldest open bundle still owes, and close it."""
        opened = self._open[0]
        while opened.jobs:
            self._collect_one()
        self._open.popleft()
        opened.close.close()

    def _collect_one(self) -> None:
        opened = next(opened for opened in self._open if opened.jobs)
        key, job = opened.jobs.popleft()
        try:
            prepared = job.result()
        except FormatError as error:
            self._refuse(opened.scanned.path, str(error))
            return
        self._store(key, prepared)
        self._progress.advance(prepared.original_size)

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
