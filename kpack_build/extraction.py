"""Move code objects from binaries into archives: decoded, hashed, compressed, and written in a fixed order.

A code object is a view of the mapped file (or of its decoded bundle) until it is compressed, and is let go
then. Workers decode the next bundles while others compress code objects of the last ones. How many bytes of
both are held at a time is bounded by the number of workers and the largest of them, so memory does not grow
with the wheel.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kpack_build.assignment import ObjectKey, Placement, Plan
from kpack_build.ccob import MEMORY_LIMIT
from kpack_build.codeobject import parse_code_object
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpack_build.archive import PackedKernelArchive, PreparedKernel
    from kpack_build.bundle import Bundle, BundleEntry, DecodedBundle
    from kpack_build.progress import Progress
    from kpack_build.scan import ScannedBinary

__all__ = ["ExtractedObject", "UnsafeBinaries", "extract"]

_WAITING_PER_WORKER = 2
_SPARE = 12 << 20
"""How many bytes may be held beyond the largest bundle or code object for each worker: small ones need not
wait for each other."""


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


@dataclass(frozen=True, slots=True)
class _Need:
    """What a bundle takes of memory, in bytes: while it is open, and more for its largest code object."""

    open: int
    largest: int

    @classmethod
    def of(cls, bundle: Bundle) -> _Need:
        is_held = bundle.ccob is not None and bundle.decoded_size <= MEMORY_LIMIT
        largest = max((entry.size for entry in bundle.entries), default=0)
        return cls(bundle.decoded_size if is_held else 0, largest)


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


@dataclass(frozen=True, slots=True)
class _Job:
    """A code object that a worker prepares, and its size in bytes."""

    opened: _OpenBundle
    key: ObjectKey
    size: int
    prepared: Future[PreparedKernel]


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
        self._held = 0
        self._limit = 0
        self._decoding: deque[tuple[ScannedBinary, int, Future[_OpenBundle | str]]] = deque()
        self._jobs: deque[_Job] = deque()
        self.stored: dict[ObjectKey, ExtractedObject] = {}
        self.reasons: dict[str, tuple[str, ...]] = {}

    def extract(self, binaries: Sequence[ScannedBinary]) -> None:
        bundles = [(scanned, number) for scanned in binaries for number in range(len(scanned.binary.bundles))]
        needs = [_Need.of(scanned.binary.bundles[number]) for scanned, number in bundles]
        most = max((max(need.open, need.largest) for need in needs), default=0)
        self._limit = self._workers * most + _SPARE
        with ThreadPoolExecutor(self._workers, thread_name_prefix="kpack-build") as pool:
            try:
                for (scanned, number), need in zip(bundles, needs, strict=True):
                    self._make_room(pool, need)
                    job = pool.submit(self._open_bundle, scanned, number)
                    self._decoding.append((scanned, number, job))
                    if len(self._decoding) == self._workers:
                        self._submit(pool)
                while self._decoding:
                    self._submit(pool)
                while self._jobs:
                    self._collect()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                for opened in self._open:
                    opened.close.close()

    def _make_room(self, pool: ThreadPoolExecutor, need: _Need) -> None:
        """Collect until one more bundle may be decoded."""
        while self._alive and (
            self._alive >= self._workers or self._held + need.open + need.largest > self._limit
        ):
            if self._jobs:
                self._collect()
            else:
                self._submit(pool)
        self._alive += 1
        self._held += need.open

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

    def _submit(self, pool: ThreadPoolExecutor) -> None:
        """Hand the code objects of the next decoded bundle to the workers."""
        scanned, number, decoding = self._decoding.popleft()
        opened = decoding.result()
        if isinstance(opened, str):
            # Reasons are noted by this thread alone, so that they have one order.
            self._refuse(scanned.path, opened)
            self._let_go(scanned.binary.bundles[number])
            return
        wanted = [
            (key, entry)
            for position, entry in enumerate(scanned.binary.bundles[number].entries)
            if (key := ObjectKey(scanned.path, number, position)) in self._plan.placements
        ]
        opened.left = len(wanted)
        for key, entry in wanted:
            while self._jobs and (
                len(self._jobs) >= self._workers * _WAITING_PER_WORKER
                or self._held + entry.size > self._limit
            ):
                self._collect()
            self._held += entry.size
            prepared = pool.submit(self._prepare, opened, entry, key)
            self._jobs.append(_Job(opened, key, entry.size, prepared))
        if not wanted:
            self._close(opened)

    def _close(self, opened: _OpenBundle) -> None:
        opened.close.close()
        self._open.discard(opened)
        self._let_go(opened.scanned.binary.bundles[opened.number])

    def _let_go(self, bundle: Bundle) -> None:
        self._alive -= 1
        self._held -= _Need.of(bundle).open

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
        job = self._jobs.popleft()
        opened = job.opened
        try:
            prepared = job.prepared.result()
        except FormatError as error:
            target = self._plan.placements[job.key][0].target
            where = f"code object for {target} in bundle {opened.number}"
            self._refuse(opened.scanned.path, f"{where}: {error.clause}")
        else:
            self._store(job.key, prepared)
            self._progress.advance(prepared.original_size)
        self._held -= job.size
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
