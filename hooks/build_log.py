"""What a build's log says about the wheel that came out: plain lines, for all build systems alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.report import BinaryAction, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.report import ArchiveReport, PackReport, Sizes

__all__ = ["iter_log_lines", "iter_log_warnings"]

_UNITS = ("bytes", "kB", "MB", "GB")


def iter_log_lines(report: PackReport) -> Iterator[str]:
    """Yield what was done, one line for each archive and for the whole, and what that means for users."""
    name = report.output.name
    if report.outcome is Outcome.NOTHING_TO_DO:
        yield f"{name}: no device code to pack, the wheel is as it was"
        return
    if report.outcome is Outcome.NOTHING_WANTED:
        yield f"{name}: no device code for the wanted targets, the wheel is as it was"
        return
    yield from (_archive_line(archive) for archive in report.archives)
    converted = sum(binary.action is BinaryAction.CONVERTED for binary in report.binaries)
    binaries = "1 binary" if converted == 1 else f"{converted} binaries"
    yield (
        f"{name}: packed the device code of {binaries} ({report.scheme}); wheel {_change(report.wheel)}, "
        f"installed {_change(report.installed)}"
    )
    if report.mixed_machines is not None:
        yield f"{name}: {report.mixed_machines}"


def iter_log_warnings(report: PackReport) -> Iterator[str]:
    """Yield what the one who builds should know: binaries kept as they were, growth, dropped targets."""
    for binary in report.binaries:
        if binary.action is BinaryAction.KEPT_FAT and binary.reasons:
            yield f"{binary.path} keeps its device code: {'; '.join(binary.reasons)}"
    if report.dropped:
        yield f"device code was left out for {', '.join(report.dropped)}"
    yield from report.warnings
    if report.advice is not None:
        yield report.advice


def _archive_line(archive: ArchiveReport) -> str:
    return f"{archive.path}: {', '.join(archive.targets)} ({_readable(archive.size)})"


def _change(sizes: Sizes) -> str:
    return f"{_readable(sizes.before)} -> {_readable(sizes.after)}"


def _readable(size: int) -> str:
    """Return a size in bytes with three digits and a decimal unit, as package indexes count."""
    value = float(size)
    unit = 0
    while value >= 999.5 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - 999.5 would be shown as 1000
        value /= 1000
        unit += 1
    return f"{size} bytes" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"
