"""The AMDGPU processors: their number in `e_flags`, the target features that they can have, the generic ones.

Follows LLVM's "User Guide for AMDGPU Backend" (tables "AMDGPU ELF Header e_flags", "AMDGPU Processors" and
"Generic Processors"). It is a table of what is known, not of what is allowed: compilers know new chips
earlier than tables do, so nobody may refuse a processor because it is not in here.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GENERIC_MEMBERS", "PROCESSORS", "PROCESSOR_OF_MACH", "Processor"]


@dataclass(frozen=True, slots=True)
class Processor:
    """One processor.

    Attributes:
        name: Its name, as in `-mcpu`.
        mach: Its value of `EF_AMDGPU_MACH`, the low byte of `e_flags`.
        sramecc: Whether code can be built for SRAMECC on and off.
        xnack: Whether code can be built for XNACK on and off.
    """

    name: str
    mach: int
    sramecc: bool = False
    xnack: bool = False


_PROCESSORS = (
    Processor("gfx600", 0x20),
    Processor("gfx601", 0x21),
    Processor("gfx700", 0x22),
    Processor("gfx701", 0x23),
    Processor("gfx702", 0x24),
    Processor("gfx703", 0x25),
    Processor("gfx704", 0x26),
    Processor("gfx801", 0x28, xnack=True),
    Processor("gfx802", 0x29),
    Processor("gfx803", 0x2A),
    Processor("gfx810", 0x2B, xnack=True),
    Processor("gfx900", 0x2C, xnack=True),
    Processor("gfx902", 0x2D, xnack=True),
    Processor("gfx904", 0x2E, xnack=True),
    Processor("gfx906", 0x2F, sramecc=True, xnack=True),
    Processor("gfx908", 0x30, sramecc=True, xnack=True),
    Processor("gfx909", 0x31, xnack=True),
    Processor("gfx90c", 0x32, xnack=True),
    Processor("gfx1010", 0x33, xnack=True),
    Processor("gfx1011", 0x34, xnack=True),
    Processor("gfx1012", 0x35, xnack=True),
    Processor("gfx1030", 0x36),
    Processor("gfx1031", 0x37),
    Processor("gfx1032", 0x38),
    Processor("gfx1033", 0x39),
    Processor("gfx602", 0x3A),
    Processor("gfx705", 0x3B),
    Processor("gfx805", 0x3C),
    Processor("gfx1035", 0x3D),
    Processor("gfx1034", 0x3E),
    Processor("gfx90a", 0x3F, sramecc=True, xnack=True),
    # gfx940 and gfx941 were never sold and left LLVM after version 19; libraries built before have them.
    Processor("gfx940", 0x40, sramecc=True, xnack=True),
    Processor("gfx1100", 0x41),
    Processor("gfx1013", 0x42, xnack=True),
    Processor("gfx1150", 0x43),
    Processor("gfx1103", 0x44),
    Processor("gfx1036", 0x45),
    Processor("gfx1101", 0x46),
    Processor("gfx1102", 0x47),
    Processor("gfx1200", 0x48),
    Processor("gfx1250", 0x49, sramecc=True, xnack=True),
    Processor("gfx1151", 0x4A),
    Processor("gfx941", 0x4B, sramecc=True, xnack=True),
    Processor("gfx942", 0x4C, sramecc=True, xnack=True),
    Processor("gfx1201", 0x4E),
    Processor("gfx950", 0x4F, sramecc=True, xnack=True),
    Processor("gfx9-generic", 0x51, xnack=True),
    Processor("gfx10-1-generic", 0x52, xnack=True),
    Processor("gfx10-3-generic", 0x53),
    Processor("gfx11-generic", 0x54),
    Processor("gfx1152", 0x55),
    Processor("gfx1153", 0x58),
    Processor("gfx12-generic", 0x59),
    Processor("gfx1251", 0x5A, sramecc=True, xnack=True),
    Processor("gfx9-4-generic", 0x5F, sramecc=True, xnack=True),
)
# A second kind of code for the same chip: another name in the bundle, the same number in `e_flags`.
_VARIANTS = (Processor("gfx1250-strict", 0x49, sramecc=True, xnack=True),)

#: Every known processor by its name.
PROCESSORS: Mapping[str, Processor] = MappingProxyType(
    {processor.name: processor for processor in (*_PROCESSORS, *_VARIANTS)}
)
#: The processor of each known value of `EF_AMDGPU_MACH`.
PROCESSOR_OF_MACH: Mapping[int, Processor] = MappingProxyType(
    {processor.mach: processor for processor in _PROCESSORS}
)
#: Each generic processor, and the processors that its code runs on.
GENERIC_MEMBERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
        "gfx9-4-generic": ("gfx942", "gfx950"),
        "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
        "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
        "gfx11-generic": (
            "gfx1100",
            "gfx1101",
            "gfx1102",
            "gfx1103",
            "gfx1150",
            "gfx1151",
            "gfx1152",
            "gfx1153",
        ),
        "gfx12-generic": ("gfx1200", "gfx1201"),
    }
)
