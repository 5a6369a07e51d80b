"""Fresh processes with a HIP runtime in them, and what that runtime said."""

from __future__ import annotations

from tests.hip.emulated import run_aarch64
from tests.hip.results import (
    CodeObjectAnswer,
    HipResult,
    KernelOutcome,
    LoadedCode,
    LoadOutcome,
    Refusal,
    Registration,
    VariableOutcome,
)
from tests.hip.runner import run_hip, run_hip_command
from tests.hip.runtimes import HipRuntime, hip_environment
from tests.hip.stand_ins import stand_ins

__all__ = [
    "CodeObjectAnswer",
    "HipResult",
    "HipRuntime",
    "KernelOutcome",
    "LoadOutcome",
    "LoadedCode",
    "Refusal",
    "Registration",
    "VariableOutcome",
    "hip_environment",
    "run_aarch64",
    "run_hip",
    "run_hip_command",
    "stand_ins",
]
