"""Put together what a home of the wheel gets: finished archives, converted binaries, their index.

Comes after extraction: every code object is in an archive, so its place is known.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kpack_build.assignment import ArchivePlan, ObjectKey, Plan
from kpack_build.hostbinary import KpackReference
from kpack_build.index import ArchiveRow, BinaryRow, CodeObjectRow, KeptRow
from kpack_build.layout import Home, archive_path, search_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kpack_build.archive import PackedKernelArchive
    from kpack_build.extraction import ExtractedObject
    from kpack_build.scan import ScannedBinary
    from kpack_build.targets import TargetId

__all__ = ["HomeRows", "PackedArchive", "Packing", "archive_rows", "convert_binaries", "packed_archive"]

_READ_SIZE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedArchive:
    """A finished archive: what was planned, its file beside the result, its path in the wheel."""

    plan: ArchivePlan
    archive: PackedKernelArchive
    file: Path
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """All that was stored for a wheel."""

    plan: Plan
    archives: Sequence[PackedArchive]
    stored: Mapping[ObjectKey, ExtractedObject]

    def of_home(self, home: Home) -> list[int]:
        """Return the numbers of a home's archives."""
        return [number for number, packed in enumerate(self.archives) if packed.plan.home == home]


@dataclass(slots=True, kw_only=True)
class HomeRows:
    """What the index of a home says of its code objects, its kept bundles and its binaries.

    Attributes:
        code_objects: The code objects that its archives store.
        kept: The compressed bundles whose stored bytes are kept, if the project wants that.
        kept_file: The file that holds them.
        binaries: The converted binaries.
    """

    code_objects: list[CodeObjectRow] = field(default_factory=list)
    kept: list[KeptRow] = field(default_factory=list)
    kept_file: Path | None = None
    binaries: list[BinaryRow] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Numbers:
    """Numbers of a home's code objects and of its kept bundles.

    Attributes:
        code_objects: By archive, ordinal there, and own target: equal bytes may be offered for two targets,
            as `gfx90a` and `gfx90a:xnack+`, which code object version 3 does not tell apart.
        kept: By the binary's path and the number of its bundle.
    """

    code_objects: dict[tuple[int, int, TargetId], int] = field(default_factory=dict)
    kept: dict[tuple[str, int], int] = field(default_factory=dict)


def archive_rows(packing: Packing, home: Home) -> list[ArchiveRow]:
    """Describe the archives of a home, with the SHA-256 of their files."""
    rows: list[ArchiveRow] = []
    for number in packing.of_home(home):
        packed = packing.archives[number]
        rows.append(
            ArchiveRow(
                file=packed.file.name,
                sha256=_sha256(packed.file),
                size=packed.file.stat().st_size,
                family=packed.plan.family,
                targets=[str(target) for target in packed.plan.targets],
            )
        )
    return rows


def convert_binaries(
    packing: Packing, binaries: Sequence[ScannedBinary], *, folder: Path, workers: int, keep_ccob: bool
) -> dict[Home, HomeRows]:
    """Convert all binaries of a wheel into a folder.

    Args:
        packing: What was stored.
        binaries: The binaries, sorted by path.
        folder: Where the converted ones go, at their path in the wheel.
        workers: How many threads write.
        keep_ccob: Whether the stored bytes of compressed bundles are kept.

    Returns:
        What the index of each home says, homes in order.
    """
    homes = {home: HomeRows() for home in sorted({scanned.home for scanned in binaries})}
    numbers = {home: _number_code_objects(packing, home, rows) for home, rows in homes.items()}
    if keep_ccob:
        for home, rows in homes.items():
            _keep_bundles(
                [scanned for scanned in binaries if scanned.home == home], rows, numbers[home], folder
            )
    with ThreadPoolExecutor(workers, thread_name_prefix="kpack-build") as pool:
        convert = partial(_convert, packing, numbers, folder)
        for scanned, row in zip(binaries, pool.map(convert, binaries), strict=True):
            homes[scanned.home].binaries.append(row)
    return homes


