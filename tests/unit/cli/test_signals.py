"""Signals that ask the process to end: temporary files go, and the process ends by the signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kpack_build.cli.signals import EndRequest, ended_by_signals

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_PROGRAM = """
import os, pathlib, signal, sys, tempfile
from kpack_build.cli.signals import ended_by_signals
{before}
with ended_by_signals(), tempfile.TemporaryDirectory(dir={folder!r}):
    os.kill(os.getpid(), signal.{name})
    print("went on", flush=True)
"""


def _run(name: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(name=name, folder=str(folder), before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_nothing_stays_behind(name: str, tmp_path: Path) -> None:
    done = _run(name, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.Signals[name], "", "")
    assert list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    done = _run("SIGHUP", tmp_path, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_change_no_signal() -> None:
    seen = []

    def look() -> None:
        with ended_by_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_request_is_an_interruption() -> None:
    assert isinstance(EndRequest(signal.SIGTERM), KeyboardInterrupt)
