"""Tell by its first bytes what a file may hold; never by its name.

Magic numbers: gABI (ELF, with LLVM's machine number of AMD GPUs), clang's offload bundles, plain and
compressed, LLVM's offload binaries, and ROCm's kpack archives.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpack_build.filesets import FileSet

__all__ = ["FileKind", "detect"]

_LENGTH = 24
_ELF = b"\x7fELF"
_ELF_MACHINE = slice(18, 20)
_AMDGPU = (224).to_bytes(2, "little")
_ARCHIVE = b"KPAK"
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x10\xff\x10\xad")


class FileKind(Enum):
    """What a file may hold."""

    OTHER = "other"
    HOST_BINARY = "host binary"
    CODE_OBJECT = "code object"
    BUNDLE = "bundle"
    ARCHIVE = "archive"


def detect(files: FileSet, name: str) -> FileKind:
    """Tell what a file of a set may hold."""
    head = files.head(name, _LENGTH)
    if head.startswith(_ELF):
        return FileKind.CODE_OBJECT if head[_ELF_MACHINE] == _AMDGPU else FileKind.HOST_BINARY
    if head.startswith(_ARCHIVE):
        return FileKind.ARCHIVE
    return FileKind.BUNDLE if head.startswith(_BUNDLES) else FileKind.OTHER
