"""Programs and libraries in ELF: reading an image, HIPF → HIPK, and what has to be checked around it.

Follows the gABI, and LLVM and HIP for device code. `kpack_build.hostbinary` offers what others need of it.
"""

from __future__ import annotations

__all__: list[str] = []
