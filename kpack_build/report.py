"""What a run of the pipeline did, as data: for the command line, the build's log, and `--json`.

Sizes are bytes. A report never calls something a gain that is none: `grew` says by how much a wheel became
larger, and `advice` what can be done about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ArchiveReport",
    "BinaryAction",
    "BinaryReport",
    "JSONValue",
    "Outcome",
    "PackReport",
    "RestoreReport",
    "Sizes",
]

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"


class Outcome(str, Enum):
    """What came of a run; all of them are a success."""

    NOTHING_TO_DO = "nothing to do"
    NOTHING_WANTED = "nothing for the wanted targets"
    DONE = "done"


class BinaryAction(str, Enum):
    """What happened to one binary with device code."""

    CONVERTED = "converted"
    KEPT_FAT = "kept fat"
    ALREADY_CONVERTED = "already converted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A size before and after, in bytes."""

    before: int
    after: int

    @property
    def growth(self) -> int:
        """Bytes gained (negative: saved)."""
        return self.after - self.before

    def to_json(self) -> JSONValue:
        """Return the sizes as JSON values."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryReport:
    """One binary with device code.

    Attributes:
        path: Its path in the wheel.
        action: What happened to it.
        reasons: Why it was kept, where it was.
        wrappers: How many wrappers it has.
        code_objects: How many code objects it carried.
        device_bytes: Bytes of device code that were in the file (compressed bundles as stored).
        size: The file's size.
        encodings: The encodings of its bundles, for example "plain" or "CCOB v3".
    """

    path: str
    action: BinaryAction
    reasons: tuple[str, ...] = ()
    wrappers: int
    code_objects: int
    device_bytes: int
    size: Sizes
    encodings: tuple[str, ...]

    def to_json(self) -> JSONValue:
        """Return the report as JSON values."""
        return {
            "path": self.path,
            "action": self.action.value,
            "reasons": list(self.reasons),
            "wrappers": self.wrappers,
            "code_objects": self.code_objects,
            "device_bytes": self.device_bytes,
            "size": self.size.to_json(),
            "encodings": list(self.encodings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """One archive that was written.

    Attributes:
        path: Its path in the wheel.
        family: The family, sub-family or target that it holds.
        targets: The targets that it lists.
        code_objects: How many different code objects it stores.
        original_bytes: Their size before compression, each counted once.
        repeated_bytes: Of these, bytes that another archive of the wheel holds too (generic code objects).
        size: The archive's size.
    """

    path: str
    family: str
    targets: tuple[str, ...]
    code_objects: int
    original_bytes: int
    repeated_bytes: int
    size: int

    def to_json(self) -> JSONValue:
        """Return the report as JSON values."""
        return {
            "path": self.path,
            "family": self.family,
            "targets": list(self.targets),
            "code_objects": self.code_objects,
            "original_bytes": self.original_bytes,
            "repeated_bytes": self.repeated_bytes,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """A whole run.

    Attributes:
        source: What was packed.
        output: What was written.
        outcome: What came of it.
        binaries: The binaries with device code.
        archives: The archives written.
        wheel: Size of the wheel file (of all files, for an unpacked tree).
        installed: Size of all files once installed.
        scheme: Compression scheme of the archives.
        dropped: Targets that were found and not wanted.
        warnings: One sentence each.
    """

    source: Path
    output: Path
    outcome: Outcome
    binaries: tuple[BinaryReport, ...] = ()
    archives: tuple[ArchiveReport, ...] = ()
    wheel: Sizes
    installed: Sizes
    scheme: str
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def grew(self) -> int:
        """Bytes by which the wheel became larger; 0 where it did not."""
        return max(0, self.wheel.growth)

    @property
    def advice(self) -> str | None:
        """What to do about a wheel that grew, or None."""
        if not self.grew or self.outcome is not Outcome.DONE:
            return None
        compressed = any(name.startswith("CCOB") for binary in self.binaries for name in binary.encodings)
        cause = (
            "its bundles were compressed across targets (CCOB), which the scheme of the archives cannot do"
            if compressed
            else "it has too little device code to make up for the index and the loader"
        )
        return (
            f"the wheel grew by {self.grew} bytes: {cause}; build for fewer targets, use a higher level, "
            f"or leave this wheel fat"
        )

    @property
    def mixed_machines(self) -> str | None:
        """What becomes of the wheel on a machine with GPUs of several of its processors, or None.

        Seen with HIP 7.14, which asks for one code object and gives it to all GPUs.
        """
        processors = {target.partition(":")[0] for item in self.archives for target in item.targets}
        if len(processors) < 2:  # noqa: PLR2004 - "several" begins at two
            return None
        return (
            "on a machine with GPUs of different targets, HIP runtimes that read kpack archives give one"
            " GPU's code to all of them, and a launch on the others crashes where the fat wheel works; there,"
            " users have to show a program GPUs of one target (HIP_VISIBLE_DEVICES)"
        )

    def to_json(self) -> JSONValue:
        """Return the report as JSON values."""
        return {
            "source": str(self.source),
            "output": str(self.output),
            "outcome": self.outcome.value,
            "scheme": self.scheme,
            "wheel": self.wheel.to_json(),
            "installed": self.installed.to_json(),
            "grew": self.grew,
            "advice": self.advice,
            "mixed_machines": self.mixed_machines,
            "binaries": [binary.to_json() for binary in self.binaries],
            "archives": [archive.to_json() for archive in self.archives],
            "dropped": list(self.dropped),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A wheel that was made fat again.

    Attributes:
        source: The packed wheel.
        output: What was written.
        exact: Binaries that equal the original ones bit for bit.
        recompressed: Binaries with compressed bundles that hold equal code objects, but not equal bytes.
    """

    source: Path
    output: Path
    exact: tuple[str, ...]
    recompressed: tuple[str, ...]

    def to_json(self) -> JSONValue:
        """Return the report as JSON values."""
        return {
            "source": str(self.source),
            "output": str(self.output),
            "exact": list(self.exact),
            "recompressed": list(self.recompressed),
        }
