"""Give back the wheel that was packed: fat binaries, texts, RECORD, and nothing that was added.

The result equals the original member by member, bit for bit. Binaries whose bundles were compressed (CCOB)
hold equal code objects under equal ids in equal order instead, where that compression cannot be repeated.
"""

from __future__ import annotations

import hashlib
import posixpath
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.archive import PackedKernelArchive
from kpack_build.errors import FormatError, RestorationError, WheelError
from kpack_build.hostbinary import restore as restore_binary
from kpack_build.index import parse_index
from kpack_build.layout import ARCHIVE_FOLDER, toc_key
from kpack_build.outputs import output_folder, result_path
from kpack_build.progress import SilentProgress
from kpack_build.report import RestoreReport
from kpack_build.wheel import (
    Changes,
    apply_record_undo,
    apply_text_undo,
    check_destination,
    open_wheel,
    write_contents,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpack_build.index import Index
    from kpack_build.progress import Progress
    from kpack_build.wheel import Change, WheelContents

__all__ = ["iter_indexes", "restore"]


def restore(wheel: Path, output_dir: Path, *, progress: Progress | None = None) -> RestoreReport:
    """Write the original of a packed wheel, or of its unpacked tree.

    Args:
        wheel: The packed wheel.
        output_dir: Folder of the result, which has the same name; it is made where it is missing.
        progress: Is told how far the work is, in bytes.

    Returns:
        What was written, and which binaries are the original ones bit for bit.

    Raises:
        WheelError: The wheel was not packed by kpack-build, or was changed since.
        RestorationError: A binary or a code object is not what the index says.
        FormatError: A file is damaged.
    """
    progress = progress or SilentProgress()
    destination = result_path(output_dir, wheel)
    check_destination(wheel, destination)
    with open_wheel(wheel) as contents, ExitStack() as stack:
        indexes = dict(iter_indexes(contents))
        if not indexes:
            raise WheelError(
                wheel, "there is no index of kpack-build in it", remedy="restore a wheel that it packed"
            )
        stack.enter_context(output_folder(output_dir))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".kpack-build-", dir=output_dir)))
        exact: dict[str, bool] = {}
        progress.start("restoring binaries", _restored_size(indexes))
        for path, index in indexes.items():
            exact.update(_restore_home(contents, path, index, work, progress))
        progress.finish()
        files: dict[str, Change] = {path: work / path for path in exact}
        write_contents(contents, _undo(contents, indexes, files), destination)
    return RestoreReport(
        source=wheel,
        output=destination,
        exact=tuple(path for path, equal in exact.items() if equal),
        recompressed=tuple(path for path, equal in exact.items() if not equal),
    )


def _restored_size(indexes: dict[str, Index]) -> int:
    """Return how much is going to be written. Records are checked when they are used: here they may lie."""
    sizes: list[object] = [
        binary["restore"].get("size") for index in indexes.values() for binary in index["binaries"]
    ]
    return sum(size for size in sizes if isinstance(size, int))


def iter_indexes(contents: WheelContents) -> Iterator[tuple[str, Index]]:
    """Iterate over the indexes of a wheel and their paths in it.

    Raises:
        FormatError: One is damaged.
    """
    for member in contents.members:
        folder, name = posixpath.split(member.path)
        if posixpath.basename(folder) == ARCHIVE_FOLDER and name.endswith(".json"):
            yield member.path, parse_index(contents.read(member.path), contents.path / member.path)


class _CodeObjects:
    """The code objects and the kept bundles of a home, by their numbers in its index."""

    def __init__(
        self, index: Index, archives: list[PackedKernelArchive], kept: Path | None, source: Path
    ) -> None:
        self._rows = index["code_objects"]
        self._kept_rows = index["kept"]
        self._kept = kept
        self._archives = archives
        self._source = source
        self._keys = {
            number: (toc_key(binary["kernel_name"], wrapper), target)
            for binary in index["binaries"]
            for wrapper, answers in enumerate(binary["wrappers"])
            for target, number in answers.items()
        }

    def fetch(self, number: int) -> bytes | memoryview:
        """Return the bytes of a code object or a kept bundle.

        Raises:
            FormatError: It is not there, or is another one.
        """
        if number >= len(self._rows):
            return self._fetch_kept(number - len(self._rows))
        try:
            row = self._rows[number]
            archive = self._archives[row["archive"]]
            data = archive.get_kernel(*self._keys[number])
        except (LookupError, TypeError) as error:
            raise FormatError(
                self._source, "the index names a code object that it does not describe", found=number
            ) from error
        if data is None or hashlib.sha256(data).hexdigest() != row["sha256"]:
            raise FormatError(
                self._source,
                f"code object {number} ({row['target']}) in its archives is not the one of the index",
                expected=row["sha256"],
            )
        return data

    def _fetch_kept(self, number: int) -> bytes:
        try:
            row = self._kept_rows[number]
        except IndexError as error:
            raise FormatError(self._source, "the index names a bundle that it does not describe") from error
        data = b""
        if self._kept is not None:
            with self._kept.open("rb") as stream:
                stream.seek(row["offset"])
                data = stream.read(row["size"])
        if hashlib.sha256(data).hexdigest() != row["sha256"]:
            raise FormatError(
                self._source, f"kept bundle {number} is not the one of the index", expected=row["sha256"]
            )
        return data


def _restore_home(
    contents: WheelContents, path: str, index: Index, work: Path, progress: Progress
) -> dict[str, bool]:
    """Restore the binaries of a home into a folder, and tell of each whether it is the original's bytes."""
    folder = posixpath.dirname(path)
    with ExitStack() as stack:
        archives = [
            stack.enter_context(
                PackedKernelArchive.read(contents.materialise(posixpath.join(folder, row["file"])))
            )
            for row in index["archives"]
        ]
        kept = posixpath.join(folder, f"{index['group']}.ccob")
        objects = _CodeObjects(
            index, archives, contents.materialise(kept) if index["kept"] else None, contents.path / path
        )
        exact: dict[str, bool] = {}
        for binary in index["binaries"]:
            host = contents.materialise(binary["path"])
            fat = work / binary["path"]
            fat.parent.mkdir(parents=True, exist_ok=True)
            try:
                exact[binary["path"]] = restore_binary(host, binary["restore"], objects.fetch, fat)
            except RestorationError as error:
                raise RestorationError(contents.path / binary["path"], error.reasons) from error
            progress.advance(fat.stat().st_size)
    return exact


def _undo(contents: WheelContents, indexes: dict[str, Index], files: dict[str, Change]) -> Changes:
    removed: set[str] = set()
    record: bytes | None = None
    for index in indexes.values():
        undo = index["restore"]
        removed.update(undo["added"])
        for path, edit in undo["files"].items():
            files[path] = apply_text_undo(contents.read(path), edit, path=contents.path / path)
        if undo["record"] is not None:
            packed = contents.read(contents.record.own_path)
            record = apply_record_undo(packed, undo["record"], path=contents.path)
    given = frozenset(path for path, change in files.items() if isinstance(change, Path))
    return Changes(files=files, removed=frozenset(removed), given=given, record=record)
