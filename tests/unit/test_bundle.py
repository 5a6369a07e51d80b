from __future__ import annotations

import mmap
import os
import struct
import threading
from pathlib import Path

import pytest

from kpack_build import ccob
from kpack_build.bundle import (
    PLAIN_MAGIC,
    Bundle,
    BundleEncoding,
    BundleEntry,
    CcobMethod,
    EntryKind,
    entry_target,
    iter_bundles,
    parse_bundle,
    plain_header,
    write_bundle,
    write_ccob,
)
from kpack_build.errors import FormatError
from kpack_build.targets import TargetId
from tests.fixtures.bundles import HOST_ID, chain, encodings, entry_id, fat_bundle, fat_entries

PATH = Path("libfat.so")
TARGETS = ("gfx90a:sramecc+:xnack-", "gfx1100", "gfx11-generic", "gfx1300")
PLAIN = fat_bundle(*TARGETS)
ENCODED = dict(encodings(PLAIN))


def parse(data: bytes, offset: int = 0) -> Bundle:
    return parse_bundle(memoryview(data), offset, limit=len(data), path=PATH)


def table(*rows: tuple[int, int, bytes]) -> bytes:
    """Write an entry table by hand: offset, size and id of each entry."""
    parts = [PLAIN_MAGIC, struct.pack("<Q", len(rows))]
    for offset, size, name in rows:
        parts.append(struct.pack("<QQQ", offset, size, len(name)) + name)
    return b"".join(parts)


@pytest.fixture(params=ENCODED)
def encoded(request: pytest.FixtureRequest) -> bytes:
    return ENCODED[request.param]


def test_entries_of_every_encoding(encoded: bytes) -> None:
    bundle = parse(encoded)
    assert [entry.id for entry in bundle.entries] == [HOST_ID, *map(entry_id, TARGETS)]
    assert [entry.kind for entry in bundle.entries] == [EntryKind.HOST] + [EntryKind.CODE_OBJECT] * 4
    assert [entry.target for entry in bundle.entries] == [None, *map(TargetId.parse, TARGETS)]
    assert bundle.stored_size == len(encoded)
    assert bundle.decoded_size == len(PLAIN)
    with bundle.open_decoded() as decoded:
        assert decoded.data == PLAIN
        assert decoded.unaccounted() == []
        for entry, (name, data) in zip(bundle.entries, fat_entries(TARGETS), strict=True):
            assert (entry.id, bytes(decoded.entry(entry))) == (name, data)


def test_sizes_end_where_the_bundle_does(encoded: bytes) -> None:
    bundle = parse(b"before" + encoded + bytes(5000) + b"behind", offset=6)
    assert bundle.offset == 6
    assert bundle.stored_size == len(encoded)
    with bundle.open_decoded() as decoded:
        assert decoded.data == PLAIN


def test_encodings_are_told_apart() -> None:
    assert parse(PLAIN).encoding is BundleEncoding.PLAIN
    assert parse(PLAIN).ccob is None
    header = parse(ENCODED["ccob-v3-zstd"]).ccob
    assert header is not None
    assert (header.version, header.method, header.size) == (3, CcobMethod.ZSTD, 32)
    assert header.total_size == len(ENCODED["ccob-v3-zstd"])
    header = parse(ENCODED["ccob-v1-zlib"]).ccob
    assert header is not None
    assert (header.version, header.method, header.size, header.total_size) == (1, CcobMethod.ZLIB, 20, None)


def test_entries_of_a_plain_bundle_are_views_of_the_file() -> None:
    data = memoryview(PLAIN)
    bundle = parse_bundle(data, 0, limit=len(data), path=PATH)
    with bundle.open_decoded() as decoded:
        assert all(decoded.entry(entry).obj is data.obj for entry in bundle.entries)


def test_only_the_header_of_a_plain_bundle_is_read(tmp_path: Path) -> None:
    """A bundle of 6 GB, nearly all of it a hole."""
    size = 6 << 30
    header = table((4096, 0, HOST_ID.encode()), (4096, size, entry_id("gfx1100").encode()))
    path = tmp_path / "huge"
    path.write_bytes(header)
    os.truncate(path, 4096 + size)

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        bundle = parse_bundle(view, 0, limit=len(view), path=path)
        assert bundle.entries[1].size == size
        assert bundle.stored_size == bundle.decoded_size == 4096 + size
        del bundle
        view.release()


