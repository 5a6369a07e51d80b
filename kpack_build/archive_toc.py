"""The frame of a .kpack archive: its header and its table of contents, packed, parsed and validated.

Format version 1 of ROCm's kpack archives: a 16-byte little-endian header (magic, version, file offset of the
table), zero padding to 64, the blob, and at the end of the file a MessagePack map, the table of contents.
Nothing that a file says is believed before it is held against the file's size and the limits below, and
nothing is allocated by a number that was not.

Archives of a scheme that ROCm does not read have a magic of their own, so that ROCm's reader turns them away
instead of taking stored bytes for a code object.

What lies in the blob is the business of the schemes (`kpack_build.compression`).
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict, TypeVar, cast

import msgpack

from kpack_build.errors import ArchiveLimitError, FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import TypeGuard

__all__ = [
    "BLOB_OFFSET",
    "FORMAT_VERSION",
    "HEADER_SIZE",
    "MAGIC",
    "MAX_KERNELS",
    "MAX_TOC_SIZE",
    "OWN_MAGIC",
    "JsonValue",
    "Toc",
    "TocEntry",
    "check_range",
    "map_file",
    "original_sizes",
    "pack_header",
    "pack_toc",
    "parse_toc",
    "require_int",
]

_T = TypeVar("_T")
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAGIC: Final = b"KPAK"
OWN_MAGIC: Final = b"KPKB"
"""Magic of an archive whose scheme ROCm does not read."""
FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sIQ")
HEADER_SIZE: Final = _HEADER.size
BLOB_OFFSET: Final = 64
"""File offset in bytes at which the blob begins."""

MAX_KERNELS: Final = 1_048_576
"""Most kernels that ROCm's reader takes from one archive."""
MAX_TOC_SIZE: Final = 1 << 30
_MAX_TEXT: Final = 1 << 20
_NUMBER_LIMIT: Final = 1 << 63
_SHOWN: Final = 200

_SPLIT_REMEDY: Final = "store fewer kernels in one archive: group by target, or pack fewer targets"


class _RequiredOfEntry(TypedDict):
    ordinal: int


class TocEntry(_RequiredOfEntry, total=False):
    """What the table says of one kernel; `original_size` in bytes."""

    type: str
    original_size: int
    metadata: dict[str, JsonValue]


class _RequiredOfToc(TypedDict):
    group_name: str
    gfx_arch_family: str
    gfx_arches: list[str]
    toc: dict[str, dict[str, TocEntry]]


class Toc(_RequiredOfToc, total=False):
    """A table of contents; the schemes add keys of their own."""

    format_version: int
    compression_scheme: str


