"""What a process with a HIP runtime did: the models, and how they are read from its records."""

from __future__ import annotations

import hashlib
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CodeObjectAnswer",
    "HipResult",
    "KernelOutcome",
    "LoadOutcome",
    "LoadedCode",
    "Records",
    "Registration",
]


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
class KernelOutcome:
    """What HIP answered when a kernel was looked up on a made-up GPU: 0, or its error code."""

    gpu: int
    name: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCode:
    """A code object that HIP handed down to be loaded on a made-up GPU."""

    gpu: int
    size: int
    sha256: str


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
        kernels: Every kernel looked up on every made-up GPU.
        loaded: The code objects that HIP loaded on made-up GPUs, in their order.
    """

    returncode: int
    stdout: str
    stderr: str
    registrations: tuple[Registration, ...]
    loads: tuple[LoadOutcome, ...] = ()
    device_code: int | None = None
    answers: tuple[CodeObjectAnswer, ...] = ()
    kernels: tuple[KernelOutcome, ...] = ()
    loaded: tuple[LoadedCode, ...] = ()

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended the process, if one did."""
        return signal.Signals(-self.returncode) if self.returncode < 0 else None

    @property
    def load_errors(self) -> dict[Path, str]:
        """The libraries that could not be loaded, with the loader's words."""
        return {outcome.path: outcome.error for outcome in self.loads if outcome.error is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The directory of one process's records.

    Attributes:
        directory: It has to exist; the process starts in it.
    """

    directory: Path

    @property
    def registrations(self) -> Path:
        """What the recorder in front of HIP writes (`recorder.c`)."""
        return self.directory / "registrations"

    @property
    def events(self) -> Path:
        """What the worker writes, a JSON object a line."""
        return self.directory / "events"

    @property
    def code(self) -> Path:
        """Directory of the code objects that the stand-in below HIP was given (`gpu.c`)."""
        return self.directory / "code"

    def read_events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the worker's events of these kinds."""
        events = [json.loads(line) for line in _lines(self.events)]
        return [event for event in events if event["kind"] in kinds]

    def read_registrations(self) -> tuple[Registration, ...]:
        """Return what was registered with HIP."""
        rows = [line.split("\t") for line in _lines(self.registrations)]
        return tuple(_registration(row, rows) for row in rows if row[0] == "binary")

    def read_loads(self) -> tuple[LoadOutcome, ...]:
        """Return which libraries were loaded."""
        return tuple(
            LoadOutcome(path=Path(event["path"]), error=event["error"])
            for event in self.read_events("load", "preload")
        )

    def read_answers(self) -> tuple[CodeObjectAnswer, ...]:
        """Return what ROCm's reader said."""
        return tuple(
            CodeObjectAnswer(
                binary=Path(event["binary"]),
                index=event["index"],
                archs=tuple(event["archs"]),
                error=event["error"],
                size=event["size"],
                sha256=event["sha256"],
            )
            for event in self.read_events("answer")
        )

    def read_kernels(self) -> tuple[KernelOutcome, ...]:
        """Return how the look-ups of kernels went."""
        return tuple(
            KernelOutcome(gpu=event["gpu"], name=event["name"], code=event["code"])
            for event in self.read_events("kernel")
        )

    def read_loaded(self) -> tuple[LoadedCode, ...]:
        """Return the code objects that HIP handed down."""
        files = sorted(self.code.iterdir(), key=lambda path: int(path.name.partition("-")[0]))
        return tuple(
            LoadedCode(
                gpu=int(path.name.partition("-")[2]),
                size=path.stat().st_size,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in files
        )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _registration(row: Sequence[str], rows: Sequence[Sequence[str]]) -> Registration:
    def names(kind: str) -> tuple[str, ...]:
        return tuple(other[2] for other in rows if other[0] == kind and other[1] == row[6])

    return Registration(
        path=Path(row[7]),
        address=int(row[1]),
        magic=int(row[2]).to_bytes(4, "little"),
        version=int(row[3]),
        pointer=int(row[4]),
        index=int(row[5]),
        handle=int(row[6]),
        functions=names("function"),
        variables=names("variable"),
    )
