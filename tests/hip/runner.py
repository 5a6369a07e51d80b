"""Start a process with a HIP runtime and report what the runtime did with the code that it was given.

Two real runtimes are there: HIP 7.14 with kpack, from a published wheel of the corpus, and Debian's HIP
5.2.3, which knows fat binaries only. Both run without a GPU. A small library in front of them (`recorder.c`)
writes down what each registration returned.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cache import cache_directory, make_once
from tests.fixtures.build import stub_library
from tests.missing import missing
from tests.rocm import rocm_library

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CodeObjectAnswer",
    "HipResult",
    "HipRuntime",
    "LoadOutcome",
    "Registration",
    "compiled",
    "hip_environment",
    "parse_registrations",
    "run_hip",
    "run_hip_command",
]

ROOT = Path(__file__).parents[2]
RECORDER = Path(__file__).parent / "recorder.c"
DEBIAN_HIP = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")
#: Names under which libraries ask for HIP, of all versions: each runtime answers to all of them.
HIP_NAMES = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so")
TIMEOUT = 120


class HipRuntime(str, Enum):
    """The runtimes that a process can have."""

    KPACK = "HIP 7.14 with kpack"
    FAT_ONLY = "Debian's HIP 5.2.3"
    STUB = "our own stand-in, which accepts everything and has no device"
    NONE = "no HIP library at all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One call of `__hipRegisterFatBinary`.

    Attributes:
        path: The file that holds the wrapper.
        address: The wrapper's address in the process.
        magic: Its first four bytes: `b"FPIH"` for a fat binary, `b"HIPK"` for a converted one.
        version: Its version.
        pointer: Its pointer, an address in the process.
        index: The word at offset 16.
        handle: What the runtime returned; 0 for a refusal.
        functions: Names of the kernels registered with the handle.
        variables: Names of the variables registered with the handle.
    """

    path: Path
    address: int
    magic: bytes
    version: int
    pointer: int
    index: int
    handle: int
    functions: tuple[str, ...]
    variables: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether the runtime returned a handle."""
        return self.handle != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutcome:
    """A library that was loaded, or why not (`error`)."""

    path: Path
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObjectAnswer:
    """What ROCm's `kpack_load_code_object` gave for the metadata of a wrapper in memory.

    Attributes:
        binary: The file that holds the wrapper.
        index: The wrapper's index.
        archs: The candidates that were asked for, best first.
        error: ROCm's error code, None if it gave a code object.
        size: Size of the code object in bytes.
        sha256: Its digest.
    """

    binary: Path
    index: int
    archs: tuple[str, ...]
    error: int | None
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HipResult:
    """What happened in the process.

    Attributes:
        returncode: Its exit status, negative for a signal.
        stdout: What it printed.
        stderr: What it complained about.
        registrations: Calls of `__hipRegisterFatBinary` in their order.
        loads: The libraries that were to be loaded.
        device_code: What `hipGetDeviceCount` returned (100 is "no device"), None if it was not asked.
        answers: What ROCm's reader said.
    """

    returncode: int
    stdout: str
    stderr: str
    registrations: tuple[Registration, ...]
    loads: tuple[LoadOutcome, ...] = ()
    device_code: int | None = None
    answers: tuple[CodeObjectAnswer, ...] = ()

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended the process, if one did."""
        return signal.Signals(-self.returncode) if self.returncode < 0 else None

    @property
    def load_errors(self) -> dict[Path, str]:
        """The libraries that could not be loaded, with the loader's words."""
        return {outcome.path: outcome.error for outcome in self.loads if outcome.error is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    directory: Path

    @property
    def registrations(self) -> Path:
        return self.directory / "registrations"

    @property
    def events(self) -> Path:
        return self.directory / "events"


def run_hip(
    *,
    runtime: HipRuntime,
    libraries: Sequence[Path],
    preload: Sequence[Path] = (),
    targets: Sequence[Sequence[str]] = (),
    initialise: bool = False,
    environment: Mapping[str, str] | None = None,
) -> HipResult:
    """Load libraries with ctypes in a fresh Python process that has `runtime`.

    Args:
        runtime: The HIP runtime that the process finds under every usual name.
        libraries: Loaded in this order, each on its own (local scope), as Python does with modules.
        preload: Loaded before them into the global scope: stand-ins for other libraries of ROCm.
        targets: For each of these lists of candidates, ask ROCm's reader for the code object of every
            converted wrapper that was registered, by its metadata in memory.
        initialise: Bring HIP up after loading (`hipGetDeviceCount`).
        environment: Further variables.
    """
    with tempfile.TemporaryDirectory() as scratch:
        logs = _Logs(directory=Path(scratch))
        request = {
            "events": str(logs.events),
            "log": str(logs.registrations),
            "libraries": [str(path) for path in libraries],
            "preload": [str(path) for path in preload],
            "targets": [list(archs) for archs in targets],
            "initialise": initialise,
            "hip_library": HIP_NAMES[2],
        }
        command = [sys.executable, "-m", "tests.hip.worker", json.dumps(request)]
        return _run(command, runtime, {"PYTHONPATH": str(ROOT), **(environment or {})}, logs)


def run_hip_command(
    command: Sequence[str | Path], *, runtime: HipRuntime, environment: Mapping[str, str] | None = None
) -> HipResult:
    """Run any command (an executable with device code, a Python that imports a package) with `runtime`."""
    with tempfile.TemporaryDirectory() as scratch:
        return _run(command, runtime, environment or {}, _Logs(directory=Path(scratch)))


def hip_environment(runtime: HipRuntime) -> dict[str, str]:
    """Return the variables that make a new process find `runtime`, and the recorder in front of it."""
    directories = [str(path) for path in (_runtime_directory(runtime),) if path is not None]
    inherited = os.environ.get("LD_LIBRARY_PATH")
    search = os.pathsep.join(directories + ([inherited] if inherited else []))
    return {"LD_PRELOAD": str(_recorder()), **({"LD_LIBRARY_PATH": search} if search else {})}


def _run(
    command: Sequence[str | Path], runtime: HipRuntime, environment: Mapping[str, str], logs: _Logs
) -> HipResult:
    variables = {**os.environ, **hip_environment(runtime), "KPACK_TEST_HIP_LOG": str(logs.registrations)}
    result = subprocess.run(
        [str(word) for word in command],
        env={**variables, **environment},
        cwd=logs.directory,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=TIMEOUT,
        check=False,
    )
    events = [json.loads(line) for line in _lines(logs.events)]
    devices = [event["code"] for event in events if event["kind"] == "devices"]
    return HipResult(
        returncode=result.returncode,
        stdout=result.stdout,
        stderr=result.stderr,
        registrations=parse_registrations(logs.registrations),
        loads=tuple(
            LoadOutcome(path=Path(event["path"]), error=event["error"])
            for event in events
            if event["kind"] in {"load", "preload"}
        ),
        device_code=devices[0] if devices else None,
        answers=tuple(
            CodeObjectAnswer(
                binary=Path(event["binary"]),
                index=event["index"],
                archs=tuple(event["archs"]),
                error=event["error"],
                size=event["size"],
                sha256=event["sha256"],
            )
            for event in events
            if event["kind"] == "answer"
        ),
    )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def parse_registrations(log: Path) -> tuple[Registration, ...]:
    """Return what the recorder wrote into `log`; nothing if there is no such file."""
    rows = [line.split("\t") for line in _lines(log)]

    def names(kind: str, handle: str) -> tuple[str, ...]:
        return tuple(row[2] for row in rows if row[0] == kind and row[1] == handle)

    return tuple(
        Registration(
            path=Path(row[7]),
            address=int(row[1]),
            magic=int(row[2]).to_bytes(4, "little"),
            version=int(row[3]),
            pointer=int(row[4]),
            index=int(row[5]),
            handle=int(row[6]),
            functions=names("function", row[6]),
            variables=names("variable", row[6]),
        )
        for row in rows
        if row[0] == "binary"
    )


@functools.cache
def _runtime_directory(runtime: HipRuntime) -> Path | None:
    """Return a directory of links under which every library finds `runtime` by the name that it asks for."""
    if runtime is HipRuntime.NONE:
        return None
    if runtime is HipRuntime.FAT_ONLY:
        if not DEBIAN_HIP.exists():
            missing("a HIP runtime without kpack (Debian: libamdhip64-5)")
        links = dict.fromkeys(HIP_NAMES, DEBIAN_HIP)
    elif runtime is HipRuntime.STUB:
        links = dict.fromkeys(HIP_NAMES, stub_library())
    else:
        hip = rocm_library("libamdhip64")
        # Its own libraries lie beside it, and "beside" means here once it is loaded through a link.
        links = {path.name: path for path in sorted(hip.parent.iterdir())}
        links.update(dict.fromkeys(HIP_NAMES, hip))
        # HIP opens this one by its plain name, which auditwheel has changed.
        links["libamd_comgr.so.3"] = rocm_library("libamd_comgr")
    digest = hashlib.sha256(repr(sorted(links.items())).encode()).hexdigest()[:16]

    def make(directory: Path) -> None:
        for name, target in links.items():
            (directory / name).symlink_to(target)

    return make_once(cache_directory("runtimes") / f"{runtime.name.lower()}-{digest}", make)


def _recorder() -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("a C compiler (Debian: gcc)")
    return compiled(RECORDER, compiler, "-shared", "-fPIC")


@functools.cache
def compiled(source: Path, compiler: str, *flags: str) -> Path:
    """Return what a C source of the tests gives with a compiler, made once for each content."""
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", *flags]
    digest = hashlib.sha256(source.read_bytes() + repr(command).encode()).hexdigest()[:16]

    def make(directory: Path) -> None:
        subprocess.run([*command, str(source), "-o", source.stem, "-ldl"], cwd=directory, check=True)

    return make_once(cache_directory("runtimes") / f"{source.stem}-{digest}", make) / source.stem
