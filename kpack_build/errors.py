"""The exception family of kpack-build.

Every error that a user can meet derives from `KpackError`. An error holds its facts as fields and builds its
sentence from them: what is wrong, where, and what to do about it, in one line. Errors that take the place of
a built-in exception in ROCm's Python reference derive from that exception too, so that ported scripts keep
working.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ArchiveLimitError",
    "ArchiveStateError",
    "ConfigError",
    "ConversionError",
    "DuplicateKernelError",
    "FormatError",
    "KpackError",
    "MissingDependencyError",
    "MissingDeviceCodeError",
    "MissingKernelError",
    "OrdinalError",
    "PathLike",
    "RestorationError",
    "TargetError",
    "VerificationError",
    "WheelError",
]

PathLike: TypeAlias = "str | Path"

_SHOWN_ISSUES = 5


class KpackError(Exception):
    """Root of all errors that kpack-build raises on purpose."""


class FormatError(KpackError, ValueError):
    """Bytes that are not what their format asks for.

    Attributes:
        path: The file that holds the bytes (or a name for them).
        problem: What is wrong, a clause without a full stop.
        offset: File offset in bytes of the fault, where there is one.
        expected: What the format asks for.
        found: What was there instead.
        remedy: What the user can do.
    """

    def __init__(
        self,
        path: PathLike,
        problem: str,
        *,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        remedy: str = "the file is damaged or was cut short: build or download it again",
    ) -> None:
        self.path = Path(path)
        self.problem = problem
        self.offset = offset
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(self._sentence())

    def call_file(self, path: PathLike) -> None:
        """Name the file in another way: by what it was unpacked from, say."""
        self.path = Path(path)
        self.args = (self._sentence(),)

    @property
    def clause(self) -> str:
        """The sentence without the path, for those who name the file in another way."""
        return str(self).removeprefix(str(self.path)).lstrip(":, ")

    def _sentence(self) -> str:
        place = f"{self.path}" if self.offset is None else f"{self.path}, byte {self.offset:#x}"
        facts = ""
        if self.expected is not None:
            facts += f", expected {self.expected}"
        if self.found is not None:
            facts += f", found {self.found}"
        return f"{place}: {self.problem}{facts} ({self.remedy})"


class TargetError(KpackError, ValueError):
    """A text that is no gfx target id, family or target list."""

    def __init__(self, text: str, problem: str = "is no gfx target id") -> None:
        self.text = text
        super().__init__(f"{text!r} {problem} (write it as gfx1100 or gfx90a:sramecc+:xnack-)")


class DuplicateKernelError(KpackError, ValueError):
    """The same (binary, architecture) was added to an archive twice."""

    def __init__(self, relative_path: str, gfx_arch: str) -> None:
        self.relative_path = relative_path
        self.gfx_arch = gfx_arch
        super().__init__(
            f"{relative_path} for {gfx_arch} is in the archive already"
            " (each binary and target may be added once)"
        )


class ArchiveStateError(KpackError, RuntimeError):
    """An archive was asked for something that its state does not allow."""


class ArchiveLimitError(KpackError, ValueError):
    """An archive would be larger than its format, or ROCm's reader, allows."""

    def __init__(self, what: str, value: int, limit: int, *, remedy: str) -> None:
        self.what = what
        self.value = value
        self.limit = limit
        super().__init__(f"{what}: {value} is over the archive format's limit of {limit} ({remedy})")


class MissingKernelError(KpackError, LookupError):
    """An archive was asked for a (binary, architecture) that it does not list."""

    def __init__(self, path: PathLike, relative_path: str, gfx_arch: str) -> None:
        self.path = Path(path)
        self.relative_path = relative_path
        self.gfx_arch = gfx_arch
        super().__init__(
            f"{path}: has no {relative_path} for {gfx_arch} (kpack-build inspect lists what is in it)"
        )


class OrdinalError(KpackError, ValueError):
    """A kernel was asked for by a number that the archive does not have."""

    def __init__(self, ordinal: int, count: int) -> None:
        self.ordinal = ordinal
        self.count = count
        super().__init__(f"kernel {ordinal} is not in the archive (it has {count}, counted from 0)")


class ConfigError(KpackError):
    """A key or value of `[tool.kpack-build]` that is not allowed.

    Attributes:
        key: Dotted name of the key.
        problem: What is wrong with it.
        allowed: What would be right.
        source: Where it was written (a file, a keyword, an option).
    """

    def __init__(self, key: str, problem: str, *, allowed: str, source: str = "[tool.kpack-build]") -> None:
        self.key = key
        self.problem = problem
        self.allowed = allowed
        self.source = source
        super().__init__(f"{source}: {key}: {problem} (allowed: {allowed})")


class WheelError(KpackError):
    """A wheel, or its unpacked tree, that cannot be worked on."""

    def __init__(self, path: PathLike, problem: str, *, remedy: str) -> None:
        self.path = Path(path)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{path}: {problem} ({remedy})")


class ConversionError(KpackError):
    """A binary that has to stay as it is, where the caller asked for strictness."""

    def __init__(self, path: PathLike, reasons: Sequence[str]) -> None:
        self.path = Path(path)
        self.reasons = tuple(reasons)
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        return (
            f"{self.path}: cannot be converted: {'; '.join(self.reasons)}"
            " (without --strict it is kept with its device code)"
        )


class RestorationError(ConversionError):
    """A converted binary that cannot be made fat again."""

    def _sentence(self) -> str:
        return (
            f"{self.path}: cannot be restored: {'; '.join(self.reasons)}"
            " (it takes the wheel as it was packed, and packed with all targets)"
        )


class MissingDeviceCodeError(KpackError):
    """No device code was found, where the configuration requires some."""

    def __init__(self, path: PathLike, problem: str) -> None:
        self.path = Path(path)
        super().__init__(
            f"{path}: {problem} (check the build's GPU architectures, or set require-device-code = false)"
        )


class MissingDependencyError(KpackError):
    """An optional package is needed and is not installed."""

    def __init__(self, purpose: str, package: str) -> None:
        self.package = package
        super().__init__(f"{purpose} needs the package {package} (pip install {package})")


class VerificationError(KpackError):
    """All that a verification found, raised once.

    Attributes:
        path: What was verified.
        issues: One sentence for each fault.
    """

    def __init__(self, path: PathLike, issues: Sequence[str]) -> None:
        self.path = Path(path)
        self.issues = tuple(issues)
        shown = "; ".join(self.issues[:_SHOWN_ISSUES])
        if len(self.issues) > _SHOWN_ISSUES:
            shown += f"; and {len(self.issues) - _SHOWN_ISSUES} more"
        super().__init__(f"{path}: {len(self.issues)} fault(s): {shown} (pack the original wheel again)")
