"""What the settings of a run do to a wheel: grouping, wanted targets, schemes, and what is an error."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.errors import MissingDeviceCodeError
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.report import BinaryAction, Outcome
from kpack_build.targets import TargetId, feature_states, hip_choice, lookup_order
from kpack_build.verification import verify
from tests.fixtures.build import build_variant
from tests.hip import HipRuntime, run_hip
from tests.packing import answers_from_files, indexes_of, make_config, wrappers_of
from tests.synthetic import fat_library
from tests.unit.wheels import write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kpack_build.report import PackReport

__all__: list[str] = []

#: Libraries of a package; together they have features, generics, and wrappers that differ.
VARIANTS = {
    "pkg/features.so": "features-22",
    "pkg/mixed.so": "features-mixed-22",
    "pkg/generic.so": "generic-22",
    "pkg/generic_in_one.so": "generic-only-in-one-22",
    "pkg/differ.so": "units-differ-22",
}
#: GPUs that are asked about; one has no code. (Not gfx906: HIP overlooks generic code in bundles for it.)
PROCESSORS = (
    "gfx900",
    "gfx90a",
    "gfx942",
    "gfx1030",
    "gfx1036",
    "gfx1100",
    "gfx1101",
    "gfx1151",
    "gfx1201",
    "gfx950",
)


def write_variants(folder: Path) -> Path:
    files = {path: build_variant(variant).read_bytes() for path, variant in VARIANTS.items()}
    return write_wheel_file(folder, {"pkg/__init__.py": b"", **files})


def check_gpus(report: PackReport, site: Path, processors: Iterable[str], wanted: set[str] | None) -> None:
    """Check that ROCm's reader gives each wrapper what HIP would choose among the wanted targets."""
    with zipfile.ZipFile(report.output) as archive:
        archive.extractall(site)
    fat = wrappers_of({path: build_variant(variant) for path, variant in VARIANTS.items()})
    agents = {
        tuple(map(str, lookup_order(agent))): agent for name in processors for agent in feature_states(name)
    }
    answers = answers_from_files(site, [site / path for path in VARIANTS], list(agents))
    for wrapper in fat:
        kept = [TargetId.parse(name) for name in wrapper.digests if wanted is None or name in wanted]
        for candidates, agent in agents.items():
            choice = hip_choice(agent, kept)
            expected = wrapper.digests[str(choice)] if choice else None
            assert answers[wrapper.path, wrapper.index, candidates] == expected, (wrapper.path, agent)


@pytest.mark.rocm
@pytest.mark.clang
@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
@pytest.mark.parametrize("group_by", ["target", "sub-family", "family"])
def test_every_grouping_serves_every_gpu(group_by: str, scheme: str, tmp_path: Path) -> None:
    report = pack(
        write_variants(tmp_path), tmp_path / "packed", make_config(group_by=group_by, scheme=scheme)
    )
    assert report.outcome is Outcome.DONE
    check_gpus(report, tmp_path / "site", PROCESSORS, None)
    assert verify(report.output, against=None, progress=SilentProgress()).faults == ()


GROUPS = {
    "target": {"gfx90a", "gfx942", "gfx1100", "gfx11-generic"},
    "sub-family": {"gfx9_0", "gfx9_4", "gfx110x", "gfx11-generic"},
    "family": {"gfx9", "gfx11", "gfx11-generic"},
}


@pytest.mark.parametrize("group_by", GROUPS)
def test_archives_of_a_grouping(group_by: str, tmp_path: Path) -> None:
    library = fat_library(["gfx90a:xnack+", "gfx90a:xnack-", "gfx942"], ["gfx1100", "gfx11-generic"])
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    report = pack(source, tmp_path / "packed", make_config(group_by=group_by))
    names = {archive.path.rpartition("/")[2] for archive in report.archives}
    families = {archive.family for archive in report.archives}
    assert names == {f"thing-{family}.kpack" for family in families}
    # Each processor that a generic stands for and that has no code of its own is answered by the generic.
    assert families >= GROUPS[group_by]
    listed = [target for archive in report.archives for target in archive.targets]
    assert len(listed) == len(set(listed))


def test_scheme_none_aligns_what_can_be_mapped(tmp_path: Path) -> None:
    library = fat_library(["gfx90a", "gfx942"], ["gfx1100", "gfx942"])
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    report = pack(source, tmp_path / "packed", make_config(scheme="none"))
    with zipfile.ZipFile(report.output) as wheel:
        wheel.extractall(tmp_path / "site")
    for found in report.archives:
        with PackedKernelArchive.read(tmp_path / "site" / found.path) as archive:
            assert archive.compression_scheme == "none"
            for _, _, location in archive.entries():
                assert location.offset % 64 == 0
                assert location.stored_size == location.original_size


@pytest.mark.clang
def test_higher_levels_give_smaller_wheels(tmp_path: Path) -> None:
    source = write_variants(tmp_path)
    sizes = [
        pack(source, tmp_path / str(level), make_config(level=level)).wheel.after for level in (1, 9, 19)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2]


