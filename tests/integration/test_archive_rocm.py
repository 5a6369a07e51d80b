"""ROCm's own reader finds in our archives what we put in, and we in what it takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.compression import COMPRESSION_SCHEMES, ZstdCompressor
from tests.archives import (
    KERNELS,
    BackwardsCompressor,
    archive_bytes,
    compressor_of,
    example_toc,
    save_example,
)
from tests.rocm import RocmError, RocmKpackArchive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rocm

SCHEMES = ["none", "zstd-per-kernel"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_kernels_are_the_same(tmp_path: Path, scheme: str) -> None:
    save_example(tmp_path / "a.kpack", scheme)
    with (
        RocmKpackArchive(tmp_path / "a.kpack") as rocm,
        PackedKernelArchive.read(tmp_path / "a.kpack") as own,
    ):
        assert rocm.architectures == own.gfx_arches
        assert sorted(rocm.binaries) == sorted(own.toc)
        for (binary, arch), data in KERNELS.items():
            assert own.get_kernel(binary, arch) == data
            assert rocm.get_kernel(binary, arch) == data
        assert rocm.get_kernel("pkg/b.so#0", "gfx1101") == KERNELS["pkg/a.so#0", "gfx1100"]
        assert isinstance(rocm.get_kernel("pkg/c.so#0", "gfx1100"), int)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("level", [1, 19])
def test_many_kernels_of_any_size(tmp_path: Path, scheme: str, level: int) -> None:
    contents = [os.urandom(size) + bytes(3 * size) for size in (1, 63, 64, 65, 4096, 70_000, 1_000_001)] * 9
    compressor = ZstdCompressor(level) if scheme == "zstd-per-kernel" else compressor_of(scheme)
    with PackedKernelArchive("g", "f", ["gfx942"], tmp_path / "a.kpack", compressor) as archive:
        for number, data in enumerate(contents):
            archive.add_kernel(archive.prepare_kernel(f"a#{number}", "gfx942", data, {"n": number}))
    with RocmKpackArchive(tmp_path / "a.kpack") as rocm:
        for number, data in enumerate(contents):
            assert rocm.get_kernel(f"a#{number}", "gfx942") == data


def test_qualified_and_generic_targets(tmp_path: Path) -> None:
    targets = ["gfx90a:sramecc+:xnack-", "gfx90a", "gfx11-generic"]
    with PackedKernelArchive("g", "f", targets, tmp_path / "a.kpack", ZstdCompressor()) as archive:
        for target in targets:
            archive.add_kernel(archive.prepare_kernel("a#0", target, target.encode()))
    with RocmKpackArchive(tmp_path / "a.kpack") as rocm:
        assert [rocm.get_kernel("a#0", target) for target in targets] == [
            target.encode() for target in targets
        ]


@pytest.mark.parametrize("changes", [{"compression_scheme": ...}, {"new_key": {"a": [1]}}])
def test_what_rocm_takes_we_take(tmp_path: Path, changes: dict[str, object]) -> None:
    (tmp_path / "a.kpack").write_bytes(archive_bytes(example_toc(**changes)))
    with (
        RocmKpackArchive(tmp_path / "a.kpack") as rocm,
        PackedKernelArchive.read(tmp_path / "a.kpack") as own,
    ):
        assert rocm.get_kernel("a#0", "gfx1100") == own.get_kernel("a#0", "gfx1100") == b"kernel"


def test_foreign_scheme_is_refused_by_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPRESSION_SCHEMES, "backwards", BackwardsCompressor)
    with PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpkb", BackwardsCompressor()) as archive:
        archive.add_kernel(archive.prepare_kernel("a", "x", b"abc"))
    with pytest.raises(RocmError):
        RocmKpackArchive(tmp_path / "a.kpkb")