def test_a_compressed_bundle_is_decoded_only_as_far_as_its_table_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> memoryview:
        raise AssertionError

    monkeypatch.setattr(ccob.CcobPayload, "decode", refuse)
    entries = [(HOST_ID, b""), (entry_id("gfx1100"), os.urandom(4 << 20))]
    data = bytearray(write_ccob(write_bundle(entries), version=3, method=CcobMethod.ZSTD, level=1))
    data[-(1 << 20) :] = bytes(1 << 20)
    assert len(parse(bytes(data)).entries) == 2


@pytest.mark.parametrize(
    ("name", "size", "kind"),
    [
        ("host-x86_64-unknown-linux-gnu-", 0, EntryKind.HOST),
        ("host-x86_64-unknown-linux", 0, EntryKind.HOST),
        ("host-aarch64-unknown-linux-gnu-", 0, EntryKind.HOST),
        ("host-x86_64-unknown-linux-gnu-", 8, EntryKind.OTHER),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", 8, EntryKind.CODE_OBJECT),
        ("hip-amdgcn-amd-amdhsa--gfx906", 8, EntryKind.CODE_OBJECT),
        ("hip-amdgcn-amd-amdhsa-gfx906", 8, EntryKind.CODE_OBJECT),
        ("hipv4-amdgcn-amd-amdhsa-unknown-gfx942", 8, EntryKind.CODE_OBJECT),
        ("hipv4-amdgcn-amd-amdhsa--gfx1300", 8, EntryKind.CODE_OBJECT),
        ("hipv4-amdgcn-amd-amdhsa--gfx942", 0, EntryKind.OTHER),
        ("hipv4-amdgcn-amd-amdhsa--gfx942:tgsplit+", 8, EntryKind.OTHER),
        ("hipv4-spirv64-amd-amdhsa--amdgcnspirv", 8, EntryKind.OTHER),
        ("hip-spirv64-amd-amdhsa-unknown-amdgcnspirv", 8, EntryKind.OTHER),
        ("openmp-amdgcn-amd-amdhsa--gfx942", 8, EntryKind.OTHER),
        ("cuda-nvptx64-nvidia-cuda--sm_90", 8, EntryKind.OTHER),
        ("", 8, EntryKind.OTHER),
    ],
)
def test_kinds_of_entries(name: str, size: int, kind: EntryKind) -> None:
    [entry] = parse(write_bundle([(name, b"x" * size)])).entries
    assert entry.kind is kind
    assert entry.id == name
    assert (entry.target is not None) == (kind is EntryKind.CODE_OBJECT)


def test_a_second_code_object_for_a_target_is_not_lost() -> None:
    entries = parse(
        write_bundle([("hipv4-amdgcn-amd-amdhsa--gfx906", b"x"), ("hip-amdgcn-amd-amdhsa--gfx906", b"y")])
    ).entries
    assert [entry.kind for entry in entries] == [EntryKind.CODE_OBJECT, EntryKind.OTHER]


def test_targets_in_ids() -> None:
    assert entry_target("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:xnack+") == TargetId(
        processor="gfx9-4-generic", xnack=True
    )
    assert entry_target("host-x86_64-unknown-linux-gnu-") is None


def test_headers_are_written_back_as_they_were(encoded: bytes) -> None:
    bundle = parse(encoded)
    assert plain_header(bundle.entries) == PLAIN[: bundle.header_size]


def test_headers_of_entries_in_any_place_are_written_back() -> None:
    data = table((200, 3, b"b"), (150, 4, "ä".encode()), (1 << 60, 0, b"c")).ljust(203, b"\1")
    bundle = parse(data)
    assert plain_header(bundle.entries) == data[: bundle.header_size]
    assert bundle.stored_size == 203


def test_an_empty_bundle() -> None:
    bundle = parse(write_bundle([]))
    assert bundle.entries == ()
    assert bundle.stored_size == bundle.header_size == 32


def test_bytes_that_belong_to_nothing_are_told() -> None:
    data = bytearray(PLAIN)
    bundle = parse(PLAIN)
    second = bundle.entries[2]
    data[bundle.header_size] = 1
    data[second.offset - 3 : second.offset - 1] = b"\1\2"
    with parse(bytes(data)).open_decoded() as decoded:
        assert decoded.unaccounted() == [(bundle.header_size, 1), (second.offset - 3, 2)]


