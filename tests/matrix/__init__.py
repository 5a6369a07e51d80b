"""Checks of the sample for one family of GPUs at a time, each a tox environment of its own."""

from __future__ import annotations

__all__: list[str] = []
