from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from kpack_build.errors import ConversionError, FormatError
from kpack_build.hostmodel import MAX_REFERENCE_SIZE, KpackReference

REFERENCE = KpackReference(kernel_name="pkg/lib.so", search_paths=("../.kpack/a-gfx110x.kpack", "b.kpack"))
PATH = Path("lib.so")


def parse(data: bytes) -> KpackReference:
    return KpackReference.parse(memoryview(data), path=PATH, offset=4096)


def test_bytes_are_rocms() -> None:
    assert REFERENCE.to_bytes() == (
        b"\x82\xabkernel_name\xaapkg/lib.so\xb2kpack_search_paths\x92\xb9../.kpack/a-gfx110x.kpack\xa7b.kpack"
    )


def test_reads_what_it_writes() -> None:
    assert parse(REFERENCE.to_bytes()) == REFERENCE
    assert parse(REFERENCE.to_bytes() + bytes(100)) == REFERENCE


def test_ignores_unknown_keys() -> None:
    data = msgpack.packb({"new": {"a": 1}, "kernel_name": "k", "kpack_search_paths": [], "other": None})
    assert parse(data) == KpackReference(kernel_name="k", search_paths=())


@pytest.mark.parametrize("length", range(len(REFERENCE.to_bytes())))
def test_prefixes(length: int) -> None:
    with pytest.raises(FormatError) as error:
        parse(REFERENCE.to_bytes()[:length])
    assert (error.value.path, error.value.offset) == (PATH, 4096)


@pytest.mark.parametrize(
    "content",
    [
        7,
        [],
        {},
        {"kernel_name": "k"},
        {"kernel_name": b"k", "kpack_search_paths": []},
        {"kernel_name": "k", "kpack_search_paths": "path"},
        {"kernel_name": "k", "kpack_search_paths": ["path", 7]},
    ],
)
def test_other_content(content: object) -> None:
    with pytest.raises(FormatError):
        parse(msgpack.packb(content))


@pytest.mark.parametrize(
    "data", [b"\xc1", b"\x82\xab\xff\xfe", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", b"\x81\xc0\x80"]
)
def test_no_messagepack(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse(data)


def test_flipped_bits() -> None:
    good = REFERENCE.to_bytes()
    for position in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << position % 8
        try:
            found = parse(bytes(damaged))
        except FormatError:
            continue
        assert isinstance(found.kernel_name, str)


def test_largest_map() -> None:
    room = (
        MAX_REFERENCE_SIZE - len(KpackReference(kernel_name="x" * 40000, search_paths=()).to_bytes()) + 40000
    )
    largest = KpackReference(kernel_name="x" * room, search_paths=())
    assert len(largest.to_bytes()) == MAX_REFERENCE_SIZE
    assert parse(largest.to_bytes()) == largest
    with pytest.raises(ConversionError):
        KpackReference(kernel_name="x" * (room + 1), search_paths=()).to_bytes()
