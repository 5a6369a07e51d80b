"""Build the sample project, packed or fat, and put it where it can be imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BINARIES", "SAMPLE", "SampleBuild", "build_sample", "install_sample"]

SAMPLE = Path(__file__).parents[1] / "sample_project"
#: The wheel's binaries with device code and their number of wrappers.
BINARIES = {"kpack_sample/_core.abi3.so": 1, "kpack_sample/lib/libkpack_sample.so": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBuild:
    """How the sample is built.

    Attributes:
        packed: With kpack-build, as it stands in the tree; else without its settings: a fat wheel.
        targets: Target ids, the sample's own choice if empty.
        compiler: "hipcc", "clang", "prebuilt"; the best one if empty.
        settings: Lines for the table `[tool.kpack-build]`.
        isolated: Let pip make the build environment (it must find kpack-build), instead of this one.
    """

    packed: bool
    targets: tuple[str, ...] = ()
    compiler: str = ""
    settings: str = ""
    isolated: bool = False


def build_sample(build: SampleBuild, destination: Path) -> Path:
    """Return the wheel of the sample, built into the directory `destination` from a copy of the sources."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch, "sample")
        shutil.copytree(SAMPLE, sources, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
        project = sources / "pyproject.toml"
        project.write_text(_configured(project.read_text(encoding="utf-8"), build), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--wheel-dir", str(destination), str(sources)]
        if not build.isolated:
            command.append("--no-build-isolation")
        environment = {
            **os.environ,
            "KPACK_SAMPLE_TARGETS": ",".join(build.targets),
            "KPACK_SAMPLE_COMPILER": build.compiler,
        }
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = destination.glob("kpack_sample-*.whl")
    return wheel


def install_sample(wheel: Path, directory: Path) -> Path:
    """Install the wheel into `directory` (to be put on the path) and return it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-compile", "--target", str(directory), str(wheel)]
    subprocess.run(command, check=True)
    return directory


def _configured(project: str, build: SampleBuild) -> str:
    table = "[tool.kpack-build]\n"
    assert project.count(table) == 1
    if build.packed:
        return project.replace(table, table + build.settings)
    requirement = re.compile(r', "kpack-build[^"]*"')
    assert requirement.search(project)
    return requirement.sub("", project).replace(table, "")
