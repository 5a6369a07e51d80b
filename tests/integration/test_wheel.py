"""Wheels that we write are accepted by the tools that install, unpack and check wheels."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.wheel import (
    Changes,
    apply_record_undo,
    copy_contents,
    open_wheel,
    record_undo,
    write_contents,
    zipwriter,
)
from tests.corpus import CORPUS, corpus_wheel
from tests.missing import missing
from tests.unit.wheel.builder import NAME, WheelRecipe

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.wheel import WheelContents

__all__: list[str] = []

ADDED = ("zz_added/.kpack/a.kpack", "zz_added/.kpack/i,n.json", "zz_added/ünï.py", "zz_added/tool")


def changes_of(contents: WheelContents) -> Changes:
    """Change the first source file of a wheel, and add some files."""
    first = next(m.path for m in contents.members if not m.path.startswith(contents.dist_info))
    return Changes(
        files={first: contents.read(first) + b"\n", **{name: name.encode() * 99 for name in ADDED}},
        stored=frozenset({ADDED[0]}),
        executable=frozenset({ADDED[3]}),
    )


def write_changed(source: Path, destination: Path) -> Path:
    with open_wheel(source) as contents:
        write_contents(contents, changes_of(contents), destination)
    return destination


@pytest.fixture(params=["plain", "zip64"])
def changed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A changed wheel; once with ZIP64 fields nearly everywhere."""
    if request.param == "zip64":
        monkeypatch.setattr(zipwriter, "ZIP64_LIMIT", 100)
        monkeypatch.setattr(zipwriter, "COUNT_LIMIT", 1)
    source = WheelRecipe(modes={"pkg/ext.so": 0o100755}, folders=("pkg/",)).write(tmp_path)
    (tmp_path / "out").mkdir()
    return write_changed(source, tmp_path / "out" / NAME)


def run_module(module: str, *arguments: str | Path) -> None:
    try:
        importlib.metadata.distribution(module)
    except importlib.metadata.PackageNotFoundError:
        missing(f"the package {module} (pip install {module})")
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_NO_CONFIG": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def validate_with_installer(wheel: Path) -> None:
    sources = pytest.importorskip("installer.sources", reason="missing: the package installer")
    with sources.WheelFile.open(wheel) as source:
        source.validate_record()


def check_installed(wheel: Path, site: Path) -> None:
    with open_wheel(wheel) as contents:
        for member in contents.members:
            if not member.path.startswith(contents.dist_info):
                assert (site / member.path).read_bytes() == contents.read(member.path)
    assert os.access(site / ADDED[3], os.X_OK)
    assert not os.access(site / ADDED[1], os.X_OK)


def test_wheel_unpacks_it_and_we_read_what_it_unpacked(changed: Path, tmp_path: Path) -> None:
    run_module("wheel", "unpack", "-d", tmp_path / "unpacked", changed)
    with open_wheel(changed) as packed, open_wheel(tmp_path / "unpacked") as tree:
        tree.check()
        assert {m.path: tree.read(m.path) for m in tree.members} == {
            m.path: packed.read(m.path) for m in packed.members
        }
        written = copy_contents(tree, tmp_path / "copy")
    with open_wheel(written.path) as copy:
        copy.check()


def test_installer_validates_its_record(changed: Path) -> None:
    validate_with_installer(changed)


def test_installer_installs_it(changed: Path, tmp_path: Path) -> None:
    run_module("installer", "--validate-record=all", "-d", tmp_path / "d", "-p", "/p", changed)
    [site] = (tmp_path / "d").rglob("thing-1.0.dist-info")
    check_installed(changed, site.parent)


def test_pip_installs_it(changed: Path, tmp_path: Path) -> None:
    run_module("pip", "install", "--no-deps", "--no-index", "--target", tmp_path / "t", changed)
    check_installed(changed, tmp_path / "t")


def test_uv_installs_it(changed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run_module(
        "uv",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--cache-dir",
        cache,
        "--python",
        sys.executable,
        "--target",
        tmp_path / "t",
        changed,
    )
    check_installed(changed, tmp_path / "t")


def test_unzip_and_zipfile_find_no_fault(changed: Path) -> None:
    with zipfile.ZipFile(changed) as archive:
        assert archive.testzip() is None
    if shutil.which("unzip") is None:
        missing("unzip, of the system's package of that name")
    subprocess.run(["unzip", "-tq", changed], check=True, capture_output=True)


@pytest.mark.corpus
@pytest.mark.parametrize("name", CORPUS)
def test_a_published_wheel_is_changed_and_given_back(name: str, tmp_path: Path) -> None:
    source = corpus_wheel(name)
    changed = tmp_path / source.name
    with open_wheel(source) as contents:
        changes = changes_of(contents)
        undo = record_undo(contents, changes)
        written = write_contents(contents, changes, changed)
        assert written.size == changed.stat().st_size
        assert contents.notes == ()
        validate_with_installer(changed)
        originals = {path: contents.read(path) for path in changes.files.keys() - set(ADDED)}
        back = tmp_path / "back" / source.name
        back.parent.mkdir()
        with open_wheel(changed) as packed:
            record = apply_record_undo(packed.read(packed.record.own_path), undo)
            restored = Changes(files=originals, removed=frozenset(ADDED), record=record)
            write_contents(packed, restored, back)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(back) as new:
        assert facts(old) == facts(new)


def facts(archive: zipfile.ZipFile) -> dict[str, tuple[object, ...]]:
    """Return all that a wheel says of its members, the contents by their checksums."""
    record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    members: dict[str, tuple[object, ...]] = {
        info.filename: (info.CRC, info.file_size, info.external_attr, info.date_time, info.compress_type)
        for info in archive.infolist()
    }
    return {**members, "RECORD": (archive.read(record),)}
