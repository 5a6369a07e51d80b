"""The base of the loader's results: plain objects with named fields.

Dataclasses and named tuples would do the same, but importing either costs more than the loader may.
"""

from __future__ import annotations

TYPE_CHECKING = False

__all__ = ["Record"]


class Record:
    """An object that compares, shows and exports the fields in its `__slots__`."""

    __slots__: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the fields by name, in a form that `json` can write."""
        return {name: _plain(getattr(self, name)) for name in sorted(self.__slots__)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.__slots__))
        return f"{type(self).__name__}({fields})"


def _plain(value: object) -> object:
    if isinstance(value, Record):
        return value.as_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
