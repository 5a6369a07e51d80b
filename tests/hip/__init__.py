"""Fresh processes with a HIP runtime in them, and what that runtime said."""

from __future__ import annotations

from tests.hip.emulated import run_aarch64
from tests.hip.runner import (
    CodeObjectAnswer,
    HipResult,
    HipRuntime,
    LoadOutcome,
    Registration,
    hip_environment,
    run_hip,
    run_hip_command,
)
from tests.hip.stand_ins import stand_ins

__all__ = [
    "CodeObjectAnswer",
    "HipResult",
    "HipRuntime",
    "LoadOutcome",
    "Registration",
    "hip_environment",
    "run_aarch64",
    "run_hip",
    "run_hip_command",
    "stand_ins",
]
