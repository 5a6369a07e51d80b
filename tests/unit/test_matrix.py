"""The matrix over families is complete, and its made-up topologies are what detectors expect."""

from __future__ import annotations

import configparser
import re
from typing import TYPE_CHECKING

import pytest
import rocm_bootstrap

from tests.fixtures.variants import COMPILERS, VARIANTS
from tests.matrix.check_family import FAMILIES, buildable_targets
from tests.sample import SAMPLE
from tests.topology import target_version, write_topology

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []


def test_tox_has_an_environment_for_each_family() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(SAMPLE.parent / "tox.ini")
    pattern = re.compile(r"gfx\{([^}]*)\}")
    listed = pattern.search(tox["tox"]["env_list"])
    (section,) = (found for name in tox.sections() if (found := pattern.search(name)))
    assert listed is not None
    assert listed[1] == section[1]
    assert [f"gfx{name.strip()}" for name in listed[1].split(",")] == list(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_targets_to_build(family: str) -> None:
    assert buildable_targets(family)


@pytest.mark.parametrize("target", rocm_bootstrap.ALL_TARGETS, ids=lambda target: target.name)
def test_versions_of_processors_are_the_drivers(target: rocm_bootstrap.GfxTarget) -> None:
    number = target_version(target.name)
    assert number == target.major * 10000 + target.minor * 100 + target.stepping


def test_topology_is_read_by_another_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_topology(tmp_path / "topology", ["gfx1100", "gfx90a", "gfx1036"])
    monkeypatch.setattr(rocm_bootstrap._platform, "KFD_TOPOLOGY", tmp_path / "topology" / "nodes")
    for variable in ("ROCM_BOOTSTRAP_FORCE_GFX_ARCH", "ROCM_BOOTSTRAP_DISABLE_DETECTION"):
        monkeypatch.delenv(variable, raising=False)
    assert [gpu.target.name for gpu in rocm_bootstrap.detect_gpus()] == ["gfx1100", "gfx90a", "gfx1036"]


def test_each_variant_exists_for_each_compiler() -> None:
    names = {name.rpartition("-")[0] for name in VARIANTS if name != "many-units"}
    assert {f"{name}-{compiler}" for name in names for compiler in COMPILERS} == set(VARIANTS) - {
        "many-units"
    }
