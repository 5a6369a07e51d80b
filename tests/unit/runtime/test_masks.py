from __future__ import annotations

import pytest

from kpack_build.runtime._gpus import Gpu
from kpack_build.runtime._masks import apply_masks

ROCR, HIP, CUDA, ORDINAL = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)


def apply(variables: dict[str, str], count: int = 3) -> tuple[list[int], list[int | None], list[str]]:
    """Return the numbers of the GPUs that are not hidden, HIP's number of each GPU, and the notes."""
    gpus = [Gpu(number, "gfx1100", "kfd", node=number + 1) for number in range(count)]
    notes: list[str] = []
    apply_masks(gpus, variables, notes)
    return [gpu.number for gpu in gpus if not gpu.hidden], [gpu.hip_number for gpu in gpus], notes


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({}, [0, 1, 2]),
        ({HIP: "1"}, [1]),
        ({HIP: "2, 0"}, [0, 2]),
        ({CUDA: "1"}, [1]),
        ({HIP: "0", CUDA: "1"}, [0]),
        ({HIP: "", CUDA: "1"}, [1]),
        ({HIP: "-1"}, []),
        ({HIP: "1,-1,0"}, [1]),
        ({ROCR: "2"}, [2]),
        ({ROCR: "2,1", HIP: "1"}, [1]),
        ({ROCR: "-1"}, []),
        # What is not certain hides nothing.
        ({HIP: " "}, [0, 1, 2]),
        ({ROCR: ""}, [0, 1, 2]),
        ({HIP: "3"}, [0, 1, 2]),
        ({HIP: "0,0"}, [0, 1, 2]),
        ({HIP: "GPU-0123456789abcdef"}, [0, 1, 2]),
        ({ROCR: "GPU-0123456789abcdef", HIP: "0"}, [0]),
        ({ORDINAL: "0"}, [0, 1, 2]),
    ],
)
def test_what_masks_hide(variables: dict[str, str], visible: list[int]) -> None:
    found, _, notes = apply(variables)
    assert found == visible
    assert len(notes) == sum(1 for value in variables.values() if value)


def test_hip_counts_what_rocr_leaves() -> None:
    assert apply({ROCR: "2,0"})[1] == [1, None, 0]
    assert apply({HIP: "2"})[1] == [0, 1, 2]
