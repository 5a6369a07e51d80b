"""`kpack-build inspect`: show what is in a path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kpack_build.cli.command import ExitCode, add_source
from kpack_build.cli.output import Column, Table, plural, size_text
from kpack_build.inspection import inspect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kpack_build.cli.output import Console
    from kpack_build.codeobject import Kernel
    from kpack_build.inventory import BinaryInfo, BundleInfo, EntryInfo, Inspection, StoredInfo

__all__ = ["DESCRIPTION", "EXAMPLES", "add_options", "run"]

DESCRIPTION = """\
Show what is in a wheel, an unpacked wheel, any folder, a library or executable, a .kpack archive, or a file
of code objects (.hsaco, .co; bare or a bundle): for each binary its state, wrappers and bundles, and for
each code object its target, family and size. Files are told by their content, not by their name. Headers
alone are read, unless --kernels asks for the kernels. A converted binary is shown with what its archives
have for it."""

EXAMPLES = """\
  kpack-build inspect dist/foo-1.0-cp311-cp311-linux_x86_64.whl
  kpack-build inspect foo/_ext.cpython-311-x86_64-linux-gnu.so --kernels
  kpack-build inspect foo/.kpack/foo-gfx110x.kpack
  kpack-build inspect site-packages/foo --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's own arguments."""
    add_source(parser, "PATH", "what to look into")
    parser.add_argument(
        "--kernels", action="store_true", help="show kernels with their resources (reads all code)"
    )


def run(arguments: argparse.Namespace, console: Console) -> ExitCode:
    """Inspect."""
    found = inspect(arguments.source, kernels=arguments.kernels)
    console.result(found.to_json())
    if not console.options.quiet:
        console.line(_headline(found))
        console.line("")
    objects = list(_objects(found))
    console.table(_binary_table(found))
    console.table(_archive_table(found))
    console.table(_object_table(objects))
    console.table(_target_table(objects))
    console.table(_kernel_table(objects))
    for text in _notes(found):
        console.note(text)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """A code object as the tables show it: whose it is, where it lies, and what it is."""

    owner: str
    number: str
    place: str
    target: str
    family: str
    size: int
    stored_size: int | None
    kernels: tuple[Kernel, ...]


def _headline(found: Inspection) -> str:
    name = f", {found.distribution} {found.version}" if found.distribution else ""
    return f"{found.path}: {found.kind.value}{name}, {plural(found.files, 'file')}, {size_text(found.size)}"


def _objects(found: Inspection) -> Iterator[_Object]:
    for binary in found.binaries:
        yield from _binary_objects(binary)
    for loose in found.loose:
        if loose.code_object is not None:
            yield _entry_object(loose.path, "", "code object", loose.code_object)
        for number, bundle in enumerate(loose.bundles):
            yield from _bundle_objects(loose.path, str(number), bundle)
    covered = {
        (answer.archive, answer.key)
        for binary in found.binaries
        for wrapper in binary.wrappers
        for answer in wrapper.answers
    }
    for archive in found.archives:
        for entry in archive.entries:
            if (archive.path, entry.key) not in covered:
                yield _stored_object(entry.key, "", entry)


def _binary_objects(binary: BinaryInfo) -> Iterator[_Object]:
    for wrapper in binary.wrappers:
        if wrapper.bundle is not None and wrapper.bundle < len(binary.bundles):
            yield from _bundle_objects(binary.path, str(wrapper.index), binary.bundles[wrapper.bundle])
        for answer in wrapper.answers:
            yield _stored_object(binary.path, str(wrapper.index), answer)


def _bundle_objects(owner: str, number: str, bundle: BundleInfo) -> Iterator[_Object]:
    for entry in bundle.entries:
        if entry.kind != "host":
            yield _entry_object(owner, number, f"{bundle.encoding} at {bundle.offset:#x}", entry)


def _entry_object(owner: str, number: str, place: str, entry: EntryInfo) -> _Object:
    return _Object(
        owner=owner,
        number=number,
        place=place,
        target=entry.target or entry.id,
        family=entry.family or "",
        size=entry.size,
        stored_size=None,
        kernels=entry.kernels or (),
    )


def _stored_object(owner: str, number: str, entry: StoredInfo) -> _Object:
    return _Object(
        owner=owner,
        number=number,
        place=f"{PurePosixPath(entry.archive).name} #{entry.ordinal}",
        target=entry.target,
        family=entry.family,
        size=entry.size,
        stored_size=entry.stored_size,
        kernels=entry.kernels or (),
    )


