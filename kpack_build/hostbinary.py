"""Programs and libraries with device code, whatever their format: open, convert, restore.

Formats live in packages of their own (`kpack_build.elf`); what they share is in `kpack_build.hostmodel` and
is offered here again. The way back is the code of the import-time loader (`kpack_build.runtime._restore`),
with compression added.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kpack_build.bundle import CcobMethod, write_ccob
from kpack_build.elf.binary import open_elf
from kpack_build.errors import KpackError, RestorationError
from kpack_build.hostmodel import BinaryState, HostBinary, KpackReference, Wrapper
from kpack_build.runtime._restore import CcobRecord, ConversionRecord, FatWriter, RestoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "BinaryState",
    "ConversionRecord",
    "HostBinary",
    "KpackReference",
    "Wrapper",
    "open_host_binary",
    "restore",
]

_LEVELS = {CcobMethod.ZSTD: (3, 9, 19, 20, 22), CcobMethod.ZLIB: (6, 9)}


def open_host_binary(path: Path) -> HostBinary | None:
    """Open a program or library of a format that is known.

    Args:
        path: The file.

    Returns:
        The binary, to be closed; None where the file is something else.

    Raises:
        FormatError: The file is damaged.
        OSError: It cannot be read.
    """
    return open_elf(path)


def restore(
    host: Path,
    record: ConversionRecord,
    fetch: Callable[[int], bytes | memoryview],
    destination: Path,
) -> bool:
    """Make the fat binary again.

    Args:
        host: The converted binary.
        record: What `to_hipk` returned.
        fetch: Returns a code object by its number.
        destination: The new file; it appears whole or not at all.

    Returns:
        Whether it is the original bit for bit. If not, a compressed bundle could not be compressed as it was:
        it holds equal code objects, in order and under the same ids.

    Raises:
        RestorationError: The binary is not the one that was converted, or something does not fit.
        OSError: A file cannot be read or written.
    """
    try:
        return FatWriter(record, fetch, encode=_encode).write(host, destination)
    except RestoreError as error:
        raise RestorationError(host, [str(error)]) from error
    except KpackError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        # The record comes from a file that anybody may have changed.
        raise RestorationError(host, [f"its restore record is damaged: {error!r}"]) from error


def _encode(plain: memoryview, ccob: CcobRecord, room: int) -> bytes | None:
    """Compress a bundle as it was, or else at a level that makes it fit.

    Compilers use level 3 unless they are told otherwise. A higher level makes the result smaller, so once it
    is as small as the original, it is the original, or no higher one is. Only one result is in memory at a
    time.
    """
    method = CcobMethod(ccob["method"])
    for size in (min(ccob["size"], room), room):
        for level in _LEVELS[method]:
            encoded = write_ccob(plain, version=ccob["version"], method=method, level=level)
            if len(encoded) <= size:
                return encoded
    return None
