from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rocm_bootstrap.targets import ALL_TARGETS

from kpack_build.processors import PROCESSORS
from kpack_build.runtime._gpus import FOUND, NONE, UNKNOWN, describe_version, find_gpus
from tests.loaders import Recipe
from tests.topology import target_version, write_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


def targets(root: Path, variables: Mapping[str, str]) -> list[str | None]:
    return [gpu.target for gpu in find_gpus(str(root), variables).gpus]


@pytest.mark.parametrize(
    ("version", "processor"),
    [
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (100306, "gfx1036"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120500, "gfx1250"),
        # Nobody has made these yet.
        (110700, "gfx1170"),
        (130015, "gfx130f"),
        (91000, "gfx9a0"),
    ],
)
def test_versions_have_names(version: int, processor: str) -> None:
    assert describe_version(version) == processor


def test_the_table_and_the_rule_agree(use_table: Callable[[Recipe], None]) -> None:
    use_table(Recipe())
    for target in ALL_TARGETS:
        assert describe_version(target.gfx_target_version) == target.name.partition("-")[0]


def test_the_table_goes_before_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpack_build.runtime._table.PROCESSORS", {90010: "gfx-other"})
    assert describe_version(90010) == "gfx-other"


@pytest.mark.parametrize("processor", [name for name in PROCESSORS if "-" not in name])
def test_every_processor_is_read_from_a_topology(processor: str, tmp_path: Path) -> None:
    machine = find_gpus(str(write_topology(tmp_path, [processor])), {})
    (gpu,) = machine.gpus
    assert (machine.state, gpu.target, gpu.source) == (FOUND, processor, "kfd")
    assert (gpu.number, gpu.node, gpu.hip_number, gpu.hidden) == (0, 1, 0, False)
    assert gpu.hardware is None
    assert machine.notes == ()
    assert machine.topology_root == str(tmp_path)


def test_gpus_come_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    names = ["gfx1100", *["gfx1030"] * 10, "gfx90a"]
    assert targets(write_topology(tmp_path, names), {}) == names


def test_the_root_comes_from_the_environment(tmp_path: Path) -> None:
    write_topology(tmp_path / "made", ["gfx1100"])
    variables = {"KPACK_TOPOLOGY_ROOT": str(tmp_path / "made")}
    assert [gpu.target for gpu in find_gpus(environ=variables).gpus] == ["gfx1100"]
    assert find_gpus(str(tmp_path / "none"), variables).state == NONE


def test_the_processs_own_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPACK_TARGETS", "gfx942")
    assert [gpu.target for gpu in find_gpus(str(tmp_path)).gpus] == ["gfx942"]


@pytest.mark.parametrize("processors", [None, []])
def test_no_gpus_is_no_news(processors: list[str] | None, tmp_path: Path) -> None:
    if processors is not None:
        write_topology(tmp_path, processors)
    machine = find_gpus(str(tmp_path), {})
    assert (machine.state, machine.gpus, machine.notes) == (NONE, (), ())


def test_a_file_in_place_of_the_nodes_is_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_bytes(b"")
    assert find_gpus(str(tmp_path), {}).state == NONE


def test_wsl_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "dxg"
    device.write_bytes(b"")
    monkeypatch.setattr("kpack_build.runtime._gpus._WSL_DEVICE", str(device))
    machine = find_gpus(str(tmp_path / "none"), {})
    assert (machine.state, machine.gpus) == (UNKNOWN, ())
    assert len(machine.notes) == 1


def test_nodes_that_cannot_be_listed_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", refuse)
    machine = find_gpus(str(tmp_path), {})
    assert (machine.state, machine.gpus) == (UNKNOWN, ())
    assert "Permission denied" in machine.notes[0]


def test_a_node_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1100", "gfx1030"])
    (root / "nodes" / "1" / "properties").unlink()
    machine = find_gpus(str(root), {})
    assert machine.state == FOUND
    assert [(gpu.number, gpu.node, gpu.target) for gpu in machine.gpus] == [(0, 2, "gfx1030")]
    assert len(machine.notes) == 1


def test_only_nodes_that_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1100"])
    (root / "nodes" / "1" / "properties").unlink()
    machine = find_gpus(str(root), {})
    assert (machine.state, machine.gpus) == (UNKNOWN, ())


