"""`kpack-build pack`: move a wheel's device code into archives inside it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kpack_build.cli.command import ExitCode, UsageError, add_output, add_source, path_argument
from kpack_build.cli.output import Column, Table, change_text, plural, size_text
from kpack_build.config import OPTIONS, Config, override_config, parse_text, read_config
from kpack_build.errors import ConfigError
from kpack_build.pipeline import pack
from kpack_build.report import BinaryAction, Outcome
from kpack_build.settings import Choice

if TYPE_CHECKING:
    from kpack_build.cli.output import Console
    from kpack_build.config import Option
    from kpack_build.report import PackReport

__all__ = ["DESCRIPTION", "EXAMPLES", "add_options", "run"]

DESCRIPTION = """\
Move the HIP device code of a wheel into .kpack archives inside it, one for each sub-family of GPUs, and add
what finds the right one. The result has the same name and works as before; the source is not changed. A
wheel without device code passes through as it is, and so does a binary that cannot be converted safely: the
report says why. Settings are those of [tool.kpack-build]; a pyproject.toml is read only where --config
names it."""

EXAMPLES = """\
  kpack-build pack dist/foo-1.0-cp311-cp311-linux_x86_64.whl -o packed
  kpack-build pack foo.whl -o packed --targets gfx942,gfx1100 --level 19
  kpack-build pack foo.whl -o packed --group-by family --config pyproject.toml
  kpack-build pack foo.whl -o packed --require-device-code --strict --json"""

_METAVARS = {"level": "N", "workers": "N", "targets": "LIST", "group": "NAME", "scheme": "NAME"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_source(parser, "WHEEL|DIR", "the wheel, or the folder of its unpacked files")
    add_output(parser, "folder of the result, which keeps its name")
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=path_argument,
        help="read settings from this pyproject.toml; options go before",
    )
    settings = parser.add_argument_group("settings")
    for option in OPTIONS:
        _add_setting(settings, option)


def run(arguments: argparse.Namespace, console: Console) -> ExitCode:
    """Pack."""
    config = _read_settings(arguments)
    report = pack(arguments.source, arguments.output, config, progress=console.progress())
    console.result(report.to_json())
    if not console.options.quiet:
        _show(report, console)
    return ExitCode.DONE


def _add_setting(group: argparse._ArgumentGroup, option: Option) -> None:
    default = "" if option.default in (None, False) else f" (default: {option.default})"
    text = f"{option.summary[0].lower()}{option.summary[1:]}{default}".replace("%", "%%")
    name = f"--{option.key}"
    if option.is_flag:
        group.add_argument(
            name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, dest=option.key, help=text
        )
    else:
        group.add_argument(
            name, default=argparse.SUPPRESS, dest=option.key, metavar=_metavar(option), help=text
        )


def _metavar(option: Option) -> str:
    if isinstance(option.setting, Choice):
        return "|".join(member.value for member in option.setting.values)
    return _METAVARS[option.key]


def _read_settings(arguments: argparse.Namespace) -> Config:
    """Return the settings of the file that was named, if any, with the command line's on top."""
    config: Config | None = Config()
    if arguments.config is not None:
        if not arguments.config.exists():
            raise UsageError(f"--config: there is no file {arguments.config}")
        config = read_config(arguments.config)
    if config is None:
        raise UsageError(f"--config: there is no [tool.kpack-build] in {arguments.config}")
    source = "command line"
    given = {
        key: value for key, value in vars(arguments).items() if key in {option.key for option in OPTIONS}
    }
    try:
        table = {
            key: parse_text(key, value, source=source) if isinstance(value, str) else value
            for key, value in given.items()
        }
        return override_config(config, table, source=source)
    except ConfigError as error:
        raise UsageError(f"--{error.key}: {error.problem} (allowed: {error.allowed})") from error


def _show(report: PackReport, console: Console) -> None:
    console.table(_binary_table(report))
    console.table(_archive_table(report))
    for binary in report.binaries:
        if binary.action is BinaryAction.KEPT_FAT and report.outcome is not Outcome.NOTHING_WANTED:
            console.note(
                f"{binary.path} was kept as it is: {'; '.join(binary.reasons) or 'see the warnings'}"
            )
    for warning in report.warnings:
        console.note(f"warning: {warning}")
    if report.dropped:
        console.line(f"dropped: device code for {', '.join(report.dropped)}")
    if report.outcome is Outcome.DONE:
        wheel = "" if report.output.is_dir() else f"wheel: {change_text(report.wheel)}; "
        console.line(f"{wheel}installed: {change_text(report.installed)}")
        if report.advice is not None:
            console.note(f"warning: {report.advice}")
        if report.mixed_machines is not None:
            console.note(f"note: {report.mixed_machines}")
    else:
        console.line(f"{report.outcome.value}: passed through unchanged")
    console.line(f"written: {report.output}")


def _binary_table(report: PackReport) -> Table:
    return Table(
        title="binaries",
        columns=(
            Column("binary"),
            Column("action"),
            Column("bundles"),
            Column("code objects", right=True),
            Column("before", right=True),
            Column("after", right=True),
        ),
        rows=[
            (
                binary.path,
                binary.action.value,
                ", ".join(binary.encodings),
                str(binary.code_objects),
                size_text(binary.size.before),
                size_text(binary.size.after),
            )
            for binary in report.binaries
        ],
    )


def _archive_table(report: PackReport) -> Table:
    return Table(
        title="archives",
        columns=(
            Column("archive"),
            Column("targets"),
            Column("code objects", right=True),
            Column("uncompressed", right=True),
            Column("size", right=True),
        ),
        rows=[
            (
                archive.path,
                _shortened(archive.targets),
                str(archive.code_objects),
                size_text(archive.original_bytes),
                size_text(archive.size),
            )
            for archive in report.archives
        ],
    )


def _shortened(targets: tuple[str, ...]) -> str:
    """Name processors once each, and say how many of their feature states are listed."""
    counts: dict[str, int] = {}
    for target in targets:
        processor = target.partition(":")[0]
        counts[processor] = counts.get(processor, 0) + 1
    return " ".join(
        name if count == 1 else f"{name} ({plural(count, 'state')})" for name, count in counts.items()
    )
