"""kpack-build: wheels whose HIP device code lies in per-family ROCm `.kpack` archives."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
