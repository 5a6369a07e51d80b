"""Small wheels with given files, for tests."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["FILE_NAME", "record_of", "write_tree_of_wheel", "write_wheel_file"]

FILE_NAME = "thing-1.0-py3-none-any.whl"
_INFO = "thing-1.0.dist-info"
_METADATA = b"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"
_WHEEL = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-any\n"


def record_of(files: Mapping[str, bytes]) -> bytes:
    """Return the RECORD of some files, with its own row."""
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    return ("\n".join([*rows, f"{_INFO}/RECORD,,"]) + "\n").encode()


def _all_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    content = {**files, f"{_INFO}/METADATA": _METADATA, f"{_INFO}/WHEEL": _WHEEL}
    return {**content, f"{_INFO}/RECORD": record_of(content)}


def write_wheel_file(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a wheel of some files into a folder."""
    wheel = folder / FILE_NAME
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _all_files(files).items():
            archive.writestr(name, data)
    return wheel


def write_tree_of_wheel(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the unpacked tree of a wheel of some files to a folder."""
    for name, data in _all_files(files).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder
