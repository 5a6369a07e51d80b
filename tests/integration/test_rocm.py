"""ROCm's reader answers as its format says; the archive is written here by hand, byte for byte."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import msgpack
import pytest

from tests.rocm import RocmError, RocmKpackArchive, RocmKpackCache, discover_binary_path

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

pytestmark = pytest.mark.rocm

CODE = b"\x7fELF, or what passes for it"


def write_archive(path: Path, binary: str, arch: str, code: bytes) -> None:
    toc = {
        "format_version": 1,
        "group_name": "g",
        "gfx_arch_family": arch,
        "gfx_arches": [arch],
        "toc": {binary: {arch: {"type": "hsaco", "ordinal": 0, "original_size": len(code)}}},
        "compression_scheme": "none",
        "blobs": [{"offset": 64, "size": len(code)}],
    }
    path.write_bytes(b"KPAK" + struct.pack("<IQ", 1, 64 + len(code)) + bytes(48) + code + msgpack.packb(toc))


def test_archive_is_read(tmp_path: Path) -> None:
    write_archive(tmp_path / "g-gfx1100.kpack", "lib.so#0", "gfx1100", CODE)
    with RocmKpackArchive(tmp_path / "g-gfx1100.kpack") as archive:
        assert archive.architectures == ["gfx1100"]
        assert archive.binaries == ["lib.so#0"]
        assert archive.get_kernel("lib.so#0", "gfx1100") == CODE
        assert isinstance(archive.get_kernel("lib.so#1", "gfx1100"), int)


def test_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.kpack").write_bytes(bytes(128))
    with pytest.raises(RocmError) as caught:
        RocmKpackArchive(tmp_path / "bad.kpack")
    assert caught.value.code != 0


@pytest.mark.parametrize("by_address", [False, True])
def test_code_object_is_found_as_hip_finds_it(tmp_path: Path, *, by_address: bool) -> None:
    write_archive(tmp_path / "g-gfx1100.kpack", "pkg/lib.so#1", "gfx1100", CODE)
    reference = msgpack.packb({"kernel_name": "pkg/lib.so", "kpack_search_paths": ["g-gfx1100.kpack"]})
    buffer = ctypes.create_string_buffer(reference, len(reference))
    metadata = ctypes.addressof(buffer) if by_address else reference
    with RocmKpackCache() as cache:
        found = cache.load_code_object(metadata, tmp_path / "lib.so", 1, ["gfx1100:x+", "gfx1100"])
        absent = cache.load_code_object(metadata, tmp_path / "lib.so", 0, ["gfx1100"])
        other = cache.load_code_object(metadata, tmp_path / "lib.so", 1, ["gfx1101"])
    assert found == CODE
    assert isinstance(absent, int)
    assert isinstance(other, int)


def test_binary_of_an_address_is_found() -> None:
    strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    assert strlen is not None
    path, _ = discover_binary_path(strlen)
    assert path.name.startswith("libc")
