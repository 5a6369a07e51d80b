"""How a long work tells how far it is. Nothing is shown here: that is the business of who runs the work."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "SilentProgress"]


class Progress(Protocol):
    """Somebody who is told how a long work goes."""

    def start(self, label: str, total: int) -> None:
        """Begin a work of `total` bytes."""

    def advance(self, amount: int) -> None:
        """Count `amount` more bytes as done."""

    def finish(self) -> None:
        """End the work; a second call does nothing."""


class SilentProgress:
    """A progress that nobody watches."""

    def start(self, label: str, total: int) -> None:
        """Ignore the beginning of a work."""

    def advance(self, amount: int) -> None:
        """Ignore a step."""

    def finish(self) -> None:
        """Ignore the end of a work."""
