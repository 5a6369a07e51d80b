"""Check that parsed JSON has the shape that a reader relies on, so that damage is one error with its place.

A shape is a type (or several), a list with the shape of its items, a dict with the shapes of the keys that
must be there, or `MapOf` for a map with any keys. Other keys are allowed everywhere. Ranges and references
between parts are the reader's own business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from kpack_build.errors import FormatError, PathLike

__all__ = ["MAX_NATURAL", "MapOf", "Shape", "check_naturals", "check_shape"]

#: The largest number that a file offset or size can have.
MAX_NATURAL = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from texts to values of one shape."""

    value: Shape


Shape: TypeAlias = "type | tuple[type, ...] | list[Shape] | dict[str, Shape] | MapOf"


def check_shape(value: object, shape: Shape, path: PathLike, *, place: str = "") -> None:
    """Check a value, and all that is in it.

    Args:
        value: What was parsed.
        shape: What it must be like.
        path: The file it came from, for the error.
        place: Where in the file it is, for the error, as "binaries[2].path".

    Raises:
        FormatError: Something is missing or of another type.
    """
    if isinstance(shape, dict):
        _check_type(value, Mapping, path, place)
        _check_keys(cast("Mapping[str, object]", value), shape, path, place)
    elif isinstance(shape, MapOf):
        _check_type(value, Mapping, path, place)
        for key, inner in cast("Mapping[str, object]", value).items():
            check_shape(inner, shape.value, path, place=f"{place}[{key!r}]")
    elif isinstance(shape, list):
        _check_type(value, list, path, place)
        for number, inner in enumerate(cast("list[object]", value)):
            check_shape(inner, shape[0], path, place=f"{place}[{number}]")
    else:
        _check_type(value, shape, path, place)


def check_naturals(value: object, path: PathLike, *, place: str = "") -> None:
    """Check that every number in a value of any shape can be a size, offset or count.

    Args:
        value: What was parsed.
        path: The file it came from, for the error.
        place: Where in the file it is, for the error.

    Raises:
        FormatError: There is a negative number, or one that no file can have.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_naturals(inner, path, place=f"{place}[{key!r}]")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check_naturals(inner, path, place=f"{place}[{number}]")
    elif isinstance(value, float) or (isinstance(value, int) and not 0 <= value <= MAX_NATURAL):
        raise FormatError(path, f"{place} is no size, offset or count", found=value)


def _check_keys(value: Mapping[str, object], shape: dict[str, Shape], path: PathLike, place: str) -> None:
    for key, inner in shape.items():
        name = f"{place}.{key}".lstrip(".")
        if key not in value:
            raise FormatError(path, f"{name} is missing")
        check_shape(value[key], inner, path, place=name)


def _check_type(value: object, allowed: type | tuple[type, ...], path: PathLike, place: str) -> None:
    # A boolean is an integer for Python, and none for JSON.
    if not isinstance(value, allowed) or (isinstance(value, bool) and allowed is int):
        names = allowed if isinstance(allowed, tuple) else (allowed,)
        raise FormatError(
            path,
            f"{place or 'the content'} is of another type",
            expected=" or ".join(kind.__name__ for kind in names),
            found=type(value).__name__,
        )
