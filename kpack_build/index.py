"""The index of a home: what was packed, where it lies, and how the original comes back.

It is the file `<package>/.kpack/<group>.json`, for people and for tools; the import-time loader has the same
facts as a generated Python module. Its paths are paths in the wheel; sizes and offsets are bytes. Restore
records of binaries are made and read by `kpack_build.hostbinary`, those of texts by `kpack_build.wheel`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypedDict, cast

from kpack_build.errors import FormatError, PathLike
from kpack_build.shapes import MapOf, Shape, check_naturals, check_shape

if TYPE_CHECKING:
    from kpack_build.hostbinary import ConversionRecord
    from kpack_build.wheel import RecordUndo, TextUndo

__all__ = [
    "INDEX_FORMAT",
    "ArchiveRow",
    "BinaryRow",
    "CodeObjectRow",
    "Index",
    "KeptRow",
    "WheelUndo",
    "parse_index",
    "write_index",
]

INDEX_FORMAT: Final = 1
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False)
_SHAPE: Shape = {
    "group": str,
    "distribution": str,
    "version": str,
    "package": (str, type(None)),
    "scheme": str,
    "archives": [{"file": str, "sha256": str, "size": int, "family": str, "targets": [str]}],
    "code_objects": [
        {"archive": int, "offset": int, "stored_size": int, "size": int, "target": str, "sha256": str}
    ],
    "kept": [{"offset": int, "size": int, "sha256": str}],
    "binaries": [
        {
            "path": str,
            "kernel_name": str,
            "hip_library": (str, type(None)),
            "wrappers": [MapOf(int)],
            "restore": MapOf(object),
        }
    ],
    "restore": {"files": MapOf(dict), "added": [str], "record": (dict, type(None))},
}


class ArchiveRow(TypedDict):
    """One archive: file name beside the index, size in bytes, family, and the targets that it lists."""

    file: str
    sha256: str
    size: int
    family: str
    targets: list[str]


class CodeObjectRow(TypedDict):
    """One stored code object: its archive's number, file offset and stored size there, and what it is."""

    archive: int
    offset: int
    stored_size: int
    size: int
    target: str
    sha256: str


class KeptRow(TypedDict):
    """The stored bytes of a compressed bundle, kept in the file `<group>.ccob`: offset and size there."""

    offset: int
    size: int
    sha256: str


class BinaryRow(TypedDict):
    """One converted binary.

    `wrappers` has, for each wrapper, the number of the code object that answers each listed target.
    """

    path: str
    kernel_name: str
    hip_library: str | None
    wrappers: list[dict[str, int]]
    restore: ConversionRecord


class WheelUndo(TypedDict):
    """What else of the wheel was changed: texts, added members, and RECORD (in one index of a wheel)."""

    files: dict[str, TextUndo]
    added: list[str]
    record: RecordUndo | None


class Index(TypedDict):
    """The whole index. Restore records number its code objects first, the kept bundles after them."""

    format: int
    group: str
    distribution: str
    version: str
    package: str | None
    scheme: str
    archives: list[ArchiveRow]
    code_objects: list[CodeObjectRow]
    kept: list[KeptRow]
    binaries: list[BinaryRow]
    restore: WheelUndo


def write_index(index: Index) -> bytes:
    """Serialise an index: readable, with a row on each line, and the same bytes for the same content."""
    return (_encode(index, "\n") + "\n").encode()


def _encode(value: object, newline: str) -> str:
    """Return a value as JSON: what holds nothing but plain values on one line, all else item by item.

    Rows are encoded by json's own encoder in C, which is many times faster than its indenting one.
    """
    inner = newline + " "
    if isinstance(value, dict) and any(map(_is_nested, value.values())):
        items = [f"{_PLAIN.encode(key)}: {_encode(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{newline}}}"
    if isinstance(value, list) and any(map(_is_nested, value)):
        items = [_encode(item, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{newline}]"
    return _PLAIN.encode(value)


def _is_nested(value: object) -> bool:
    return isinstance(value, (dict, list)) and bool(value)


def parse_index(data: bytes, path: PathLike) -> Index:
    """Parse an index.

    Args:
        data: The file's bytes.
        path: Its name, for errors.

    Raises:
        FormatError: The bytes are no index of a known format.
    """
    try:
        index = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, "the index is no JSON", found=str(error)) from error
    check_shape(index, {"format": int}, path)
    if index["format"] != INDEX_FORMAT:
        raise FormatError(
            path,
            "the index has another format",
            expected=INDEX_FORMAT,
            found=index["format"],
            remedy="use the kpack-build that packed the wheel",
        )
    check_shape(index, _SHAPE, path)
    check_naturals(index, path)
    _check_numbers(cast("Index", index), path)
    return cast("Index", index)


def _check_numbers(index: Index, path: PathLike) -> None:
    """Check that the numbers of archives and code objects are those of rows that are there."""
    used = {row["archive"] for row in index["code_objects"]}
    if not used <= set(range(len(index["archives"]))):
        raise FormatError(
            path, "a code object lies in an archive that the index does not have", found=max(used)
        )
    answers = {
        number for row in index["binaries"] for wrapper in row["wrappers"] for number in wrapper.values()
    }
    if not answers <= set(range(len(index["code_objects"]))):
        raise FormatError(path, "a wrapper's answer is no code object of the index", found=max(answers))
