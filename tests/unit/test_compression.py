"""The registry of schemes."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.compression import (
    COMPRESSION_SCHEMES,
    Compressor,
    NoOpCompressor,
    StreamingCompressor,
    ZstdCompressor,
    create_compressor,
    create_compressor_from_toc,
)
from kpack_build.errors import ConfigError, FormatError
from tests.archives import BackwardsCompressor, archive_bytes, example_toc

if TYPE_CHECKING:
    from pathlib import Path


def install(folder: Path, scheme: str, target: str) -> None:
    """Make a distribution that registers a scheme."""
    info = folder / "somebody-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[kpack_build.compression]\n{scheme} = {target}\n", encoding="utf-8"
    )


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test loads."""
    for name in ("backwards", "broken"):
        monkeypatch.setitem(COMPRESSION_SCHEMES, name, BackwardsCompressor)
        monkeypatch.delitem(COMPRESSION_SCHEMES, name)


def test_built_in_schemes() -> None:
    assert {"none": NoOpCompressor, "zstd-per-kernel": ZstdCompressor} == COMPRESSION_SCHEMES
    assert isinstance(create_compressor("none", level=9), NoOpCompressor)
    zstd = create_compressor("zstd-per-kernel", level=9)
    assert isinstance(zstd, ZstdCompressor)
    assert zstd.compression_level == 9
    default = create_compressor("zstd-per-kernel")
    assert isinstance(default, ZstdCompressor)
    assert default.compression_level == 3
    assert isinstance(default, StreamingCompressor)
    assert not isinstance(BackwardsCompressor(), StreamingCompressor)


def test_built_in_schemes_cost_no_metadata() -> None:
    code = (
        "import sys; from kpack_build.compression import create_compressor;"
        "create_compressor('zstd-per-kernel'); print('importlib.metadata' in sys.modules)"
    )
    lines = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert lines.stdout == "False\n"


def test_registered_scheme_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "backwards", "tests.archives:BackwardsCompressor")
    monkeypatch.syspath_prepend(tmp_path / "site")
    compressor = create_compressor("backwards", level=5)
    assert isinstance(compressor, BackwardsCompressor)
    with PackedKernelArchive("g", "f", ["x"], tmp_path / "a.kpkb", compressor) as archive:
        archive.add_kernel(archive.prepare_kernel("a", "x", b"abc"))
    with PackedKernelArchive.read(tmp_path / "a.kpkb") as archive:
        assert archive.compression_scheme == "backwards"
        assert archive.get_kernel("a", "x") == b"abc"


@pytest.mark.parametrize("target", ["json:dumps", "collections:OrderedDict"])
def test_entry_point_that_is_no_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    install(tmp_path, "broken", target)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        create_compressor("broken")
    assert caught.value.key == "scheme"


def test_unknown_scheme() -> None:
    with pytest.raises(ConfigError) as caught:
        create_compressor("lzma-of-nobody")
    assert caught.value.key == "scheme"
    assert "zstd-per-kernel" in caught.value.allowed
    assert not importlib.metadata.entry_points(group="kpack_build.compression", name="lzma-of-nobody")


@pytest.mark.parametrize("scheme", ["lzma-of-nobody", "", 5, None, ["none"]])
def test_table_with_unknown_scheme(tmp_path: Path, scheme: object) -> None:
    (tmp_path / "a.kpack").write_bytes(archive_bytes(example_toc()))
    with pytest.raises(FormatError) as caught:
        create_compressor_from_toc(example_toc(compression_scheme=scheme), tmp_path / "a.kpack")
    assert caught.value.found == repr(scheme)
    assert isinstance(caught.value, ValueError)


def test_table_without_scheme_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.kpack").write_bytes(archive_bytes(example_toc()))
    compressor = create_compressor_from_toc(example_toc(compression_scheme=...), tmp_path / "a.kpack")
    assert isinstance(compressor, NoOpCompressor)
    assert bytes(compressor.decompress_kernel(0)) == b"kernel"


def test_what_a_scheme_need_not_implement() -> None:
    compressor = BackwardsCompressor()
    compressor.finalize([("a@x", compressor.prepare_kernel(b"abc", "a@x"))])
    assert compressor.kernel_size(0) == 3
    assert isinstance(compressor, Compressor)
    assert not compressor.READ_BY_ROCM
    compressor.close()
