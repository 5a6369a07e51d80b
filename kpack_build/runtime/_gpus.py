"""Find the machine's AMD GPUs, and what the HIP runtime will take them for.

The kernel driver's topology in sysfs is read (Linux, `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`), then what
the user set is laid over it: `HSA_OVERRIDE_GFX_VERSION` and its per-device forms as ROCm's runtime reads
them, then `KPACK_TARGETS`. No HIP call, no process, no device opened, and nothing here raises because of what
a machine looks like: what cannot be read is a state of its own. A GPU's target features (sramecc, xnack) are
not in the topology, so a GPU is known by its processor alone.
"""

from __future__ import annotations

import os

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FOUND", "MASKS", "NONE", "UNKNOWN", "Gpu", "Machine", "describe_version", "find_gpus"]

#: States of a machine: GPUs were found; there are none; there may be some, but nobody can say which.
FOUND, NONE, UNKNOWN = "found", "none", "unknown"

#: Variables that hide GPUs from a program; they nest in this order, HIP's and CUDA's being the same mask.
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

_TOPOLOGY = "/sys/class/kfd/kfd/topology"
_WSL_DEVICE = "/dev/dxg"
_NAME_AND_VALUE = 2
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# The limits of ROCm's runtime, which refuses an override that is over them.
_OVERRIDE_LIMITS = (63, 255, 255)


class Gpu(Record):
    """One GPU.

    Attributes:
        number: Its number among all GPUs, from 0, before any mask.
        node: Number of its node in the driver's topology; None for one that `KPACK_TARGETS` names.
        target: What the HIP runtime takes it for: a processor, from `KPACK_TARGETS` perhaps with features.
            None where nobody can say.
        hardware: What the driver says that it is, where that is something else.
        source: Where `target` comes from: "kfd", or the name of an environment variable.
        unique_id: The driver's unique id, 0 where it has none.
        hip_number: The number by which HIP_VISIBLE_DEVICES means it; None where ROCR_VISIBLE_DEVICES hides
            it.
        hidden: Whether masks in the environment hide it for certain.
    """

    __slots__ = ("hardware", "hidden", "hip_number", "node", "number", "source", "target", "unique_id")

    def __init__(
        self,
        number: int,
        target: str | None,
        source: str,
        *,
        node: int | None = None,
        hardware: str | None = None,
        unique_id: int = 0,
    ) -> None:
        self.number = number
        self.node = node
        self.target = target
        self.hardware = hardware
        self.source = source
        self.unique_id = unique_id
        self.hip_number: int | None = number
        self.hidden = False


class Machine(Record):
    """What was found.

    Attributes:
        state: `FOUND`, `NONE` or `UNKNOWN`.
        gpus: The GPUs, in the driver's order.
        notes: What a reader of the result should know, one sentence each.
        topology_root: The folder that was read.
    """

    __slots__ = ("gpus", "notes", "state", "topology_root")

    def __init__(self, state: str, gpus: tuple[Gpu, ...], notes: tuple[str, ...], topology_root: str) -> None:
        self.state = state
        self.gpus = gpus
        self.notes = notes
        self.topology_root = topology_root


def find_gpus(topology_root: str | None = None, environ: Mapping[str, str] | None = None) -> Machine:
    """Find the GPUs.

    Args:
        topology_root: The topology's folder; by default `KPACK_TOPOLOGY_ROOT`, else that of the driver.
        environ: The environment; by default the process's own.
    """
    variables = os.environ if environ is None else environ
    root = topology_root or variables.get("KPACK_TOPOLOGY_ROOT") or _TOPOLOGY
    notes: list[str] = []
    named = variables.get("KPACK_TARGETS", "").strip()
    if named:
        gpus = _named_gpus(named, notes)
        state = FOUND if gpus else UNKNOWN
    else:
        state, gpus = _topology_gpus(root, variables, notes)
    if gpus and any(variables.get(name) for name in MASKS):
        from ._masks import apply_masks  # noqa: PLC0415 - hardly ever needed

        apply_masks(gpus, variables, notes)
    return Machine(state, tuple(gpus), tuple(notes), root)


def describe_version(version: int) -> str:
    """Name the processor of a `gfx_target_version`: major · 10000 + minor · 100 + stepping.

    Minor and stepping are written in hexadecimal, as 90010 is gfx90a. Chips newer than the table get a name
    by the same rule.
    """
    from ._table import PROCESSORS  # noqa: PLC0415 - machines without GPUs do not need the table

    known = PROCESSORS.get(version)
    if known is not None:
        return known
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _named_gpus(named: str, notes: list[str]) -> list[Gpu]:
    """Take the user's word for what is there."""
    notes.append(f"KPACK_TARGETS={named} is taken for the GPUs of this machine")
    gpus: list[Gpu] = []
    for text in (part.strip() for part in named.split(",")):
        if _is_target(text):
            gpus.append(Gpu(len(gpus), text, "KPACK_TARGETS"))
        elif text:
            notes.append(f"KPACK_TARGETS: {text!r} is no target (write gfx1100 or gfx90a:xnack-)")
    return gpus