def map_file(path: Path) -> memoryview:
    """Map a file read-only.

    The map lives as long as a view of it does; no file descriptor stays with the caller.

    Raises:
        FormatError: The file is empty.
        OSError: It cannot be opened or mapped.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError(path, "is empty", offset=0, expected="a kpack archive")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def pack_header(toc_offset: int, *, magic: bytes = MAGIC) -> bytes:
    """Return the header of an archive whose table is at the file offset `toc_offset`."""
    return _HEADER.pack(magic, FORMAT_VERSION, toc_offset)


def pack_toc(toc: Toc, scheme_keys: Mapping[str, object]) -> bytes:
    """Return the bytes of a table of contents, its keys in the order of ROCm's writer.

    Raises:
        ArchiveLimitError: The table is larger than a reader takes.
    """
    packed: bytes = msgpack.packb({**toc, **scheme_keys}, use_bin_type=True)
    if len(packed) > MAX_TOC_SIZE:
        raise ArchiveLimitError("table of contents", len(packed), MAX_TOC_SIZE, remedy=_SPLIT_REMEDY)
    return packed


def parse_toc(view: memoryview, path: Path) -> tuple[Toc, int]:
    """Parse header and table of an archive and check all types and bounds that no scheme decides.

    Args:
        view: The whole file.
        path: Its name, for errors.

    Returns:
        The table, with the keys of its scheme, and its file offset in bytes.

    Raises:
        FormatError: The file is no archive, or is damaged.
    """
    toc_offset = _parse_header(view, path)
    toc = _unpack(view[toc_offset:], toc_offset, path)
    _check_toc(toc, toc_offset, path)
    return cast("Toc", toc), toc_offset


def _parse_header(view: memoryview, path: Path) -> int:
    if len(view) < HEADER_SIZE:
        raise FormatError(
            path,
            "is too short for a kpack archive",
            offset=0,
            expected=f"{HEADER_SIZE} bytes",
            found=len(view),
        )
    magic, version, toc_offset = _HEADER.unpack_from(view)
    if magic not in (MAGIC, OWN_MAGIC):
        raise FormatError(path, "is no kpack archive: wrong magic", offset=0, expected=MAGIC, found=magic)
    if version != FORMAT_VERSION:
        raise FormatError(
            path,
            "has a version of the archive format that is not known",
            offset=4,
            expected=FORMAT_VERSION,
            found=version,
            remedy="read it with a newer kpack-build",
        )
    if not HEADER_SIZE <= toc_offset < len(view):
        raise FormatError(
            path,
            "the table of contents is outside of the file",
            offset=8,
            expected=f"an offset from {HEADER_SIZE} to {len(view) - 1}",
            found=toc_offset,
        )
    return int(toc_offset)


def _unpack(packed: memoryview, offset: int, path: Path) -> dict[str, object]:
    if len(packed) > MAX_TOC_SIZE:
        raise FormatError(
            path,
            "the table of contents is too large",
            offset=offset,
            expected=f"at most {MAX_TOC_SIZE} bytes",
            found=len(packed),
        )
    room = min(len(packed), MAX_KERNELS)
    try:
        toc = msgpack.unpackb(
            packed,
            max_str_len=_MAX_TEXT,
            max_bin_len=_MAX_TEXT,
            max_array_len=room,
            max_map_len=room,
            max_ext_len=0,
            object_pairs_hook=_unique,
        )
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise FormatError(
            path,
            f"the table of contents is not valid MessagePack: {error or type(error).__name__}",
            offset=offset,
        ) from error
    if not isinstance(toc, dict):
        raise FormatError(
            path, "the table of contents is no map", offset=offset, expected="a map", found=type(toc).__name__
        )
    return toc


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    # Readers differ in which of two equal keys they take.
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice in a map")
    return result


def _check_toc(toc: Mapping[str, object], offset: int, path: Path) -> None:
    version = toc.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise FormatError(
            path,
            "format_version in the table of contents is not known",
            offset=offset,
            expected=FORMAT_VERSION,
            found=version,
        )
    _require(toc.get("group_name"), str, "group_name", path)
    _require(toc.get("gfx_arch_family"), str, "gfx_arch_family", path)
    _require(toc.get("compression_scheme", ""), str, "compression_scheme", path)
    for arch in _require(toc.get("gfx_arches"), list, "gfx_arches", path):
        _require(arch, str, "gfx_arches", path)
    for binary, arches in _require(toc.get("toc"), dict, "toc", path).items():
        _require(binary, str, "toc", path)
        for arch, entry in _require(arches, dict, binary, path).items():
            _require(arch, str, binary, path)
            _check_entry(_require(entry, dict, binary, path), binary, arch, path)


def _check_entry(entry: Mapping[str, object], binary: str, arch: str, path: Path) -> None:
    if not (
        _is_number(entry.get("ordinal"))
        and _is_number(entry.get("original_size", 0))
        and isinstance(entry.get("type", ""), str)
        and isinstance(entry.get("metadata", {}), dict)
    ):
        raise FormatError(
            path,
            f"the entry of {binary}@{arch} has a wrong value",
            expected="ordinal, original_size: numbers, type: text, metadata: a map",
            found=repr(entry)[:_SHOWN],
        )


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _NUMBER_LIMIT


def _require(value: object, kind: type[_T], what: str, path: Path) -> _T:
    if not isinstance(value, kind):
        raise FormatError(
            path,
            f"the table of contents has a wrong type at {what}",
            expected=kind.__name__,
            found=type(value).__name__,
        )
    return value


def require_int(value: object, what: str, path: Path) -> int:
    """Return a number of the table of contents.

    Raises:
        FormatError: It is no integer, is negative, or is past any size of a file.
    """
    if not _is_number(value):
        raise FormatError(
            path,
            f"{what} is no size or number",
            expected="an integer that is not negative",
            found=repr(value),
        )
    return value


def check_range(offset: int, size: int, limit: int, what: str, path: Path) -> None:
    """Check that bytes named by the table of contents lie between the header and the end of the blob.

    Args:
        offset: File offset in bytes.
        size: Their number.
        limit: File offset of the end.
        what: What they are, for the error.
        path: The file, for the error.

    Raises:
        FormatError: They do not.
    """
    if offset < HEADER_SIZE or size > limit or offset > limit - size:
        raise FormatError(
            path,
            f"{what} is outside of the file's blob",
            offset=offset,
            expected=f"bytes from {HEADER_SIZE} to {limit}",
            found=f"{size} bytes at {offset}",
        )


def original_sizes(toc: Mapping[str, object], count: int, path: Path) -> array[int]:
    """Return the original size in bytes of each stored kernel, -1 where no entry tells it.

    Args:
        toc: A table of contents.
        count: How many kernels are stored.
        path: The archive, for errors.

    Raises:
        FormatError: An entry names a kernel that is not stored, two entries disagree about one, or the table
            is malformed.
    """
    try:
        return _original_sizes(cast("Toc", toc), count, path)
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise FormatError(path, f"the table of contents is malformed: {error!r}") from error


def _original_sizes(toc: Toc, count: int, path: Path) -> array[int]:
    sizes = array("q", [-1]) * count
    for binary, arches in toc["toc"].items():
        for arch, entry in arches.items():
            ordinal, size = entry["ordinal"], entry.get("original_size", -1)
            if not 0 <= ordinal < count:
                raise FormatError(
                    path,
                    f"the ordinal of {binary}@{arch} is not stored",
                    expected=f"less than {count}",
                    found=ordinal,
                )
            if size != sizes[ordinal] and -1 not in (size, sizes[ordinal]):
                raise FormatError(
                    path,
                    f"two entries disagree about the size of kernel {ordinal}",
                    expected=sizes[ordinal],
                    found=size,
                )
            sizes[ordinal] = max(size, sizes[ordinal])
    return sizes
