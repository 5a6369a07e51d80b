"""aarch64 binaries on any machine: qemu's user mode, the cross compiler's C library, our stand-in for HIP.

There is no HIP runtime for aarch64 here. What is proved is that the dynamic linker of that machine loads and
relocates a binary, and which wrappers it then registers.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fixtures.build import stub_library
from tests.hip.results import HipResult, LoadOutcome
from tests.hip.runner import new_records
from tests.hip.runtimes import compiled
from tests.missing import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run_aarch64"]

SYSROOT = Path("/usr/aarch64-linux-gnu")
COMPILER = "aarch64-linux-gnu-gcc"
LOADER = Path(__file__).parent / "load.c"
TIMEOUT = 120


def run_aarch64(*, libraries: Sequence[Path] = (), executable: Path | None = None) -> HipResult:
    """Load aarch64 libraries, or run an aarch64 executable, with our stand-in for the HIP library.

    Args:
        libraries: Loaded one by one by a small program.
        executable: Run in place of that program.
    """
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        missing("qemu's user mode for aarch64 (Debian: qemu-user)")
    if shutil.which(COMPILER) is None:
        missing(f"{COMPILER} (Debian: gcc-aarch64-linux-gnu)")
    program = executable or compiled(LOADER, COMPILER)
    recorder = compiled(Path(__file__).parent / "recorder.c", COMPILER, "-shared", "-fPIC")
    with new_records() as records:
        variables = {
            "LD_LIBRARY_PATH": stub_library(machine="aarch64").parent,
            "LD_PRELOAD": recorder,
            "KPACK_TEST_HIP_LOG": records.registrations,
        }
        command = [emulator, "-L", str(SYSROOT)]
        command += [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        result = subprocess.run(
            [*command, str(program), *map(str, libraries)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        registrations = records.read_registrations()
    rows = [line.split("\t") for line in result.stdout.splitlines()] if executable is None else []
    return HipResult(
        returncode=result.returncode,
        stdout=result.stdout,
        stderr=result.stderr,
        registrations=registrations,
        loads=tuple(LoadOutcome(path=Path(path), error=error or None) for path, error in rows),
    )
