"""From wherever a packed library is loaded, HIP finds its archives.

Search paths in the library start at the directory of the file that is mapped, symbolic links resolved.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kpack_build.config import parse_config
from kpack_build.pipeline import pack
from tests.fixtures.build import build_variant
from tests.topology import write_topology
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.hip import HipResult
    from tests.runtime.plugin import HipCases

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm, pytest.mark.clang]

GPU = "gfx1100"
LIBRARY = "thing/lib/libthing.so"
NO_CODE = {98}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is loaded, a path or a name for the dynamic linker to search for, and the variables to set."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A packed tree with a package and a library in it, in a folder with an unusual name."""
    files = {"thing/__init__.py": b"", LIBRARY: build_variant("plain-22").read_bytes()}
    source = write_tree_of_wheel(tmp_path / "site", files)
    return pack(source, tmp_path / "pack ed é", parse_config({"level": 1}, source="the test")).output


def as_installed(site: Path, _: Path) -> Place:
    return Place(path=site / LIBRARY)


def in_a_linked_folder(site: Path, scratch: Path) -> Place:
    (scratch / "site-packages").symlink_to(site)
    return Place(path=scratch / "site-packages" / LIBRARY)


def with_a_linked_package(site: Path, scratch: Path) -> Place:
    (scratch / "site-packages").mkdir()
    (scratch / "site-packages" / "thing").symlink_to(site / "thing")
    return Place(path=scratch / "site-packages" / LIBRARY)


def with_each_file_linked(site: Path, scratch: Path) -> Place:
    shutil.copytree(site, scratch / "site", copy_function=os.symlink)
    return Place(path=scratch / "site" / LIBRARY)


def with_each_file_hard_linked(site: Path, scratch: Path) -> Place:
    shutil.copytree(site, scratch / "site", copy_function=os.link)
    shutil.rmtree(site)
    return Place(path=scratch / "site" / LIBRARY)


def by_a_versioned_name(site: Path, _: Path) -> Place:
    library = site / LIBRARY
    library.rename(library.with_name("libthing.so.1.2.3"))
    library.with_name("libthing.so.1").symlink_to("libthing.so.1.2.3")
    library.symlink_to("libthing.so.1")
    return Place(path=library)


def by_a_link_from_elsewhere(site: Path, scratch: Path) -> Place:
    (scratch / "usr").mkdir()
    link = scratch / "usr" / "libanother.so"
    link.symlink_to(site / LIBRARY)
    return Place(path=link)


def by_name(site: Path, _: Path) -> Place:
    return Place(path=Path("libthing.so"), environment={"LD_LIBRARY_PATH": str((site / LIBRARY).parent)})


def by_a_roundabout_way(site: Path, _: Path) -> Place:
    return Place(path=site / "thing" / "lib" / ".." / "lib" / "." / "libthing.so")


def moved_as_a_whole(site: Path, scratch: Path) -> Place:
    shutil.copytree(site, scratch / "unzipped")
    shutil.rmtree(site)
    return Place(path=scratch / "unzipped" / LIBRARY)


PLACES = (
    as_installed,
    in_a_linked_folder,
    with_a_linked_package,
    with_each_file_linked,
    with_each_file_hard_linked,
    by_a_versioned_name,
    by_a_link_from_elsewhere,
    by_name,
    by_a_roundabout_way,
    moved_as_a_whole,
)


def targets(result: HipResult) -> list[str]:
    assert result.returncode == 0, result.stderr
    assert result.load_errors == {}
    return [target for target, _ in result.reached.values()]


@pytest.mark.parametrize("hip_first", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_archives_are_found(
    hip_runtime: HipCases,
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[Path, Path], Place],
    *,
    hip_first: bool,
) -> None:
    (tmp_path / "scratch").mkdir()
    found = place(site, tmp_path / "scratch")
    # In this process, so that the runtime's own folders are added to what is there.
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    result = hip_runtime([GPU], found.path, hip_first=hip_first)
    assert targets(result) == [GPU, GPU]
    assert {kernel.code for kernel in result.kernels} == {0}


def test_a_library_alone_needs_to_be_told(hip_runtime: HipCases, site: Path, tmp_path: Path) -> None:
    """A copy of the library without its archives, as programs that carry everything in one file make it."""
    copy = Path(shutil.copy(site / LIBRARY, tmp_path))
    lost = hip_runtime([GPU], copy)
    assert targets(lost) == []
    assert {kernel.code for kernel in lost.kernels} == NO_CODE
    archives = ":".join(map(str, (site / "thing" / ".kpack").glob("*.kpack")))
    told = hip_runtime([GPU], copy, environment={"ROCM_KPACK_PATH_PREFIX": archives})
    assert targets(told) == [GPU, GPU]


def test_the_loader_mends_a_store_of_single_files(hip_runtime: HipCases, site: Path, tmp_path: Path) -> None:
    """Each file lies in a folder of its own, the package has links to them: no path leads to archives."""
    scattered, store = tmp_path / "scattered", tmp_path / "store"

    def scatter(source: str, destination: str) -> None:
        place = store / str(len(list(store.iterdir()))) / Path(destination).name
        place.parent.mkdir()
        shutil.copy(source, place)
        Path(destination).symlink_to(place)

    store.mkdir()
    shutil.copytree(site, scattered, copy_function=scatter)
    variables = {
        "PYTHONPATH": str(scattered),
        "KPACK_TOPOLOGY_ROOT": str(write_topology(tmp_path / "topology", [GPU])),
    }
    lost = hip_runtime([GPU], scattered / LIBRARY, environment=variables)
    assert targets(lost) == []
    mended = hip_runtime([GPU], scattered / LIBRARY, imports=["thing"], environment=variables)
    assert targets(mended) == [GPU, GPU]
    assert mended.stderr == ""
    # HIP has read its environment when the package comes: all that the loader can do is to say so.
    late = hip_runtime([GPU], scattered / LIBRARY, imports=["thing"], hip_first=True, environment=variables)
    assert targets(late) == []
    assert "ROCM_KPACK_PATH_PREFIX" in late.stderr
