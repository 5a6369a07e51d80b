"""Put together what the loader knows: GPUs, archives, which serves which, and what a user should be told.

Nothing is changed here, and nothing is kept. Sentences for users are built by `_messages`.
"""

from __future__ import annotations

import os

from . import _table
from ._locations import archive_path, is_installed, package_folder
from ._record import Record
from ._serving import binaries_without, find_service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._gpus import Gpu, Machine
    from ._serving import Service

__all__ = [
    "DAMAGED",
    "MISSING",
    "PRESENT",
    "READER_VARIABLES",
    "ArchiveStatus",
    "GpuStatus",
    "Status",
    "make_status",
]

#: States of an archive: as it was packed; not there; there with another size.
PRESENT, MISSING, DAMAGED = "present", "missing", "damaged"

#: What ROCm's reader of archives takes from the environment.
READER_VARIABLES = ("ROCM_KPACK_DISABLE", "ROCM_KPACK_PATH", "ROCM_KPACK_PATH_PREFIX")


class ArchiveStatus(Record):
    """One archive of the package.

    Attributes:
        file: Its name.
        path: Where it is, or should be.
        family: Which family of targets it holds.
        targets: The targets that it lists.
        state: `PRESENT`, `MISSING` or `DAMAGED`.
    """

    __slots__ = ("family", "file", "path", "state", "targets")

    def __init__(self, file: str, path: str, family: str, targets: tuple[str, ...], state: str) -> None:
        self.file = file
        self.path = path
        self.family = family
        self.targets = targets
        self.state = state


class GpuStatus(Record):
    """One GPU and what serves it.

    Attributes:
        gpu: The GPU.
        archive: Name of the archive that has its code, or None.
        path: Where that archive is, or should be.
        targets: The listed targets that can answer.
        processor: The processor under which they are listed: the GPU's own, or a generic one.
        reason: Why nothing serves it, or None.
        condition: Features that the GPU must have, as "xnack+"; empty for most.
        without_code: Paths in the package of the binaries that have no code for it.
    """

    __slots__ = (
        "archive",
        "condition",
        "gpu",
        "path",
        "processor",
        "reason",
        "targets",
        "without_code",
    )

    def __init__(self, gpu: Gpu, service: Service | None, archive: ArchiveStatus | None) -> None:
        self.gpu = gpu
        self.archive = archive.file if archive else None
        self.path = archive.path if archive else None
        self.processor = service.processor if service else None
        self.targets = service.targets if service else ()
        self.condition = service.condition if service else ""
        self.without_code = binaries_without(self.targets) if service else ()
        self.reason = _reason(gpu, archive)

    @property
    def is_served(self) -> bool:
        """Whether there is code for this GPU, and its archive is there."""
        return self.reason is None


def _reason(gpu: Gpu, archive: ArchiveStatus | None) -> str | None:
    if gpu.target is None:
        return "its target is not known"
    if archive is None:
        return "no archive of this package has code for it"
    if archive.state == MISSING:
        return "its archive is missing"
    return "its archive has the wrong size" if archive.state == DAMAGED else None


class Status(Record):
    """All that the loader knows.

    Attributes:
        distribution: The distribution that brought the package.
        version: Its version.
        package: The package's import name.
        folder: The package's folder.
        state: Whether GPUs were "found", there are "none", or it is "unknown".
        gpus: The GPUs and what serves each.
        archives: The package's archives.
        notes: What a reader should know, one sentence each.
        warnings: What is wrong, one sentence each; they were also given as Python warnings.
        search_prefix: Archives that were added to `ROCM_KPACK_PATH_PREFIX` of this process and its children.
        topology_root: The folder from which the GPUs were read.
    """

    __slots__ = (
        "archives",
        "distribution",
        "folder",
        "gpus",
        "notes",
        "package",
        "search_prefix",
        "state",
        "topology_root",
        "version",
        "warnings",
    )

    def __init__(self, machine: Machine, folder: str, archives: tuple[ArchiveStatus, ...]) -> None:
        self.distribution = _table.DISTRIBUTION
        self.version = _table.VERSION
        self.package = _table.PACKAGE
        self.folder = folder
        self.state = machine.state
        self.archives = archives
        self.gpus = tuple(_serve(gpu, archives) for gpu in machine.gpus)
        self.notes = machine.notes + _reader_notes(os.environ)
        self.warnings: tuple[str, ...] = ()
        self.search_prefix: tuple[str, ...] = ()
        self.topology_root = machine.topology_root


def _reader_notes(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Note the variables that change where ROCm's reader looks."""
    return tuple(f"{name}={variables[name]} is set" for name in READER_VARIABLES if variables.get(name))


def make_status(machine: Machine, folder: str | None = None) -> Status:
    """Work out what serves each GPU of a machine.

    Args:
        machine: The machine.
        folder: The package's folder; by default the one that this loader lies in.
    """
    place = package_folder() if folder is None else folder
    status = Status(machine, place, _find_archives(place))
    processors = {row.processor for row in status.gpus}
    if len(processors) > 1 or not all(row.is_served for row in status.gpus):
        from ._messages import make_warnings  # noqa: PLC0415 - mostly nothing is wrong

        status.warnings = make_warnings(status)
    return status


def _find_archives(folder: str) -> tuple[ArchiveStatus, ...]:
    installed = is_installed(folder)
    found = []
    for file, _, size, family, targets in _table.ARCHIVES:
        path = archive_path(folder, file)
        # Nothing can be said of a package that is imported from a zip file.
        state = _archive_state(path, size) if installed else PRESENT
        found.append(ArchiveStatus(file, path, family, targets, state))
    return tuple(found)


def _archive_state(path: str, size: int) -> str:
    try:
        return PRESENT if os.stat(path).st_size == size else DAMAGED
    except OSError:
        return MISSING


def _serve(gpu: Gpu, archives: tuple[ArchiveStatus, ...]) -> GpuStatus:
    """Find what serves a GPU; ROCm's reader passes over an archive that is missing."""
    service = None
    if gpu.target is not None:
        present = [number for number, archive in enumerate(archives) if archive.state != MISSING]
        service = find_service(gpu.target, present) or find_service(gpu.target, range(len(archives)))
    return GpuStatus(gpu, service, archives[service.archive] if service else None)
