"""The sentences that a user of the package reads when something is wrong with its GPU code.

Each says which GPU, what the wheel has, and what to do. A GPU that masks hide for certain is no cause.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._gpus import Gpu
    from ._status import ArchiveStatus, GpuStatus, Status

__all__ = ["describe_gpu", "make_warnings"]


def make_warnings(status: Status) -> tuple[str, ...]:
    """Say what is wrong: GPUs without code, archives that were lost, GPUs that cannot be used at once."""
    visible = [row for row in status.gpus if not row.gpu.hidden and row.gpu.target is not None]
    sentences = (_uncovered(status, visible), _lost(status, visible), _mixed(status, visible))
    return tuple(sentence for sentence in sentences if sentence is not None)


def describe_gpu(gpu: Gpu) -> str:
    """Name a GPU, and both its targets where a variable changes what it is."""
    if gpu.hardware is None:
        return f"GPU {gpu.number} ({gpu.target})"
    return f"GPU {gpu.number} ({gpu.target}, set by {gpu.source}; the hardware is {gpu.hardware})"


def _uncovered(status: Status, rows: Sequence[GpuStatus]) -> str | None:
    uncovered = [row for row in rows if row.archive is None]
    if not uncovered:
        return None
    name = status.distribution
    gpus = ", ".join(describe_gpu(row.gpu) for row in uncovered)
    targets = ", ".join(dict.fromkeys(str(row.gpu.target) for row in uncovered))
    served = [row for row in rows if row.is_served]
    way_out = f", or leave it out: {_mask(served)}" if served else ""
    return (
        f"{name} {status.version} has no GPU code for {gpus}. This wheel has code for"
        f" {_wheel_targets(status.archives)}. What {name} computes on that GPU will fail: install a {name}"
        f" that is built for {targets}{way_out}."
    )


def _wheel_targets(archives: Sequence[ArchiveStatus]) -> str:
    processors: list[str] = []
    for archive in archives:
        processors.extend(target.partition(":")[0] for target in archive.targets)
    return ", ".join(dict.fromkeys(processors)) or "no GPU"


def _lost(status: Status, rows: Sequence[GpuStatus]) -> str | None:
    lost = [row for row in rows if row.archive is not None and not row.is_served]
    if not lost:
        return None
    name, version = status.distribution, status.version
    gpus = ", ".join(describe_gpu(row.gpu) for row in lost)
    paths = ", ".join(dict.fromkeys(f"{row.path} ({row.reason})" for row in lost))
    return (
        f"The GPU code of {name} {version} for {gpus} was lost after it was built: {paths}. Install it again:"
        f" pip install --force-reinstall --no-deps {name}=={version}"
    )


def _mixed(status: Status, rows: Sequence[GpuStatus]) -> str | None:
    """Warn of GPUs with different code: HIP runtimes with kpack load what they find first for all GPUs."""
    served = [row for row in rows if row.is_served]
    processors = tuple(dict.fromkeys(row.processor for row in served))
    if len(processors) <= 1:
        return None
    gpus = ", ".join(describe_gpu(row.gpu) for row in served)
    masks = [_mask([row for row in served if row.processor == processor]) for processor in processors]
    return (
        f"{status.distribution} {status.version}: this machine has GPUs of different targets: {gpus}. HIP"
        " runtimes that read kpack archives load one target's code for all GPUs, and a launch on the others"
        f" crashes. Show a program GPUs of one target only: set {' or '.join(masks)} before it starts."
    )


def _mask(rows: Sequence[GpuStatus]) -> str:
    return "HIP_VISIBLE_DEVICES=" + ",".join(str(row.gpu.hip_number) for row in rows)
