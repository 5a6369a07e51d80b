"""Convert a binary with all of its code objects, as the pipeline does, for tests of the conversion itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpack_build.hostbinary import KpackReference, open_host_binary

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.hostbinary import ConversionRecord

__all__ = ["REFERENCE", "Converted", "convert"]

REFERENCE = KpackReference(
    kernel_name="package/library.so", search_paths=("../.kpack/package-gfx110x.kpack",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A converted binary, its restore record, and its code objects by their numbers."""

    path: Path
    record: ConversionRecord
    objects: tuple[bytes, ...]


def convert(source: Path, destination: Path, reference: KpackReference = REFERENCE) -> Converted:
    """Convert the binary `source`; fails where it has to stay fat."""
    binary = open_host_binary(source)
    assert binary is not None
    with binary:
        assert binary.refusals() == ()
        objects: list[bytes] = []
        numbers: list[list[int | None]] = []
        for bundle in binary.bundles:
            with bundle.open_decoded() as decoded:
                row: list[int | None] = []
                for entry in bundle.entries:
                    row.append(len(objects) if entry.size else None)
                    objects += [bytes(decoded.entry(entry))] if entry.size else []
                numbers.append(row)
        record = binary.to_hipk(destination, reference, numbers)
    return Converted(path=destination, record=record, objects=tuple(objects))
