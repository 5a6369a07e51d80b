"""Find the binaries of a wheel that carry device code, and what has to be known of each before packing.

Every member is looked at by its first bytes, never by its name. A binary that cannot be read, or that
cannot be converted safely, is kept as it is with the reason.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kpack_build.bundle import BundleEntry, EntryKind
from kpack_build.errors import FormatError
from kpack_build.hostbinary import BinaryState, HostBinary, open_host_binary
from kpack_build.layout import Home, find_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.wheel import Member, WheelContents

__all__ = ["KeptBinary", "Scan", "ScannedBinary", "describe_binary", "scan_wheel"]

_MAGIC = b"\x7fELF"
_SMALLEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedBinary:
    """A binary that can be converted.

    Attributes:
        path: Its path in the wheel, which becomes its kernel name.
        binary: The open binary.
        home: Where its archives go.
    """

    path: str
    binary: HostBinary
    home: Home

    def code_objects(self) -> Iterator[tuple[int, int, BundleEntry]]:
        """Iterate over (bundle number, entry number, entry) of all its code objects."""
        for bundle_number, bundle in enumerate(self.binary.bundles):
            for entry_number, entry in enumerate(bundle.entries):
                if entry.kind is EntryKind.CODE_OBJECT:
                    yield bundle_number, entry_number, entry


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBinary:
    """A binary with device code that stays as it is, and why."""

    path: str
    size: int
    state: BinaryState
    reasons: tuple[str, ...]
    wrappers: int = 0
    device_bytes: int = 0
    search_paths: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    code_objects: int = 0


@dataclass(slots=True, kw_only=True)
class Scan:
    """All binaries of a wheel with device code; a context manager that closes them."""

    fat: list[ScannedBinary] = field(default_factory=list)
    kept: list[KeptBinary] = field(default_factory=list)
    converted: list[KeptBinary] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, binary: HostBinary) -> None:
        """Keep a binary open as long as the scan."""
        self._open.enter_context(binary)

    def close(self) -> None:
        """Close all binaries."""
        self._open.close()

    def keep(self, path: str, reasons: tuple[str, ...]) -> None:
        """Move a binary from the convertible ones to the kept ones."""
        [found] = [binary for binary in self.fat if binary.path == path]
        self.fat.remove(found)
        self.kept.append(_describe(path, found.binary, reasons))


def scan_wheel(contents: WheelContents) -> Scan:
    """Look at every member of a wheel.

    Args:
        contents: The open wheel; it has to stay open as long as the scan.
    """
    scan = Scan()
    members = frozenset(member.path for member in contents.members)
    try:
        for member in sorted(contents.members, key=lambda member: member.path):
            if member.size >= _SMALLEST and _starts_like_elf(contents, member):
                _scan_member(scan, contents, member, members)
    except BaseException:
        scan.close()
        raise
    return scan


def _starts_like_elf(contents: WheelContents, member: Member) -> bool:
    with contents.open(member.path) as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def _scan_member(scan: Scan, contents: WheelContents, member: Member, members: frozenset[str]) -> None:
    try:
        binary = open_host_binary(contents.materialise(member.path))
    except FormatError as error:
        scan.kept.append(
            KeptBinary(
                path=member.path,
                size=member.size,
                state=BinaryState.NO_DEVICE_CODE,
                reasons=(error.clause,),
            )
        )
        return
    if binary is None:
        return
    if binary.state is BinaryState.NO_DEVICE_CODE:
        binary.close()
        return
    scan.open(binary)
    if binary.state is BinaryState.CONVERTED:
        scan.converted.append(_describe(member.path, binary, ()))
        return
    _sort_fat(scan, member.path, binary, members)


def _sort_fat(scan: Scan, path: str, binary: HostBinary, members: frozenset[str]) -> None:
    home = find_home(path, members)
    reasons = binary.refusals()
    if home is None:
        reasons += ("it is installed outside of site-packages, where no relative path leads to an archive",)
    if reasons or home is None:
        scan.kept.append(_describe(path, binary, reasons))
    else:
        scan.fat.append(ScannedBinary(path=path, binary=binary, home=home))


def describe_binary(scanned: ScannedBinary, *reasons: str) -> KeptBinary:
    """Describe a convertible binary as one that is kept, for reports, with the reasons if it is."""
    return _describe(scanned.path, scanned.binary, reasons)


def _describe(path: str, binary: HostBinary, reasons: tuple[str, ...]) -> KeptBinary:
    return KeptBinary(
        path=path,
        size=binary.size,
        state=binary.state,
        reasons=reasons,
        wrappers=len(binary.wrappers),
        device_bytes=binary.device_bytes,
        search_paths=binary.reference.search_paths if binary.reference else (),
        encodings=_encodings(binary),
        code_objects=sum(
            entry.kind is EntryKind.CODE_OBJECT for bundle in binary.bundles for entry in bundle.entries
        ),
    )


def _encodings(binary: HostBinary) -> tuple[str, ...]:
    """Name the encodings of a binary's bundles, each once."""
    names = {
        f"CCOB v{bundle.ccob.version}" if bundle.ccob is not None else "plain" for bundle in binary.bundles
    }
    return tuple(sorted(names))
