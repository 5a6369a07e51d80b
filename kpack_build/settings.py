"""The kinds of values that a setting may have: how each is checked, read from text, and put in a JSON schema.

A kind is told the `Place` of a value, and raises the place's `ConfigError` for one that is not allowed.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from rocm_bootstrap import PackagingLevel, all_bundles, lookup_bundle

from kpack_build.errors import ConfigError, TargetError
from kpack_build.processors import GENERIC_MEMBERS, PROCESSORS
from kpack_build.targets import TargetId

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    from kpack_build.report import JSONValue

__all__ = ["Choice", "Flag", "Integer", "Name", "Place", "Scheme", "Setting", "TargetList", "suggestion"]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
# What the name of a processor looks like that no table has yet. A target id may be less than that, but here a
# misspelt name would silently keep no device code.
_NEW_PROCESSOR = re.compile(r"gfx[0-9]{1,3}[0-9a-f]{2}(-strict)?|gfx[0-9]+(-[0-9]+)?-generic")
_BUILT_IN_SCHEMES = ("zstd-per-kernel", "none")
_SCHEME_GROUP = "kpack_build.compression"
_SEPARATORS = re.compile(r"[,;\s]+")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: the setting's key, and the file, keyword or command line."""

    key: str
    source: str

    def reject(self, problem: str, setting: Setting) -> ConfigError:
        """Return the error for a value that `setting` does not allow; `problem` is a clause."""
        return ConfigError(self.key, problem, allowed=setting.allowed, source=self.source)


class Setting(Protocol):
    """What all kinds offer."""

    @property
    def allowed(self) -> str:
        """What may be given, for a message."""

    def parse(self, value: object, place: Place) -> object:
        """Return the value as `Config` holds it, or raise `ConfigError`."""

    def parse_text(self, text: str) -> object:
        """Return what a table would hold for a text; what is none stays a text, which `parse` rejects."""

    def schema(self) -> dict[str, JSONValue]:
        """Return the JSON schema of the value."""


def suggestion(word: str, possible: Iterable[str]) -> str:
    """Return a clause that names the closest of the possible words, or nothing."""
    close = difflib.get_close_matches(word.lower(), list(possible), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""


def _toml_type(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


def _string(value: object, place: Place, setting: Setting) -> str:
    if not isinstance(value, str):
        raise place.reject(f"is {_toml_type(value)}, not a string", setting)
    return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values of an enumeration of strings."""

    values: type[Enum]

    @property
    def allowed(self) -> str:
        return ", ".join(repr(word) for word in self._words())

    def parse(self, value: object, place: Place) -> Enum:
        text = _string(value, place, self)
        if text not in self._words():
            raise place.reject(f"is {text!r}{suggestion(text, self._words())}", self)
        return self.values(text)

    def parse_text(self, text: str) -> object:
        return text

    def schema(self) -> dict[str, JSONValue]:
        return {"type": "string", "enum": [*self._words()]}

    def _words(self) -> list[str]:
        return [str(member.value) for member in self.values]


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within limits, both included."""

    least: int
    most: int | None = None

    @property
    def allowed(self) -> str:
        return f"an integer from {self.least}" + ("" if self.most is None else f" to {self.most}")

    def parse(self, value: object, place: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise place.reject(f"is {_toml_type(value)}, not an integer", self)
        if value < self.least or (self.most is not None and value > self.most):
            raise place.reject(f"is {value}", self)
        return value

    def parse_text(self, text: str) -> object:
        try:
            return int(text)
        except ValueError:
            return text

    def schema(self) -> dict[str, JSONValue]:
        most: dict[str, JSONValue] = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": self.least, **most}


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    @property
    def allowed(self) -> str:
        return "true or false"

    def parse(self, value: object, place: Place) -> bool:
        if not isinstance(value, bool):
            raise place.reject(f"is {_toml_type(value)}, not a boolean", self)
        return value

    def parse_text(self, text: str) -> object:
        return text.lower() in _TRUE if text.lower() in _TRUE | _FALSE else text

    def schema(self) -> dict[str, JSONValue]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Name:
    """The first part of a file name: no separators, no `:` or `+` (they fail on some systems)."""

    _PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"

    @property
    def allowed(self) -> str:
        return "letters, digits, '.', '_' and '-', with a letter or digit at both ends"

    def parse(self, value: object, place: Place) -> str:
        text = _string(value, place, self)
        # `$` would let a last newline pass.
        if re.fullmatch(self._PATTERN.strip("^$"), text) is None:
            raise place.reject(f"is {text!r}", self)
        return text

    def parse_text(self, text: str) -> object:
        return text

    def schema(self) -> dict[str, JSONValue]:
        return {"type": "string", "pattern": self._PATTERN}


@dataclass(frozen=True, slots=True)
class Scheme:
    """A compression scheme of archives: a built-in one, or one that a package registers as an entry point."""

    @property
    def allowed(self) -> str:
        return ", ".join(repr(name) for name in self._names())

    def parse(self, value: object, place: Place) -> str:
        text = _string(value, place, self)
        if text not in self._names():
            raise place.reject(f"is {text!r}, which is not registered{suggestion(text, self._names())}", self)
        return text

    def parse_text(self, text: str) -> object:
        return text

    def schema(self) -> dict[str, JSONValue]:
        return {"type": "string", "minLength": 1, "examples": [*_BUILT_IN_SCHEMES]}

    def _names(self) -> list[str]:
        registered = (point.name for point in entry_points(group=_SCHEME_GROUP))
        return list(dict.fromkeys([*_BUILT_IN_SCHEMES, *registered]))


@dataclass(frozen=True, slots=True)
class TargetList:
    """Target ids, and families and sub-families of `rocm-bootstrap`, which stand for their members.

    A family also stands for the generic targets that run on one of its members. A processor that no table
    knows is taken as it is written: compilers know new chips earlier than tables do.
    """

    @property
    def allowed(self) -> str:
        return (
            "an array of target ids, as 'gfx1100' or 'gfx90a:xnack-', and of families: "
            f"{', '.join(_family_keys())}"
        )

    def parse(self, value: object, place: Place) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise place.reject(f"is {_toml_type(value)}, not an array", self)
        if not value:
            raise place.reject("is empty; leave it out to keep all targets", self)
        return tuple(
            dict.fromkeys(
                target for item in value for target in self._expand(_string(item, place, self), place)
            )
        )

    def parse_text(self, text: str) -> object:
        return [word for word in _SEPARATORS.split(text) if word]

    def schema(self) -> dict[str, JSONValue]:
        return {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": "^gfx", "examples": ["gfx1100", *_family_keys()]},
        }

    def _expand(self, word: str, place: Place) -> list[str]:
        try:
            bundle = lookup_bundle(word)
        except ValueError:
            return [self._target(word, place)]
        if bundle.level is PackagingLevel.TARGET:
            return [word]
        members = [member.name for member in bundle.members]
        return members + [name for name, covered in GENERIC_MEMBERS.items() if set(covered) & set(members)]

    def _target(self, word: str, place: Place) -> str:
        try:
            target = TargetId.parse(word)
        except TargetError:
            target = None
        if target is None or not (
            target.processor in PROCESSORS or _NEW_PROCESSOR.fullmatch(target.processor)
        ):
            problem = f"{word!r} is neither a target id nor a family{_similar_target(word)}"
            raise place.reject(problem, self)
        return str(target)


def _family_keys() -> list[str]:
    return [bundle.key for bundle in all_bundles() if bundle.level is not PackagingLevel.TARGET]


def _similar_target(word: str) -> str:
    return suggestion(word, [*_family_keys(), *PROCESSORS])
