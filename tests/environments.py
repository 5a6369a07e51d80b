"""Virtual environments with chosen versions of build tools, and kpack-build as it would be installed there.

An environment holds the build tools and kpack-build's dependencies, and is kept in the test cache. Then
kpack-build is built once from this source tree, and unpacked into a folder that `PYTHONPATH` names, so that
its entry points are found without changing a cached environment. Programs are run as ``python -m``, because
the scripts of a cached environment name the place where it was made.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.cache import cache_directory, make_once

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "ROOT",
    "Environment",
    "Finished",
    "copy_sources",
    "make_environment",
    "run",
    "unpack",
]

ROOT = Path(__file__).resolve().parent.parent

_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "setup.py")
_SOURCE_FOLDERS = ("kpack_build", "hooks", "docs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A program that ended: its exit code, and all that it wrote."""

    code: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment, and what is put before its packages."""

    python: Path
    python_path: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def run(self, *arguments: str | Path, directory: Path) -> Finished:
        """Run the environment's Python with these arguments in a directory."""
        variables = {"PYTHONPATH": os.pathsep.join(map(str, self.python_path)), **dict(self.variables)}
        return run(self.python, *arguments, directory=directory, variables=variables)


def run(*command: str | Path, directory: Path, variables: dict[str, str]) -> Finished:
    """Run a program, with both of its outputs in one text."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "UV_"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env={**clean, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Finished(code=done.returncode, output=done.stdout)


def make_environment(*requirements: str) -> Environment:
    """Return an environment with these requirements and kpack-build's dependencies, without kpack-build.

    A requirement without a version is the newest one at the time when the cached environment was made.
    """
    wanted = (*requirements, "build", *_dependencies())
    digest = hashlib.sha256("\n".join((sys.executable, sys.version, *wanted)).encode()).hexdigest()[:16]
    folder = make_once(
        cache_directory("environments") / digest, functools.partial(_fill_environment, list(wanted))
    )
    return Environment(python=folder / "bin" / "python")


def _dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    dependencies: list[str] = project["dependencies"]
    return dependencies


def _fill_environment(requirements: list[str], folder: Path) -> None:
    python = folder / "bin" / "python"
    commands: tuple[tuple[str | Path, ...], ...] = (
        (sys.executable, "-m", "venv", folder),
        (python, "-m", "pip", "install", "--quiet", "--upgrade", *requirements),
    )
    for command in commands:
        done = run(*command, directory=folder, variables={})
        assert done.code == 0, done.output


def copy_sources(folder: Path) -> Path:
    """Copy what kpack-build is built from into a folder, so that no build writes into the source tree."""
    for name in _SOURCES:
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name)
    for name in _SOURCE_FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def unpack(wheel: Path, folder: Path) -> Path:
    """Unpack a pure wheel as an installer would lay it out."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
