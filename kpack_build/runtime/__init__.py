"""The loader: tells the user of a packed package whether its GPU code fits the machine.

It is copied into wheels as `<package>/_kpack`, with a generated `_table.py`, and stands alone: standard
library only, Python 3.8 syntax. A line in the package's `__init__` calls `activate`, which looks at the
kernel driver's list of GPUs, warns once where something is wrong, and keeps the answer for `status`;
`python -m <package>._kpack` prints it. HIP itself finds the archives, by paths in the package's binaries.

It never calls HIP, starts no process, and raises nothing because of a machine's GPUs. On machines without AMD
GPUs it says nothing. Modules are imported when they are needed, because importing the package must cost
almost nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._status import Status

__all__ = ["KpackWarning", "activate", "status"]


class KpackWarning(UserWarning):
    """Something about this package's GPU code that its user should know."""


class _Activation:
    """What `activate` found: one for this package and process."""

    started = False
    status: Status | None = None


def activate() -> None:
    """Look at the machine's GPUs and warn where this package cannot serve one.

    A second call does nothing. Nothing is raised: a fault of the loader becomes a warning, because the
    package may well work without it.
    """
    if _Activation.started:
        return
    _Activation.started = True
    try:
        problems = _look()
    except Exception as error:  # noqa: BLE001 - the package must stay importable
        problems = (f"the kpack loader of {__package__} failed: {error!r}",)
    for problem in problems:
        _warn(problem)


def _look() -> tuple[str, ...]:
    """Find what is wrong; on most machines nothing more is imported than the search for GPUs needs."""
    from ._gpus import NONE, find_gpus  # noqa: PLC0415

    machine = find_gpus()
    if machine.state == NONE:
        return ()
    from ._locations import mend_search  # noqa: PLC0415
    from ._status import make_status  # noqa: PLC0415

    _Activation.status = make_status(machine)
    mend_search(_Activation.status)
    return _Activation.status.warnings


def _warn(problem: str) -> None:
    """Warn where the package is imported; filters that make errors of warnings must not break that."""
    import warnings  # noqa: PLC0415 - hardly ever needed

    try:
        # The frames are this one, `activate`, the package's `__init__`, and whoever imports it.
        warnings.warn(problem, KpackWarning, stacklevel=4)
    except KpackWarning:
        import logging  # noqa: PLC0415 - hardly ever needed

        logging.getLogger(__name__).warning(problem)


def status(*, topology_root: str | None = None) -> Status:
    """Return what is known of the machine's GPUs and of this package's archives.

    Args:
        topology_root: A folder like `/sys/class/kfd/kfd/topology` to read anew. By default the answer
            that was found when the package was imported is given.
    """
    if topology_root is None and _Activation.status is not None:
        return _Activation.status
    from ._gpus import find_gpus  # noqa: PLC0415
    from ._status import make_status  # noqa: PLC0415

    found = make_status(find_gpus(topology_root))
    if topology_root is None and _Activation.started:
        _Activation.status = found
    return found
