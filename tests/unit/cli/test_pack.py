"""`pack`: options become settings, and the report is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kpack_build.cli import main
from kpack_build.cli import pack as command
from kpack_build.config import Config, Loader
from kpack_build.report import ArchiveReport, BinaryAction, BinaryReport, Outcome, PackReport, Sizes
from kpack_build.targets import GroupBy

if TYPE_CHECKING:
    Given = list[tuple[Path, Path, Config]]

CONVERTED = BinaryReport(
    path="pkg/a.so",
    action=BinaryAction.CONVERTED,
    wrappers=1,
    code_objects=3,
    device_bytes=9_000_000,
    size=Sizes(before=10_000_000, after=1_000_000),
    encodings=("plain",),
)
REPORT = PackReport(
    source=Path("x.whl"),
    output=Path("out/x.whl"),
    outcome=Outcome.DONE,
    binaries=(
        CONVERTED,
        replace(CONVERTED, path="pkg/b.so", action=BinaryAction.KEPT_FAT, reasons=("it has SPIR-V",)),
        replace(CONVERTED, path="pkg/c.so", action=BinaryAction.KEPT_FAT),
    ),
    archives=(
        ArchiveReport(
            path="pkg/.kpack/x-gfx9_0.kpack",
            family="gfx9_0",
            targets=("gfx908", "gfx90a", "gfx90a:xnack-"),
            code_objects=3,
            original_bytes=9_000_000,
            repeated_bytes=0,
            size=3_000_000,
        ),
    ),
    wheel=Sizes(before=5_000_000, after=6_000_000),
    installed=Sizes(before=10_000_000, after=4_000_000),
    scheme="zstd-per-kernel",
    dropped=("gfx1100",),
    warnings=("something odd",),
)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Replace the pipeline; what it was given is noted."""
    return _replace(monkeypatch, REPORT)


def _replace(monkeypatch: pytest.MonkeyPatch, report: PackReport) -> Given:
    given: Given = []

    def pack(source: Path, output: Path, config: Config, *, progress: object) -> PackReport:
        assert progress is not None
        given.append((source, output, config))
        return report

    monkeypatch.setattr(command, "pack", pack)
    return given


def test_defaults(given: Given) -> None:
    assert main(["pack", "x.whl", "-o", "out"]) == 0
    assert given == [(Path("x.whl"), Path("out"), Config())]


def test_every_option(given: Given) -> None:
    words = ["pack", "x.whl", "--output", "out", "--targets", "gfx90a gfx1100", "--scheme", "none"]
    words += ["--level", "19", "--group-by", "family", "--loader", "manual", "--group", "g", "--strict"]
    words += ["--require-device-code", "--keep-ccob", "--workers", "3", "--mode", "embedded"]
    assert main(words) == 0
    assert given[0][2] == Config(
        targets=("gfx90a", "gfx1100"),
        scheme="none",
        level=19,
        group_by=GroupBy.FAMILY,
        loader=Loader.MANUAL,
        group="g",
        strict=True,
        require_device_code=True,
        keep_ccob=True,
        workers=3,
    )


def test_options_go_before_the_file(given: Given, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('[tool.kpack-build]\nlevel = 7\nstrict = true\ntargets = ["gfx942"]\n')
    assert main(["pack", "x.whl", "-o", "out", "--config", str(file), "--level", "9", "--no-strict"]) == 0
    assert given[0][2] == Config(level=9, strict=False, targets=("gfx942",))


def test_file_without_the_table(given: Given, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text("[project]\n")
    with pytest.raises(SystemExit) as caught:
        main(["pack", "x.whl", "-o", "out", "--config", str(file)])
    assert caught.value.code == 2
    assert given == []


def test_file_of_settings_that_is_not_there(
    given: Given, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["pack", "x.whl", "-o", "out", "--config", str(tmp_path / "none.toml")])
    assert caught.value.code == 2
    assert "no file" in capsys.readouterr().err
    assert given == []


@pytest.mark.usefixtures("given")
def test_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "x.whl", "-o", "out"])
    captured = capsys.readouterr()
    for fact in ("pkg/a.so", "converted", "gfx9_0", "gfx90a (2 states)", "gfx1100", "+20.0%", "-60.0%"):
        assert fact in captured.out
    for fact in ("it has SPIR-V", "pkg/c.so", "something odd", "grew"):
        assert fact in captured.err


@pytest.mark.usefixtures("given")
def test_report_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "x.whl", "-o", "out", "--json"])
    captured = capsys.readouterr()
    assert json.loads(captured.out) == REPORT.to_json()
    assert captured.err == ""


@pytest.mark.usefixtures("given")
def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "x.whl", "-o", "out", "--quiet"])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("outcome", [Outcome.NOTHING_TO_DO, Outcome.NOTHING_WANTED])
def test_other_outcomes_are_done_too(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _replace(monkeypatch, replace(REPORT, outcome=outcome, archives=(), wheel=Sizes(before=1, after=1)))
    assert main(["pack", "x.whl", "-o", "out"]) == 0
    assert outcome.value in capsys.readouterr().out


def test_wheel_that_shrank_has_no_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = replace(REPORT, binaries=(CONVERTED,), warnings=(), wheel=Sizes(before=2, after=1), dropped=())
    _replace(monkeypatch, report)
    assert main(["pack", "x.whl", "-o", "out"]) == 0
    assert capsys.readouterr().err == f"kpack-build: note: {report.mixed_machines}\n"


def test_unpacked_wheel_has_no_size_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _replace(monkeypatch, replace(REPORT, output=tmp_path))
    main(["pack", "x", "-o", "out"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("installed: ")]
    assert not [line for line in lines if line.startswith("wheel: ")]
