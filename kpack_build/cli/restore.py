"""`kpack-build restore`: give back the fat wheel that was packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.cli.command import ExitCode, add_output, add_source
from kpack_build.cli.output import plural
from kpack_build.restoration import restore

if TYPE_CHECKING:
    import argparse

    from kpack_build.cli.output import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "add_options", "run"]

DESCRIPTION = """\
Give back the fat wheel that was packed, member by member and bit for bit. Compressed bundles (CCOB) come
back with equal code objects, ids and order; bit for bit where compressing them again gives the same bytes,
or where they were kept (--keep-ccob): the result tells which. Targets that were dropped when the wheel was
packed cannot come back."""

EXAMPLES = """\
  kpack-build restore packed/foo-1.0-cp311-cp311-linux_x86_64.whl -o fat
  kpack-build restore unpacked/foo -o fat --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_source(parser, "WHEEL|DIR", "the packed wheel, or the folder of its unpacked files")
    add_output(parser, "folder of the result, which keeps its name")


def run(arguments: argparse.Namespace, console: Console) -> ExitCode:
    """Restore."""
    report = restore(arguments.source, arguments.output, progress=console.progress())
    console.result(report.to_json())
    for path in report.recompressed:
        console.note(f"{path} holds equal code objects, but was compressed in another way than the original")
    if not console.options.quiet:
        same = plural(len(report.exact), "binary")
        console.line(f"restored bit for bit: {same}; with compression done anew: {len(report.recompressed)}")
        console.line(f"written: {report.output}")
    return ExitCode.DONE
