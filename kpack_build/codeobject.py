"""AMDGPU code objects: what an ELF file for the GPU was built for, and which kernels it has.

Follows LLVM's "User Guide for AMDGPU Backend" (ELF Header, Code Object V3 to V5 Metadata). Code objects are
opaque beyond that: nothing here changes one, and code object version 2 and older is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from kpack_build.device_elf import DeviceImage, parse_image, read_metadata
from kpack_build.errors import TargetError
from kpack_build.processors import PROCESSOR_OF_MACH, PROCESSORS
from kpack_build.targets import TargetId

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["CodeObject", "FeatureState", "Kernel", "parse_code_object", "read_kernels"]

#: What to add to an ABI version to have the code object version.
_CODE_OBJECT_VERSION_BIAS = 2

_MACH = 0xFF
_XNACK_V3, _SRAMECC_V3 = 0x100, 0x200
_XNACK_SHIFT, _SRAMECC_SHIFT, _STATE_MASK = 8, 10, 3
_GENERIC_VERSION_SHIFT = 24

#: What a processor is called, with its number, if neither the table nor the metadata names it.
_UNNAMED = "amdgpu-"


class FeatureState(IntEnum):
    """The state of a target feature in `e_flags`, from code object version 4 on."""

    UNSUPPORTED = 0
    ANY = 1
    OFF = 2
    ON = 3


_NAMED_STATE = {FeatureState.OFF: False, FeatureState.ON: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeObject:
    """What the headers of a code object say.

    Attributes:
        target: What it was built for. Of version 3 it names no features, as the flags of that version do not
            tell "any" from "on".
        mach: The processor's number in `e_flags`.
        flags: All of `e_flags`.
        abi_version: `EI_ABIVERSION`.
        code_object_version: 3 to 6.
        generic_version: Version of the generic processor's instruction set, of generic targets only.
        size: How many bytes the file takes, up to the end of its last part.
    """

    target: TargetId
    mach: int
    flags: int
    abi_version: int
    code_object_version: int
    generic_version: int | None
    size: int

    def agrees_with(self, target: TargetId) -> bool:
        """Tell whether a bundle may offer this code object for `target`.

        A processor that is not in the table agrees with everything but the processors that are; so does the
        number of one that has several names (gfx1250 and gfx1250-strict).
        """
        return self._same_processor(target) and self._same_features(target)

    def _same_processor(self, target: TargetId) -> bool:
        known = PROCESSORS.get(target.processor)
        if known is not None:
            return known.mach == self.mach
        own = self.target.processor
        unnamed = own.startswith(_UNNAMED)
        return unnamed or target.processor == own or target.processor.startswith(f"{own}-")

    def _same_features(self, target: TargetId) -> bool:
        if self.code_object_version > 3:  # noqa: PLR2004 - the version that has two bits for each feature
            return (self.target.sramecc, self.target.xnack) == (target.sramecc, target.xnack)
        bits = (self.flags & _SRAMECC_V3, self.flags & _XNACK_V3)
        return all(
            named is None or named == bool(bit)
            for named, bit in zip((target.sramecc, target.xnack), bits, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a code object, as its metadata describes it.

    Attributes:
        name: Its name in the source, mangled.
        symbol: Name of its kernel descriptor.
        vgprs: Vector registers of a work-item.
        agprs: Accumulation registers of a work-item, 0 where the processor has none.
        sgprs: Scalar registers of a wavefront.
        lds_bytes: Local memory of a work-group that is known at compile time, in bytes.
        scratch_bytes: Private memory of a work-item, in bytes.
        kernarg_bytes: Size of its arguments, in bytes.
        wavefront_size: Work-items in a wavefront.
        max_workgroup_size: Most work-items in a work-group.
    """

    name: str
    symbol: str
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    wavefront_size: int
    max_workgroup_size: int


def parse_code_object(data: memoryview, *, path: Path, offset: int = 0) -> CodeObject:
    """Parse the headers of a code object and check that all of its parts lie inside of it.

    Args:
        data: The code object; bytes after its end may follow.
        path: The file that holds it, for error messages.
        offset: Where in that file it begins, in bytes.

    Raises:
        FormatError: This is no code object of version 3 to 6, or it was cut short.
    """
    image = parse_image(data, path, offset)
    version = image.abi_version + _CODE_OBJECT_VERSION_BIAS
    target = _target(image, version)
    generic_version = image.flags >> _GENERIC_VERSION_SHIFT
    return CodeObject(
        target=target,
        mach=image.flags & _MACH,
        flags=image.flags,
        abi_version=image.abi_version,
        code_object_version=version,
        generic_version=generic_version if target.is_generic and generic_version else None,
        size=image.end,
    )


def read_kernels(data: memoryview, *, path: Path, offset: int = 0) -> tuple[Kernel, ...]:
    """Read the kernels from a code object's metadata, in their order there.

    Args:
        data: The code object.
        path: The file that holds it, for error messages.
        offset: Where in that file it begins, in bytes.

    Raises:
        FormatError: As `parse_code_object`, or the metadata is not what LLVM's guide asks for.
    """
    image = parse_image(data, path, offset)
    found = read_metadata(image)
    if found is None:
        return ()
    at, metadata = found
    kernels = metadata.get("amdhsa.kernels", [])
    if not isinstance(kernels, list) or not all(isinstance(kernel, dict) for kernel in kernels):
        raise image.error("the metadata's amdhsa.kernels is no list of maps", at=at)
    return tuple(_kernel(image, at, kernel) for kernel in kernels)


def _target(image: DeviceImage, version: int) -> TargetId:
    processor = PROCESSOR_OF_MACH.get(image.flags & _MACH)
    name = processor.name if processor is not None else _unknown_processor(image)
    if version <= 3:  # noqa: PLR2004 - the version whose flags do not tell "any" from "on"
        return TargetId(processor=name)
    return TargetId(
        processor=name,
        sramecc=_NAMED_STATE.get(FeatureState(image.flags >> _SRAMECC_SHIFT & _STATE_MASK)),
        xnack=_NAMED_STATE.get(FeatureState(image.flags >> _XNACK_SHIFT & _STATE_MASK)),
    )


def _unknown_processor(image: DeviceImage) -> str:
    """Name a processor whose number is in no table, from the metadata if that tells it."""
    found = read_metadata(image)
    text = found[1].get("amdhsa.target") if found is not None else None
    if isinstance(text, str):
        try:
            return TargetId.parse(text.rpartition("--")[2]).processor
        except TargetError:
            pass  # The number has to do, as for code without metadata.
    return f"{_UNNAMED}{image.flags & _MACH:#x}"


def _kernel(image: DeviceImage, at: int, kernel: Mapping[str, object]) -> Kernel:
    def text(key: str) -> str:
        value = kernel.get(key)
        if not isinstance(value, str):
            raise image.error(f"the metadata of a kernel has no text {key}", at=at, found=value)
        return value

    def number(key: str, default: int | None = None) -> int:
        value = kernel.get(key, default)
        if not isinstance(value, int):
            raise image.error(f"the metadata of a kernel has no number {key}", at=at, found=value)
        return value

    return Kernel(
        name=text(".name"),
        symbol=text(".symbol"),
        vgprs=number(".vgpr_count"),
        agprs=number(".agpr_count", 0),
        sgprs=number(".sgpr_count"),
        lds_bytes=number(".group_segment_fixed_size"),
        scratch_bytes=number(".private_segment_fixed_size"),
        kernarg_bytes=number(".kernarg_segment_size"),
        wavefront_size=number(".wavefront_size"),
        max_workgroup_size=number(".max_flat_workgroup_size"),
    )
