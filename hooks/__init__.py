"""Adapters to build systems, one module each (import package `kpack_build.hooks`).

The folder is mapped into the package by `package-dir`, so modules here import each other relatively: that
holds under both names of the folder, and type checkers see it.
"""

from __future__ import annotations

__all__: list[str] = []
