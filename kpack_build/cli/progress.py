"""How far a long work is, as lines, for terminals that can do no more. Amounts are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["LineProgress"]

_LINES = 10


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
        print(f"{label} ...", file=self._stream)

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
