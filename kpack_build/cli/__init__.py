"""The command line: `kpack-build COMMAND …`, one thin module for each command.

A module of a command parses its options, calls the library, and shows what it gives back. Only the named
command's module is imported, so that `--help` and short commands start quickly. Exit codes: 0 done, 1
failed, 2 wrong use; 130 interrupted, 141 nobody reads the output any more. A request to end (SIGTERM, SIGHUP)
first lets go of what is half written, and then ends the process as it would have.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import kpack_build
from kpack_build.cli.command import CommandModule, ExitCode, UsageError, add_common_options
from kpack_build.cli.output import Console, OutputOptions
from kpack_build.cli.signals import ended_by_signals
from kpack_build.errors import KpackError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["COMMANDS", "build_parser", "main"]

COMMANDS = {
    "pack": "move a wheel's device code into per-family archives inside it",
    "inspect": "show what is in a wheel, library, archive, code object or folder",
    "extract": "write code objects to files",
    "verify": "check a packed wheel, alone or against the fat one",
    "restore": "give back the fat wheel that was packed",
}

_DESCRIPTION = """\
Build wheels whose HIP device code lies in per-family ROCm .kpack archives, look into them, check them, and
turn them back. A wheel is given as its .whl file or as the folder of its unpacked files; sources are never
changed."""

_EPILOG = """\
examples:
  kpack-build inspect dist/foo-1.0-cp311-cp311-linux_x86_64.whl
  kpack-build pack dist/foo-1.0-cp311-cp311-linux_x86_64.whl -o packed
  kpack-build verify packed/foo-1.0-cp311-cp311-linux_x86_64.whl

`kpack-build COMMAND --help` explains a command. Exit codes: 0 done, 1 failed, 2 wrong use."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments; those of the process where it is left out.

    Returns:
        The exit code. Wrong options and `--help` leave through `SystemExit`, as `argparse` does.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _replace_closed_streams()
    _show_any_name(sys.stdout, sys.stderr)
    try:
        with ended_by_signals():
            return _flushed(_main, words)
    except BrokenPipeError:
        _drop_stdout()
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        print("kpack-build: interrupted, nothing was left half-written", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _flushed(run: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Run, and see to it that all output arrives: the interpreter's own flush at its end tells in vain."""
    try:
        try:
            return run(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        print(f"kpack-build: error: standard output: {_sentence(error)}", file=sys.stderr)
        return ExitCode.FAILED


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; of the commands, those among the words have their options.

    Args:
        words: The arguments that are going to be parsed.
    """
    parser = argparse.ArgumentParser(
        prog="kpack-build",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kpack-build {kpack_build.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name in words:
            _add_command(commands, name, summary)
        else:
            commands.add_parser(name, help=summary)
    return parser


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> None:
    module = _load(name)
    parser = commands.add_parser(
        name,
        help=summary,
        description=module.DESCRIPTION,
        epilog=f"examples:\n{module.EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_options(parser)
    add_common_options(parser)
    parser.set_defaults(parser=parser)


def _load(name: str) -> CommandModule:
    return cast("CommandModule", importlib.import_module(f"kpack_build.cli.{name}"))


def _main(words: Sequence[str]) -> int:
    arguments, unknown = build_parser(words).parse_known_args(words)
    parser: argparse.ArgumentParser = arguments.parser
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_guess(unknown, parser)}")
    options = OutputOptions(json=arguments.json, quiet=arguments.quiet, debug=arguments.debug)
    with Console(options) as console:
        try:
            return _load(arguments.command).run(arguments, console)
        except UsageError as error:
            parser.error(str(error))
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the program: each becomes one line and a code
            return _failed(error, console)


def _guess(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Ask whether another option was meant, where one of the command has a similar name."""
    known = re.findall(r"--[a-z-]+", parser.format_usage())
    close = (difflib.get_close_matches(word.partition("=")[0], known, n=1) for word in unknown)
    return next((f", did you mean {matches[0]}?" for matches in close if matches), "")


def _failed(error: Exception, console: Console) -> int:
    """Tell about an error in one line, and to scripts as JSON."""
    if console.options.debug:
        traceback.print_exception(error)
    console.error(_sentence(error))
    console.result({"error": {"type": type(error).__name__, "message": _sentence(error)}})
    return ExitCode.FAILED


def _sentence(error: Exception) -> str:
    if isinstance(error, KpackError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        place = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        if place and isinstance(error, FileNotFoundError):
            return f"{place}there is no such file or folder (check the path)"
        if place and isinstance(error, (FileExistsError, NotADirectoryError)):
            return f"{place}is a file, not a folder (name another path)"
        return f"{place}{error.strerror} (check the path, its permissions and the space on the disk)"
    return f"unexpected {type(error).__name__}: {error} (run again with --debug and report what it shows)"


def _replace_closed_streams() -> None:
    """Open what the caller closed before it started the process: Python has None for it then."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It lasts as long as the process.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _show_any_name(*streams: TextIO) -> None:
    """Let a name that the terminal's encoding lacks be shown as an escape instead of failing."""
    for stream in streams:
        with contextlib.suppress(AttributeError):  # a stream of another kind, put there by a caller
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]


def _drop_stdout() -> None:
    """Send what is still buffered to nowhere: the interpreter would fail to write it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
