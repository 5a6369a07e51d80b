"""What a command says: tables and lines for people, JSON for scripts, errors and progress beside them.

Results go to standard output, everything else to standard error. On a terminal tables are drawn with `rich`
where it is installed; in a pipe, and without it, they are columns of plain text. Names from files are
untrusted: characters that a terminal would obey are shown as escapes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from kpack_build.cli.progress import LineProgress
from kpack_build.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.progress import Progress
    from kpack_build.report import JSONValue, Sizes

__all__ = [
    "Column",
    "Console",
    "OutputOptions",
    "Table",
    "change_text",
    "plural",
    "printable",
    "render_grouped",
    "render_plain",
    "size_text",
    "table_width",
]

_PROGRAM = "kpack-build"
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_STEP = 1000
_GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How a command talks.

    Attributes:
        json: Whether standard output holds one JSON value and nothing else.
        quiet: Whether only errors, and results that were asked for, are shown.
        debug: Whether errors come with their traceback.
    """

    json: bool = False
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand at its right."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts: a title (it may be empty), columns, and rows as long as the columns."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]


def printable(text: str) -> str:
    """Return a text with every character that is not printable shown as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def size_text(size: int) -> str:
    """Return a number of bytes as a person reads it, with decimal units and three digits or so."""
    if abs(size) < _STEP:
        return f"{size} B"
    value = float(size)
    for unit in _UNITS:
        value /= _STEP
        # 999.95 would be shown as 1000.0.
        if abs(value) < _STEP - 0.05 or unit == _UNITS[-1]:
            break
    return f"{value:.2f} {unit}" if abs(value) < 10 else f"{value:.1f} {unit}"  # noqa: PLR2004 - digits shown


def change_text(sizes: Sizes) -> str:
    """Return a size before and after, and the change in per cent."""
    text = f"{size_text(sizes.before)} -> {size_text(sizes.after)}"
    return f"{text} ({sizes.growth / sizes.before:+.1%})" if sizes.before else text


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def render_plain(table: Table) -> str:
    """Return a table as lines of aligned columns, without a line's end at the last."""
    titles = tuple(column.title for column in table.columns)
    lines = [printable(table.title)] if table.title else []
    return "\n".join(lines + _aligned(table.columns, [titles, *table.rows]))


def render_grouped(table: Table) -> str:
    """Return a table as lines for a narrow terminal: the first column's cells stand above their rows."""
    titles = tuple(column.title for column in table.columns)
    head, *rows = _aligned(table.columns[1:], [row[1:] for row in (titles, *table.rows)])
    lines = [printable(table.title)] if table.title else []
    lines.append(f"{_GAP}{head}")
    above = None
    for (first, *_), row in zip(table.rows, rows, strict=True):
        if first != above:
            lines.append(printable(first))
        above = first
        lines.append(f"{_GAP}{row}")
    return "\n".join(lines)


def table_width(table: Table) -> int:
    """Return how many characters the columns of a table take, without any space between them."""
    titles = tuple(column.title for column in table.columns)
    return sum(_widths([titles, *table.rows]))


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(len(printable(cell)) for cell in column) for column in zip(*rows, strict=True)]


def _aligned(columns: Sequence[Column], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = _widths(rows)
    return [
        _GAP.join(
            printable(cell).rjust(width) if column.right else printable(cell).ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in rows
    ]


class Console:
    """Where a command writes. A context manager that ends a progress that is still shown."""

    def __init__(
        self, options: OutputOptions, *, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.options = options
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_progress()

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.finish()

    def result(self, data: JSONValue) -> None:
        """Give the result to a script; says nothing without `--json`."""
        if self.options.json:
            print(json.dumps(data, indent=1), file=self._stdout)

    def table(self, table: Table) -> None:
        """Show a table, unless it is empty; says nothing with `--json`."""
        if self.options.json or not table.rows:
            return
        if _is_capable(self._stdout) and find_spec("rich") is not None:
            from kpack_build.cli.terminal import print_table  # noqa: PLC0415 - rich is slow to import

            print_table(table, self._stdout)
        else:
            print(f"{render_plain(table)}\n", file=self._stdout)

    def line(self, text: str) -> None:
        """Show a line of the result; says nothing with `--json`."""
        if not self.options.json:
            print(printable(text), file=self._stdout)

    def note(self, text: str) -> None:
        """Tell something beside the result; says nothing with `--json` (the result has it) or `--quiet`."""
        if not self.options.json and not self.options.quiet:
            print(f"{_PROGRAM}: {printable(text)}", file=self._stderr)

    def error(self, text: str) -> None:
        """Tell why a command failed, in one line."""
        self._end_progress()
        print(f"{_PROGRAM}: error: {printable(' '.join(text.split()))}", file=self._stderr)

    def progress(self) -> Progress:
        """Return somebody to tell how far a long work is: shown where a person looks, else silent."""
        watched = _is_terminal(self._stdout) and _is_terminal(self._stderr) and not self.options.quiet
        if not watched:
            self._progress = SilentProgress()
        elif _is_capable(self._stderr) and find_spec("rich") is not None:
            from kpack_build.cli.terminal import BarProgress  # noqa: PLC0415 - rich is slow to import

            self._progress = BarProgress(self._stderr)
        else:
            self._progress = LineProgress(self._stderr)
        return self._progress


def _is_terminal(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty()


def _is_capable(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can do more than print lines."""
    return _is_terminal(stream) and os.environ.get("TERM") not in {None, "", "dumb", "unknown"}
