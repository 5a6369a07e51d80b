"""Tables and progress bars drawn with `rich`, which the extra `cli` installs.

Imported only where a terminal is at the other end. Texts are given to `rich` as they are, never as its
markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import rich.box
import rich.console
import rich.progress
import rich.table
import rich.text

from kpack_build.cli.output import printable, render_grouped, table_width

if TYPE_CHECKING:
    from kpack_build.cli.output import Table

__all__ = ["BarProgress", "print_table"]


def print_table(table: Table, stream: TextIO) -> None:
    """Draw a table; where the terminal is too narrow for it, print it in groups."""
    console = rich.console.Console(file=stream)
    # Each column has a space at both of its sides, and there is one between columns and at the ends.
    if table_width(table) + 3 * len(table.columns) + 1 > console.width:
        print(f"{render_grouped(table)}\n", file=stream)
        return
    drawn = rich.table.Table(
        title=rich.text.Text(printable(table.title)) if table.title else None,
        title_justify="left",
        box=rich.box.SIMPLE,
    )
    for column in table.columns:
        drawn.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(rich.text.Text(printable(cell)) for cell in row))
    console.print(drawn)


class BarProgress:
    """A bar with the bytes done and the time left."""

    def __init__(self, stream: TextIO) -> None:
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(),
            rich.progress.DownloadColumn(),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(file=stream),
            transient=True,
        )
        self._task: rich.progress.TaskID | None = None

    def start(self, label: str, total: int) -> None:
        """Begin a work of `total` bytes, in the place of the last one."""
        self.finish()
        self._task = self._bar.add_task(label, total=total)
        self._bar.start()

    def advance(self, amount: int) -> None:
        """Count `amount` more bytes as done."""
        if self._task is not None:
            self._bar.advance(self._task, amount)

    def finish(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._bar.stop()
            self._bar.remove_task(self._task)
            self._task = None