def test_bytes_behind_the_last_entry_of_a_compressed_bundle_are_told() -> None:
    data = write_ccob(PLAIN + b"\0\0\1\0\1\0", version=2, method=CcobMethod.ZSTD, level=3)
    with parse(data).open_decoded() as decoded:
        assert decoded.unaccounted() == [(len(PLAIN) + 2, 3)]


def test_overlapping_entries_leave_no_gap() -> None:
    data = table((150, 50, b"a"), (160, 10, b"b")).ljust(200, b"\0")
    with parse(data).open_decoded() as decoded:
        assert decoded.unaccounted() == []


@pytest.mark.parametrize("count", [1, 2, 64])
@pytest.mark.parametrize("name", ENCODED)
def test_bundles_one_after_another(name: str, count: int) -> None:
    """Readers that take the rest of the section for one bundle fail here (ROCm/llvm-project#448)."""
    plain = [fat_bundle("gfx1100", seed=seed) for seed in range(count)]
    section, places = chain([dict(encodings(data))[name] for data in plain])
    data = memoryview(b"front" + section + bytes(4096))
    bundles = list(iter_bundles(data, 5, len(data), PATH))
    assert [bundle.offset - 5 for bundle in bundles] == places
    for bundle, expected in zip(bundles, plain, strict=True):
        with bundle.open_decoded() as decoded:
            assert decoded.data == expected


def test_encodings_may_be_mixed() -> None:
    section, places = chain([*ENCODED.values()])
    bundles = list(iter_bundles(memoryview(section), 0, len(section), PATH))
    assert [bundle.offset for bundle in bundles] == places


def test_nothing_but_zeros_holds_no_bundle() -> None:
    assert list(iter_bundles(memoryview(bytes(10000)), 0, 10000, PATH)) == []


def test_something_else_between_bundles_is_refused() -> None:
    data = PLAIN + bytes(100) + b"something else" + PLAIN
    with pytest.raises(FormatError) as raised:
        list(iter_bundles(memoryview(data), 0, len(data), PATH))
    assert raised.value.offset == len(PLAIN) + 100


def test_llvms_offload_binary_is_named() -> None:
    with pytest.raises(FormatError) as raised:
        parse(b"\x10\xff\x10\xad" + bytes(60))
    assert "--no-offload-new-driver" in raised.value.remedy


@pytest.mark.parametrize("offset", [-1, 1, len(PLAIN), len(PLAIN) + 10])
def test_a_place_without_a_bundle_is_refused(offset: int) -> None:
    with pytest.raises(FormatError) as raised:
        parse(PLAIN, offset)
    assert raised.value.offset == offset


@pytest.mark.parametrize(
    "data",
    [
        PLAIN_MAGIC,
        PLAIN_MAGIC + struct.pack("<Q", 1 << 40),
        PLAIN_MAGIC + struct.pack("<Q", 2),
        table((0, 1, b"overlaps the header")).ljust(100, b"\0"),
        table((90, 200, b"a")).ljust(100, b"\0"),
        table((1 << 63, 1 << 63, b"a")).ljust(100, b"\0"),
        table((0, 0, b"\xff\xfe")),
        table((0, 0, b"same"), (0, 0, b"same")),
        table((0, 0, b"n" * 5000)),
        table((0, 0, b"name"))[:-1],
    ],
)
def test_damaged_tables_are_refused(data: bytes) -> None:
    for stored in (data, write_ccob(data, version=3, method=CcobMethod.ZSTD, level=3)):
        with pytest.raises(FormatError) as raised:
            parse(stored)
        assert raised.value.path == PATH


def test_plain_headers_take_entries_of_any_kind() -> None:
    entry = BundleEntry(id="x", kind=EntryKind.OTHER, target=None, offset=7, size=9)
    assert plain_header([entry]) == table((7, 9, b"x"))


def test_many_threads_may_read_one_bundle() -> None:
    bundle = parse(ENCODED["ccob-v2-zstd"])
    wrong: list[bytes] = []

    def read() -> None:
        with bundle.open_decoded() as decoded:
            found = bytes(decoded.data)
        if found != PLAIN:
            wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
