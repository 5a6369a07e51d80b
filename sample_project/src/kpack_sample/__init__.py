"""Arithmetic on the GPU where there is one, on the CPU where there is none, with the same results.

The compiled part needs the HIP library (`libamdhip64`). On a machine without it, this package computes in
plain Python: nothing has to be installed to use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpack_sample import _portable

if TYPE_CHECKING:
    from collections.abc import Sequence

try:
    from kpack_sample import _core
except ImportError as error:
    # Only a missing HIP library is a reason to go on without the compiled part; anything else is a fault.
    if "libamdhip64" not in str(error):
        raise
    _core = None

__all__ = ["axpy", "backend", "devices", "multiply", "polynomial"]

__version__ = "1.0"

_compute = _portable if _core is None else _core


def backend() -> str:
    """Return what computes: "gpu", "cpu" (compiled), or "python" (no HIP library on this machine)."""
    if _core is None:
        return "python"
    return "gpu" if _core.devices() else "cpu"


def devices() -> int:
    """Return the number of GPUs that HIP sees."""
    return 0 if _core is None else _core.devices()


def axpy(scale: float, x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Return scale · x + y, number by number.

    Raises:
        ValueError: x and y differ in length.
    """
    return _compute.axpy(scale, x, y)


def multiply(a: Sequence[float], b: Sequence[float], width: int) -> list[float]:
    """Return the product of two square matrices, each given row after row.

    Raises:
        ValueError: They do not have width · width numbers.
    """
    return _compute.multiply(a, b, width)


def polynomial(coefficients: Sequence[float], x: Sequence[float]) -> list[float]:
    """Return the polynomial (coefficients from the constant on) at each number in x.

    Raises:
        ValueError: There is no coefficient.
    """
    return _compute.polynomial(coefficients, x)
