"""The settings of a run: `[tool.kpack-build]` in pyproject.toml, and its other spellings.

One table, `OPTIONS`, says what may be set, to what, and what it does. The parser, the command line, the
setuptools command and the JSON schema for editors (`config.schema.json`, draft 7) are all made from it. A key
or value that is not in it raises `ConfigError`, which names what is allowed.

This module knows nothing of build systems, and looks neither at the machine nor at its GPUs: the same
settings mean the same everywhere.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kpack_build.errors import ConfigError
from kpack_build.settings import (
    Choice,
    Flag,
    Integer,
    Name,
    Place,
    Scheme,
    Setting,
    TargetList,
    suggestion,
)
from kpack_build.targets import GroupBy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpack_build.report import JSONValue

__all__ = [
    "OPTIONS",
    "TABLE",
    "Config",
    "Loader",
    "Mode",
    "Option",
    "override_config",
    "parse_config",
    "parse_text",
    "read_config",
    "render_schema",
    "to_schema",
]

TABLE = "[tool.kpack-build]"


class Mode(str, Enum):
    """What kind of wheels come out."""

    EMBEDDED = "embedded"


class Loader(str, Enum):
    """Whether the wheel gets the loader, and who calls it."""

    INJECT = "inject"
    MANUAL = "manual"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a run, checked and with their defaults. Use `parse_config` to make one from raw values.

    Attributes:
        mode: What kind of wheels come out.
        scheme: Compression scheme of the archives.
        level: Compression level of zstd, 1 to 22.
        group_by: What makes an archive.
        loader: Whether the wheel gets the loader, and who calls it.
        targets: Target ids to keep, families expanded; None for all.
        group: First part of the archives' names; None for the distribution's normalised name.
        require_device_code: Whether a wheel without device code (for the wanted targets) is an error.
        strict: Whether a binary that cannot be converted is an error.
        keep_ccob: Whether compressed bundles are kept as well, so that restoring is exact to the bit.
        workers: Number of threads; None for one for each usable CPU.
    """

    mode: Mode = Mode.EMBEDDED
    scheme: str = "zstd-per-kernel"
    level: int = 15
    group_by: GroupBy = GroupBy.SUB_FAMILY
    loader: Loader = Loader.INJECT
    targets: tuple[str, ...] | None = None
    group: str | None = None
    require_device_code: bool = False
    strict: bool = False
    keep_ccob: bool = False
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting.

    Attributes:
        key: Its name, with hyphens.
        summary: What it does, one sentence without a full stop.
        setting: The kind of its value.
    """

    key: str
    summary: str
    setting: Setting

    @property
    def field(self) -> str:
        """The name of its attribute in `Config`."""
        return self.key.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        """Whether it is switched on by being named."""
        return isinstance(self.setting, Flag)

    @property
    def default(self) -> JSONValue:
        """Its default as a JSON value; None where there is none to write."""
        value = getattr(Config(), self.field)
        default: JSONValue = value.value if isinstance(value, Enum) else value
        return default


OPTIONS: tuple[Option, ...] = (
    Option(
        key="mode",
        summary='Kind of wheels to make: "embedded" is one wheel with all archives inside',
        setting=Choice(Mode),
    ),
    Option(
        key="scheme",
        summary='Compression scheme of the archives: "zstd-per-kernel" or "none"',
        setting=Scheme(),
    ),
    Option(
        key="level",
        summary="Compression level of zstd, 1 (quick) to 22 (small)",
        setting=Integer(1, 22),
    ),
    Option(
        key="group-by",
        summary="What makes an archive: one for each target, sub-family or family of GPUs",
        setting=Choice(GroupBy),
    ),
    Option(
        key="loader",
        summary=(
            'Loader in wheels: "inject" calls it from the package\'s __init__.py, "manual" adds it for the '
            'package to call, "none" leaves it out'
        ),
        setting=Choice(Loader),
    ),
    Option(
        key="targets",
        summary="Targets or families of GPUs to keep device code for; all where it is left out",
        setting=TargetList(),
    ),
    Option(
        key="group",
        summary="First part of the archives' file names; the distribution's name where it is left out",
        setting=Name(),
    ),
    Option(
        key="require-device-code",
        summary="Fail where there is no device code, or none for the wanted targets",
        setting=Flag(),
    ),
    Option(
        key="strict",
        summary="Fail where a binary with device code cannot be converted, instead of keeping it as it is",
        setting=Flag(),
    ),
    Option(
        key="keep-ccob",
        summary="Keep compressed bundles as well, so that restoring the wheel is exact to the bit",
        setting=Flag(),
    ),
    Option(
        key="workers",
        summary="Number of threads; one for each usable CPU where it is left out",
        setting=Integer(1),
    ),
)

_BY_KEY = {option.key: option for option in OPTIONS}


def parse_config(table: Mapping[str, object], *, source: str = TABLE) -> Config:
    """Check a table of settings.

    Args:
        table: Keys with hyphens, values of TOML types.
        source: Where the table was written, for messages.

    Raises:
        ConfigError: A key or value is not allowed.
    """
    return override_config(Config(), table, source=source)


def override_config(config: Config, table: Mapping[str, object], *, source: str) -> Config:
    """Return settings with some replaced, checked as `parse_config` does.

    Args:
        config: The settings to start from.
        table: Keys with hyphens, values of TOML types.
        source: Where the table was written, for messages.

    Raises:
        ConfigError: A key or value is not allowed.
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        option = _find(key, source)
        values[option.field] = option.setting.parse(value, Place(key, source))
    return dataclasses.replace(config, **values)


