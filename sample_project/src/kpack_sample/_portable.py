"""The computations in plain Python, for machines where the compiled part cannot be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["axpy", "multiply", "polynomial"]


def axpy(scale: float, x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Return scale · x + y, number by number."""
    if len(x) != len(y):
        raise ValueError("x and y differ in length")
    return [scale * left + float(right) for left, right in zip(x, y, strict=True)]


def multiply(a: Sequence[float], b: Sequence[float], width: int) -> list[float]:
    """Return the product of two square matrices."""
    if len(a) != width * width or len(b) != width * width:
        raise ValueError("a and b are not matrices of that width")
    return [
        sum(float(a[row * width + k]) * b[k * width + column] for k in range(width))
        for row in range(width)
        for column in range(width)
    ]


def polynomial(coefficients: Sequence[float], x: Sequence[float]) -> list[float]:
    """Return the polynomial at each number in x."""
    if not coefficients:
        raise ValueError("a polynomial has at least one coefficient")
    values = []
    for number in x:
        value = 0.0
        for coefficient in reversed(coefficients):
            value = value * number + coefficient
        values.append(value)
    return values
