"""What a process with a HIP runtime did: the models, and how they are read from its records."""

from __future__ import annotations

import hashlib
import json
import signal
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "CodeObjectAnswer",
    "HipResult",
    "KernelOutcome",
    "LoadOutcome",
    "LoadedCode",
    "Records",
    "Refusal",
    "Registration",
    "VariableOutcome",
]


#: How the kernels are called that HIP itself brings, for fills and copies.
HIPS_OWN = "__amd_rocclr_"
WRAPPER_SIZE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One call of `__hipRegisterFatBinary`.

    Attributes:
        path: The file that holds the wrapper.
        place: The wrapper's place among those of its file, by its address; `index` should say the same.
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
    place: int
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
    """What HIP answered when a kernel was looked up, or launched, on a made-up GPU.

    Attributes:
        gpu: Number of the GPU.
        wrapper: The registration that the kernel belongs to, a place in `HipResult.registrations`.
        name: The kernel's name.
        code: 0, or HIP's error code.
    """

    gpu: int
    wrapper: int
    name: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableOutcome:
    """What HIP answered when a variable was looked up on a made-up GPU, and the size that it has there."""

    gpu: int
    wrapper: int
    name: str
    code: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCode:
    """A code object that HIP handed down to be loaded on a made-up GPU.

    Attributes:
        gpu: Number of the GPU.
        wrapper: The registration whose kernels were being looked up, a place in `HipResult.registrations`;
            None before the first of them.
        target: The target id that the code object's own flags say.
        status: 0 if the GPU took it; HSA's status if the GPU cannot run it.
        size: Its size in bytes.
        sha256: Its digest.
        kernels: The kernels in it.
        variables: The variables in it.
    """

    gpu: int
    wrapper: int | None
    target: str
    status: int
    size: int
    sha256: str
    kernels: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A question that HIP asked the stand-in below it and that has no answer there."""

    function: str
    attribute: int


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
        variables: Every variable, likewise.
        launches: Every kernel that was launched, likewise.
        loaded: The code objects that HIP handed down for made-up GPUs, in their order.
        executed: GPU and name of the kernels that arrived in the queues of made-up GPUs, in their order.
        refused: What HIP asked the stand-in below it in vain, each question once.
    """

    returncode: int
    stdout: str
    stderr: str
    registrations: tuple[Registration, ...]
    loads: tuple[LoadOutcome, ...] = ()
    device_code: int | None = None
    answers: tuple[CodeObjectAnswer, ...] = ()
    kernels: tuple[KernelOutcome, ...] = ()
    variables: tuple[VariableOutcome, ...] = ()
    launches: tuple[KernelOutcome, ...] = ()
    loaded: tuple[LoadedCode, ...] = ()
    executed: tuple[tuple[int, str], ...] = ()
    refused: tuple[Refusal, ...] = ()

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended the process, if one did."""
        return signal.Signals(-self.returncode) if self.returncode < 0 else None

    @property
    def reached(self) -> dict[tuple[int, str, int], tuple[str, str]]:
        """What reached the GPUs: GPU, file name and place of the wrapper → target and digest of the code."""
        found = {}
        for code in self.loaded:
            if code.wrapper is not None and not code.status:
                registration = self.registrations[code.wrapper]
                found[code.gpu, registration.path.name, registration.place] = (code.target, code.sha256)
        return found

    @property
    def codes(self) -> dict[tuple[int, str, int], tuple[int, ...]]:
        """GPU, file name and place of the wrapper → HIP's error codes, each once, 0 where all went well."""
        found: dict[tuple[int, str, int], tuple[int, ...]] = {}
        outcomes: list[KernelOutcome | VariableOutcome] = [*self.kernels, *self.variables, *self.launches]
        for outcome in outcomes:
            registration = self.registrations[outcome.wrapper]
            key = outcome.gpu, registration.path.name, registration.place
            found[key] = tuple(sorted({*found.get(key, ()), outcome.code}))
        return found

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
        """What the worker and the stand-in below HIP write, a JSON object a line."""
        return self.directory / "events"

    @property
    def code(self) -> Path:
        """Directory of the code objects that the stand-in below HIP was given, by their numbers."""
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

    def read_kernels(self, kind: str) -> tuple[KernelOutcome, ...]:
        """Return how the look-ups of kernels went ("kernel"), or their launches ("launched")."""
        return tuple(
            KernelOutcome(gpu=gpu, wrapper=wrapper, name=event["name"], code=event["code"])
            for gpu, wrapper, event in self._touches()
            if event["kind"] == kind and wrapper is not None
        )

    def read_variables(self) -> tuple[VariableOutcome, ...]:
        """Return how the look-ups of variables went."""
        return tuple(
            VariableOutcome(
                gpu=gpu, wrapper=wrapper, name=event["name"], code=event["code"], size=event["size"]
            )
            for gpu, wrapper, event in self._touches()
            if event["kind"] == "variable" and wrapper is not None
        )

    def read_loaded(self) -> tuple[LoadedCode, ...]:
        """Return the code objects that HIP handed down, without those of its own."""
        symbols: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for event in self.read_events("symbol"):
            symbols[event["number"], event["type"]].append(event["name"])
        found = []
        for _, wrapper, event in self._touches():
            if event["kind"] != "code":
                continue
            data, number = (self.code / str(event["number"])).read_bytes(), event["number"]
            kernels = tuple(symbols[number, "kernel"])
            if any(name.startswith(HIPS_OWN) for name in kernels):
                continue
            found.append(
                LoadedCode(
                    gpu=event["gpu"],
                    wrapper=wrapper,
                    target=event["target"],
                    status=event["status"],
                    size=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                    kernels=kernels,
                    variables=tuple(symbols[number, "variable"]),
                )
            )
        return tuple(found)

    def read_executed(self) -> tuple[tuple[int, str], ...]:
        """Return the kernels that arrived in queues."""
        return tuple(
            (event["gpu"], event["name"].removesuffix(".kd")) for event in self.read_events("launch")
        )

    def read_refused(self) -> tuple[Refusal, ...]:
        """Return what was asked in vain, each once."""
        events = self.read_events("refused")
        refusals = (Refusal(function=event["function"], attribute=event["attribute"]) for event in events)
        return tuple(dict.fromkeys(refusals))

    def _touches(self) -> Iterator[tuple[int, int | None, dict[str, Any]]]:
        """Iterate over all events, each with the GPU and the wrapper that was being touched then."""
        gpu, wrapper = 0, None
        for event in map(json.loads, _lines(self.events)):
            if event["kind"] == "wrapper":
                gpu, wrapper = event["gpu"], event["wrapper"]
            else:
                yield gpu, wrapper, event


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _registration(row: Sequence[str], rows: Sequence[Sequence[str]]) -> Registration:
    def names(kind: str) -> tuple[str, ...]:
        return tuple(other[2] for other in rows if other[0] == kind and other[1] == row[6])

    first = min(int(other[1]) for other in rows if other[0] == "binary" and other[7] == row[7])
    return Registration(
        path=Path(row[7]),
        place=(int(row[1]) - first) // WRAPPER_SIZE,
        address=int(row[1]),
        magic=int(row[2]).to_bytes(4, "little"),
        version=int(row[3]),
        pointer=int(row[4]),
        index=int(row[5]),
        handle=int(row[6]),
        functions=names("function"),
        variables=names("variable"),
    )
