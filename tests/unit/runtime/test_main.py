from __future__ import annotations

import io
import json
import logging
import warnings
from typing import TYPE_CHECKING

import pytest

from kpack_build import runtime
from kpack_build.runtime import KpackWarning, __main__, activate, status
from tests.loaders import Recipe
from tests.topology import write_topology

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, use_table: Callable[[Recipe], None]) -> None:
    """Let each test be the first that activates the loader, on a machine without GPUs."""
    use_table(Recipe())
    monkeypatch.setattr(runtime._Activation, "started", False)
    monkeypatch.setattr(runtime._Activation, "status", None)
    monkeypatch.setenv("KPACK_TOPOLOGY_ROOT", str(tmp_path / "none"))
    monkeypatch.delenv("KPACK_TARGETS", raising=False)


def test_without_gpus_nothing_is_said() -> None:
    activate()
    assert runtime._Activation.status is None
    assert status().state == "none"
    assert status() is status()


def test_before_activation_nothing_is_kept() -> None:
    assert status() is not status()


def test_a_gpu_without_code_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPACK_TARGETS", "gfx1030")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        activate()
        activate()
    assert [warning.category for warning in caught] == [KpackWarning]
    assert status().warnings == (str(caught[0].message),)
    assert status() is status()


def test_another_topology_is_read_anew(tmp_path: Path) -> None:
    activate()
    root = write_topology(tmp_path, ["gfx1100"])
    assert [row.gpu.target for row in status(topology_root=str(root)).gpus] == ["gfx1100"]
    assert status().gpus == ()


def test_a_filter_that_raises_does_not_break_the_import(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KPACK_TARGETS", "gfx1030")
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        activate()
    assert [record.name for record in caplog.records] == ["kpack_build.runtime"]


def test_a_fault_of_the_loader_does_not_break_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("kpack_build.runtime._gpus.find_gpus", fail)
    with pytest.warns(KpackWarning, match="broken"):
        activate()


def test_the_command_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KPACK_TARGETS", "gfx1101")
    assert __main__.main([]) == 0
    assert "demo-gfx110x.kpack" in capsys.readouterr().out


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "none"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_paths_that_the_terminal_cannot_show(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "format_status", lambda _: "\u00fc\udcff")
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    assert __main__.main([]) == 0
    shown = raw.getvalue().decode(encoding)
    assert shown.endswith("\\udcff\n")
