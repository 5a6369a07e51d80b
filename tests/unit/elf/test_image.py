from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kpack_build.elf.constants import DynamicTag, ElfType, Machine, SegmentType
from kpack_build.elf.image import is_host_elf, parse_image
from kpack_build.errors import FormatError
from tests.elfbuilder import PT_INTERP, ElfOptions, build_elf

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.elf.image import ElfImage


@pytest.fixture
def data() -> bytearray:
    return bytearray(build_elf())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lib.so"


def parse(data: bytes | bytearray, path: Path) -> ElfImage:
    return parse_image(memoryview(bytes(data)), path)


def test_reads_headers_and_names(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    assert (image.header.type, image.header.machine) == (ElfType.DYN, Machine.X86_64)
    assert [segment.type for segment in image.loads] == [SegmentType.LOAD] * 2
    assert len(image.sections_named(".hip_fatbin")) == 1
    assert image.names_section is not None
    assert image.names_section.name == ".shstrtab"
    assert image.soname == "libtest.so"
    assert image.needed == ("libamdhip64.so.7",)


def test_packs_what_it_read(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    start = image.header.phoff
    assert (
        b"".join(segment.pack() for segment in image.segments)
        == data[start : start + 56 * image.header.phnum]
    )
    assert b"".join(section.pack() for section in image.sections) == data[image.header.shoff :]


def test_translates_addresses(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    read_only, writable = image.loads
    assert image.offset_of(read_only.vaddr) == read_only.offset
    assert image.offset_of(writable.vaddr + 8, 4) == writable.offset + 8
    assert image.offset_of(writable.vaddr + writable.filesz) is None
    assert image.offset_of(writable.vend) is None
    assert image.offset_of(read_only.vaddr + read_only.filesz - 4, 8) is None
    assert image.address_of(writable.offset) == writable.vaddr
    assert image.address_of(image.size) is None


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, b"\x7fELG"), (4, b"\1"), (5, b"\2"), (16, b"\1"), (16, b"\4"), (18, b"\xe0\0"), (18, b"\x03\0")],
)
def test_other_files_are_no_host_elf(data: bytearray, offset: int, value: bytes) -> None:
    assert is_host_elf(memoryview(data))
    data[offset : offset + len(value)] = value
    assert not is_host_elf(memoryview(data))
    assert not is_host_elf(memoryview(data[:19]))


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (6, "B", 2),
        (20, "I", 2),
        (32, "Q", 1 << 40),
        (40, "Q", 1 << 40),
        (52, "H", 63),
        (54, "H", 32),
        (56, "H", 0xFFFF),
        (58, "H", 40),
        (60, "H", 0x7FFF),
        (62, "H", 0x7FFF),
        (62, "H", 12),
    ],
)
def test_damaged_headers(data: bytearray, path: Path, offset: int, layout: str, value: int) -> None:
    struct.pack_into(f"<{layout}", data, offset, value)
    with pytest.raises(FormatError) as error:
        parse(data, path)
    assert error.value.path == path


def test_header_cut_short(data: bytearray, path: Path) -> None:
    with pytest.raises(FormatError):
        parse(data[:40], path)


def test_section_names_outside_of_their_table(data: bytearray, path: Path) -> None:
    shoff = parse(data, path).header.shoff
    struct.pack_into("<I", data, shoff + 64, 1 << 20)
    with pytest.raises(FormatError):
        parse(data, path)


def test_large_counts_are_in_the_first_section(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    number, names = image.header.shnum, image.header.shstrndx
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<H", data, 62, 0xFFFF)
    struct.pack_into("<Q", data, image.header.shoff + 32, number)
    struct.pack_into("<I", data, image.header.shoff + 40, names)
    assert [section.name for section in parse(data, path).sections] == [
        section.name for section in image.sections
    ]


def test_sections_without_names(data: bytearray, path: Path) -> None:
    struct.pack_into("<H", data, 62, 0)
    image = parse(data, path)
    assert image.names_section is None
    assert {section.name for section in image.sections} == {""}


def test_no_sections(path: Path) -> None:
    image = parse(build_elf(ElfOptions(sections=False)), path)
    assert image.sections == ()
    assert image.names_section is None
    assert image.soname == "libtest.so"


def test_dynamic_strings_outside_of_their_table(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    dynamic = image.segments_of(SegmentType.DYNAMIC)[0].offset
    struct.pack_into("<Q", data, dynamic + 8, 1 << 20)
    with pytest.raises(FormatError):
        _ = parse(data, path).needed


def test_dynamic_table_outside_of_the_file(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    number = [segment.type for segment in image.segments].index(SegmentType.DYNAMIC)
    struct.pack_into("<Q", data, 64 + 56 * number + 8, len(data))
    with pytest.raises(FormatError):
        _ = parse(data, path).dynamic


def test_dynamic_table_without_end(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    number = [segment.type for segment in image.segments].index(SegmentType.DYNAMIC)
    struct.pack_into("<Q", data, 64 + 56 * number + 32, 32)
    assert len(parse(data, path).dynamic) == 2


def test_file_without_dynamic_table(data: bytearray, path: Path) -> None:
    image = parse(data, path)
    number = [segment.type for segment in image.segments].index(SegmentType.DYNAMIC)
    struct.pack_into("<I", data, 64 + 56 * number, SegmentType.NULL)
    image = parse(data, path)
    assert (image.dynamic, image.needed, image.soname) == ((), (), None)
    assert image.dynamic_value(DynamicTag.RELA) is None


def test_debug_file_has_no_dynamic_table(path: Path) -> None:
    assert parse(build_elf(ElfOptions(debug=True)), path).dynamic == ()


@pytest.mark.parametrize(
    ("options", "executable"),
    [
        (ElfOptions(), False),
        (ElfOptions(type=2, pointers="plain"), True),
        (ElfOptions(flags_1=0x08000000), True),
        (ElfOptions(extra=(PT_INTERP,)), True),
    ],
)
def test_knows_programs(path: Path, options: ElfOptions, *, executable: bool) -> None:
    assert parse(build_elf(options), path).is_executable is executable


def test_strings_longer_than_usual(path: Path) -> None:
    name = "lib" + "x" * 300 + ".so"
    assert parse(build_elf(ElfOptions(needed=(name,))), path).needed == (name,)
