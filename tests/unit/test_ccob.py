from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import IO

import pytest
import zstandard

from kpack_build import ccob
from kpack_build.bundle import (
    Bundle,
    BundleEntry,
    EntryKind,
    parse_bundle,
    plain_header,
    write_bundle,
)
from kpack_build.ccob import CcobMethod, write_ccob
from kpack_build.errors import FormatError, KpackError
from tests.fixtures.bundles import encodings, entry_id, fat_bundle

PATH = Path("libfat.so")
PLAIN = fat_bundle("gfx90a:sramecc+:xnack-", "gfx1100", "gfx11-generic", "gfx1300")
ENCODED = dict(encodings(PLAIN))


def parse(data: bytes) -> Bundle:
    return parse_bundle(memoryview(data), 0, limit=len(data), path=PATH)


def with_claims(
    name: str, *, total: int | None = None, size: int | None = None, digest: int | None = None
) -> bytes:
    """Change what the header of a version 3 bundle says."""
    data = bytearray(ENCODED[name])
    for place, value in ((8, total), (16, size), (24, digest)):
        if value is not None:
            struct.pack_into("<Q", data, place, value)
    return bytes(data)


V3 = ("ccob-v3-zlib", "ccob-v3-zstd")


@pytest.mark.parametrize("name", V3)
@pytest.mark.parametrize("total", [0, 31, 1 << 32, (1 << 64) - 1])
def test_a_total_size_that_cannot_be_is_refused(name: str, total: int) -> None:
    with pytest.raises(FormatError):
        parse(with_claims(name, total=total))


@pytest.mark.parametrize("name", V3)
@pytest.mark.parametrize("size", [1 << 40, (1 << 64) - 1])
def test_a_decoded_size_that_no_payload_can_have_is_refused_at_once(name: str, size: int) -> None:
    with pytest.raises(FormatError):
        parse(with_claims(name, size=size))


def decode(data: bytes) -> None:
    with parse(data).open_decoded():
        pass


@pytest.mark.parametrize("name", V3)
@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_a_wrong_decoded_size_is_refused(name: str, difference: int) -> None:
    with pytest.raises(FormatError):
        decode(with_claims(name, size=len(PLAIN) + difference))


@pytest.mark.parametrize("name", V3)
def test_a_wrong_hash_is_refused(name: str) -> None:
    with pytest.raises(FormatError) as raised:
        decode(with_claims(name, digest=1))
    assert raised.value.expected == "0x0000000000000001"


@pytest.mark.parametrize("name", V3)
def test_data_that_ends_before_the_bundle_does_is_refused(name: str) -> None:
    longer = with_claims(name, total=len(ENCODED[name]) + 5) + b"extra"
    with pytest.raises(FormatError):
        decode(longer)


@pytest.mark.parametrize(("place", "value"), [(4, 0), (4, 4), (6, 2)])
def test_unknown_versions_and_methods_are_refused(place: int, value: int) -> None:
    data = bytearray(ENCODED["ccob-v3-zstd"])
    struct.pack_into("<H", data, place, value)
    with pytest.raises(FormatError):
        parse(bytes(data))


def zstd_ccob(payload: bytes, plain: bytes) -> bytes:
    header = struct.pack("<4sHHQQQ", b"CCOB", 3, 1, 32 + len(payload), len(plain), ccob.plain_digest(plain))
    return header + payload


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("content_size", [False, True])
def test_other_ways_to_write_a_zstd_frame(*, checksum: bool, content_size: bool) -> None:
    plain = fat_bundle("gfx1100") + b"\1" * 300_000
    compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=content_size)
    with parse(zstd_ccob(compressor.compress(plain), plain)).open_decoded() as decoded:
        assert decoded.data == plain


@pytest.mark.parametrize("memory_limit", [100, 1 << 20])
def test_damage_behind_the_entry_table_is_found(memory_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccob, "MEMORY_LIMIT", memory_limit)
    plain = write_bundle([(entry_id("gfx1100"), os.urandom(300_000))])
    stored = bytearray(zstd_ccob(zstandard.ZstdCompressor(write_checksum=True).compress(plain), plain))
    stored[-1000] ^= 1
    bundle = parse(bytes(stored))
    with pytest.raises(FormatError), bundle.open_decoded():
        pass


def test_a_file_that_takes_more_than_was_claimed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccob, "MEMORY_LIMIT", 100)
    monkeypatch.setattr(ccob, "_CHUNK", 1000)
    payload = zlib.compress(PLAIN + bytes(1 << 20))
    header = struct.pack("<4sHHQQQ", b"CCOB", 3, 0, 32 + len(payload), len(PLAIN), ccob.plain_digest(PLAIN))
    with pytest.raises(FormatError) as raised:
        decode(header + payload)
    assert isinstance(raised.value.found, int)
    assert len(PLAIN) < raised.value.found <= len(PLAIN) + 1000


def huge_ccob(table: bytes, blocks: int) -> bytes:
    """Write a bundle of a table and as many blocks of 128 KiB of zeros, without ever having it in memory."""
    size = len(table) + blocks * (128 << 10)
    frame = [
        struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x38, size),
        (len(table) << 3).to_bytes(3, "little"),
        table,
    ]
    frame += [((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"] * (blocks - 1)
    frame.append(((128 << 10) << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0")
    payload = b"".join(frame)
    return struct.pack("<4sHHQQQ", b"CCOB", 3, 1, 32 + len(payload), size, 0) + payload


def test_sizes_above_4_gib_are_read_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccob.CcobPayload, "decode", None)
    large = 5 << 30
    table = plain_header(
        [
            BundleEntry(
                id=entry_id(name), kind=EntryKind.CODE_OBJECT, target=None, offset=offset, size=1 << 30
            )
            for name, offset in (("gfx1100", 4096), ("gfx1101", large))
        ]
    )
    bundle = parse(huge_ccob(table, (6 << 30) // (128 << 10)))
    assert bundle.decoded_size > large
    assert [entry.offset for entry in bundle.entries] == [4096, large]


def test_a_second_zstd_frame_is_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(PLAIN)
    with pytest.raises(FormatError):
        decode(zstd_ccob(frame + frame, PLAIN))


@pytest.mark.parametrize("name", V3)
def test_large_bundles_are_decoded_into_an_unlinked_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    temporary_file = tempfile.TemporaryFile

    def note(*, prefix: str) -> IO[bytes]:
        opened.append(prefix)
        return temporary_file(prefix=prefix)

    monkeypatch.setattr(ccob, "MEMORY_LIMIT", 100)
    monkeypatch.setattr(tempfile, "TemporaryFile", note)
    bundle = parse(ENCODED[name])
    with bundle.open_decoded() as decoded:
        assert decoded.data == PLAIN
        assert decoded.unaccounted() == []
    assert len(opened) == 1
    for difference in (-1, 1):
        with pytest.raises(FormatError):
            decode(with_claims(name, size=len(PLAIN) + difference))
    with pytest.raises(FormatError):
        decode(with_claims(name, digest=1))


def test_a_bundle_too_large_for_its_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccob, "_FIELDS", {2: struct.Struct("<BBQ")})
    with pytest.raises(KpackError):
        write_ccob(bytes(1000), version=2, method=CcobMethod.ZLIB, level=1)
