"""The zip writer, read back by other readers."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import KpackError
from kpack_build.wheel import zipwriter
from kpack_build.wheel.zipreader import ZipReader
from kpack_build.wheel.zipwriter import DEFLATED, STORED, Packed, ZipEntry, ZipWriter

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

DATE = (2021, 3, 4, 5, 6, 8)


def entry(name: str, method: int = DEFLATED, mode: int = 0o100755) -> ZipEntry:
    return ZipEntry(name=name, date_time=DATE, method=method, external_attr=mode << 16)


def write(stream: io.BytesIO, members: dict[str, bytes], method: int = DEFLATED) -> None:
    writer = ZipWriter(stream)
    for name, data in members.items():
        half = len(data) // 2
        writer.add(entry(name, method), len(data), [data[:half], data[half:]])
    writer.close()


def central_extra(data: bytes, name: bytes) -> bytes:
    """Return the extra field of a member's central header."""
    start = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02"))
    while True:
        name_size, extra_size, comment_size = struct.unpack_from("<3H", data, start + 28)
        if data[start + 46 : start + 46 + name_size] == name:
            return data[start + 46 + name_size : start + 46 + name_size + extra_size]
        start += 46 + name_size + extra_size + comment_size


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_what_is_written_is_read_by_zipfile(method: int) -> None:
    stream = io.BytesIO()
    members = {"a/b": b"hello" * 1000, "ünï": b"", "z": os.urandom(5000)}
    write(stream, members, method)
    with zipfile.ZipFile(stream) as archive:
        assert archive.testzip() is None
        assert {info.filename: archive.read(info) for info in archive.infolist()} == members
        for info in archive.infolist():
            assert info.date_time == DATE
            assert info.external_attr >> 16 == 0o100755
            assert info.compress_type == method
            assert info.extra == b""
            assert not info.flag_bits & 0x8


def test_equal_members_give_equal_bytes() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write(first, {"a": b"x" * 100})
    write(second, {"a": b"x" * 100})
    assert first.getvalue() == second.getvalue()


def test_a_member_of_another_size_than_announced_is_refused() -> None:
    with pytest.raises(KpackError):
        ZipWriter(io.BytesIO()).add(entry("a"), 3, [b"ab"])


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_zip64_fields_stand_in_both_headers(
    method: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(zipwriter, "ZIP64_LIMIT", 3000)
    members = {"small": b"s" * 10, "big": b"b" * 5000, "late": b"l"}
    stream = io.BytesIO()
    write(stream, members, method)
    with zipfile.ZipFile(stream) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members
        big = archive.getinfo("big")
    data = stream.getvalue()
    start = big.header_offset
    name_size, extra_size = struct.unpack_from("<2H", data, start + 26)
    local_extra = data[start + 30 + name_size : start + 30 + name_size + extra_size]
    sizes = struct.pack("<2Q", big.file_size, big.compress_size)
    assert data[start + 18 : start + 26] == b"\xff" * 8
    assert local_extra == struct.pack("<2H", 1, 16) + sizes
    assert central_extra(data, b"big") == struct.pack("<2H", 1, 16) + sizes
    late = central_extra(data, b"late")
    assert (late != b"") == (archive.getinfo("late").header_offset > 3000)
    path = tmp_path / "w.zip"
    path.write_bytes(data)
    reader = ZipReader(path)
    reader.check_layout()
    assert {info.filename: b"".join(reader.iter_content(info)) for info in reader.infos} == members
    reader.close()


def test_many_members_need_zip64_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipwriter, "COUNT_LIMIT", 2)
    stream = io.BytesIO()
    write(stream, dict.fromkeys("abc", b""))
    assert b"PK\x06\x06" in stream.getvalue()
    with zipfile.ZipFile(stream) as archive:
        assert archive.namelist() == list("abc")


def test_more_members_than_a_plain_field_holds() -> None:
    stream = io.BytesIO()
    write(stream, {f"m{number}": b"" for number in range(65_537)}, STORED)
    with zipfile.ZipFile(stream) as archive:
        assert len(archive.infolist()) == 65_537


def zeros(blocks: int) -> tuple[Packed, list[bytes]]:
    """Return the deflated form of that many blocks of 16 MiB zeros, which is small."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = deflater.compress(bytes(1 << 24)) + deflater.flush(zlib.Z_FULL_FLUSH)
    chunks = [block] * blocks + [deflater.flush()]
    packed = Packed(crc=0, size=blocks << 24, stored_size=sum(map(len, chunks)))
    return packed, chunks


def test_members_and_offsets_over_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "big.zip"
    packed, chunks = zeros(257)
    with path.open("wb") as stream:
        # The file has a hole of 5 GiB at its beginning, so that offsets are large without any writing.
        stream.seek(5 << 30)
        writer = ZipWriter(stream)
        writer.copy(entry("huge"), packed, chunks)
        writer.add(entry("after"), 3, [b"abc"])
        writer.close()
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("huge").file_size == 257 << 24
        assert archive.getinfo("huge").header_offset == 5 << 30
        assert archive.read("after") == b"abc"
        with archive.open("huge") as member:
            assert member.read(1000) == bytes(1000)
    reader = ZipReader(path)
    reader.check_layout()
    assert [info.file_size for info in reader.infos] == [257 << 24, 3]
    reader.close()
