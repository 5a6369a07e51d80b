"""Wheels for the tests of `kpack_build.wheel`, sound ones and others, written with `zipfile`."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["INFO", "NAME", "RECORD_PATH", "WheelRecipe", "row", "sound_record"]

NAME = "thing-1.0-1-py2.py3-none-any.whl"
INFO = "thing-1.0.dist-info"
RECORD_PATH = f"{INFO}/RECORD"


def row(path: str, data: bytes, *, algorithm: str = "sha256") -> str:
    """Return a row of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()
    return f"{path},{algorithm}={digest},{len(data)}"


def sound_record(files: Mapping[str, bytes], *, newline: str = "\n", algorithm: str = "sha256") -> bytes:
    """Return the RECORD of some files."""
    rows = [row(path, data, algorithm=algorithm) for path, data in files.items()]
    return "".join(line + newline for line in [*rows, f"{RECORD_PATH},,"]).encode()


@dataclass(kw_only=True)
class WheelRecipe:
    """A wheel to be written.

    Attributes:
        files: Its files but those of the dist-info folder.
        info: Files of the dist-info folder.
        record: Its RECORD, by default a sound one; None leaves it out.
        modes: Mode bits of members, by default 0o100644.
        folders: Entries of folders, written first.
    """

    files: dict[str, bytes] = field(
        default_factory=lambda: {"pkg/__init__.py": b"x = 1\n", "pkg/ext.so": bytes(range(256)) * 40}
    )
    info: dict[str, bytes] = field(
        default_factory=lambda: {
            "METADATA": b"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n",
            "WHEEL": (
                b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\n"
                b"Build: 1\nTag: py2-none-any\nTag: py3-none-any\n"
            ),
        }
    )
    record: bytes | None = b"sound"
    modes: dict[str, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    def all_files(self) -> dict[str, bytes]:
        """Return all files by their path in the wheel."""
        files = {**self.files, **{f"{INFO}/{name}": data for name, data in self.info.items()}}
        if self.record is not None:
            files[RECORD_PATH] = sound_record(files) if self.record == b"sound" else self.record
        return files

    def write(self, folder: Path, *, name: str = NAME) -> Path:
        """Write the wheel file into a folder."""
        path = folder / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry in self.folders:
                archive.writestr(_info(entry, 0o40755), b"")
            for member, data in self.all_files().items():
                archive.writestr(_info(member, self.modes.get(member, 0o100644)), data)
        return path

    def write_tree(self, folder: Path) -> Path:
        """Write the files into a folder, which is made."""
        for member, data in self.all_files().items():
            file = folder / member
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(self.modes.get(member, 0o644) & 0o777)
        return folder


def _info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=(2020, 2, 3, 4, 5, 6))
    info.compress_type = zipfile.ZIP_STORED if name.endswith("/") else zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = mode << 16
    return info
