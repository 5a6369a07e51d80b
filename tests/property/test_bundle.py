"""Bundles survive being written and read, and no damage to one gives anything but our error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpack_build.bundle import (
    BUNDLE_ALIGNMENT,
    CcobMethod,
    iter_bundles,
    parse_bundle,
    plain_header,
    write_bundle,
    write_ccob,
)
from kpack_build.errors import FormatError
from tests.fixtures.bundles import HOST_ID, chain, encodings, entry_id

PATH = Path("libfat.so")
# Compressed it is so small that it can be damaged everywhere.
SMALL = write_bundle(
    [(HOST_ID, b""), (entry_id("gfx90a:xnack-"), b"\x7fELF code"), (entry_id("gfx1100"), b"more")]
)
SMALL_ENCODED = dict(encodings(SMALL))
COMPRESSED = [name for name in SMALL_ENCODED if name != "plain"]

entries = st.lists(
    st.tuples(st.text(max_size=40), st.binary(max_size=5000)), max_size=6, unique_by=lambda entry: entry[0]
)


def read(data: bytes | bytearray) -> bytes:
    """Do all that can be done with a bundle, and return what it holds."""
    bundle = parse_bundle(memoryview(data), 0, limit=len(data), path=PATH)
    with bundle.open_decoded() as decoded:
        decoded.unaccounted()
        return b"".join(decoded.entry(entry) for entry in bundle.entries)


@given(entries, st.sampled_from(CcobMethod), st.integers(1, 3))
def test_what_was_written_is_read(content: list[tuple[str, bytes]], method: CcobMethod, version: int) -> None:
    plain = write_bundle(content)
    for stored in (plain, write_ccob(plain, version=version, method=method, level=3)):
        bundle = parse_bundle(memoryview(stored), 0, limit=len(stored), path=PATH)
        assert plain_header(bundle.entries) == plain[: bundle.header_size]
        assert all(entry.offset % BUNDLE_ALIGNMENT == 0 for entry in bundle.entries)
        with bundle.open_decoded() as decoded:
            assert [(entry.id, bytes(decoded.entry(entry))) for entry in bundle.entries] == content
            assert decoded.unaccounted() == []
            assert decoded.data == plain[: len(decoded.data)]


@given(st.lists(entries, max_size=4))
def test_bundles_one_after_another_are_told_apart(contents: list[list[tuple[str, bytes]]]) -> None:
    plain = [write_bundle(content) for content in contents]
    section, places = chain([stored for data in plain for _, stored in encodings(data)])
    found = list(iter_bundles(memoryview(section), 0, len(section), PATH))
    assert [bundle.offset for bundle in found] == places


@pytest.mark.parametrize("name", SMALL_ENCODED)
def test_every_prefix_is_refused(name: str) -> None:
    stored = SMALL_ENCODED[name]
    for length in range(0, len(stored), 1 if name != "plain" else 61):
        with pytest.raises(FormatError):
            read(stored[:length])


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_flipped_bit_never_gives_other_code(name: str) -> None:
    """The hash tells: what is read is the original, or an error."""
    data = bytearray(SMALL_ENCODED[name])
    expected = read(data)
    for position in range(len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with suppress(FormatError):
                assert read(data) == expected
            data[position] ^= 1 << bit


def test_a_flipped_bit_in_a_plain_header_gives_our_error_or_none() -> None:
    data = bytearray(SMALL)
    size = parse_bundle(memoryview(SMALL), 0, limit=len(SMALL), path=PATH).header_size
    for position in range(size):
        for bit in range(8):
            data[position] ^= 1 << bit
            with suppress(FormatError):
                read(data)
            data[position] ^= 1 << bit


@given(st.binary(max_size=300), st.sampled_from([32, 40, 64, 90]))
def test_any_bytes_behind_a_header_give_our_error_or_none(tail: bytes, start: int) -> None:
    for stored in SMALL_ENCODED.values():
        with suppress(FormatError):
            read(stored[:start] + tail)


@given(st.binary(max_size=100))
def test_any_bytes_give_our_error(data: bytes) -> None:
    for magic in (b"", b"CCOB", b"CCOB\2\0\1\0", b"CCOB\1\0\0\0"):
        with pytest.raises(FormatError):
            read(magic + data)
