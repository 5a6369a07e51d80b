"""A program or library in ELF: its device code, and its conversion to HIPK.

This brings the parts of the package together behind the interface of `kpack_build.hostmodel.HostBinary`. The
file is mapped, never read whole, and never changed.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kpack_build.elf.constants import MACHINE_NAMES
from kpack_build.elf.convert import apply_plan, list_patches, list_pieces, list_warnings, sha256_of
from kpack_build.elf.devicecode import (
    find_region,
    iter_device_bundles,
    iter_wrappers,
    read_reference,
    state_of,
)
from kpack_build.elf.fatbin import DeviceCode, RawWrapper, find_device_code
from kpack_build.elf.image import ElfImage, is_host_elf, parse_image
from kpack_build.elf.plan import ConversionPlan, Region, plan_conversion
from kpack_build.elf.refusal import bundle_refusals, layout_faults, region_refusals, wrapper_refusals
from kpack_build.elf.verify import iter_issues
from kpack_build.errors import ConversionError, FormatError
from kpack_build.hostmodel import BinaryState, KpackReference, Wrapper
from kpack_build.runtime._restore import (
    RECORD_FORMAT,
    BundleRecord,
    CcobRecord,
    ConversionRecord,
    EntryRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.bundle import Bundle

__all__ = ["ElfBinary", "open_elf"]

_HIP_LIBRARY = re.compile(r"^libamdhip64[-.]")
_SMALLEST_REFERENCE = b"\x80"
_NONE_KEPT: Mapping[int, int] = MappingProxyType({})


def open_elf(path: Path) -> ElfBinary | None:
    """Open a program or library.

    Args:
        path: The file.

    Returns:
        The binary, to be closed; None where the file is no ELF file of a host that HIP runs on.

    Raises:
        FormatError: The file is damaged.
        OSError: It cannot be read.
    """
    mapping = _map(path)
    if mapping is None:
        return None
    try:
        data = memoryview(mapping)
        if is_host_elf(data):
            return ElfBinary(mapping, parse_image(data, path))
    except BaseException:
        _close(mapping)
        raise
    _close(mapping)
    return None


def _map(path: Path) -> mmap.mmap | None:
    """Map a file. The map holds a descriptor of its own: open files are few, and wheels may have many."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _close(mapping: mmap.mmap) -> None:
    """Let a map go, as soon as no view of it is left."""
    with suppress(BufferError):
        mapping.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fat:
    """The device code of a fat file, and its place if its wrappers lead to one."""

    code: DeviceCode
    region: Region | None


