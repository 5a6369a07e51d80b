from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kpack_build.bundle import CcobMethod, write_bundle, write_ccob
from kpack_build.errors import ConversionError
from kpack_build.hostbinary import BinaryState, open_host_binary, restore
from tests.converted import REFERENCE, convert
from tests.elfbuilder import ElfOptions, build_elf, code_object

if TYPE_CHECKING:
    from pathlib import Path

HOST = ("host-x86_64-unknown-linux-gnu-", b"")
#: Compressible, and the more so the harder one tries.
WORDS = b"".join(b"%d,%d;" % (number * number % 977, number % 31) for number in range(20_000))
PLAIN = write_bundle(
    [HOST, *((f"hipv4-amdgcn-amd-amdhsa--gfx{name}", code_object() + WORDS) for name in (1100, 1101))]
)


def written(directory: Path, *bundles: bytes) -> Path:
    path = directory / "lib.so"
    options = ElfOptions(bundles=bundles, wrappers=tuple(range(len(bundles))))
    path.write_bytes(build_elf(options))
    return path


def test_other_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "text.py"
    path.write_text("import this\n", encoding="utf-8")
    assert open_host_binary(path) is None


@pytest.mark.parametrize(
    ("version", "method", "level"),
    [(2, CcobMethod.ZSTD, 3), (3, CcobMethod.ZSTD, 3), (3, CcobMethod.ZSTD, 19), (1, CcobMethod.ZLIB, 6)],
)
def test_compressed_bundles_come_back(tmp_path: Path, version: int, method: CcobMethod, level: int) -> None:
    stored = write_ccob(PLAIN, version=version, method=method, level=level)
    source = written(tmp_path, stored, PLAIN)
    result = convert(source, tmp_path / "out.so")
    back = tmp_path / "back.so"
    assert restore(result.path, result.record, result.objects.__getitem__, back)
    assert back.read_bytes() == source.read_bytes()


def test_unknown_compression_gives_equal_code_objects(tmp_path: Path) -> None:
    stored = write_ccob(PLAIN, version=3, method=CcobMethod.ZSTD, level=1)
    source = written(tmp_path, stored)
    result = convert(source, tmp_path / "out.so")
    back = tmp_path / "back.so"
    assert not restore(result.path, result.record, result.objects.__getitem__, back)
    assert back.stat().st_size == source.stat().st_size
    again = convert(back, tmp_path / "again.so")
    assert again.objects == result.objects


def test_kept_bytes_come_back(tmp_path: Path) -> None:
    stored = write_ccob(PLAIN, version=3, method=CcobMethod.ZSTD, level=1)
    source = written(tmp_path, stored)
    binary = open_host_binary(source)
    assert binary is not None
    with binary:
        [bundle] = binary.bundles
        objects: list[list[int | None]] = [[None] * len(bundle.entries)]
        record = binary.to_hipk(tmp_path / "out.so", REFERENCE, objects, kept={0: 5})
    assert restore(tmp_path / "out.so", record, {5: stored}.__getitem__, tmp_path / "back.so")
    assert (tmp_path / "back.so").read_bytes() == source.read_bytes()


def test_bundle_that_does_not_fit(tmp_path: Path) -> None:
    source = written(tmp_path, write_ccob(PLAIN, version=3, method=CcobMethod.ZSTD, level=3))
    result = convert(source, tmp_path / "out.so")
    result.record["bundles"][0]["room"] = 40
    with pytest.raises(ConversionError):
        restore(result.path, result.record, result.objects.__getitem__, tmp_path / "back.so")
    assert not (tmp_path / "back.so").exists()


def test_changed_binary(tmp_path: Path) -> None:
    result = convert(written(tmp_path, PLAIN), tmp_path / "out.so")
    data = bytearray(result.path.read_bytes())
    data[0x300] ^= 1
    result.path.write_bytes(data)
    with pytest.raises(ConversionError) as error:
        restore(result.path, result.record, result.objects.__getitem__, tmp_path / "back.so")
    assert error.value.path == result.path
    assert not (tmp_path / "back.so").exists()


def test_bundles_outlive_the_binary(tmp_path: Path) -> None:
    binary = open_host_binary(written(tmp_path, PLAIN))
    assert binary is not None
    assert binary.state is BinaryState.FAT
    [bundle] = binary.bundles
    binary.close()
    binary.close()
    with bundle.open_decoded() as decoded:
        assert bytes(decoded.entry(bundle.entries[1])) == code_object() + WORDS
