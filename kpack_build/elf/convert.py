"""Write a converted ELF file by its plan, and the record that leads back.

The kept bytes are copied once, by the kernel where it can; then the planned writes are applied to the copy.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from kpack_build.elf.slots import SlotKind

if TYPE_CHECKING:
    from kpack_build.elf.image import ElfImage
    from kpack_build.elf.plan import ConversionPlan
    from kpack_build.runtime._restore import Patch, Piece

__all__ = ["apply_plan", "list_patches", "list_pieces", "list_warnings", "sha256_of"]

_WARNINGS = {
    SlotKind.NOTE: (
        "debuggers and profilers no longer find the build id in memory, since the place of its program header"
        " (PT_NOTE) was needed; its section is still there"
    ),
    SlotKind.MERGE: (
        "two load segments had to be joined: read-only data of the library is mapped executable, as linkers"
        " do without -z separate-code"
    ),
}


def list_pieces(image: ElfImage, plan: ConversionPlan) -> list[Piece]:
    """Return the pieces of the original file that are kept, empty ones left out.

    Args:
        image: The original.
        plan: Its conversion.
    """
    starts = [0, plan.region.end, plan.insertion]
    ends = [plan.region.offset, plan.insertion, image.size]
    pieces: list[Piece] = [
        {"host": plan.new_offset(start), "original": start, "length": end - start}
        for start, end in zip(starts, ends, strict=True)
    ]
    return [piece for piece in pieces if piece["length"]]


def apply_plan(image: ElfImage, plan: ConversionPlan, source: int, output: int) -> None:
    """Write the converted file.

    Args:
        image: The original.
        plan: Its conversion.
        source: Descriptor of the original, open for reading.
        output: Descriptor of an empty file, open for writing.

    Raises:
        OSError: The file cannot be written.
    """
    os.ftruncate(output, image.size - plan.hole + len(plan.inserted))
    for piece in list_pieces(image, plan):
        _copy(image, source, output, piece)
    _write_all(output, plan.reference, plan.region.offset)
    for write in plan.writes:
        _write_all(output, write.data, plan.new_offset(write.offset))
    _write_all(output, plan.inserted, plan.insertion - plan.hole)


def list_patches(image: ElfImage, plan: ConversionPlan) -> list[Patch]:
    """Return the original bytes of all that the plan writes over."""
    return [
        {"offset": write.offset, "data": bytes(image.data[write.offset : write.end]).hex()}
        for write in plan.writes
    ]


def list_warnings(plan: ConversionPlan) -> list[str]:
    """Return what the conversion had to give up."""
    warning = _WARNINGS.get(plan.slot) if plan.slot is not None else None
    return [warning] if warning else []


def sha256_of(image: ElfImage) -> str:
    """Return the digest of a whole file."""
    return hashlib.sha256(image.data).hexdigest()


def _copy(image: ElfImage, source: int, output: int, piece: Piece) -> None:
    """Copy a piece inside the kernel, or from the map where the file system cannot do that."""
    done = 0
    try:
        while done < piece["length"]:
            copied = os.copy_file_range(
                source, output, piece["length"] - done, piece["original"] + done, piece["host"] + done
            )
            if not copied:
                break
            done += copied
    except OSError:
        # Across file systems, and on some network and overlay ones, the call is refused.
        done = 0
    _write_all(
        output,
        image.data[piece["original"] + done : piece["original"] + piece["length"]],
        piece["host"] + done,
    )


def _write_all(output: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(output, view, offset)
        view, offset = view[written:], offset + written
