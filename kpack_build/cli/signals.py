"""Signals that ask the process to end: the work is undone first, as after an interruption from the keyboard.

Batch systems and terminals that go away send them; by default they end a process at once, and its temporary
files stay behind.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["EndRequest", "ended_by_signals"]

_NAMES = ("SIGTERM", "SIGHUP")


class EndRequest(KeyboardInterrupt):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals raise inside, and end the process by the same signal when all contexts are left.

    Signals that somebody ignores (`nohup`) or handles are left alone, and so are all of them outside of the
    main thread, where Python lets nobody change them.
    """
    numbers = _free_signals()
    for number in numbers:
        signal.signal(number, _raise)
    try:
        yield
    except EndRequest as request:
        signal.signal(request.number, signal.SIG_DFL)
        os.kill(os.getpid(), request.number)
        raise
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _free_signals() -> list[int]:
    if threading.current_thread() is not threading.main_thread():
        return []
    # Windows has no SIGHUP.
    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is signal.SIG_DFL]


def _raise(number: int, _: FrameType | None) -> None:
    raise EndRequest(number)