def _is_target(text: str) -> bool:
    processor, *features = text.split(":")
    letters = processor[3:].replace("-", "")
    return (
        processor.startswith("gfx")
        and letters.isalnum()
        and letters == letters.lower()
        and all(feature in ("sramecc+", "sramecc-", "xnack+", "xnack-") for feature in features)
    )


def _topology_gpus(root: str, variables: Mapping[str, str], notes: list[str]) -> tuple[str, list[Gpu]]:
    try:
        nodes = sorted(int(name) for name in os.listdir(os.path.join(root, "nodes")) if name.isdigit())
    except (FileNotFoundError, NotADirectoryError):
        return _without_topology(notes), []
    except OSError as error:
        notes.append(f"the GPU topology cannot be read ({error})")
        return UNKNOWN, []
    state = NONE
    gpus: list[Gpu] = []
    for node in nodes:
        properties = _read_properties(os.path.join(root, "nodes", str(node), "properties"), notes)
        if properties is None:
            state = UNKNOWN
        elif properties.get("simd_count", 0) > 0 or properties.get("gfx_target_version", 0) > 0:
            gpus.append(_gpu(len(gpus), node, properties, variables, notes))
    _note_stray_overrides(gpus, variables, notes)
    if not gpus and state == NONE:
        return _without_topology(notes), []
    return (FOUND if any(gpu.target for gpu in gpus) else UNKNOWN), gpus


def _without_topology(notes: list[str]) -> str:
    """Tell a machine without AMD GPUs from WSL, where GPUs have no topology."""
    if not os.path.exists(_WSL_DEVICE):
        return NONE
    notes.append(f"{_WSL_DEVICE} is there (WSL): its GPUs cannot be told from here")
    return UNKNOWN


def _read_properties(path: str, notes: list[str]) -> dict[str, int] | None:
    """Read the "name value" lines of a node; None where it cannot be read.

    A container that may not use a GPU may not read its node either.
    """
    try:
        with open(path, "rb") as stream:
            lines = stream.read().decode("ascii", "replace").splitlines()
    except OSError as error:
        notes.append(f"a node of the GPU topology cannot be read ({error})")
        return None
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == _NAME_AND_VALUE and pair[1].isdigit()}


def _gpu(
    number: int,
    node: int,
    properties: dict[str, int],
    variables: Mapping[str, str],
    notes: list[str],
) -> Gpu:
    version = properties.get("gfx_target_version", 0)
    # Drivers before Linux 5.14 do not say the version.
    hardware = describe_version(version) if version else None
    unique_id = properties.get("unique_id", 0)
    for name in (f"{_OVERRIDE}_{node}", _OVERRIDE):
        override = variables.get(name)
        # Containers set variables to nothing, and ROCm's runtime takes that for unset.
        if not override:
            continue
        forced = _parse_override(override)
        if forced is None:
            notes.append(f"{name}={override} is no version (write it as 11.0.0)")
            break
        target = describe_version(forced)
        notes.append(f"{name}={override} makes {target} of GPU {number}")
        if version and version // 10000 != forced // 10000:
            notes.append("newer HIP runtimes refuse an override with another major version")
        changed = hardware if hardware != target else None
        return Gpu(number, target, name, node=node, hardware=changed, unique_id=unique_id)
    if hardware is None:
        notes.append(f"the driver does not say which target GPU {number} is")
    return Gpu(number, hardware, "kfd", node=node, unique_id=unique_id)


def _parse_override(text: str) -> int | None:
    parts = text.split(".")
    if len(parts) != len(_OVERRIDE_LIMITS) or not all(part.isdigit() and part.isascii() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    if any(numbers[place] > limit for place, limit in enumerate(_OVERRIDE_LIMITS)):
        return None
    return numbers[0] * 10000 + numbers[1] * 100 + numbers[2]


def _note_stray_overrides(gpus: list[Gpu], variables: Mapping[str, str], notes: list[str]) -> None:
    """Say so where a per-device override means no GPU: the runtime counts the driver's nodes, CPUs too."""
    nodes = {str(gpu.node) for gpu in gpus}
    prefix = _OVERRIDE + "_"
    for name in sorted(variables):
        if name.startswith(prefix) and variables[name] and name[len(prefix) :] not in nodes:
            shown = ", ".join(sorted(nodes)) or "none"
            notes.append(f"{name} means no GPU (it counts the driver's nodes; GPUs are {shown})")
