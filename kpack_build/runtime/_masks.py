"""Work out which GPUs the masks in the environment hide.

Masks nest: `ROCR_VISIBLE_DEVICES` chooses among all GPUs, `HIP_VISIBLE_DEVICES` (or, where that is empty,
`CUDA_VISIBLE_DEVICES`) among those that are left. A program may set them after it imported this package, and
their other forms (UUIDs, ranges) are not read here. So masks only shape messages, and a GPU counts as hidden
only where that is certain.
"""

from __future__ import annotations

from ._gpus import MASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._gpus import Gpu

__all__ = ["apply_masks"]


def apply_masks(gpus: list[Gpu], variables: Mapping[str, str], notes: list[str]) -> None:
    """Set `hip_number` and `hidden` of each GPU, and note each mask that is set.

    Args:
        gpus: All GPUs, in the driver's order.
        variables: The environment.
        notes: Is added to.
    """
    notes.extend(f"{name}={variables[name]} is set" for name in MASKS if variables.get(name))
    seen = _chosen(variables.get(MASKS[0]), len(gpus))
    if seen is not None:
        for gpu in gpus:
            gpu.hidden = gpu.number not in seen
            gpu.hip_number = None if gpu.hidden else seen.index(gpu.number)
    left = [gpu for gpu in gpus if gpu.hip_number is not None]
    seen = _chosen(variables.get(MASKS[1]) or variables.get(MASKS[2]), len(left))
    if seen is not None:
        for gpu in left:
            gpu.hidden = gpu.hip_number not in seen


def _chosen(mask: str | None, count: int) -> list[int] | None:
    """Return the numbers that a mask lets through; None where it is not set or not certain."""
    if not mask or not mask.strip():
        return None
    chosen: list[int] = []
    for text in (part.strip() for part in mask.split(",")):
        if text == "-1":
            # The usual way to hide what follows, or all.
            return chosen
        if not (text.isascii() and text.isdigit()) or int(text) >= count or int(text) in chosen:
            return None
        chosen.append(int(text))
    return chosen
