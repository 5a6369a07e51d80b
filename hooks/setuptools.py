"""The adapter to setuptools: `bdist_wheel` gives the packed wheel where a project asks for it.

setuptools calls `finalize_distribution_options` for each project that it builds while kpack-build is
installed. A project asks with a `[tool.kpack-build]` table in its pyproject.toml or with the keyword
``setup(kpack={…})``; for all others nothing happens, and nothing but this module is imported. The settings
are checked there, before any command runs.

`bdist_wheel` is what `pip wheel`, `python -m build`, `uv build` and `setup.py bdist_wheel` all come to. Its
class may be setuptools' own (70.1 and later), that of the package wheel, or the project's; so the class is
taken from the distribution when a command asks for it, and a subclass that packs is handed out in its place.
Editable installs and sdists use other commands, and stay as they are.

The plugin interfaces are those of setuptools' documentation ("Extending or Customizing Setuptools").
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from setuptools.errors import ExecError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from setuptools import Command, Distribution
    from setuptools.command.bdist_wheel import bdist_wheel

    from kpack_build.config import Config
    from kpack_build.report import PackReport

__all__ = ["check_kpack_keyword", "finalize_distribution_options", "pack_wheels_of", "settings_of"]

_KEYWORD = "setup(kpack=…)"

_ListedFile: TypeAlias = "tuple[str, str, str]"
_Lookup: TypeAlias = "Callable[[str], type[Command]]"


def finalize_distribution_options(distribution: Distribution) -> None:
    """Let `bdist_wheel` pack, where the project asks for it.

    Raises:
        SetupError: The project's settings are wrong.
    """
    config = _read_settings(distribution)
    if config is not None:
        pack_wheels_of(distribution, config)


def check_kpack_keyword(distribution: Distribution, attr: str, value: object) -> None:  # noqa: ARG001 - setuptools' signature
    """Check the value of the keyword `kpack` of `setup()`.

    Raises:
        SetupError: It is no dict of settings.
    """
    _parse_keyword(value)


def pack_wheels_of(distribution: Distribution, config: Config) -> None:
    """From here on, let the `bdist_wheel` of a distribution pack with these settings."""
    lookup: _Lookup = distribution.get_command_class
    if isinstance(lookup, _CommandClasses):
        lookup = lookup.lookup
    vars(distribution)["get_command_class"] = _CommandClasses(lookup, config)


def settings_of(distribution: Distribution) -> Config | None:
    """Return the settings with which the `bdist_wheel` of a distribution packs, or None where it does not."""
    lookup: _Lookup = distribution.get_command_class
    return lookup.config if isinstance(lookup, _CommandClasses) else None


class _CommandClasses:
    """Stands before a distribution's `get_command_class`, and gives a `bdist_wheel` that packs.

    `cmdclass` is no place for it: setuptools replaces it when it reads pyproject.toml, and projects do, too.
    """

    def __init__(self, lookup: _Lookup, config: Config) -> None:
        self.lookup = lookup
        self.config = config
        self._packing: dict[type[Command], type[Command]] = {}

    def __call__(self, command: str) -> type[Command]:
        found = self.lookup(command)
        if command != "bdist_wheel":
            return found
        if found not in self._packing:
            self._packing[found] = _packing_class(found, self.config)
        return self._packing[found]


def _packing_class(base: type[Command], config: Config) -> type[Command]:
    """Return a subclass of a `bdist_wheel` whose wheels are packed.

    It bears its base's name: distutils finds the options of a command by the name of its class.
    """

    def run(self: bdist_wheel) -> None:
        _run_and_pack(self, config, functools.partial(base.run, self))

    return type(base.__name__, (base,), {"__doc__": base.__doc__, "__module__": base.__module__, "run": run})


def _run_and_pack(command: bdist_wheel, config: Config, build: Callable[[], None]) -> None:
    """Let `bdist_wheel` write into a private folder, and pack from there into its own.

    On an error neither a fat wheel nor a packed one is left behind.
    """
    own_folder = Path(str(command.dist_dir))
    listed: list[_ListedFile] = vars(command.distribution)["dist_files"]
    with _private_folder(command) as folder, _restored_on_error(listed), ExitStack() as undo:
        _run_into(command, folder, build)
        outputs: dict[str, str] = {}
        for fat in _built_wheels(folder):
            report = _pack(fat, own_folder, config)
            undo.callback(report.output.unlink, missing_ok=True)
            outputs[str(fat)] = str(own_folder / report.output.name)
            _announce(command, report)
        undo.pop_all()
        listed[:] = [(name, python, outputs.get(file, file)) for name, python, file in listed]


@contextmanager
def _restored_on_error(listed: list[_ListedFile]) -> Iterator[None]:
    """Take back what was added to the list of files that commands made (command, Python version, file)."""
    before = list(listed)
    try:
        yield
    except BaseException:
        listed[:] = before
        raise


@contextmanager
def _private_folder(command: bdist_wheel) -> Iterator[Path]:
    """Make a folder for fat wheels, below the build folder: the system's may be too small for them."""
    base = Path(vars(command.get_finalized_command("bdist"))["bdist_base"]).resolve()
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kpack-build-", dir=base) as folder:
        yield Path(folder)