def _number_code_objects(packing: Packing, home: Home, rows: HomeRows) -> _Numbers:
    """Number the code objects that a home's archives store, in the order in which they were stored."""
    own = {number: position for position, number in enumerate(packing.of_home(home))}
    numbers = _Numbers()
    for key, stored in packing.stored.items():
        target = packing.plan.placements[key][0].target
        for place in packing.plan.placements[key]:
            stored_as = place.archive, stored.ordinals[place.archive], target
            if place.archive not in own or stored_as in numbers.code_objects:
                continue
            where = packing.archives[place.archive].archive.location(place.wrapper.toc_key, str(place.target))
            numbers.code_objects[stored_as] = len(rows.code_objects)
            rows.code_objects.append(
                CodeObjectRow(
                    archive=own[place.archive],
                    offset=where.offset,
                    stored_size=where.stored_size,
                    size=stored.size,
                    target=str(target),
                    sha256=stored.sha256,
                )
            )
    return numbers


def _keep_bundles(binaries: Sequence[ScannedBinary], rows: HomeRows, numbers: _Numbers, folder: Path) -> None:
    """Write the stored bytes of a home's compressed bundles one after another into one file."""
    bundles = [
        (scanned, number, bundle)
        for scanned in binaries
        for number, bundle in enumerate(scanned.binary.bundles)
        if bundle.ccob is not None
    ]
    if not bundles:
        return
    rows.kept_file = folder / bundles[0][0].home.archive_folder / "kept.ccob"
    with rows.kept_file.open("xb") as stream:
        for scanned, number, bundle in bundles:
            numbers.kept[scanned.path, number] = len(rows.code_objects) + len(rows.kept)
            digest = hashlib.sha256(bundle.stored).hexdigest()
            rows.kept.append(KeptRow(offset=stream.tell(), size=bundle.stored_size, sha256=digest))
            stream.write(bundle.stored)


def _convert(
    packing: Packing, numbers: Mapping[Home, _Numbers], folder: Path, scanned: ScannedBinary
) -> BinaryRow:
    own = numbers[scanned.home]
    used: set[int] = set()
    answers: list[dict[str, int]] = [{} for _ in scanned.binary.wrappers]
    objects: list[list[int | None]] = [[None] * len(bundle.entries) for bundle in scanned.binary.bundles]
    for bundle, entry, _ in scanned.code_objects():
        key = ObjectKey(scanned.path, bundle, entry)
        places = packing.plan.placements.get(key, ())
        for place in places:
            stored_as = place.archive, packing.stored[key].ordinals[place.archive], places[0].target
            number = own.code_objects[stored_as]
            answers[place.wrapper.index][str(place.target)] = number
            used.add(place.archive)
            if objects[bundle][entry] is None:
                objects[bundle][entry] = number
    reference = KpackReference(
        kernel_name=scanned.path,
        search_paths=search_paths(scanned.path, [packing.archives[number].path for number in used]),
    )
    kept = {bundle: number for (path, bundle), number in own.kept.items() if path == scanned.path}
    destination = folder / scanned.path
    destination.parent.mkdir(parents=True, exist_ok=True)
    return BinaryRow(
        path=scanned.path,
        kernel_name=scanned.path,
        hip_library=scanned.binary.hip_library,
        wrappers=answers,
        restore=scanned.binary.to_hipk(destination, reference, objects, kept=kept, sync=False),
    )


def packed_archive(plan: ArchivePlan, archive: PackedKernelArchive, file: Path) -> PackedArchive:
    """Describe a finished archive by its file."""
    return PackedArchive(plan=plan, archive=archive, file=file, path=archive_path(plan.home, file.name))


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_READ_SIZE):
            digest.update(chunk)
    return digest.hexdigest()
