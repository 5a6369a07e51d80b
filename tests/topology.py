"""Made-up KFD topologies: what the kernel driver says about GPUs, in files.

The layout is that of `/sys/class/kfd/kfd/topology` (Linux, `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`): one
directory for each node below `nodes/`, the CPU first, each with a file `properties` of "key value" lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["target_version", "write_topology"]

AMD = 4098


def target_version(processor: str) -> int:
    """Return the driver's number of a processor: major · 10000 + minor · 100 + stepping, gfx90a → 90010."""
    match = re.match(r"gfx(\d+)(\d)([0-9a-f])(?:-|$)", processor)
    assert match is not None, processor
    major, minor, stepping = match.groups()
    return int(major) * 10000 + int(minor) * 100 + int(stepping, 16)


def write_topology(root: Path, processors: Sequence[str]) -> Path:
    """Write a topology of a CPU and one GPU for each of `processors` below `root`, and return `root`."""
    (root / "nodes").mkdir(parents=True)
    _write_node(root / "nodes" / "0", {"cpu_cores_count": 8, "simd_count": 0, "gfx_target_version": 0})
    for number, processor in enumerate(processors, start=1):
        properties = {
            "cpu_cores_count": 0,
            "simd_count": 64,
            "gfx_target_version": target_version(processor),
            "vendor_id": AMD,
            "device_id": 0x7400 + number,
            "location_id": number << 8,
            "domain": 0,
            "drm_render_minor": 127 + number,
            "unique_id": number,
        }
        _write_node(root / "nodes" / str(number), properties)
    return root


def _write_node(directory: Path, properties: dict[str, int]) -> None:
    directory.mkdir()
    lines = "".join(f"{name} {value}\n" for name, value in properties.items())
    (directory / "properties").write_text(lines, encoding="ascii")
    (directory / "gpu_id").write_text(f"{properties.get('unique_id', 0)}\n", encoding="ascii")
    (directory / "name").write_text("made up\n", encoding="ascii")
