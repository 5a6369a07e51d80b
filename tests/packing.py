"""Wheels of the corpus, packed and installed once for all tests that look at the result.

The level of compression is the lowest: what is proved about the result does not depend on it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kpack_build.config import Config, parse_config
from kpack_build.pipeline import pack
from tests.corpus import CORPUS, corpus_tree, corpus_wheel
from tests.fat import read_fat_binary
from tests.hipk import read_converted_binary
from tests.missing import missing
from tests.rocm import RocmKpackCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kpack_build.index import Index
    from kpack_build.report import PackReport

__all__ = [
    "INSTALLERS",
    "Answers",
    "PackedCorpus",
    "PackedWheel",
    "Wrapper",
    "answers_from_files",
    "indexes_of",
    "make_config",
    "members_of",
    "original_wrappers",
    "run_module",
    "wrappers_of",
]

INSTALLERS = ("pip", "uv")
#: The newest of the platforms that uv has names for, which takes the wheels for all older ones.
UV_PLATFORM = "x86_64-manylinux_2_39"

#: Wrapper (path, index) and the targets that were asked for → digest of the answer, None for an error.
Answers: TypeAlias = "dict[tuple[str, int, tuple[str, ...]], str | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A wrapper of an original fat library: for each target, in their order, what its code object is."""

    path: str
    index: int
    digests: Mapping[str, str]
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWheel:
    """A wheel before and after packing, and what the run reported."""

    source: Path
    wheel: Path
    report: PackReport


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCorpus:
    """Packs and installs wheels of the corpus into a directory, each once."""

    directory: Path
    packed: dict[str, PackedWheel] = field(default_factory=dict)
    installed: dict[tuple[str, str], Path] = field(default_factory=dict)

    def pack(self, name: str) -> PackedWheel:
        """Return a wheel of the corpus, packed with the default settings but for the level."""
        if name not in self.packed:
            source = corpus_wheel(name)
            report = pack(source, self.directory / name, make_config())
            self.packed[name] = PackedWheel(source=source, wheel=report.output, report=report)
        return self.packed[name]

    def install(self, name: str, installer: str) -> Path:
        """Return the directory that pip or uv installed a packed wheel of the corpus to."""
        key = name, installer
        if key not in self.installed:
            site = self.directory / f"{name}-{installer}"
            run_module(*_install_command(name, installer), "--target", str(site), str(self.pack(name).wheel))
            self.installed[key] = site
        return self.installed[key]


def _install_command(name: str, installer: str) -> Sequence[str]:
    wheel = CORPUS[name]
    common = ("--no-deps", "--no-index", "--python-version", wheel.python)
    if installer == "pip":
        return ("pip", "install", *common, "--only-binary=:all:", "--platform", wheel.platform)
    return ("uv", "pip", "install", *common, "--python", sys.executable, "--python-platform", UV_PLATFORM)


def run_module(module: str, *arguments: str) -> None:
    """Run a Python module as a program, which has to succeed."""
    try:
        importlib.metadata.distribution(module)
    except importlib.metadata.PackageNotFoundError:
        missing(f"the package {module} (pip install {module})")
    environment = {
        **os.environ,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_CACHE": "1",
    }
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def make_config(**settings: object) -> Config:
    """Return a configuration; hyphens of the keys are written as underscores."""
    table = {"level": 1, **{key.replace("_", "-"): value for key, value in settings.items()}}
    return parse_config(table, source="the test")


@functools.cache
def original_wrappers(name: str) -> tuple[Wrapper, ...]:
    """Return all wrappers of a fat wheel of the corpus, as a reader that is not ours finds them."""
    tree = corpus_tree(name)
    libraries = {path.relative_to(tree).as_posix(): path for path in sorted(tree.rglob("*.so*"))}
    return wrappers_of(libraries)


def wrappers_of(libraries: Mapping[str, Path]) -> tuple[Wrapper, ...]:
    """Return the wrappers of fat libraries, given by their paths in a wheel; others have none."""
    return tuple(
        Wrapper(
            path=path,
            index=wrapper.index,
            digests={target: _digest(data) for target, data in wrapper.code_objects.items()},
            sizes={target: len(data) for target, data in wrapper.code_objects.items()},
        )
        for path, library in libraries.items()
        for wrapper in read_fat_binary(library)
    )


def answers_from_files(site: Path, libraries: Sequence[Path], targets: Sequence[tuple[str, ...]]) -> Answers:
    """Ask ROCm's reader for the wrappers of converted libraries below a folder, by the metadata in the files.

    Args:
        site: The folder.
        libraries: The libraries.
        targets: Lists of candidates, the best one first; each wrapper is asked for all of them.
    """
    answers: Answers = {}
    with RocmKpackCache() as cache:
        for library in libraries:
            for wrapper in read_converted_binary(library):
                for archs in targets:
                    found = cache.load_code_object(wrapper.metadata, library, wrapper.index, archs)
                    digest = _digest(found) if isinstance(found, bytes) else None
                    answers[library.relative_to(site).as_posix(), wrapper.index, archs] = digest
    return answers


def indexes_of(wheel: Path) -> dict[str, Index]:
    """Return the indexes in a packed wheel by their paths."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: json.loads(archive.read(name))
            for name in archive.namelist()
            if "/.kpack/" in f"/{name}" and name.endswith(".json")
        }


def members_of(wheel: Path) -> dict[str, tuple[str, int]]:
    """Return the members of a wheel, or of its unpacked tree: SHA-256 of the content, and the mode."""
    if wheel.is_dir():
        return {
            path.relative_to(wheel).as_posix(): (_digest(path.read_bytes()), path.stat().st_mode)
            for path in sorted(wheel.rglob("*"))
            if path.is_file()
        }
    with zipfile.ZipFile(wheel) as archive:
        return {
            member.filename: (_digest(archive.read(member)), member.external_attr >> 16)
            for member in archive.infolist()
        }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
