"""Wheels: opening, checking, changing and writing them, as files or as folders of their unpacked files.

Follows PyPA's binary distribution format (file names, RECORD, WHEEL) and PKWARE's APPNOTE for zip files. A
source is never changed; results appear whole or not at all, and are the same bytes for the same input.
Nothing here knows what kpack is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_build.errors import WheelError
from kpack_build.wheel.changes import Change, Changes, record_undo
from kpack_build.wheel.contents import Member, WheelContents
from kpack_build.wheel.names import WheelName, parse_wheel_name
from kpack_build.wheel.record import Record, RecordRow, RecordUndo, RowFacts, apply_record_undo
from kpack_build.wheel.textedit import TextUndo, apply_text_undo, plan_text_undo
from kpack_build.wheel.tree import TreeContents
from kpack_build.wheel.writer import (
    Written,
    check_destination,
    copy_contents,
    write_contents,
    write_tree,
    write_wheel,
)
from kpack_build.wheel.zipcontents import ZipContents

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Change",
    "Changes",
    "Member",
    "Record",
    "RecordRow",
    "RecordUndo",
    "RowFacts",
    "TextUndo",
    "TreeContents",
    "WheelContents",
    "WheelName",
    "Written",
    "ZipContents",
    "apply_record_undo",
    "apply_text_undo",
    "check_destination",
    "copy_contents",
    "open_wheel",
    "parse_wheel_name",
    "plan_text_undo",
    "record_undo",
    "write_contents",
    "write_tree",
    "write_wheel",
]


def open_wheel(path: Path) -> ZipContents | TreeContents:
    """Open a wheel file, or the folder of its unpacked files.

    Args:
        path: The file or folder.

    Returns:
        Its contents; a context manager. Structure is checked now, hashes when `check` is called.

    Raises:
        WheelError: It is no sound wheel, or is not there.
        FormatError: The file is damaged.
    """
    if path.is_dir():
        return TreeContents(path)
    if not path.is_file():
        raise WheelError(path, "there is no such file or folder", remedy="check the path")
    return ZipContents(path)
