"""What all commands share: their exit codes, their common options, and the error for wrong use."""

from __future__ import annotations

import argparse
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kpack_build.errors import ConfigError, KpackError

if TYPE_CHECKING:
    from kpack_build.cli.output import Console

__all__ = [
    "CommandModule",
    "ExitCode",
    "UsageError",
    "add_common_options",
    "add_output",
    "add_source",
    "add_targets",
    "path_argument",
    "wanted_targets",
]


class ExitCode(IntEnum):
    """How a command ended. The last two are what a shell gives for a process that a signal ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class UsageError(KpackError):
    """Options that are wrong, or do not go together."""


class CommandModule(Protocol):
    """A module of a command."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments to its parser."""

    def run(self, arguments: argparse.Namespace, console: Console) -> ExitCode:
        """Do the work."""


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress, notes or summary")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def path_argument(text: str) -> Path:
    """Return an argument as a path; an empty one, as of an unset variable, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def add_source(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    """Add the one positional argument: what a command works on."""
    parser.add_argument("source", metavar=metavar, type=path_argument, help=text)


def add_output(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that says where the result goes."""
    parser.add_argument("-o", "--output", metavar="DIR", type=path_argument, required=True, help=text)


def add_targets(parser: argparse.ArgumentParser, text: str) -> None:
    """Add an option that chooses targets; `wanted_targets` gives what was chosen."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        action="append",
        help=f"{text}, as gfx1100, gfx90a:xnack- or gfx110x; may be given more than once",
    )


def wanted_targets(arguments: argparse.Namespace) -> frozenset[str] | None:
    """Return the chosen targets with families expanded, or None where none was chosen.

    Raises:
        UsageError: One of them is neither a target id nor a family.
    """
    if arguments.target is None:
        return None
    from kpack_build.config import Config, override_config, parse_text  # noqa: PLC0415 - it is slow to import

    source = "command line"
    try:
        targets = parse_text("targets", ",".join(arguments.target), source=source)
        return frozenset(override_config(Config(), {"targets": targets}, source=source).targets or ())
    except ConfigError as error:
        raise UsageError(f"--target: {error.problem} (allowed: {error.allowed})") from error