WANTED = {
    # What is asked for → the targets that stay.
    ("gfx1100",): {"gfx1100", "gfx11-generic"},
    ("gfx90a",): {"gfx90a", "gfx90a:xnack+", "gfx90a:xnack-"},
    ("gfx90a:xnack-", "gfx1100"): {"gfx90a:xnack-", "gfx1100", "gfx11-generic"},
    ("gfx1036",): {"gfx10-3-generic"},
    ("gfx942:sramecc+:xnack-",): {"gfx942:sramecc+:xnack-"},
}


@pytest.mark.rocm
@pytest.mark.clang
@pytest.mark.parametrize("wanted", WANTED, ids=" and ".join)
def test_wanted_targets_stay_and_their_generics_with_them(wanted: tuple[str, ...], tmp_path: Path) -> None:
    source = write_variants(tmp_path)
    report = pack(source, tmp_path / "packed", make_config(targets=list(wanted)))
    assert report.outcome is Outcome.DONE
    everything = {
        target
        for variant in VARIANTS.values()
        for wrapper in wrappers_of({"": build_variant(variant)})
        for target in wrapper.digests
    }
    assert set(report.dropped) == everything - WANTED[wanted]
    processors = [TargetId.parse(text).processor for text in wanted]
    check_gpus(report, tmp_path / "site", processors, WANTED[wanted])
    [index] = indexes_of(report.output).values()
    assert {row["target"] for row in index["code_objects"]} == WANTED[wanted]


def test_targets_that_the_wheel_does_not_have(tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": fat_library(["gfx1100"])})
    report = pack(source, tmp_path / "packed", make_config(targets=["gfx942", "gfx950"]))
    assert report.outcome is Outcome.NOTHING_WANTED
    assert report.output.read_bytes() == source.read_bytes()
    [binary] = report.binaries
    assert (binary.action, len(binary.reasons)) == (BinaryAction.KEPT_FAT, 1)
    with pytest.raises(MissingDeviceCodeError) as caught:
        pack(source, tmp_path / "required", make_config(targets=["gfx942"], require_device_code=True))
    assert "gfx942" in str(caught.value)
    assert list((tmp_path / "required").glob("*")) == []


#: Libraries of which some have no wanted target, in one package and in two.
UNEVEN: dict[str, Mapping[str, str]] = {
    "one package": {"pkg/wanted.so": "one-unit-22", "pkg/other.so": "features-22"},
    "two packages": {"pkg/wanted.so": "one-unit-22", "other/other.so": "features-22"},
}


@pytest.mark.rocm
@pytest.mark.clang
@pytest.mark.parametrize("name", UNEVEN)
def test_library_without_wanted_targets_beside_one_that_has_them(name: str, tmp_path: Path) -> None:
    libraries = {path: build_variant(variant) for path, variant in UNEVEN[name].items()}
    inits = {f"{path.partition('/')[0]}/__init__.py": b"" for path in libraries}
    files = {path: library.read_bytes() for path, library in libraries.items()}
    source = write_wheel_file(tmp_path, {**inits, **files})
    report = pack(source, tmp_path / "packed", make_config(targets=["gfx1030"]))
    assert report.outcome is Outcome.DONE
    assert verify(report.output, against=None, progress=SilentProgress()).faults == ()
    with zipfile.ZipFile(report.output) as archive:
        archive.extractall(tmp_path / "site")
    places = [tmp_path / "site" / path for path in libraries]
    result = run_hip(runtime=HipRuntime.KPACK, libraries=places, gpus=["gfx1030"])
    assert result.load_errors == {}
    assert all(registration.accepted for registration in result.registrations)
    [wrapper] = wrappers_of({"": libraries["pkg/wanted.so"]})
    assert [code.sha256 for code in result.loaded] == [wrapper.digests["gfx1030"]]
    twice = pack(report.output, tmp_path / "twice", make_config())
    assert twice.output.read_bytes() == report.output.read_bytes()


def test_unknown_processors_are_packed_under_their_own_names(tmp_path: Path) -> None:
    library = fat_library(["gfx803", "gfx940", "gfx2000"], ["gfx1100"])
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    report = pack(source, tmp_path / "packed", make_config())
    assert {"gfx803", "gfx940", "gfx2000"} <= {archive.family for archive in report.archives}
    [warning] = [text for text in report.warnings if "gfx2000" in text]
    assert "gfx803" in warning


def test_repeated_bytes_are_counted(tmp_path: Path) -> None:
    """A generic object that native archives need for a wrapper is in them as well as in its own."""
    library = fat_library(["gfx1100"], ["gfx11-generic"])
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    report = pack(source, tmp_path / "packed", make_config())
    repeated = sum(archive.repeated_bytes for archive in report.archives)
    stored = sum(archive.original_bytes for archive in report.archives)
    [index] = indexes_of(report.output).values()
    different = {row["sha256"]: row["size"] for row in index["code_objects"]}
    assert stored - repeated == sum(different.values())
    assert repeated > 0