class ElfBinary:
    """An open ELF program or library; see `kpack_build.hostmodel.HostBinary`.

    Attributes:
        image: Its parsed headers over its mapped bytes.
        state: Where its device code is.
        reference: The map of a converted one.
        bundles: The bundles of a fat one, in the order of the file.
        wrappers: Its wrappers, in the order of the file.
        soname: DT_SONAME.
        needed: DT_NEEDED, in order.
    """

    def __init__(self, mapping: mmap.mmap, image: ElfImage) -> None:
        """Look for device code in an image.

        Args:
            mapping: The map of the file, which is closed with this object.
            image: Its parsed bytes.

        Raises:
            FormatError: Its wrappers, bundles or map are damaged.
        """
        self._mapping = mapping
        self.image = image
        code = find_device_code(image)
        self.state = state_of(code)
        self.reference: KpackReference | None = None
        self.bundles: tuple[Bundle, ...] = ()
        self.wrappers: tuple[Wrapper, ...] = ()
        self._fat: _Fat | None = None
        if code is not None:
            if self.state is BinaryState.CONVERTED:
                self.reference = read_reference(image, code)
            else:
                self.bundles = tuple(iter_device_bundles(image, code))
                self._fat = _Fat(code=code, region=find_region(image, code, self.bundles))
            self.wrappers = tuple(iter_wrappers(image, code, self.bundles))
        try:
            self.soname, self.needed = image.soname, image.needed
        except FormatError:
            if self.state is not BinaryState.NO_DEVICE_CODE:
                raise
            # A binary that is not packed may be as odd as it likes.
            self.soname, self.needed = None, ()

    @property
    def path(self) -> Path:
        """The file."""
        return self.image.path

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.image.size

    @property
    def machine(self) -> str:
        """Name of its processor."""
        return MACHINE_NAMES[self.image.header.machine]

    @property
    def hip_library(self) -> str | None:
        """The needed library that is the HIP runtime."""
        return next((name for name in self.needed if _HIP_LIBRARY.match(name)), None)

    @property
    def device_bytes(self) -> int:
        """Size of the device code in the file, in bytes."""
        region = self._fat.region if self._fat is not None else None
        return region.size if region is not None else 0

    def refusals(self) -> tuple[str, ...]:
        """Return why the binary has to stay fat; empty where it can be converted."""
        return self._refusals

    @cached_property
    def _refusals(self) -> tuple[str, ...]:
        if self._fat is None:
            return ("it has no device code",)
        try:
            # Each check relies on the ones before it.
            for check in self._checks(self._fat):
                reasons = tuple(check)
                if reasons:
                    return reasons
        except FormatError as error:
            return (error.clause,)
        return ()

    def _checks(self, fat: _Fat) -> Iterator[Iterable[str]]:
        yield layout_faults(self.image)
        yield wrapper_refusals(self.image, fat.code)
        if fat.region is None:
            yield ["its wrappers do not lead to device code"]
            return
        yield (
            f"wrapper {wrapper.index} points to something else than its device code"
            for wrapper in self.wrappers
            if wrapper.bundle is None
        )
        yield region_refusals(self.image, fat.code, fat.region)
        yield bundle_refusals(self.image, fat.region, self.bundles)
        yield self._plan_refusals(fat, fat.region)

    def _plan_refusals(self, fat: _Fat, region: Region) -> Iterator[str]:
        try:
            plan_conversion(self.image, region, fat.code.wrappers, _SMALLEST_REFERENCE)
        except ConversionError as error:
            yield from error.reasons

    def to_hipk(
        self,
        destination: Path,
        reference: KpackReference,
        objects: Sequence[Sequence[int | None]],
        *,
        kept: Mapping[int, int] = _NONE_KEPT,
        sync: bool = True,
    ) -> ConversionRecord:
        """Write the converted binary.

        Args:
            destination: The new file; it appears whole or not at all, with the mode bits of this one.
            reference: The map.
            objects: For each bundle and each of its entries the number of its code object, or None.
            kept: For bundles whose stored bytes are kept as well, the numbers of these.
            sync: Whether to wait for the disk.

        Returns:
            The record by which `kpack_build.hostbinary.restore` makes the original again.

        Raises:
            ConversionError: It has to stay fat, or the result is not what it should be.
            OSError: A file cannot be read or written.
        """
        reasons, fat = self.refusals(), self._fat
        if reasons or fat is None or fat.region is None:
            raise ConversionError(self.path, reasons)
        plan = plan_conversion(self.image, fat.region, fat.code.wrappers, reference.to_bytes())
        record = self._record(plan, objects, kept)
        handle, name = tempfile.mkstemp(prefix=".kpack-", dir=destination.parent)
        private = Path(name)
        try:
            with os.fdopen(handle, "r+b") as output, self.path.open("rb") as source:
                apply_plan(self.image, plan, source.fileno(), output.fileno())
                os.fchmod(output.fileno(), os.fstat(source.fileno()).st_mode & 0o7777)
                self._verify(private, plan, fat.code.wrappers)
                if sync:
                    os.fsync(output.fileno())
            private.replace(destination)
        except BaseException:
            private.unlink(missing_ok=True)
            raise
        return record

    def _verify(self, output: Path, plan: ConversionPlan, wrappers: Sequence[RawWrapper]) -> None:
        """Read the result again from its bytes and hold it against the original."""
        try:
            written = open_elf(output)
            if written is None:
                raise ConversionError(self.path, ["the result is no ELF file"])
            with written:
                issues = list(iter_issues(self.image, written.image, plan, wrappers))
                if written.reference is None or written.reference.to_bytes() != plan.reference:
                    issues.append("its kpack map does not read back")
        except FormatError as error:
            raise ConversionError(self.path, [f"the result is damaged: {error}"]) from error
        if issues:
            raise ConversionError(self.path, [f"the result failed its check: {issue}" for issue in issues])

    def _record(
        self, plan: ConversionPlan, objects: Sequence[Sequence[int | None]], kept: Mapping[int, int]
    ) -> ConversionRecord:
        ends = [*(bundle.offset for bundle in self.bundles[1:]), plan.region.end]
        bundles = [
            _bundle_record(bundle, end - bundle.offset, objects[number], kept.get(number))
            for number, (bundle, end) in enumerate(zip(self.bundles, ends, strict=True))
        ]
        return {
            "format": RECORD_FORMAT,
            "size": self.size,
            "sha256": sha256_of(self.image),
            "host_size": self.size - plan.hole + len(plan.inserted),
            "moved": list_pieces(self.image, plan),
            "patches": list_patches(self.image, plan),
            "bundles": bundles,
            "warnings": list_warnings(plan),
        }

    def close(self) -> None:
        """Let the file go; bundles that are still held stay readable."""
        _close(self._mapping)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bundle_record(
    bundle: Bundle, room: int, objects: Sequence[int | None], kept: int | None
) -> BundleRecord:
    entries: list[EntryRecord] = [
        {"id": entry.id, "offset": entry.offset, "size": entry.size, "object": number}
        for entry, number in zip(bundle.entries, objects, strict=True)
    ]
    ccob: CcobRecord | None = None
    if bundle.ccob is not None:
        ccob = {
            "version": bundle.ccob.version,
            "method": int(bundle.ccob.method),
            "size": bundle.stored_size,
            "sha256": hashlib.sha256(bundle.stored[: bundle.stored_size]).hexdigest(),
            "kept": kept,
        }
    return {
        "offset": bundle.offset,
        "room": room,
        "decoded_size": bundle.decoded_size,
        "entries": entries,
        "ccob": ccob,
    }
