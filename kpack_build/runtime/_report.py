"""The readable table of `python -m <package>._kpack`."""

from __future__ import annotations

from ._gpus import NONE, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._status import GpuStatus, Status

__all__ = ["format_status"]

_GPU_HEADINGS = ("GPU", "ISA", "archive", "file, or why not")
_ARCHIVE_HEADINGS = ("archive", "state", "targets")


def format_status(status: Status) -> str:
    """Format a status for people."""
    lines = [f"{status.distribution} {status.version}, package {status.package}", ""]
    if status.state == NONE:
        lines.append("No AMD GPU was found.")
    elif status.state == UNKNOWN and not status.gpus:
        lines.append("Which AMD GPUs there are is not known.")
    else:
        lines += _table(_GPU_HEADINGS, [_gpu_row(row) for row in status.gpus])
    lines += ["", f"Archives in {status.folder}:"]
    lines += _table(
        _ARCHIVE_HEADINGS, [(item.file, item.state, " ".join(item.targets)) for item in status.archives]
    )
    lines += _list("Added to ROCM_KPACK_PATH_PREFIX of this process and its children", status.search_prefix)
    lines += _list("Notes", status.notes)
    lines += _list("Warnings", status.warnings)
    return "\n".join(lines)


def _gpu_row(row: GpuStatus) -> Sequence[str]:
    name = str(row.gpu.number) + (" (hidden by a mask)" if row.gpu.hidden else "")
    isa = row.gpu.target or "unknown"
    if row.gpu.hardware is not None:
        isa += f" (hardware {row.gpu.hardware})"
    return (name, isa, row.archive or "-", _gpu_answer(row))


def _gpu_answer(row: GpuStatus) -> str:
    if row.reason is not None:
        return row.reason if row.path is None else f"{row.reason}: {row.path}"
    remarks = []
    if row.processor != str(row.gpu.target).partition(":")[0]:
        remarks.append(f"by {row.processor}")
    if row.condition:
        remarks.append(f"only with {row.condition}")
    if row.without_code:
        remarks.append("no code in {}".format(", ".join(row.without_code)))
    return str(row.path) + (" ({})".format("; ".join(remarks)) if remarks else "")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return [
        "  ".join(cell.ljust(widths[column]) for column, cell in enumerate(line)).rstrip() for line in lines
    ]


def _list(title: str, items: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {item}" for item in items)] if items else []
