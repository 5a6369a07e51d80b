"""Put together what a home of the wheel gets: finished archives, converted binaries, their index.

Comes after extraction: every code object is in an archive, so its place is known.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kpack_build.assignment import ArchivePlan, ObjectKey, Plan
from kpack_build.hostbinary import KpackReference
from kpack_build.index import ArchiveRow, BinaryRow, CodeObjectRow
from kpack_build.layout import Home, archive_path, search_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kpack_build.archive import PackedKernelArchive
    from kpack_build.extraction import ExtractedObject
    from kpack_build.scan import ScannedBinary

__all__ = ["PackedArchive", "Packing", "archive_rows", "convert_binaries"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The code objects of a home, numbered."""

    rows: list[CodeObjectRow]
    numbers: dict[tuple[int, int], int]


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


def code_object_table(packing: Packing, home: Home) -> _Table:
    """Number the code objects that a home's archives store, in the order in which they were stored."""
    own = {number: position for position, number in enumerate(packing.of_home(home))}
    table = _Table(rows=[], numbers={})
    for key, stored in packing.stored.items():
        for place in packing.plan.placements[key]:
            ordinal = stored.ordinals[place.archive]
            if place.archive not in own or (place.archive, ordinal) in table.numbers:
                continue
            where = packing.archives[place.archive].archive.location(place.wrapper.toc_key, str(place.target))
            table.numbers[place.archive, ordinal] = len(table.rows)
            table.rows.append(
                CodeObjectRow(
                    archive=own[place.archive],
                    offset=where.offset,
                    stored_size=where.stored_size,
                    size=stored.size,
                    target=str(packing.plan.placements[key][0].target),
                    sha256=stored.sha256,
                )
            )
    return table


def convert_binaries(
    packing: Packing, binaries: Sequence[ScannedBinary], *, folder: Path, workers: int
) -> dict[Home, tuple[list[CodeObjectRow], list[BinaryRow]]]:
    """Convert all binaries of a wheel into a folder.

    Args:
        packing: What was stored.
        binaries: The binaries, sorted by path.
        folder: Where the converted ones go, at their path in the wheel.
        workers: How many threads write.

    Returns:
        The code objects and the converted binaries of each home, as its index has them.
    """
    homes = sorted({scanned.home for scanned in binaries})
    tables = {home: code_object_table(packing, home) for home in homes}
    with ThreadPoolExecutor(workers, thread_name_prefix="kpack-build") as pool:
        convert = partial(_convert, packing, tables, folder)
        rows = list(pool.map(convert, binaries))
    return {
        home: (
            tables[home].rows,
            [row for row, scanned in zip(rows, binaries, strict=True) if scanned.home == home],
        )
        for home in homes
    }


def _convert(
    packing: Packing, tables: Mapping[Home, _Table], folder: Path, scanned: ScannedBinary
) -> BinaryRow:
    numbers = tables[scanned.home].numbers
    used: set[int] = set()
    answers: list[dict[str, int]] = [{} for _ in scanned.binary.wrappers]
    objects: list[list[int | None]] = [[None] * len(bundle.entries) for bundle in scanned.binary.bundles]
    for bundle, entry, _ in scanned.code_objects():
        key = ObjectKey(scanned.path, bundle, entry)
        for place in packing.plan.placements.get(key, ()):
            number = numbers[place.archive, packing.stored[key].ordinals[place.archive]]
            answers[place.wrapper.index][str(place.target)] = number
            used.add(place.archive)
            if objects[bundle][entry] is None:
                objects[bundle][entry] = number
    reference = KpackReference(
        kernel_name=scanned.path,
        search_paths=search_paths(scanned.path, [packing.archives[number].path for number in used]),
    )
    destination = folder / scanned.path
    destination.parent.mkdir(parents=True, exist_ok=True)
    return BinaryRow(
        path=scanned.path,
        kernel_name=scanned.path,
        hip_library=scanned.binary.hip_library,
        wrappers=answers,
        restore=scanned.binary.to_hipk(destination, reference, objects),
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
