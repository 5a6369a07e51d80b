"""Small archives, for tests of what reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.archive import PackedKernelArchive
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["code_object", "write_archive"]


def code_object(target: str, text: bytes = b"code") -> bytes:
    """Return a code object for a target; different texts make different ones."""
    return write_code_object(target, CodeObjectOptions(text=text))


def write_archive(file: Path, targets: Sequence[str], entries: Mapping[tuple[str, str], bytes]) -> None:
    """Write an archive that lists targets and holds a code object for each (key, target)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with PackedKernelArchive("group", "family", list(targets), output_path=file) as archive:
        for (key, target), data in entries.items():
            archive.add_kernel(archive.prepare_kernel(key, target, data))
        archive.finalize_archive()
