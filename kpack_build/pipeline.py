"""A wheel in, a wheel out: scan, extract, pack, convert, report.

The source is a wheel file or its unpacked tree, and is never changed. The result appears at its destination
whole or not at all; the same source and configuration give the same bytes, whatever the number of workers.
A wheel without device code passes through byte for byte. What cannot be converted safely stays as it was, and
the report says why.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpack_build.archive import PackedKernelArchive
from kpack_build.assembly import PackedArchive, Packing, convert_binaries, packed_archive
from kpack_build.assignment import ArchivePlan, ObjectKey, is_wanted, plan_archives
from kpack_build.compression import create_compressor
from kpack_build.embedding import embed
from kpack_build.errors import ConfigError, ConversionError, MissingDeviceCodeError
from kpack_build.extraction import UnsafeBinaries, extract
from kpack_build.layout import group_name, index_path
from kpack_build.outputs import output_folder, result_path
from kpack_build.progress import SilentProgress
from kpack_build.report import Outcome, PackReport
from kpack_build.reporting import describe, describe_untouched
from kpack_build.scan import Scan, scan_wheel
from kpack_build.wheel import WheelContents, check_destination, copy_contents, open_wheel, write_contents

if TYPE_CHECKING:
    from kpack_build.config import Config
    from kpack_build.progress import Progress

__all__ = ["pack"]

_PACKED_BEFORE = "its package was packed before, and it was kept then or came later"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One run over an open wheel."""

    contents: WheelContents
    scan: Scan
    config: Config
    destination: Path
    progress: Progress

    @property
    def workers(self) -> int:
        return self.config.workers or len(os.sched_getaffinity(0))

    @property
    def wanted(self) -> frozenset[str] | None:
        return None if self.config.targets is None else frozenset(self.config.targets)


def pack(source: Path, output_dir: Path, config: Config, *, progress: Progress | None = None) -> PackReport:
    """Pack the device code of a wheel, or of its unpacked tree, into archives inside it.

    Args:
        source: A `.whl` file, or a folder with the files of one wheel.
        output_dir: Folder of the result, which has the source's name; it is made where it is missing.
        config: What to do.
        progress: Is told how far the work is.

    Returns:
        What was done, for each binary and archive.

    Raises:
        WheelError: The source is no sound wheel, or the result would be in its place.
        ConversionError: A binary cannot be converted, and `config.strict` is set.
        MissingDeviceCodeError: There is none, and `config.require_device_code` is set.
        ConfigError: The scheme is none that ROCm reads.
    """
    _check_scheme(config)
    destination = result_path(output_dir, source)
    check_destination(source, destination)
    with open_wheel(source) as contents, scan_wheel(contents) as scan:
        job = _Job(
            contents=contents,
            scan=scan,
            config=config,
            destination=destination,
            progress=progress or SilentProgress(),
        )
        return _run(job)


def _check_scheme(config: Config) -> None:
    if not create_compressor(config.scheme, level=config.level).READ_BY_ROCM:
        raise ConfigError(
            "scheme",
            f"{config.scheme} is not read by ROCm's runtimes, which converted binaries depend on",
            allowed="zstd-per-kernel, none",
        )


def _run(job: _Job) -> PackReport:
    """Pack, and start over without the binaries that turn out to be unsafe while decoding."""
    _set_aside_packed_homes(job)
    while True:
        outcome = _outcome(job)
        _enforce(job, outcome)
        with output_folder(job.destination.parent):
            if outcome is not Outcome.DONE:
                written = copy_contents(job.contents, job.destination)
                return describe_untouched(job.contents, job.scan, written, outcome, job.config.scheme)
            try:
                return _pack_once(job)
            except UnsafeBinaries as unsafe:
                for path, reasons in unsafe.reasons.items():
                    job.scan.keep(path, reasons)


def _outcome(job: _Job) -> Outcome:
    if not job.scan.fat:
        return Outcome.NOTHING_TO_DO
    wanted = any(
        entry.target is not None and is_wanted(entry.target, job.wanted)
        for scanned in job.scan.fat
        for _, _, entry in scanned.code_objects()
    )
    return Outcome.DONE if wanted else Outcome.NOTHING_WANTED


def _set_aside_packed_homes(job: _Job) -> None:
    """Keep what is still fat where an earlier run put its index, so that a second run changes nothing."""
    members = {member.path for member in job.contents.members}
    for scanned in list(job.scan.fat):
        group = group_name(job.contents.name, job.config.group, scanned.home)
        if index_path(scanned.home, group) in members:
            job.scan.keep(scanned.path, (_PACKED_BEFORE,))


def _enforce(job: _Job, outcome: Outcome) -> None:
    """Raise where the configuration does not allow what was found."""
    if job.config.strict:
        for kept in job.scan.kept:
            raise ConversionError(job.contents.path / kept.path, kept.reasons)
    if not job.config.require_device_code or outcome is Outcome.DONE or job.scan.converted:
        return
    if outcome is Outcome.NOTHING_WANTED:
        wanted = ", ".join(sorted(job.wanted or ()))
        raise MissingDeviceCodeError(job.contents.path, f"there is no device code for {wanted}")
    raise MissingDeviceCodeError(job.contents.path, "there is no device code that can be packed")


def _pack_once(job: _Job) -> PackReport:
    binaries = list(job.scan.fat)
    plan = plan_archives(binaries, group_by=job.config.group_by, wanted=job.wanted)
    total = sum(
        entry.size
        for scanned in binaries
        for bundle, number, entry in scanned.code_objects()
        if ObjectKey(scanned.path, bundle, number) in plan.placements
    )
    with ExitStack() as stack:
        work = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix=".kpack-build-", dir=job.destination.parent)
            )
        )
        archives = [_create_archive(job, stack, planned, work) for planned in plan.archives]
        job.progress.start("packing device code", total)
        stored = extract(
            binaries,
            plan,
            [packed.archive for packed in archives],
            workers=job.workers,
            progress=job.progress,
        )
        job.progress.finish()
        for packed in archives:
            packed.archive.finalize_archive(sync=False)
        return _write(job, Packing(plan=plan, archives=archives, stored=stored), work)


def _create_archive(job: _Job, stack: ExitStack, plan: ArchivePlan, work: Path) -> PackedArchive:
    group = group_name(job.contents.name, job.config.group, plan.home)
    name = PackedKernelArchive.compute_pack_filename(group, plan.family, scheme=job.config.scheme)
    file = work / plan.home.archive_folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    archive = PackedKernelArchive(
        group,
        plan.family,
        [str(target) for target in plan.targets],
        output_path=file,
        compressor=create_compressor(job.config.scheme, level=job.config.level),
    )
    return packed_archive(plan, stack.enter_context(archive), file)


def _write(job: _Job, packing: Packing, work: Path) -> PackReport:
    binaries = list(job.scan.fat)
    homes = convert_binaries(
        packing, binaries, folder=work, workers=job.workers, keep_ccob=job.config.keep_ccob
    )
    embedded = embed(job.contents, packing, homes, job.config, work)
    written = write_contents(job.contents, embedded.changes, job.destination)
    return describe(job.contents, job.scan, packing, embedded, written)
