"""Build the report of a run from what the pipeline knows."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kpack_build.advice import iter_missing_archives, iter_size_warnings, iter_warnings
from kpack_build.hostbinary import BinaryState
from kpack_build.report import ArchiveReport, BinaryAction, BinaryReport, Outcome, PackReport, Sizes
from kpack_build.scan import KeptBinary, Scan, ScannedBinary, describe_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.assembly import Packing
    from kpack_build.embedding import Embedded
    from kpack_build.wheel import WheelContents, Written

__all__ = ["describe", "describe_untouched"]

_NOT_WANTED = "it has no code object for the wanted targets"


def describe_untouched(
    contents: WheelContents, scan: Scan, written: Written, outcome: Outcome, scheme: str
) -> PackReport:
    """Report on a wheel that passed through as it was."""
    left = [describe_binary(scanned, _NOT_WANTED) for scanned in scan.fat]
    return PackReport(
        source=contents.path,
        output=written.path,
        outcome=outcome,
        binaries=tuple(
            sorted(
                (_kept(kept) for kept in (*scan.kept, *scan.converted, *left)),
                key=lambda report: report.path,
            )
        ),
        wheel=Sizes(before=written.size, after=written.size),
        installed=Sizes(before=written.installed_size, after=written.installed_size),
        scheme=scheme,
        warnings=(
            *contents.notes,
            *iter_missing_archives(contents, scan),
            *(_unwanted(scan) if outcome is Outcome.NOTHING_WANTED else ()),
        ),
    )


def describe(
    contents: WheelContents,
    scan: Scan,
    packing: Packing,
    embedded: Embedded,
    written: Written,
) -> PackReport:
    """Report on a wheel that was packed."""
    binaries = [_kept(kept) for kept in (*scan.kept, *scan.converted)]
    binaries += [_converted(scanned, embedded.sizes[scanned.path]) for scanned in scan.fat]
    installed = sum(member.size for member in contents.members)
    return PackReport(
        source=contents.path,
        output=written.path,
        outcome=Outcome.DONE,
        binaries=tuple(sorted(binaries, key=lambda report: report.path)),
        archives=tuple(_archives(packing, embedded)),
        wheel=Sizes(before=_source_size(contents), after=written.size),
        installed=Sizes(before=installed, after=written.installed_size),
        scheme=packing.archives[0].archive.compression_scheme,
        dropped=_dropped(packing, scan),
        warnings=(
            *embedded.warnings,
            *iter_warnings(contents, scan, packing.plan),
            *(() if written.path.is_dir() else iter_size_warnings(written.size)),
        ),
    )


def _unwanted(scan: Scan) -> Iterator[str]:
    """Say that nothing was left out, which whoever chose targets does not expect."""
    found = {
        str(entry.target)
        for scanned in scan.fat
        for _, _, entry in scanned.code_objects()
        if entry.target is not None
    }
    yield (
        f"none of the wanted targets is in the wheel, so it keeps all of its device code, for "
        f"{', '.join(sorted(found)) or 'no target'} (require-device-code makes this an error)"
    )


def _source_size(contents: WheelContents) -> int:
    if contents.path.is_dir():
        return sum(member.size for member in contents.members)
    return contents.path.stat().st_size


def _kept(kept: KeptBinary) -> BinaryReport:
    converted = kept.state is BinaryState.CONVERTED
    return BinaryReport(
        path=kept.path,
        action=BinaryAction.ALREADY_CONVERTED if converted else BinaryAction.KEPT_FAT,
        reasons=kept.reasons,
        wrappers=kept.wrappers,
        code_objects=kept.code_objects,
        device_bytes=kept.device_bytes,
        size=Sizes(before=kept.size, after=kept.size),
        encodings=kept.encodings,
    )


def _converted(scanned: ScannedBinary, size: int) -> BinaryReport:
    described = describe_binary(scanned)
    return BinaryReport(
        path=scanned.path,
        action=BinaryAction.CONVERTED,
        wrappers=described.wrappers,
        code_objects=described.code_objects,
        device_bytes=described.device_bytes,
        size=Sizes(before=described.size, after=size),
        encodings=described.encodings,
    )


def _archives(packing: Packing, embedded: Embedded) -> Iterator[ArchiveReport]:
    """Describe the archives; bytes that an earlier archive of the wheel stores too count as repeated."""
    stored: dict[int, dict[str, int]] = defaultdict(dict)
    own: dict[str, int] = {}
    for key, found in packing.stored.items():
        own.setdefault(found.sha256, packing.plan.placements[key][0].archive)
        for number in found.ordinals:
            stored[number][found.sha256] = found.size
    for number, packed in enumerate(packing.archives):
        yield ArchiveReport(
            path=packed.path,
            family=packed.plan.family,
            targets=tuple(str(target) for target in packed.plan.targets),
            code_objects=len(stored[number]),
            original_bytes=sum(stored[number].values()),
            repeated_bytes=sum(size for digest, size in stored[number].items() if own[digest] != number),
            size=embedded.sizes[packed.path],
        )


def _dropped(packing: Packing, scan: Scan) -> tuple[str, ...]:
    kept = {str(packing.plan.placements[key][0].target) for key in packing.stored}
    found = {str(entry.target) for scanned in scan.fat for _, _, entry in scanned.code_objects()}
    return tuple(sorted(found - kept))
