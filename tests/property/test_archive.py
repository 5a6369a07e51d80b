"""Any kernels come back as they were, and damaged archives give our error and no other."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpack_build.archive import PackedKernelArchive
from kpack_build.archive_toc import parse_toc
from kpack_build.errors import FormatError
from tests.archives import archive_bytes, compressor_of, save_example

SCHEMES = ["none", "zstd-per-kernel"]
FLIPS = 1500

texts = st.text(st.characters(codec="utf-8", exclude_characters="\\"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
contents = st.binary(max_size=300) | st.builds(bytes, st.integers(0, 100_000))
kernels = st.dictionaries(
    st.tuples(texts, texts), st.tuples(contents, st.dictionaries(texts, values, max_size=3)), max_size=12
)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("streamed", [False, True])
@given(kernels=kernels)
@settings(deadline=None, max_examples=40)
def test_round_trip(
    scheme: str,
    kernels: dict[tuple[str, str], tuple[bytes, dict[str, object]]],
    *,
    streamed: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.kpack"
        arches = sorted({arch for _, arch in kernels})
        archive = PackedKernelArchive("g", "f", arches, path if streamed else None, compressor_of(scheme))
        for (binary, arch), (data, metadata) in kernels.items():
            archive.add_kernel(archive.prepare_kernel(binary, arch, data, metadata))  # type: ignore[arg-type]
        archive.finalize_archive()
        archive.write(path)
        archive.close()
        with PackedKernelArchive.read(path) as found:
            image = path.read_bytes()
            assert {(binary, arch) for binary, arch, _ in found.entries()} == set(kernels)
            by_ordinal: dict[int, bytes] = {}
            for (binary, arch), (data, metadata) in kernels.items():
                assert found.get_kernel(binary, arch) == data
                assert found.toc[binary][arch].get("metadata", {}) == metadata
                place = found.location(binary, arch)
                assert place.original_size == len(data)
                assert place.offset + place.stored_size <= len(image)
                assert scheme != "none" or place.offset % 64 == 0
                assert by_ordinal.setdefault(place.ordinal, data) == data
            assert len(by_ordinal) == len({data for data, _ in kernels.values()})


def read_all(path: Path) -> None:
    with PackedKernelArchive.read(path) as archive:
        for binary, arch, _ in archive.entries():
            archive.get_kernel(binary, arch)


def structure_of(image: bytes) -> tuple[range, range]:
    """The bytes of an archive's header and the blob's start, and of its table of contents."""
    _, toc_offset = parse_toc(memoryview(image), Path("a.kpack"))
    return range(80), range(toc_offset, len(image))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_prefix_is_refused(tmp_path: Path, scheme: str) -> None:
    save_example(tmp_path / "whole.kpack", scheme)
    whole = (tmp_path / "whole.kpack").read_bytes()
    head, table = structure_of(whole)
    for length in (*head, *range(head.stop, table.start, 17), *table):
        (tmp_path / "cut.kpack").write_bytes(whole[:length])
        with pytest.raises(FormatError):
            PackedKernelArchive.read(tmp_path / "cut.kpack")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_flipped_bits_give_our_error_or_an_archive(tmp_path: Path, scheme: str) -> None:
    """A flip in a name or in a stored byte makes another sound archive: only hashes find those."""
    save_example(tmp_path / "whole.kpack", scheme)
    whole = (tmp_path / "whole.kpack").read_bytes()
    head, table = structure_of(whole)
    places = [(byte, bit) for part in (head, table) for byte in part for bit in (0, 3, 7)]
    places += [(byte, byte % 8) for byte in range(head.stop, table.start, 3)]
    errors = []
    for byte, bit in places:
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << bit
        (tmp_path / "bad.kpack").write_bytes(damaged)
        try:
            read_all(tmp_path / "bad.kpack")
        except FormatError as error:
            errors.append(error)
    assert {error.path for error in errors} == {tmp_path / "bad.kpack"}
    assert len(errors) > len(places) // 4


@given(toc=st.binary(max_size=200) | st.dictionaries(texts, values), blob=st.binary(max_size=80))
@settings(deadline=None, max_examples=150)
def test_any_bytes_give_our_error(toc: object, blob: bytes) -> None:
    with pytest.raises(FormatError):
        parse_toc(memoryview(archive_bytes(toc, blob)), Path("a.kpack"))