def parse_text(key: str, text: str, *, source: str) -> object:
    """Turn a setting's text from a command line into the value that a table would hold.

    A text that cannot be read as such a value stays as it is: `override_config` rejects it.

    Args:
        key: The setting's name, with hyphens.
        text: The text; targets are separated by commas, semicolons or white space.
        source: Where the text was written, for messages.

    Raises:
        ConfigError: There is no such setting.
    """
    return _find(key, source).setting.parse_text(text)


def _find(key: str, source: str) -> Option:
    option = _BY_KEY.get(key)
    if option is None:
        problem = f"is no setting{suggestion(key.replace('_', '-'), _BY_KEY)}"
        raise ConfigError(key, problem, allowed=", ".join(_BY_KEY), source=source)
    return option


def read_config(pyproject: Path) -> Config | None:
    """Read `[tool.kpack-build]` from a pyproject.toml.

    Args:
        pyproject: The file; it may be missing.

    Returns:
        The settings, or None where there is no file or no such table.

    Raises:
        ConfigError: The file is not valid TOML, or a key or value of the table is not allowed.
    """
    try:
        with pyproject.open("rb") as file:
            document: dict[str, object] = tomllib.load(file)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        # Of the first kind are damaged TOML, bytes that are no UTF-8, and integers of too many digits.
        raise ConfigError(
            pyproject.name, f"cannot be read: {error}", allowed="a valid TOML file", source=str(pyproject)
        ) from error
    tool = document.get("tool")
    table = tool.get("kpack-build") if isinstance(tool, dict) else None
    if table is None:
        return None
    source = f"{pyproject}, {TABLE}"
    if not isinstance(table, dict):
        raise ConfigError("tool.kpack-build", "is no table", allowed="a table of settings", source=source)
    return parse_config(table, source=source)


def to_schema() -> dict[str, JSONValue]:
    """Return the JSON schema (draft 7) of the table."""
    properties: dict[str, JSONValue] = {}
    for option in OPTIONS:
        default = {} if option.default is None else {"default": option.default}
        properties[option.key] = {"description": option.summary, **option.setting.schema(), **default}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TABLE,
        "description": "Settings of kpack-build, which packs the HIP device code of wheels into archives",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def render_schema() -> str:
    """Return the text of `config.schema.json`, which is generated and never edited."""
    return json.dumps(to_schema(), indent=2) + "\n"
