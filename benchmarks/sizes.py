"""Sizes of the corpus' wheels before and after packing: the wheel file, and its installed files.

    python -m benchmarks.sizes [NAME ...] [--level N] [--markdown]

The installed size is the sum of the files' sizes. Nothing is rounded in a wheel's favour: what grew is marked
as growth. Sizes depend on the level and on the versions of zstd and zlib, not on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.config import Config
from kpack_build.pipeline import pack
from tests.corpus import FAT_CORPUS, corpus_wheel

if TYPE_CHECKING:
    from kpack_build.report import PackReport, Sizes

_TITLES = ("wheel", "bundles", "wheel before", "after", "change", "installed before", "after", "change")


def measure(name: str, level: int) -> tuple[str, ...]:
    """Pack one wheel of the corpus and return the cells of its row."""
    with tempfile.TemporaryDirectory() as folder:
        report = pack(corpus_wheel(name), Path(folder), Config(level=level))
    return (name, _encodings(report), *_cells(report.wheel), *_cells(report.installed))


def _encodings(report: PackReport) -> str:
    return ", ".join(sorted({encoding for binary in report.binaries for encoding in binary.encodings}))


def _cells(sizes: Sizes) -> tuple[str, str, str]:
    percent = 100 * sizes.growth / sizes.before
    # What would be rounded away is told in kB.
    change = f"{percent:+.1f} %" if abs(percent) >= 0.05 else f"{sizes.growth / 1e3:+.1f} kB"
    shown = f"grew by {change[1:]}" if sizes.growth > 0 else change
    return f"{sizes.before / 1e6:.2f} MB", f"{sizes.after / 1e6:.2f} MB", shown


def _print_table(rows: list[tuple[str, ...]], *, markdown: bool) -> None:
    if markdown:
        rows = [_TITLES, ("---", "---", *("--:",) * 6), *rows]
        for row in rows:
            print("|", " | ".join(row), "|")
        return
    rows = [_TITLES, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Sizes before and after packing.")
    parser.add_argument("names", nargs="*", default=FAT_CORPUS, metavar="NAME")
    parser.add_argument("--level", type=int, default=Config().level)
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    arguments = parser.parse_args()
    rows = [measure(name, arguments.level) for name in arguments.names]
    _print_table(rows, markdown=arguments.markdown)


if __name__ == "__main__":
    main()
