from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kpack_build.hooks.build_log import iter_log_lines, iter_log_warnings
from kpack_build.report import ArchiveReport, BinaryAction, BinaryReport, Outcome, PackReport, Sizes

KEPT = BinaryReport(
    path="thing/kept.so",
    action=BinaryAction.KEPT_FAT,
    reasons=("it holds SPIR-V", "and more"),
    wrappers=1,
    code_objects=2,
    device_bytes=10,
    size=Sizes(before=10, after=10),
    encodings=("plain",),
)
CONVERTED = dataclasses.replace(KEPT, path="thing/a.so", action=BinaryAction.CONVERTED, reasons=())
ARCHIVE = ArchiveReport(
    path="thing/.kpack/thing-gfx110x.kpack",
    family="gfx110x",
    targets=("gfx1100", "gfx1101"),
    code_objects=2,
    original_bytes=30_000,
    repeated_bytes=0,
    size=12_345,
)
REPORT = PackReport(
    source=Path("build/thing.whl"),
    output=Path("dist/thing.whl"),
    outcome=Outcome.DONE,
    binaries=(CONVERTED,),
    archives=(ARCHIVE,),
    wheel=Sizes(before=9_996_000, after=999_499),
    installed=Sizes(before=2_500_000_000, after=12),
    scheme="none",
)


def test_each_archive_and_the_whole_have_a_line() -> None:
    archive, whole, mixed = iter_log_lines(REPORT)
    assert archive == "thing/.kpack/thing-gfx110x.kpack: gfx1100, gfx1101 (12.3 kB)"
    assert "1 binary (none)" in whole
    assert "wheel 10 MB -> 999 kB" in whole
    assert "installed 2.5 GB -> 12 bytes" in whole
    assert mixed == f"thing.whl: {REPORT.mixed_machines}"
    assert list(iter_log_warnings(REPORT)) == []


def test_several_binaries_are_counted() -> None:
    report = dataclasses.replace(REPORT, binaries=(CONVERTED, CONVERTED, KEPT))
    assert "2 binaries" in list(iter_log_lines(report))[1]


@pytest.mark.parametrize("outcome", [Outcome.NOTHING_TO_DO, Outcome.NOTHING_WANTED])
def test_a_wheel_that_passed_through_has_one_line(outcome: Outcome) -> None:
    report = dataclasses.replace(REPORT, outcome=outcome, archives=(), binaries=())
    (line,) = iter_log_lines(report)
    assert line.startswith("thing.whl: no device code")


def test_what_the_builder_should_know_is_a_warning() -> None:
    report = dataclasses.replace(
        REPORT,
        binaries=(CONVERTED, KEPT),
        dropped=("gfx942", "gfx90a"),
        warnings=("a symlink is missing",),
        wheel=Sizes(before=10, after=20),
    )
    kept, dropped, warning, advice = iter_log_warnings(report)
    assert kept == "thing/kept.so keeps its device code: it holds SPIR-V; and more"
    assert "gfx942, gfx90a" in dropped
    assert warning == "a symlink is missing"
    assert advice == report.advice
