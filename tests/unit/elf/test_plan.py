"""What the plan itself refuses; whole conversions are in `test_binary`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpack_build.elf.constants import Address, FileOffset
from kpack_build.elf.fatbin import DeviceCode, find_device_code
from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.plan import ConversionPlan, Region, plan_conversion
from kpack_build.elf.slots import SlotKind
from kpack_build.errors import ConversionError
from tests.elfbuilder import ElfOptions, build_elf, small_bundle

REFERENCE = bytes(5000)


def parse() -> tuple[ElfImage, DeviceCode, Region]:
    image = parse_image(memoryview(build_elf(ElfOptions(bundles=(small_bundle(20_000),)))), Path("lib.so"))
    code = find_device_code(image)
    assert code is not None
    assert code.section is not None
    region = Region(
        offset=FileOffset(code.section.offset),
        address=Address(code.section.address),
        size=code.section.size,
        section=code.section,
    )
    return image, code, region


def plan() -> tuple[ElfImage, ConversionPlan]:
    image, code, region = parse()
    return image, plan_conversion(image, region, code.wrappers, REFERENCE)


def test_hole_begins_behind_the_map() -> None:
    image, found = plan()
    assert found.kept_end == found.region.offset + 8192
    assert found.hole % 4096 == 0
    assert found.kept_end + found.hole <= found.region.end < found.kept_end + found.hole + 4096
    assert found.slot is SlotKind.PHDR
    assert found.insertion < image.size


def test_offsets_of_kept_bytes() -> None:
    image, found = plan()
    assert found.new_offset(found.region.offset) == found.region.offset
    assert found.new_offset(found.region.end) == found.region.end - found.hole
    assert found.new_offset(image.size) == image.size - found.hole + len(found.inserted)


def test_writes_are_in_order_and_apart() -> None:
    _, found = plan()
    for before, after in zip(found.writes, found.writes[1:], strict=False):
        assert before.end <= after.offset
    assert all(write.end <= found.region.offset or write.offset >= found.region.end for write in found.writes)


def test_overlapping_tables_are_refused() -> None:
    image, code, region = parse()
    with pytest.raises(ConversionError):
        plan_conversion(image, region, code.wrappers * 2, REFERENCE)


def test_wrappers_without_pointers_are_refused() -> None:
    image, code, region = parse()
    [wrapper] = code.wrappers
    with pytest.raises(ConversionError):
        plan_conversion(image, region, [replace(wrapper, pointer=None)], REFERENCE)
