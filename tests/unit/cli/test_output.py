"""What commands print: sizes, tables, notes, JSON, progress."""

from __future__ import annotations

import io
import json

import pytest

from kpack_build.cli import output
from kpack_build.cli.output import (
    Column,
    Console,
    OutputOptions,
    Table,
    change_text,
    plural,
    printable,
    render_plain,
    size_text,
)
from kpack_build.cli.progress import LineProgress
from kpack_build.cli.terminal import BarProgress
from kpack_build.progress import SilentProgress
from kpack_build.report import Sizes
from tests.unit.cli.streams import Terminal

TABLE = Table(
    title="things",
    columns=(Column("name"), Column("size", right=True)),
    rows=[("short", "1"), ("a much longer one", "22222")],
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (34_168_872, "34.2 MB"),
        (999_949, "999.9 kB"),
        (999_999, "1.00 MB"),
        (5_000_000_000, "5.00 GB"),
        (-2500, "-2.50 kB"),
        (10**19, "10000.0 PB"),
    ],
)
def test_size_text(size: int, text: str) -> None:
    assert size_text(size) == text


def test_change_tells_direction() -> None:
    assert "-50.0%" in change_text(Sizes(before=2000, after=1000))
    assert "+50.0%" in change_text(Sizes(before=2000, after=3000))


def test_change_of_nothing() -> None:
    assert change_text(Sizes(before=0, after=10)) == "0 B -> 10 B"


def test_plural() -> None:
    assert [plural(1, "binary"), plural(2, "binary"), plural(0, "file")] == [
        "1 binary",
        "2 binaries",
        "0 files",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain ü", "plain ü"), ("\x1b[31mred", "\\x1b[31mred"), ("a\nb", "a\\nb"), ("\udcff", "\\udcff")],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_plain_table_is_aligned() -> None:
    title, *rows = render_plain(TABLE).splitlines()
    assert title == "things"
    assert {len(row) for row in rows} == {len("a much longer one") + 2 + 5}
    assert rows[1].endswith("    1")


def test_plain_table_without_title() -> None:
    table = Table(title="", columns=TABLE.columns, rows=TABLE.rows)
    assert render_plain(table).splitlines()[0].split() == ["name", "size"]


def _console(
    *, stdout: io.StringIO | None = None, stderr: io.StringIO | None = None, **options: bool
) -> Console:
    return Console(OutputOptions(**options), stdout=stdout or io.StringIO(), stderr=stderr or io.StringIO())


def test_json_alone_on_standard_output() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    console = _console(json=True, stdout=stdout, stderr=stderr)
    console.line("a line")
    console.table(TABLE)
    console.note("a note")
    console.result({"a": ["ü\udcff"]})
    assert json.loads(stdout.getvalue()) == {"a": ["ü\udcff"]}
    assert stderr.getvalue() == ""


def test_people_get_no_json() -> None:
    stdout = io.StringIO()
    console = _console(stdout=stdout)
    console.result({"a": 1})
    assert stdout.getvalue() == ""


def test_notes_go_to_standard_error_and_quiet_hides_them() -> None:
    for quiet in (False, True):
        stdout, stderr = io.StringIO(), io.StringIO()
        _console(quiet=quiet, stdout=stdout, stderr=stderr).note("something")
        assert stdout.getvalue() == ""
        assert ("something" in stderr.getvalue()) is not quiet


def test_error_is_one_line() -> None:
    stderr = io.StringIO()
    _console(stderr=stderr, quiet=True).error("first\nsecond\x1b")
    assert stderr.getvalue().count("\n") == 1
    assert "\x1b" not in stderr.getvalue()


def test_empty_table_is_not_shown() -> None:
    stdout = io.StringIO()
    _console(stdout=stdout).table(Table(title="nothing", columns=TABLE.columns, rows=[]))
    assert stdout.getvalue() == ""


def test_table_in_a_pipe_is_plain() -> None:
    stdout = io.StringIO()
    _console(stdout=stdout).table(TABLE)
    assert stdout.getvalue() == render_plain(TABLE) + "\n\n"


def test_table_on_a_terminal_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stdout = Terminal()
    hostile = Table(title="[bold]t", columns=TABLE.columns, rows=[("[red]markup\x1b[2J", "1")])
    _console(stdout=stdout).table(hostile)
    assert "─" in stdout.getvalue()
    assert "[red]markup\\x1b[2J" in stdout.getvalue()
    assert "[bold]t" in stdout.getvalue()


def test_table_on_a_narrow_terminal_is_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    rows = [("a long name", "x", "1"), ("a long name", "y", "22"), ("another name", "z", "3")]
    table = Table(
        title="things", columns=(Column("name"), Column("letter"), Column("size", right=True)), rows=rows
    )
    stdout = Terminal()
    _console(stdout=stdout).table(table)
    assert stdout.getvalue().splitlines() == [
        "things",
        "  letter  size",
        "a long name",
        "  x          1",
        "  y         22",
        "another name",
        "  z          3",
        "",
    ]


def test_untitled_table_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    stdout = Terminal()
    _console(stdout=stdout).table(Table(title="", columns=TABLE.columns, rows=TABLE.rows))
    assert stdout.getvalue().splitlines()[0].strip() == "size"


def test_untitled_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stdout = Terminal()
    _console(stdout=stdout).table(Table(title="", columns=TABLE.columns, rows=TABLE.rows))
    assert "a much longer one" in stdout.getvalue()


@pytest.mark.parametrize("term", ["dumb", "", None])
def test_poor_terminals_get_plain_tables(monkeypatch: pytest.MonkeyPatch, term: str | None) -> None:
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    stdout = Terminal()
    _console(stdout=stdout).table(TABLE)
    assert stdout.getvalue() == render_plain(TABLE) + "\n\n"


def test_without_rich_tables_and_progress_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "find_spec", lambda _: None)
    stdout = Terminal()
    console = _console(stdout=stdout, stderr=Terminal())
    console.table(TABLE)
    assert stdout.getvalue() == render_plain(TABLE) + "\n\n"
    assert isinstance(console.progress(), LineProgress)


@pytest.mark.parametrize("piped", ["stdout", "stderr"])
def test_no_progress_in_a_pipe(monkeypatch: pytest.MonkeyPatch, piped: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    streams = {"stdout": Terminal(), "stderr": Terminal(), piped: io.StringIO()}
    with _console(stdout=streams["stdout"], stderr=streams["stderr"]) as console:
        progress = console.progress()
        progress.start("work", 10)
        progress.advance(10)
    assert isinstance(progress, SilentProgress)
    assert [stream.getvalue() for stream in streams.values()] == ["", ""]


def test_no_progress_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = _console(stdout=Terminal(), stderr=Terminal(), quiet=True)
    assert isinstance(console.progress(), SilentProgress)


def test_bar_on_a_terminal_is_taken_away_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stdout, stderr = Terminal(), Terminal()
    with _console(stdout=stdout, stderr=stderr) as console:
        progress = console.progress()
        assert isinstance(progress, BarProgress)
        progress.start("packing [x]", 100)
        progress.advance(50)
        progress.start("writing", 10)
        console.error("it broke")
        progress.advance(1)
    assert "packing [x]" in stderr.getvalue()
    assert stderr.getvalue().endswith("it broke\n")
    assert stdout.getvalue() == ""


def test_lines_of_progress() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start("work", 1000)
    for _ in range(200):
        progress.advance(10)
    progress.finish()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1].endswith("100 %")


def test_progress_of_no_bytes() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start("work", 0)
    progress.advance(0)
    progress.finish()
    assert len(stream.getvalue().splitlines()) == 1
