"""`kpack-build verify`: check a packed wheel, alone or against the fat one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.cli.command import (
    ExitCode,
    UsageError,
    add_source,
    add_targets,
    path_argument,
    wanted_targets,
)
from kpack_build.cli.output import Column, Table, plural
from kpack_build.verification import verify

if TYPE_CHECKING:
    import argparse

    from kpack_build.cli.output import Console

__all__ = ["DESCRIPTION", "EXAMPLES", "add_options", "run"]

DESCRIPTION = """\
Check a packed wheel: every wrapper of every converted binary is looked up under every listed target, and
for every state of a GPU, as ROCm's reader does it; archives and code objects have the SHA-256 of the index;
RECORD is right; converted binaries have a layout that loaders accept; nothing that could be converted still
holds device code. With --against, each code object of the fat wheel must come back byte for byte. Exit code
1 if anything is wrong."""

EXAMPLES = """\
  kpack-build verify packed/foo-1.0-cp311-cp311-linux_x86_64.whl
  kpack-build verify packed/foo.whl --against dist/foo.whl
  kpack-build verify packed/foo.whl --against dist/foo.whl --target gfx942 --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_source(parser, "WHEEL|DIR", "the packed wheel, or the folder of its unpacked files")
    parser.add_argument(
        "--against", metavar="FAT", type=path_argument, help="the fat wheel (or folder) it was made from"
    )
    add_targets(parser, "with --against, expect this target or family of the fat wheel alone")


def run(arguments: argparse.Namespace, console: Console) -> ExitCode:
    """Verify."""
    targets = wanted_targets(arguments)
    if targets is not None and arguments.against is None:
        raise UsageError("--target goes with --against")
    result = verify(arguments.source, against=arguments.against, targets=targets, progress=console.progress())
    console.result(result.to_json())
    for note in result.notes:
        console.note(note)
    if not console.options.quiet:
        console.table(
            Table(
                title="faults",
                columns=(Column("file"), Column("problem")),
                rows=[(fault.path, fault.problem) for fault in result.faults],
            )
        )
        counts = result.counts
        done = [
            *(plural(counts.archives, "archive"), plural(counts.binaries, "converted binary")),
            *(plural(counts.wrappers, "wrapper"), plural(counts.code_objects, "code object")),
            *(f"{counts.answers} answers", f"{counts.gpus} look-ups of GPUs"),
        ]
        if arguments.against is not None:
            done.append(f"{plural(counts.compared, 'code object')} compared with {arguments.against.name}")
        console.line(f"checked: {plural(counts.files, 'file')}, {', '.join(done)}")
    if result.is_sound:
        if not console.options.quiet:
            console.line("sound")
        return ExitCode.DONE
    console.error(
        f"{arguments.source}: {plural(len(result.faults), 'fault')}, the first: {result.faults[0]}"
        f" (build or pack the wheel again)"
    )
    return ExitCode.FAILED
