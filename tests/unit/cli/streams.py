"""Streams for the tests of the command line."""

from __future__ import annotations

import io

__all__ = ["Terminal"]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True
