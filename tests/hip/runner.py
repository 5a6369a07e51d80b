"""Start a process with a HIP runtime and report what the runtime did with the code that it was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hip.results import HipResult, Records
from tests.hip.runtimes import HipRuntime, hip_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["new_records", "run_hip", "run_hip_command"]

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).parent / "worker.py"
TIMEOUT = 120


def run_hip(
    *,
    runtime: HipRuntime,
    libraries: Sequence[Path],
    preload: Sequence[Path] = (),
    imports: Sequence[str] = (),
    targets: Sequence[Sequence[str]] = (),
    gpus: Sequence[str] = (),
    initialise: bool = False,
    hip_first: bool = False,
    launch: bool = False,
    environment: Mapping[str, str] | None = None,
) -> HipResult:
    """Load libraries with ctypes in a fresh Python process that has `runtime`.

    Args:
        runtime: The HIP runtime that the process finds under every usual name.
        libraries: Loaded in this order, each on its own (local scope), as Python does with modules. A path
            without a directory is searched for by the dynamic linker.
        preload: Loaded before them into the global scope: stand-ins for other libraries of ROCm.
        imports: Modules that are imported between those and the libraries.
        targets: For each of these lists of candidates, ask ROCm's reader for the code object of every
            converted wrapper that was registered, by its metadata in memory.
        gpus: Target ids of GPUs to make up (with the runtime that has kpack). Every kernel is looked up on
            every one of them, for which HIP chooses and loads code objects.
        initialise: Bring HIP up after loading (`hipGetDeviceCount`), as `gpus` does, too.
        hip_first: Bring HIP up before the libraries are loaded.
        launch: Launch each kernel on each GPU, too.
        environment: Further variables.
    """
    with new_records() as records:
        request = {
            "libraries": [str(path) for path in libraries],
            "preload": [str(path) for path in preload],
            "imports": list(imports),
            "targets": [list(archs) for archs in targets],
            "initialise": initialise or bool(gpus),
            "hip_first": hip_first,
            "launch": launch,
        }
        command = [sys.executable, str(WORKER), json.dumps(request)]
        variables = {**hip_environment(runtime, gpus), "PYTHONPATH": str(ROOT), **(environment or {})}
        return _run(command, variables, records)


def run_hip_command(
    command: Sequence[str | Path],
    *,
    runtime: HipRuntime,
    gpus: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> HipResult:
    """Run any command (an executable with device code, a Python that imports a package) with `runtime`."""
    with new_records() as records:
        return _run(command, {**hip_environment(runtime, gpus), **(environment or {})}, records)


@contextmanager
def new_records() -> Iterator[Records]:
    """Give empty records, which are gone afterwards."""
    with tempfile.TemporaryDirectory() as scratch:
        records = Records(directory=Path(scratch))
        records.code.mkdir()
        yield records


def _run(command: Sequence[str | Path], variables: Mapping[str, str], records: Records) -> HipResult:
    recorded = {
        "KPACK_TEST_HIP_LOG": str(records.registrations),
        "KPACK_TEST_GPU_LOG": str(records.events),
        "KPACK_TEST_GPU_CODE": str(records.code),
    }
    result = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **recorded, **variables},
        cwd=records.directory,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=TIMEOUT,
        check=False,
    )
    devices = [event["code"] for event in records.read_events("devices")]
    return HipResult(
        returncode=result.returncode,
        stdout=result.stdout,
        stderr=result.stderr,
        registrations=records.read_registrations(),
        loads=records.read_loads(),
        device_code=devices[0] if devices else None,
        answers=records.read_answers(),
        kernels=records.read_kernels("kernel"),
        variables=records.read_variables(),
        launches=records.read_kernels("launched"),
        loaded=records.read_loaded(),
        executed=records.read_executed(),
        refused=records.read_refused(),
    )
