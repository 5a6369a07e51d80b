"""`inspect`: what is shown of each kind of thing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kpack_build.cli import main
from kpack_build.codeobject import Kernel
from tests.fixtures.bundles import fat_bundle
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object
from tests.unit.archives import code_object, write_archive

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KERNEL = Kernel(
    name="_Z3addPf",
    symbol="_Z3addPf.kd",
    vgprs=81,
    agprs=0,
    sgprs=16,
    lds_bytes=6464,
    scratch_bytes=0,
    kernarg_bytes=32,
    wavefront_size=32,
    max_workgroup_size=256,
)


def _shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["inspect", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = {(f"pkg/lib.so#{n}", "gfx1100"): code_object("gfx1100", bytes([n])) for n in range(2)}
    write_archive(tmp_path / "a.kpack", ["gfx1100"], entries)
    out = _shown(capsys, tmp_path / "a.kpack")
    for fact in ("pkg/lib.so#1", "gfx110x", "a.kpack #1", "targets"):
        assert fact in out


def test_loose_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.co").write_bytes(fat_bundle("gfx90a:xnack-"))
    (tmp_path / "bare.hsaco").write_bytes(write_code_object("gfx1030", CodeObjectOptions(kernels=(KERNEL,))))
    out = _shown(capsys, tmp_path)
    assert "gfx90a:xnack-" in out
    assert "gfx1030" in out
    assert "_Z3addPf" not in out
    out = _shown(capsys, tmp_path, "--kernels")
    assert "_Z3addPf" in out
    assert "6464" in out


def test_damage_and_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("text")
    assert main(["inspect", str(tmp_path)]) == 0
    assert "nothing" in capsys.readouterr().err
    (tmp_path / "bad.kpack").write_bytes(b"KPAK")
    assert main(["inspect", str(tmp_path)]) == 0
    assert "bad.kpack" in capsys.readouterr().err


def test_quiet_shows_the_tables_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.co").write_bytes(fat_bundle("gfx1100"))
    out = _shown(capsys, tmp_path, "--quiet")
    assert "gfx1100" in out
    assert str(tmp_path) not in out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundle.co").write_bytes(fat_bundle("gfx1100"))
    assert json.loads(_shown(capsys, tmp_path, "--json"))["loose"][0]["path"] == "bundle.co"
