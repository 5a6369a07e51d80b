"""What a file may not say: header, table of contents, and the places that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from kpack_build import archive_toc
from kpack_build.archive import PackedKernelArchive
from kpack_build.archive_toc import check_range, map_file, original_sizes, pack_header, pack_toc, parse_toc
from kpack_build.errors import ArchiveLimitError, FormatError
from tests.archives import archive_bytes, example_toc

if TYPE_CHECKING:
    from kpack_build.archive_toc import Toc

PATH = Path("some.kpack")


def parse(data: bytes) -> Toc:
    return parse_toc(memoryview(data), PATH)[0]


def entry(**fields: object) -> dict[str, object]:
    return example_toc(toc={"a": {"x": {"ordinal": 0, **fields}}})


def test_sound_table_is_parsed() -> None:
    toc, offset = parse_toc(memoryview(archive_bytes(example_toc())), PATH)
    assert toc == example_toc()
    assert offset == 70


def test_table_without_optional_keys() -> None:
    toc = parse(archive_bytes(example_toc(format_version=..., compression_scheme=..., new_key=[None])))
    assert toc["group_name"] == "g"


def test_header() -> None:
    assert pack_header(0x0102) == b"KPAK\x01\0\0\0\x02\x01\0\0\0\0\0\0"
    assert pack_header(1, magic=archive_toc.OWN_MAGIC)[:4] == b"KPKB"


@pytest.mark.parametrize(
    ("data", "offset", "found"),
    [
        (b"KPAK\x01\0\0", 0, 7),
        (b"KPAX" + pack_header(16)[4:] + b"\x80", 0, b"KPAX"),
        (b"KPAK\x02\0\0\0" + (16).to_bytes(8, "little") + b"\x80", 4, 2),
        (pack_header(15) + b"\x80", 8, 15),
        (pack_header(17) + b"\x80", 8, 17),
        (pack_header(2**64 - 1) + b"\x80", 8, 2**64 - 1),
    ],
)
def test_wrong_header(data: bytes, offset: int, found: object) -> None:
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert (caught.value.path, caught.value.offset, caught.value.found) == (PATH, offset, found)
    assert caught.value.expected is not None


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x81\xa1a",
        b"\x80\x80",
        b"\x81\xa1\xff\x01",
        b"\x81\x01\x02",
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x81\xa1a\xd4\x01\x00",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdb\xff\xff\xff\xff",
        b"\x81\xa1a\xd6\xff\xff\xff\xff\xff",
        b"\x81\x90\x01",
        b"\x91" * 5000,
        b"\x81\xa1a" * 5000,
        b"\x90",
        b"\xc0",
        b"\x05",
    ],
)
def test_wrong_messagepack(packed: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        parse(archive_bytes(packed))
    assert caught.value.path == PATH


@pytest.mark.parametrize(
    "toc",
    [
        [1, 2],
        example_toc(format_version=2),
        example_toc(format_version=True),
        example_toc(format_version="1"),
        example_toc(group_name=...),
        example_toc(group_name=b"g"),
        example_toc(gfx_arch_family=5),
        example_toc(gfx_arches=...),
        example_toc(gfx_arches="gfx1100"),
        example_toc(gfx_arches=["gfx1100", 7]),
        example_toc(compression_scheme=1),
        example_toc(toc=...),
        example_toc(toc=[]),
        example_toc(toc={b"a": {}}),
        example_toc(toc={"a": []}),
        example_toc(toc={"a": {b"x": {"ordinal": 0}}}),
        example_toc(toc={"a": {"x": 0}}),
        example_toc(toc={"a": {"x": {}}}),
        entry(ordinal="0"),
        entry(ordinal=-1),
        entry(ordinal=0.0),
        entry(ordinal=True),
        entry(ordinal=2**64 - 1),
        entry(original_size=-1),
        entry(original_size=None),
        entry(original_size=2**63),
        entry(type=1),
        entry(metadata=[]),
    ],
)
def test_wrong_types(toc: object) -> None:
    with pytest.raises(FormatError) as caught:
        parse(archive_bytes(toc))
    assert caught.value.path == PATH


def test_table_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = msgpack.packb(example_toc())
    monkeypatch.setattr(archive_toc, "MAX_TOC_SIZE", len(packed))
    parse(archive_bytes(packed))
    toc = parse(archive_bytes(packed))
    assert pack_toc(toc, {}) == packed
    monkeypatch.setattr(archive_toc, "MAX_TOC_SIZE", len(packed) - 1)
    with pytest.raises(FormatError) as caught:
        parse(archive_bytes(packed))
    assert caught.value.found == len(packed)
    with pytest.raises(ArchiveLimitError) as limit:
        pack_toc(toc, {})
    assert limit.value.value == len(packed)


@pytest.mark.parametrize(
    ("offset", "size"), [(15, 1), (16, 85), (101, 0), (100, 1), (64, 2**63 - 1), (2**63 - 1, 1)]
)
def test_range_outside(offset: int, size: int) -> None:
    with pytest.raises(FormatError) as caught:
        check_range(offset, size, 100, "it", PATH)
    assert caught.value.offset == offset


@pytest.mark.parametrize(("offset", "size"), [(16, 84), (100, 0), (64, 36)])
def test_range_inside(offset: int, size: int) -> None:
    check_range(offset, size, 100, "it", PATH)


class TestOriginalSizes:
    def test_each_kernel_that_an_entry_tells_of(self) -> None:
        toc: dict[str, object] = {
            "toc": {
                "a": {"x": {"ordinal": 2, "original_size": 5}, "y": {"ordinal": 2}},
                "b": {"x": {"ordinal": 0}, "y": {"ordinal": 2, "original_size": 5}},
                "c": {"x": {"ordinal": 1, "original_size": 0}},
            }
        }
        assert list(original_sizes(toc, 4, PATH)) == [-1, 0, 5, -1]

    def test_disagreement(self) -> None:
        toc: dict[str, object] = {
            "toc": {"a": {"x": {"ordinal": 0, "original_size": 5}, "y": {"ordinal": 0, "original_size": 6}}}
        }
        with pytest.raises(FormatError) as caught:
            original_sizes(toc, 1, PATH)
        assert (caught.value.expected, caught.value.found) == (5, 6)

    @pytest.mark.parametrize("ordinal", [1, -1, 2**40])
    def test_kernel_that_is_not_stored(self, ordinal: int) -> None:
        with pytest.raises(FormatError) as caught:
            original_sizes({"toc": {"a": {"x": {"ordinal": ordinal}}}}, 1, PATH)
        assert caught.value.found == ordinal

    @pytest.mark.parametrize(
        "toc",
        [
            {},
            {"toc": []},
            {"toc": {"a": 1}},
            {"toc": {"a": {"x": 1}}},
            {"toc": {"a": {"x": {}}}},
            {"toc": {"a": {"x": {"ordinal": "0"}}}},
            {"toc": {"a": {"x": {"ordinal": 0, "original_size": "5"}}}},
            {"toc": {"a": {"x": {"ordinal": 0, "original_size": 2**64}}}},
        ],
    )
    def test_unchecked_table(self, toc: dict[str, object]) -> None:
        with pytest.raises(FormatError):
            original_sizes(toc, 1, PATH)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.kpack").write_bytes(b"")
    with pytest.raises(FormatError) as caught:
        map_file(tmp_path / "empty.kpack")
    assert caught.value.offset == 0


def test_sparse_file_of_many_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sparse.kpack"
    with path.open("wb") as file:
        file.write(pack_header(16))
        file.truncate(1 << 36)
    with pytest.raises(FormatError) as caught:
        PackedKernelArchive.read(path)
    assert caught.value.found == (1 << 36) - 16
