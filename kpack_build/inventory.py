"""The model of an inspection: what a wheel, folder or file holds, as data.

Sizes and offsets are bytes, paths are names in what was inspected. `kpack_build.inspection` fills it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.codeobject import Kernel
    from kpack_build.filesets import SourceKind
    from kpack_build.report import JSONValue

__all__ = [
    "ArchiveInfo",
    "BinaryInfo",
    "BundleInfo",
    "DamagedFile",
    "EntryInfo",
    "Inspection",
    "LooseInfo",
    "StoredInfo",
    "WrapperInfo",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryInfo:
    """One entry of a bundle, or a bare code object.

    Attributes:
        id: Its id in the bundle ("" for a bare code object).
        kind: "code object", "host" or "other" (SPIR-V, unknown).
        target: Its target id; None where it is no code object.
        family: The target's sub-family, which names its archive by default.
        size: Its size.
        kernels: Its kernels, where they were asked for.
    """

    id: str
    kind: str
    target: str | None
    family: str | None
    size: int
    kernels: tuple[Kernel, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleInfo:
    """One bundle: file offset, size in the file and decoded, encoding ("plain", "CCOB v3 zstd"), entries."""

    offset: int
    stored_size: int
    decoded_size: int
    encoding: str
    entries: tuple[EntryInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInfo:
    """One entry of an archive's table of contents.

    Attributes:
        key: The binary it is stored for, with the wrapper's index after "#".
        target: The target under which it answers.
        family: That target's sub-family.
        archive: The archive's name.
        ordinal: Number of the stored blob: entries of one ordinal share it.
        size: Size of the code object.
        stored_size: Size as it is stored.
        kernels: Its kernels, where they were asked for.
    """

    key: str
    target: str
    family: str
    archive: str
    ordinal: int
    size: int
    stored_size: int
    kernels: tuple[Kernel, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrapperInfo:
    """One wrapper: its index, the number of its bundle (fat), or what archives have for it (converted)."""

    index: int
    bundle: int | None
    answers: tuple[StoredInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryInfo:
    """One library or executable.

    Attributes:
        path: Its name in what was inspected.
        size: The file's size.
        state: "no device code", "fat" or "converted".
        machine: The host machine.
        hip_library: SONAME of the HIP library that it needs, where it needs one.
        device_bytes: Bytes of the file that are device code.
        wrappers: Its wrappers.
        bundles: Its bundles; none in a converted one.
        refusals: Why it cannot be converted.
        kernel_name: The name under which archives know it, of a converted one.
        search_paths: Where it looks for archives.
        missing: The search paths that lead to no file.
    """

    path: str
    size: int
    state: str
    machine: str
    hip_library: str | None
    device_bytes: int
    wrappers: tuple[WrapperInfo, ...] = ()
    bundles: tuple[BundleInfo, ...] = ()
    refusals: tuple[str, ...] = ()
    kernel_name: str | None = None
    search_paths: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """One archive: what its header says, and its table of contents."""

    path: str
    size: int
    group: str
    family: str
    targets: tuple[str, ...]
    scheme: str
    entries: tuple[StoredInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseInfo:
    """A file of device code alone: a bare code object, or bundles."""

    path: str
    size: int
    code_object: EntryInfo | None = None
    bundles: tuple[BundleInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file that is not what its first bytes promise, and why."""

    path: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All that was found.

    Attributes:
        path: What was inspected.
        kind: "wheel", "unpacked wheel", "folder" or "file".
        files: How many files were looked at.
        size: Their size together.
        distribution: The wheel's distribution name.
        version: The wheel's version.
        binaries: Host binaries, those without device code too.
        archives: Archives.
        loose: Files of device code alone.
        damaged: Files that could not be read as what they promise to be.
    """

    path: Path
    kind: SourceKind
    files: int
    size: int
    distribution: str | None = None
    version: str | None = None
    binaries: tuple[BinaryInfo, ...] = ()
    archives: tuple[ArchiveInfo, ...] = ()
    loose: tuple[LooseInfo, ...] = ()
    damaged: tuple[DamagedFile, ...] = ()

    def to_json(self) -> JSONValue:
        """Return all of it as JSON values."""
        return cast(
            "JSONValue", {**dataclasses.asdict(self), "path": str(self.path), "kind": self.kind.value}
        )
