"""What ROCm's own reader makes of `ROCM_KPACK_PATH_PREFIX`, which the loader sets where no direct path is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgpack
import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.runtime._locations import PREFIX, offer_prefix
from tests.rocm import RocmKpackCache

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.corpus, pytest.mark.rocm]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages with an archive each, for the same target."""
    # Set, and not only deleted, so that it is deleted again after the test.
    monkeypatch.setenv(PREFIX, "")
    for package in ("first", "second"):
        archive = PackedKernelArchive(package, "gfx110x", ["gfx1100"])
        archive.add_kernel(archive.prepare_kernel(f"{package}/_C.so#0", "gfx1100", package.encode()))
        archive.finalize_archive()
        (tmp_path / package / ".kpack").mkdir(parents=True)
        archive.write(archive_of(tmp_path, package))
    return tmp_path


def archive_of(site: Path, package: str) -> Path:
    return site / package / ".kpack" / f"{package}-gfx110x.kpack"


def ask(folder: Path, package: str) -> bytes | int:
    """Ask for the code of a package whose binary is really in `folder`."""
    paths = [f".kpack/{package}-gfx110x.kpack"]
    metadata = msgpack.packb({"kernel_name": f"{package}/_C.so", "kpack_search_paths": paths})
    with RocmKpackCache() as cache:
        return cache.load_code_object(metadata, folder / "_C.so", 0, ["gfx1100"])


def test_the_prefix_names_archives_that_no_path_leads_to(site: Path) -> None:
    store = site / "store"
    assert isinstance(ask(store, "first"), int)
    offer_prefix([str(archive_of(site, "first"))], os.environ)
    assert ask(store, "first") == b"first"


def test_an_archive_in_the_prefix_hides_others_of_its_target(site: Path) -> None:
    """This is why the loader sets it only where it must, and adds behind what is there."""
    assert ask(site / "second", "second") == b"second"
    offer_prefix([str(archive_of(site, "first"))], os.environ)
    assert isinstance(ask(site / "second", "second"), int)
    offer_prefix([str(archive_of(site, "second"))], os.environ)
    assert ask(site / "first", "first") == b"first"
