"""How far a long work is, without any other package: not at all, or as lines.

The interface is that of `kpack_build.extraction.Progress`; amounts are bytes.
"""

from __future__ import annotations

from typing import Protocol, TextIO

__all__ = ["CommandProgress", "LineProgress", "SilentProgress"]

_LINES = 10


class CommandProgress(Protocol):
    """Somebody who is told how a long work goes."""

    def start(self, label: str, total: int) -> None:
        """Begin a work of `total` bytes."""

    def advance(self, amount: int) -> None:
        """Count `amount` more bytes as done."""

    def finish(self) -> None:
        """End the work; a second call does nothing."""


class SilentProgress:
    """Nobody looks."""

    def start(self, label: str, total: int) -> None:
        """Ignore the beginning of a work."""

    def advance(self, amount: int) -> None:
        """Ignore a step."""

    def finish(self) -> None:
        """Ignore the end of a work."""


class LineProgress:
    """A line for each tenth of a work, for terminals that can do no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._label = ""
        self._total = 0
        self._done = 0
        self._shown = 0

    def start(self, label: str, total: int) -> None:
        """Begin a work of `total` bytes."""
        self._label, self._total, self._done, self._shown = label, total, 0, 0
        print(f"{label} …", file=self._stream)

    def advance(self, amount: int) -> None:
        """Count `amount` more bytes as done, and print a line if a tenth is full."""
        self._done += amount
        tenths = min(_LINES, self._done * _LINES // self._total) if self._total else 0
        if tenths > self._shown:
            self._shown = tenths
            print(f"{self._label}: {tenths * 100 // _LINES} %", file=self._stream)

    def finish(self) -> None:
        """End the work."""
        self._label = ""
