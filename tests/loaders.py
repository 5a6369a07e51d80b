"""Packages with the loader in them, as a packed wheel would install them, and Pythons to import them with.

The archives are a few bytes without meaning: the loader never opens one.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.index import ArchiveRow, CodeObjectRow
from kpack_build.injection import inject_loader_call
from kpack_build.layout import ARCHIVE_FOLDER, LOADER_FOLDER
from kpack_build.loader import LoaderBinary, LoaderTable, loader_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ARCHIVE_BYTES", "VERSIONS", "Recipe", "find_python", "make_package", "make_table", "run_python"]

ARCHIVE_BYTES = b"KPAK"
#: The versions of Python that the loader is meant for.
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a made-up package has.

    Attributes:
        package: Its import name.
        families: The targets of each archive, by the archive's family.
        binaries: For each binary, by its path in the package, the targets that its wrappers answer.
        wrappers: How many wrappers each binary has.
        source: Its `__init__.py` before the loader's call is added.
    """

    package: str = "demo"
    families: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {
            "gfx110x": ("gfx1100", "gfx1101"),
            "gfx9_0": ("gfx90a:xnack+", "gfx90a:xnack-"),
            "gfx9-4-generic": ("gfx9-4-generic",),
        }
    )
    binaries: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"lib/_C.so": ("gfx1100",)})
    wrappers: int = 1
    source: bytes = b'"""A package."""\n'


def make_table(recipe: Recipe) -> LoaderTable:
    """Return what the loader of a made-up package knows."""
    binaries = tuple(
        LoaderBinary(
            path=path,
            hip_library="libamdhip64.so.7",
            wrappers=(dict.fromkeys(targets, number),) * recipe.wrappers,
        )
        for number, (path, targets) in enumerate(recipe.binaries.items())
    )
    return LoaderTable(
        distribution=f"{recipe.package}-dist",
        version="1.2",
        package=recipe.package,
        group=recipe.package,
        scheme="none",
        archives=tuple(
            ArchiveRow(
                file=f"{recipe.package}-{family}.kpack",
                sha256="5" * 64,
                size=len(ARCHIVE_BYTES),
                family=family,
                targets=list(targets),
            )
            for family, targets in recipe.families.items()
        ),
        objects=tuple(
            CodeObjectRow(archive=0, offset=64, stored_size=3, size=4, target="gfx1100", sha256="6" * 64)
            for _ in binaries
        ),
        binaries=binaries,
    )


def make_package(root: Path, recipe: Recipe | None = None) -> Path:
    """Write a made-up package below `root` and return its folder."""
    wanted = recipe or Recipe()
    table = make_table(wanted)
    folder = root.joinpath(*wanted.package.split("."))
    for name in (ARCHIVE_FOLDER, LOADER_FOLDER):
        (folder / name).mkdir(parents=True)
    for name, data in loader_files(table).items():
        (folder / LOADER_FOLDER / name).write_bytes(data)
    for archive in table.archives:
        (folder / ARCHIVE_FOLDER / archive["file"]).write_bytes(ARCHIVE_BYTES)
    for binary in table.binaries:
        (folder / binary.path).parent.mkdir(exist_ok=True)
        (folder / binary.path).write_bytes(b"ELF")
    (folder / "__init__.py").write_bytes(inject_loader_call(wanted.source))
    return folder


def find_python(version: str) -> Path | None:
    """Return a Python of this version, from PATH or from pyenv; None where there is none."""
    candidates = [shutil.which(f"python{version}")]
    candidates += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for candidate in filter(None, candidates):
        # A shim of pyenv is on PATH for versions that are not there, and finds others by its environment.
        told = subprocess.run(
            [candidate, "-c", "import sys; print(sys.executable)"],
            check=False,
            capture_output=True,
            text=True,
        )
        if told.returncode == 0:
            return Path(told.stdout.strip())
    return None


def run_python(
    python: str | Path, *arguments: str, site: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a Python that finds packages in `site`, with no other variables than these."""
    return subprocess.run(
        [str(python), *arguments],
        cwd=site,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
