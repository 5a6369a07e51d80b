from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.names import plan_name
from tests.elfbuilder import ElfOptions, build_elf

if TYPE_CHECKING:
    from kpack_build.elf.headers import SectionHeader

NAME = ".rocm_kpack_ref"


def parse(options: ElfOptions) -> tuple[ElfImage, SectionHeader]:
    image = parse_image(memoryview(build_elf(options)), Path("lib.so"))
    names = image.names_section
    assert names is not None
    return image, names


def test_what_follows_moves_where_it_is_not_mapped() -> None:
    image, names = parse(ElfOptions())
    growth = plan_name(image, names, NAME)
    assert growth.inserted == NAME.encode() + b"\0"
    assert growth.insertion == names.end
    assert (growth.table_offset, growth.table_size) == (names.offset, names.size + 16)
    assert growth.name_offset == names.size


def test_insertions_keep_alignments() -> None:
    image, names = parse(ElfOptions())
    growth = plan_name(image, names, ".longer_than_the_usual_one")
    assert len(growth.inserted) % 16 == 0
    assert growth.table_size == names.size + 27


@pytest.mark.parametrize("filler", [b"\0", b"Z"])
def test_free_room_is_used(filler: bytes) -> None:
    image, names = parse(ElfOptions(names_first=True, names_gap=filler * 16))
    growth = plan_name(image, names, NAME)
    assert growth.overwritten == NAME.encode() + b"\0"
    assert (growth.inserted, growth.insertion) == (b"", image.size)
    assert (growth.table_offset, growth.table_size) == (names.offset, names.size + 16)


@pytest.mark.parametrize("gap", [b"A" * 16, bytes(3)])
def test_other_room_is_not_free(gap: bytes) -> None:
    image, names = parse(ElfOptions(names_first=True, names_gap=gap))
    assert plan_name(image, names, NAME).overwritten == b""


def test_section_headers_around_the_names_do_not_move() -> None:
    data = bytearray(build_elf())
    image = parse_image(memoryview(data), Path("lib.so"))
    # The table of headers begins earlier: a copy of it that has the names inside.
    names = image.names_section
    assert names is not None
    start = names.offset - 128
    moved = replace(image, header=replace(image.header, shoff=start))
    assert plan_name(moved, names, NAME).insertion == image.size


def test_mapped_bytes_do_not_move() -> None:
    image, names = parse(ElfOptions(names_first=True))
    growth = plan_name(image, names, NAME)
    assert growth.table_offset == growth.insertion == image.size
    assert growth.inserted == bytes(image.data[names.offset : names.end]) + NAME.encode() + b"\0"
