"""One thing wrong at a time, and the check that is there for it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kpack_build.elf.constants import Address, FileOffset
from kpack_build.elf.fatbin import find_device_code
from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.plan import Region
from kpack_build.elf.refusal import layout_faults, region_refusals, wrapper_refusals
from tests.elfbuilder import PT_INTERP, PT_PHDR, ElfOptions, build_elf, small_bundle

PATH = Path("lib.so")
OPTIONS = ElfOptions(bundles=(small_bundle(20_000),))

Change = Callable[[bytearray, ElfImage], None]


def section(name: str, field: int, value: int) -> Change:
    def change(data: bytearray, image: ElfImage) -> None:
        [found] = image.sections_named(name)
        struct.pack_into("<Q", data, image.header.shoff + 64 * found.index + field, value)

    return change


def segment(number: int, field: int, value: int, layout: str = "Q") -> Change:
    def change(data: bytearray, _: ElfImage) -> None:
        struct.pack_into(f"<{layout}", data, 64 + 56 * number + field, value)

    return change


def changed(options: ElfOptions, *changes: Change) -> ElfImage:
    data = bytearray(build_elf(options))
    image = parse_image(memoryview(bytes(data)), PATH)
    for change in changes:
        change(data, image)
    return parse_image(memoryview(bytes(data)), PATH)


def region_of(image: ElfImage) -> Region:
    [found] = image.sections_named(".hip_fatbin")
    return Region(
        offset=FileOffset(found.offset), address=Address(found.address), size=found.size, section=found
    )


def device_refusals(image: ElfImage) -> list[str]:
    code = find_device_code(image)
    assert code is not None
    return list(region_refusals(image, code, region_of(image)))


def test_nothing_is_wrong_with_a_sound_file() -> None:
    image = changed(OPTIONS)
    code = find_device_code(image)
    assert code is not None
    assert list(layout_faults(image)) == []
    assert list(wrapper_refusals(image, code)) == []
    assert device_refusals(image) == []


@pytest.mark.parametrize(
    "change",
    [
        segment(1, 48, 0x3000),
        segment(1, 32, 1 << 20),
        segment(1, 40, 0x10),
        segment(2, 16, 0x338),
        segment(3, 16, 0x1000),
        segment(0, 8, 0x78),
        segment(0, 16, 0x1040),
        section(".rodata", 16, 0x1100),
    ],
)
def test_layout(change: Change) -> None:
    assert list(layout_faults(changed(OPTIONS, change))) != []


def test_alignments_of_zero_and_one_are_none() -> None:
    for align in (0, 1):
        assert list(layout_faults(changed(OPTIONS, segment(1, 48, align)))) == []


@pytest.mark.parametrize(("extra", "faulty"), [((PT_PHDR, PT_INTERP), True), ((PT_PHDR,), False)])
def test_table_that_old_kernels_do_not_find(extra: tuple[int, ...], *, faulty: bool) -> None:
    """The last load segment maps the table at an address that is not its offset."""
    options = ElfOptions(extra=extra)
    image = changed(options)
    number = len(extra) + 1
    address, end = image.loads[1].vaddr, image.loads[1].offset + image.loads[1].filesz
    high = 0x100000
    changes = [
        segment(number, 8, 0),
        segment(number, 16, high),
        segment(number, 32, end),
        segment(number, 40, end),
        segment(number - 1, 8, 0x1000),
        segment(number - 1, 16, 0x1000),
        segment(number - 1, 32, 0x1000),
        segment(number - 1, 40, 0x1000),
        segment(0, 16, high + 64),
    ]
    assert address < high
    found = [fault for fault in layout_faults(changed(options, *changes)) if "old kernels" in fault]
    assert bool(found) is faulty


@pytest.mark.parametrize(
    "changes",
    [
        (section(".hip_fatbin", 16, 0x100000),),
        (segment(1, 32, 0x1800),),
        (segment(1, 4, 6, "I"),),
        (segment(0, 8, 0x1100),),
        (segment(0, 16, 0x1100),),
        (section(".comment", 24, 0x1100),),
        (section(".bss", 16, 0x1100),),
    ],
)
def test_device_code_that_something_else_uses(changes: tuple[Change, ...]) -> None:
    assert device_refusals(changed(OPTIONS, *changes)) != []


def test_wrappers_that_are_mapped_from_elsewhere() -> None:
    image = changed(
        OPTIONS,
        section(".hipFatBinSegment", 8, 0),
        lambda data, image: section(".hipFatBinSegment", 24, image.sections_named(".rodata")[0].offset)(
            data, image
        ),
        lambda data, image: struct.pack_into(
            "<4sI", data, image.sections_named(".rodata")[0].offset, b"FPIH", 1
        ),
    )
    code = find_device_code(image)
    assert code is not None
    assert any("not mapped" in reason for reason in wrapper_refusals(image, code))


def test_dynamic_tags_into_device_code() -> None:
    image = changed(ElfOptions(bundles=(small_bundle(20_000),), sections=True))
    position = image.sections_named(".dynamic")[0].offset
    tags = [tag for tag, _ in image.dynamic]
    inside = region_of(image).address + 64

    def change(data: bytearray, _: ElfImage) -> None:
        # DT_FINI_ARRAY in the place of DT_SONAME.
        struct.pack_into("<QQ", data, position + 16 * tags.index(14), 26, inside)

    assert device_refusals(changed(OPTIONS, change)) != []
