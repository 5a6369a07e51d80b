"""What this package's archives hold: data alone, so that it is read as bytecode and parsed never.

In kpack-build's own sources this is the empty table, which says what each name means. In a packed wheel a
generated file stands in its place, written by `kpack_build.loader`; both are format 1. Archives, objects and
targets are named by their number, their position in their tuple.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    #: File name in `.kpack`, SHA-256 in hexadecimal, size in bytes, family, and the targets that it lists.
    Archive = tuple[str, str, int, str, tuple[str, ...]]
    #: Archive, offset of the stored bytes in its file, their size, and the code object's size, in bytes.
    StoredObject = tuple[int, int, int, int]
    #: Path from the package's folder, SONAME of the HIP library that it needs, and for each wrapper the
    #: code object that answers each of `TARGETS`, or -1.
    Binary = tuple[str, str | None, tuple[tuple[int, ...], ...]]

__all__ = [
    "ARCHIVES",
    "BINARIES",
    "DISTRIBUTION",
    "FORMAT",
    "GENERIC_OF",
    "GROUP",
    "OBJECTS",
    "PACKAGE",
    "PROCESSORS",
    "SCHEME",
    "TARGETS",
    "VERSION",
]

FORMAT = 1
DISTRIBUTION = ""
VERSION = ""
PACKAGE = ""
GROUP = ""
#: How archives store code objects.
SCHEME = "none"
ARCHIVES: tuple[Archive, ...] = ()
#: All targets that any archive lists, sorted.
TARGETS: tuple[str, ...] = ()
OBJECTS: tuple[StoredObject, ...] = ()
BINARIES: tuple[Binary, ...] = ()
#: The generic processor whose code runs on a processor.
GENERIC_OF: dict[str, str] = {}
#: The processor of each `gfx_target_version` of the kernel driver.
PROCESSORS: dict[int, str] = {}
