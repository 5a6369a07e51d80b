"""What an uninstalled wheel leaves behind: nothing, and its neighbours as they were."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from kpack_build.config import Config
from kpack_build.pipeline import pack
from tests.synthetic import fat_library
from tests.unit.wheel.builder import row

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

LIBRARY = fat_library(["gfx1100", "gfx90a"])
#: Two projects without a package share the top level of site-packages, and its folder of archives.
PROJECTS = {
    "first": {"first_ext.so": LIBRARY},
    "second": {"second_ext.so": LIBRARY},
    "third": {"third/__init__.py": b"", "third/lib.so": LIBRARY},
}


def packed(folder: Path, name: str) -> Path:
    info = f"{name}-1.0.dist-info"
    files = {
        **PROJECTS[name],
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    record = "".join(f"{row(path, data)}\n" for path, data in files.items()) + f"{info}/RECORD,,\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(path, data)
    return pack(wheel, folder / "packed", Config(level=1)).output


def pip(python: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_projects_come_and_go_side_by_side(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    before = set(site.rglob("*"))
    pip(python, "install", "--no-index", "--no-deps", *(packed(tmp_path, name) for name in PROJECTS))
    assert {path.name for path in (site / ".kpack").iterdir()} == {
        f"{name}{rest}"
        for name in ("first", "second")
        for rest in (".json", "-gfx110x.kpack", "-gfx9_0.kpack")
    }
    subprocess.run([python, "-c", "import third"], check=True)
    pip(python, "uninstall", "--yes", "first", "third")
    assert {path.name for path in site.rglob("*") if path.is_file()} >= {"second.json", "second_ext.so"}
    assert not [path for path in site.rglob("*") if path.name.startswith(("first", "third"))]
    pip(python, "uninstall", "--yes", "second")
    assert set(site.rglob("*")) == before