def _binary_table(found: Inspection) -> Table:
    """Show the binaries with device code; of a single file, that one in any case."""
    shown = [
        binary for binary in found.binaries if binary.wrappers or binary.device_bytes or found.files == 1
    ]
    return Table(
        title="binaries",
        columns=(
            *(Column("binary"), Column("state"), Column("machine"), Column("wrappers", right=True)),
            *(Column("bundles"), Column("targets", right=True), Column("device code", right=True)),
            Column("size", right=True),
        ),
        rows=[
            (
                binary.path,
                binary.state,
                binary.machine,
                str(len(binary.wrappers)),
                _bundles_text(binary),
                str(len({found.target for found in _binary_objects(binary)})),
                size_text(binary.device_bytes),
                size_text(binary.size),
            )
            for binary in shown
        ],
    )


def _bundles_text(binary: BinaryInfo) -> str:
    encodings = sorted({bundle.encoding for bundle in binary.bundles})
    return f"{len(binary.bundles)} {', '.join(encodings)}" if encodings else ""


def _archive_table(found: Inspection) -> Table:
    return Table(
        title="archives",
        columns=(
            *(Column("archive"), Column("group"), Column("family"), Column("scheme")),
            *(Column("targets", right=True), Column("entries", right=True)),
            *(Column("code objects", right=True), Column("size", right=True)),
        ),
        rows=[
            (
                archive.path,
                archive.group,
                archive.family,
                archive.scheme,
                str(len(archive.targets)),
                str(len(archive.entries)),
                str(len({entry.ordinal for entry in archive.entries})),
                size_text(archive.size),
            )
            for archive in found.archives
        ],
    )


def _object_table(objects: list[_Object]) -> Table:
    return Table(
        title="code objects",
        columns=(
            *(Column("binary"), Column("wrapper", right=True), Column("stored in"), Column("target")),
            *(Column("family"), Column("size", right=True), Column("stored", right=True)),
        ),
        rows=[
            (
                *(found.owner, found.number, found.place, found.target, found.family),
                size_text(found.size),
                "" if found.stored_size is None else size_text(found.stored_size),
            )
            for found in objects
        ],
    )


def _target_table(objects: list[_Object]) -> Table:
    """Sum up by target, for what has more than one binary or wrapper."""
    sums: dict[tuple[str, str], list[int]] = {}
    for found in objects:
        sums.setdefault((found.family, found.target), []).append(found.size)
    return Table(
        title="targets",
        columns=(
            *(Column("family"), Column("target"), Column("code objects", right=True)),
            Column("size", right=True),
        ),
        rows=[
            (family, target, str(len(sizes)), size_text(sum(sizes)))
            for (family, target), sizes in sorted(sums.items())
        ]
        if len(sums) < len(objects)
        else [],
    )


def _kernel_table(objects: list[_Object]) -> Table:
    return Table(
        title="kernels",
        columns=(
            *(Column("binary"), Column("wrapper", right=True), Column("target"), Column("kernel")),
            *(Column(title, right=True) for title in ("VGPRs", "AGPRs", "SGPRs", "LDS", "scratch")),
            *(Column(title, right=True) for title in ("arguments", "wave", "work-group")),
        ),
        rows=[
            (
                *(found.owner, found.number, found.target, kernel.name),
                *(str(kernel.vgprs), str(kernel.agprs), str(kernel.sgprs)),
                *(str(kernel.lds_bytes), str(kernel.scratch_bytes), str(kernel.kernarg_bytes)),
                *(str(kernel.wavefront_size), str(kernel.max_workgroup_size)),
            )
            for found in objects
            for kernel in found.kernels
        ],
    )


def _notes(found: Inspection) -> Iterator[str]:
    plain = sum(not binary.wrappers and not binary.device_bytes for binary in found.binaries)
    if plain and found.files > 1:
        yield f"{plural(plain, 'binary')} without device code"
    for binary in found.binaries:
        if binary.refusals:
            yield f"{binary.path} cannot be converted: {'; '.join(binary.refusals)}"
        for path in binary.missing:
            yield f"{binary.path} looks for {path}, which is not there"
    for damaged in found.damaged:
        yield f"{damaged.path} is damaged: {damaged.problem}"
    if not (found.binaries or found.archives or found.loose or found.damaged):
        yield "nothing that holds device code"
