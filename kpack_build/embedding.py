"""Say what changes in a wheel that carries its archives: files, indexes, loaders, and how that is undone.

Everything that is added to a wheel is named here, and nothing of the wheel is overwritten but what the way
back is recorded for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.assembly import HomeRows, archive_rows
from kpack_build.config import Loader
from kpack_build.errors import WheelError
from kpack_build.index import INDEX_FORMAT, Index, WheelUndo, write_index
from kpack_build.injection import InjectionError, inject_loader_call
from kpack_build.layout import Home, group_name, index_path, kept_path
from kpack_build.loader import loader_files, loader_table
from kpack_build.wheel import Changes, plan_text_undo, record_undo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kpack_build.assembly import Packing
    from kpack_build.config import Config
    from kpack_build.wheel import Change, TextUndo, WheelContents

__all__ = ["Embedded", "embed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What changes in a wheel.

    Attributes:
        changes: The changes.
        sizes: Size in bytes of each new or replaced member.
        warnings: What the user should know, one sentence each.
    """

    changes: Changes
    sizes: Mapping[str, int]
    warnings: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Draft:
    files: dict[str, Change] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    edits: dict[str, TextUndo] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def embed(
    contents: WheelContents,
    packing: Packing,
    homes: Mapping[Home, HomeRows],
    config: Config,
    work: Path,
) -> Embedded:
    """Gather all changes of a wheel.

    Args:
        contents: The wheel.
        packing: Its finished archives.
        homes: What `convert_binaries` returned.
        config: What the project wants.
        work: The folder that holds converted binaries at their paths.

    Raises:
        WheelError: A new file would take the place of one of the wheel's own.
    """
    draft = _Draft()
    for packed in packing.archives:
        draft.files[packed.path] = packed.file
        draft.stored.add(packed.path)
    indexes: dict[str, Index] = {}
    for home, rows in homes.items():
        for binary in rows.binaries:
            draft.files[binary["path"]] = work / binary["path"]
        index = _index(contents, packing, home, rows, config)
        if home.is_package and config.loader is not Loader.NONE:
            _add_loader(contents, draft, home, index, config.loader)
        indexes[index_path(home, index["group"])] = index
        if rows.kept_file is not None:
            kept = kept_path(home, index["group"])
            draft.files[kept] = rows.kept_file
            draft.stored.add(kept)
    draft.warnings += _conversion_warnings(homes)
    _add_indexes(contents, draft, indexes)
    _check_new(contents, draft, [row["path"] for rows in homes.values() for row in rows.binaries])
    return Embedded(
        changes=Changes(
            files=draft.files,
            stored=frozenset(draft.stored),
            given=frozenset(path for path, change in draft.files.items() if isinstance(change, Path)),
        ),
        sizes={path: _size(change) for path, change in draft.files.items()},
        warnings=tuple(draft.warnings),
    )


def _conversion_warnings(homes: Mapping[Home, HomeRows]) -> Iterator[str]:
    """Say once for all binaries what their conversion had to give up."""
    paths: dict[str, list[str]] = defaultdict(list)
    for rows in homes.values():
        for binary in rows.binaries:
            for text in binary["restore"]["warnings"]:
                paths[text].append(binary["path"])
    for text, found in paths.items():
        yield f"{', '.join(found)}: {text}"


def _index(contents: WheelContents, packing: Packing, home: Home, rows: HomeRows, config: Config) -> Index:
    return Index(
        format=INDEX_FORMAT,
        group=group_name(contents.name, config.group, home),
        distribution=contents.name,
        version=contents.version,
        package=home.package,
        scheme=packing.archives[0].archive.compression_scheme,
        archives=archive_rows(packing, home),
        code_objects=rows.code_objects,
        kept=rows.kept,
        binaries=rows.binaries,
        restore=WheelUndo(files={}, added=[], record=None),
    )


def _add_loader(contents: WheelContents, draft: _Draft, home: Home, index: Index, loader: Loader) -> None:
    """Add the loader to a package, and its call to the package's source where the project wants that."""
    for name, data in loader_files(loader_table(index)).items():
        draft.files[f"{home.loader_folder}/{name}"] = data
    if loader is not Loader.INJECT:
        return
    try:
        original = _source(contents, home)
        changed = inject_loader_call(original)
    except InjectionError as error:
        draft.warnings.append(f"{home.init_path}: {error}")
        return
    if changed != original:
        draft.edits[home.init_path] = plan_text_undo(original, changed)
        draft.files[home.init_path] = changed


def _source(contents: WheelContents, home: Home) -> bytes:
    """Return the package's source, if it may be changed."""
    if contents.is_signed:
        raise InjectionError("RECORD is signed")
    if home.init_path not in {member.path for member in contents.members}:
        raise InjectionError("the package's __init__ is compiled")
    return contents.read(home.init_path)


def _add_indexes(contents: WheelContents, draft: _Draft, indexes: Mapping[str, Index]) -> None:
    """Serialise the indexes; the first one says how the wheel's other changes are undone."""
    first = next(iter(indexes.values()))
    present = {member.path for member in contents.members}
    added = [path for path in (*draft.files, *indexes) if path not in present]
    names: dict[str, Change] = dict.fromkeys((*draft.files, *indexes), b"")
    first["restore"] = WheelUndo(
        files=draft.edits,
        added=sorted(added),
        record=record_undo(contents, Changes(files=names)),
    )
    for path, index in indexes.items():
        draft.files[path] = write_index(index)


def _check_new(contents: WheelContents, draft: _Draft, replaced: Sequence[str]) -> None:
    allowed = {*replaced, *draft.edits}
    for member in contents.members:
        if member.path in draft.files and member.path not in allowed:
            raise WheelError(
                contents.path,
                f"its member {member.path} is in the way of a new file of that name",
                remedy="rename it, or choose another group",
            )


def _size(change: Change) -> int:
    return change.stat().st_size if isinstance(change, Path) else len(change)
