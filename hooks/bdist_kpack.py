"""The command `python setup.py bdist_kpack`: a packed wheel, with settings from the command line.

It is `bdist_wheel` with packing switched on, so all that a project sets for `bdist_wheel` holds. Settings
given to the command come before those of the project. It stands in a module of its own because its list of
options needs kpack-build's settings, which builds of other projects should not have to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from setuptools import Command
from setuptools.errors import ModuleError, OptionError

from kpack_build.config import OPTIONS, Config, Option, override_config, parse_text
from kpack_build.errors import ConfigError

from .setuptools import pack_wheels_of, settings_of

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["bdist_kpack"]

_UserOption: TypeAlias = "tuple[str, str | None, str]"

# Options of `bdist_wheel` that are handed on to it.
_HANDED_ON: tuple[_UserOption, ...] = (
    ("dist-dir=", "d", "directory to put the wheel in [default: dist]"),
    ("plat-name=", "p", "platform name to embed in the wheel's name"),
    ("py-limited-api=", None, "Python tag (cp32|cp33|cpNN) for abi3 wheel tag"),
    ("build-number=", None, "build number for this particular version"),
)


def _user_option(option: Option) -> _UserOption:
    shown = "" if option.is_flag or option.default is None else f" [default: {option.default}]"
    return (option.key if option.is_flag else f"{option.key}=", None, option.summary + shown)


def _field(user_option: _UserOption) -> str:
    return user_option[0].rstrip("=").replace("-", "_")


class bdist_kpack(Command):  # noqa: N801 - setuptools names a command by its class
    """Create a wheel whose device code lies in .kpack archives."""

    description = "create a wheel whose HIP device code lies in .kpack archives"
    user_options: ClassVar[list[_UserOption]] = [*map(_user_option, OPTIONS), *_HANDED_ON]
    boolean_options: ClassVar[list[str]] = [option.key for option in OPTIONS if option.is_flag]

    def initialize_options(self) -> None:
        """Leave all options open."""
        vars(self).update(dict.fromkeys(map(_field, self.user_options)))

    def finalize_options(self) -> None:
        """Check the settings, and let `bdist_wheel` pack with them."""
        base = settings_of(self.distribution) or Config()
        try:
            config = override_config(base, self._given_settings(), source="bdist_kpack")
        except ConfigError as error:
            raise OptionError(str(error)) from error
        pack_wheels_of(self.distribution, config)

    def run(self) -> None:
        """Run `bdist_wheel`, which packs now."""
        # A bdist_wheel from earlier on the same command line may be of the class that does not pack.
        self.distribution.command_obj.pop("bdist_wheel", None)
        has_run = self.distribution.have_run.pop("bdist_wheel", None)
        handed_on = self.distribution.get_option_dict("bdist_wheel")
        if has_run:
            # That one removed its folder, but distutils makes no folder twice: this one needs another.
            base = vars(self.get_finalized_command("bdist"))["bdist_base"]
            handed_on["bdist_dir"] = ("bdist_kpack", str(Path(base, "kpack-wheel")))
        for name in map(_field, _HANDED_ON):
            if vars(self)[name] is not None:
                handed_on[name] = ("bdist_kpack", vars(self)[name])
        try:
            self.run_command("bdist_wheel")
        except ModuleError as error:
            raise ModuleError(
                f"{error}: bdist_kpack needs setuptools 70.1, or the package wheel (pip install wheel)"
            ) from error

    def _given_settings(self) -> dict[str, object]:
        given = {option.key: vars(self)[option.field] for option in OPTIONS}
        return {
            key: parse_text(key, value, source="bdist_kpack") if isinstance(value, str) else bool(value)
            for key, value in given.items()
            if value is not None
        }
