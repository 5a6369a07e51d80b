"""`kpack-build extract`: write code objects to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.cli.command import ExitCode, add_output, add_source, add_targets, wanted_targets
from kpack_build.cli.output import Column, Table, plural, size_text
from kpack_build.export import export_code_objects

if TYPE_CHECKING:
    import argparse

    from kpack_build.cli.output import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "add_options", "run"]

DESCRIPTION = """\
Write each code object to a file of its own, DIR/<binary>/<wrapper>/<target>.hsaco: <binary> is the path in
what was given, <wrapper> the number of the wrapper in the binary. In file names the features of a target
are spelled out, as gfx90a_sramecc-on_xnack-off.hsaco for gfx90a:sramecc+:xnack-; other characters that some
systems refuse become "_". A fat wheel and the packed one give the same files. Files of equal content are
hard links of one. DIR must not be there, or be empty; it appears complete or not at all."""

EXAMPLES = """\
  kpack-build extract foo-1.0-cp311-cp311-linux_x86_64.whl -o objects
  kpack-build extract foo/_ext.so -o objects --target gfx1100 --target gfx90a:xnack-
  kpack-build extract foo/.kpack/foo-gfx110x.kpack -o objects --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_source(parser, "PATH", "a wheel, folder, library, executable, archive, or file of code objects")
    add_output(parser, "folder to make, or an empty one")
    add_targets(parser, "write the code objects of this target or family alone")


def run(arguments: argparse.Namespace, console: Console) -> ExitCode:
    """Extract."""
    export = export_code_objects(
        arguments.source, arguments.output, targets=wanted_targets(arguments), progress=console.progress()
    )
    console.result(export.to_json())
    if console.options.quiet:
        return ExitCode.DONE
    console.table(
        Table(
            title="",
            columns=(Column("file"), Column("target"), Column("size", right=True)),
            rows=[(found.path, found.target, size_text(found.size)) for found in export.objects],
        )
    )
    if not export.objects:
        wanted = "" if arguments.target is None else f" for {', '.join(arguments.target)}"
        console.note(f"warning: there is no code object{wanted} in {arguments.source}")
    console.line(f"written: {plural(len(export.objects), 'code object')} to {export.output}")
    return ExitCode.DONE
