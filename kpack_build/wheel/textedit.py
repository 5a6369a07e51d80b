"""The exact undo of a change of a file: small, readable in JSON, and checked when it is applied.

The change is taken as one replaced range, between what both versions have in common at their beginning and at
their end. Bytes are opaque: encoding, line ends and a missing last newline come back as they were.
"""

from __future__ import annotations

import hashlib
from typing import TypedDict

from kpack_build.errors import FormatError, PathLike, WheelError

__all__ = ["TextUndo", "apply_text_undo", "plan_text_undo"]


class TextUndo(TypedDict):
    """How the original comes back.

    Attributes:
        offset: Where the changed range begins, in bytes.
        length: Its length in the changed file, in bytes.
        original: What stood there, in hexadecimal.
        sha256: Digest of the whole original, in hexadecimal.
    """

    offset: int
    length: int
    original: str
    sha256: str


def plan_text_undo(original: bytes, changed: bytes) -> TextUndo:
    """Plan the undo of a change.

    Args:
        original: The file as it was.
        changed: The file as it is.
    """
    start = _common_prefix(original, changed)
    rest, changed_rest = original[start:], changed[start:]
    tail = _common_prefix(rest[::-1], changed_rest[::-1])
    return TextUndo(
        offset=start,
        length=len(changed_rest) - tail,
        original=rest[: len(rest) - tail].hex(),
        sha256=hashlib.sha256(original).hexdigest(),
    )


def apply_text_undo(changed: bytes, undo: TextUndo, *, path: PathLike = "the packed file") -> bytes:
    """Give back the original of a changed file.

    Args:
        changed: The file as it is.
        undo: What `plan_text_undo` returned.
        path: The file's name, for errors.

    Raises:
        WheelError: The file was changed again since.
        FormatError: The undo is malformed.
    """
    try:
        start, end = undo["offset"], undo["offset"] + undo["length"]
        original = changed[:start] + bytes.fromhex(undo["original"]) + changed[end:]
        expected = undo["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, "its recorded undo is malformed", found=repr(error)) from error
    if hashlib.sha256(original).hexdigest() != expected:
        raise WheelError(
            path,
            "it was changed since the wheel was packed, so its original cannot be given back",
            remedy="restore the wheel as kpack-build wrote it",
        )
    return original


def _common_prefix(first: bytes, second: bytes) -> int:
    """Return how many bytes two texts have in common at their beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