def _run_into(command: bdist_wheel, folder: Path, build: Callable[[], None]) -> None:
    own_folder = command.dist_dir
    command.dist_dir = str(folder)
    try:
        build()
    finally:
        command.dist_dir = own_folder


def _built_wheels(folder: Path) -> list[Path]:
    built = sorted(folder.glob("*.whl"))
    if not built:
        raise ExecError(
            "bdist_wheel wrote no wheel into its dist_dir, so there is nothing to pack "
            "(a bdist_wheel of the project's own has to honour self.dist_dir)"
        )
    return built


def _pack(wheel: Path, output_dir: Path, config: Config) -> PackReport:
    # Imported here: the builds of projects that do not ask for packing must not depend on it.
    from kpack_build.errors import KpackError  # noqa: PLC0415 - see above
    from kpack_build.pipeline import pack  # noqa: PLC0415 - see above

    try:
        return pack(wheel, output_dir, config)
    except KpackError as error:
        raise ExecError(f"kpack-build: {error}") from error


def _announce(command: bdist_wheel, report: PackReport) -> None:
    from .build_log import iter_log_lines, iter_log_warnings  # noqa: PLC0415 - see _pack

    for line in iter_log_lines(report):
        command.distribution.announce(f"kpack-build: {line}")
    for line in iter_log_warnings(report):
        command.warn(f"kpack-build: {line}")


def _read_settings(distribution: Distribution) -> Config | None:
    keyword: object = getattr(distribution, "kpack", None)
    by_keyword = None if keyword is None else _parse_keyword(keyword)
    by_table = _read_table(Path(distribution.src_root or "", "pyproject.toml"))
    if by_keyword is not None and by_table is not None:
        raise SetupError(
            f"kpack-build is set up twice, in pyproject.toml and by {_KEYWORD} (keep one of them)"
        )
    return by_table if by_keyword is None else by_keyword


def _read_table(pyproject: Path) -> Config | None:
    # Most projects have no table: they should not pay for TOML and the imports.
    if not pyproject.is_file() or b"kpack-build" not in pyproject.read_bytes():
        return None
    from kpack_build.config import read_config  # noqa: PLC0415 - see _pack
    from kpack_build.errors import ConfigError  # noqa: PLC0415 - see _pack

    try:
        return read_config(pyproject)
    except ConfigError as error:
        raise SetupError(str(error)) from error


def _parse_keyword(value: object) -> Config:
    from kpack_build.config import parse_config  # noqa: PLC0415 - see _pack
    from kpack_build.errors import ConfigError  # noqa: PLC0415 - see _pack

    if not isinstance(value, Mapping):
        raise SetupError(f"{_KEYWORD}: is a {type(value).__name__} (allowed: a dict of settings)")
    # Python's own way to write such a dict, `dict(group_by="target")`, cannot have hyphens.
    table = {str(key).replace("_", "-"): item for key, item in value.items()}
    try:
        return parse_config(table, source=_KEYWORD)
    except ConfigError as error:
        raise SetupError(str(error)) from error