@pytest.mark.parametrize("text", [b"", b"\xff\x00\n", b"simd_count\n", b"simd_count many\n", b"a b c\n"])
def test_properties_without_sense_are_no_gpu(text: bytes, tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1100"])
    (root / "nodes" / "1" / "properties").write_bytes(text)
    assert find_gpus(str(root), {}).gpus == ()


def test_a_driver_that_does_not_say_the_version(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1100"])
    (root / "nodes" / "1" / "properties").write_text("simd_count 64\n", encoding="ascii")
    machine = find_gpus(str(root), {})
    (gpu,) = machine.gpus
    assert (machine.state, gpu.target) == (UNKNOWN, None)
    assert len(machine.notes) == 1
    assert targets(root, {OVERRIDE: "10.3.0"}) == ["gfx1030"]


def test_an_override_holds_for_all_gpus(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1103", "gfx1101"])
    machine = find_gpus(str(root), {OVERRIDE: "11.0.1"})
    assert [gpu.target for gpu in machine.gpus] == ["gfx1101", "gfx1101"]
    assert [gpu.hardware for gpu in machine.gpus] == ["gfx1103", None]
    assert [gpu.source for gpu in machine.gpus] == [OVERRIDE, OVERRIDE]


@pytest.mark.parametrize("name", [OVERRIDE, f"{OVERRIDE}_1", f"{OVERRIDE}_0", "KPACK_TARGETS"])
def test_an_empty_variable_is_unset(name: str, tmp_path: Path) -> None:
    machine = find_gpus(str(write_topology(tmp_path, ["gfx1103"])), {name: ""})
    assert [gpu.target for gpu in machine.gpus] == ["gfx1103"]
    assert machine.notes == ()


def test_an_override_for_one_device_counts_nodes(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1103", "gfx1103"])
    variables = {f"{OVERRIDE}_2": "11.0.2", OVERRIDE: "11.0.0"}
    assert targets(root, variables) == ["gfx1100", "gfx1102"]
    assert targets(root, {**variables, f"{OVERRIDE}_2": ""}) == ["gfx1100", "gfx1100"]


def test_an_override_for_a_node_that_is_no_gpu_is_noted(tmp_path: Path) -> None:
    machine = find_gpus(str(write_topology(tmp_path, ["gfx1103"])), {f"{OVERRIDE}_0": "11.0.0"})
    assert [gpu.target for gpu in machine.gpus] == ["gfx1103"]
    assert f"{OVERRIDE}_0" in machine.notes[0]


@pytest.mark.parametrize(
    "text", ["11.0", "11.0.0.0", "gfx1100", "11.0.x", "64.0.0", "1.256.0", "1.0.256", "\u0661.0.0"]
)
def test_an_override_without_sense_is_noted(text: str, tmp_path: Path) -> None:
    machine = find_gpus(str(write_topology(tmp_path, ["gfx1103"])), {OVERRIDE: text})
    assert [gpu.target for gpu in machine.gpus] == ["gfx1103"]
    assert len(machine.notes) == 1


def test_an_override_to_another_generation_is_noted(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1103"])
    assert len(find_gpus(str(root), {OVERRIDE: "10.3.0"}).notes) == 2
    assert len(find_gpus(str(root), {OVERRIDE: "11.0.0"}).notes) == 1


def test_named_targets_stand_in_for_the_topology(tmp_path: Path) -> None:
    root = write_topology(tmp_path, ["gfx1030"])
    variables = {"KPACK_TARGETS": " gfx1100, gfx90a:sramecc+:xnack- ,,gfx11-generic", OVERRIDE: "9.0.0"}
    machine = find_gpus(str(root), variables)
    assert [gpu.target for gpu in machine.gpus] == ["gfx1100", "gfx90a:sramecc+:xnack-", "gfx11-generic"]
    assert [gpu.number for gpu in machine.gpus] == [0, 1, 2]
    assert {gpu.source for gpu in machine.gpus} == {"KPACK_TARGETS"}
    assert machine.state == FOUND


@pytest.mark.parametrize(
    "text", ["1100", "gfx", "gfx1100:fast+", "gfx90A", "gfx90a:xnack", "gfx1100;gfx1101"]
)
def test_named_targets_without_sense_are_noted(text: str, tmp_path: Path) -> None:
    machine = find_gpus(str(tmp_path), {"KPACK_TARGETS": text})
    assert (machine.state, machine.gpus) == (UNKNOWN, ())
    assert len(machine.notes) == 2


def test_the_version_of_a_made_up_topology_is_that_of_the_table() -> None:
    for target in ALL_TARGETS:
        assert target_version(target.name) == target.gfx_target_version
