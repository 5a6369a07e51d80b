"""The check of a converted file sees what a faulty conversion could do."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kpack_build.elf.constants import Address, FileOffset
from kpack_build.elf.fatbin import RawWrapper, find_device_code
from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.plan import ConversionPlan, Region, plan_conversion
from kpack_build.elf.verify import iter_issues
from kpack_build.errors import FormatError
from tests.elfbuilder import ElfOptions, build_elf, small_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = Path("lib.so")
REFERENCE = b"\x82\xabkernel_name\xa1k\xb2kpack_search_paths\x90"


@dataclass
class Case:
    """An original, its plan, and the bytes that the plan makes of it."""

    before: ElfImage
    plan: ConversionPlan
    wrappers: tuple[RawWrapper, ...]
    data: bytearray

    def issues(self) -> list[str]:
        try:
            after = parse_image(memoryview(bytes(self.data)), PATH)
            return list(iter_issues(self.before, after, self.plan, self.wrappers))
        except FormatError as error:
            return [str(error)]

    def section(self, name: str) -> tuple[int, int]:
        """Return the offset of a section's header in the converted file, and of its content."""
        after = parse_image(memoryview(bytes(self.data)), PATH)
        [found] = after.sections_named(name)
        return after.header.shoff + 64 * found.index, found.offset


def applied(before: ElfImage, plan: ConversionPlan) -> bytearray:
    """Apply a plan in the plainest way."""
    data = bytearray(before.data)
    for write in plan.writes:
        data[write.offset : write.end] = write.data
    data[plan.insertion : plan.insertion] = plan.inserted
    region = plan.region
    data[region.offset : region.end] = plan.reference.ljust(region.size - plan.hole, b"\0")
    return data


def make(options: ElfOptions) -> Case:
    before = parse_image(memoryview(build_elf(options)), PATH)
    code = find_device_code(before)
    assert code is not None
    [section] = before.sections_named(".hip_fatbin")
    region = Region(
        offset=FileOffset(section.offset),
        address=Address(section.address),
        size=section.size,
        section=section,
    )
    plan = plan_conversion(before, region, code.wrappers, REFERENCE)
    return Case(before=before, plan=plan, wrappers=code.wrappers, data=applied(before, plan))


@pytest.fixture
def case() -> Case:
    return make(ElfOptions(bundles=(small_bundle(20_000), small_bundle(300, 1)), wrappers=(1, 0)))


@pytest.mark.parametrize(
    "options",
    [
        ElfOptions(bundles=(small_bundle(20_000),)),
        ElfOptions(bundles=(small_bundle(20_000),), after=b""),
        ElfOptions(bundles=(small_bundle(20_000),), before=None),
        ElfOptions(bundles=(small_bundle(20_000),), text=b"code", extra=()),
        ElfOptions(bundles=(small_bundle(20_000),), names_first=True),
        ElfOptions(bundles=(small_bundle(20_000),), pointers="relr"),
    ],
)
def test_good_results_have_no_issues(options: ElfOptions) -> None:
    assert make(options).issues() == []


def flip(name: str, offset: int = 0) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.data[case.section(name)[1] + offset] ^= 1

    return change


def header(name: str, field: int, value: int) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        struct.pack_into("<Q", case.data, case.section(name)[0] + field, value)

    return change


def segment(number: int, field: int, value: int, layout: str = "Q") -> Callable[[Case], None]:
    def change(case: Case) -> None:
        struct.pack_into(f"<{layout}", case.data, 64 + 56 * number + field, value)

    return change


def longer(case: Case) -> None:
    case.data += b"\0"


def other_entry(case: Case) -> None:
    struct.pack_into("<Q", case.data, 24, 0x200)


def fewer_sections(case: Case) -> None:
    shnum, names = struct.unpack_from("<HH", case.data, 60)
    shoff = struct.unpack_from("<Q", case.data, 40)[0]
    # The last one is that of the names: it is dropped, and the names are lost with it.
    assert names == shnum - 1
    del case.data[shoff + 64 * names :]
    struct.pack_into("<HH", case.data, 60, shnum - 1, 0)


def stranger(case: Case) -> None:
    """Let the first relocation, one of a wrapper, be that of another word."""
    place = case.section(".rela.dyn")[1]
    struct.pack_into("<Q", case.data, place, case.before.loads[1].vaddr)


@pytest.mark.parametrize(
    "change",
    [
        longer,
        other_entry,
        fewer_sections,
        stranger,
        flip(".rodata"),
        flip(".eh_frame", 3),
        flip(".comment"),
        flip(".dynstr", 2),
        flip(".rocm_kpack_ref", 5),
        flip(".hipFatBinSegment"),
        flip(".hipFatBinSegment", 4),
        flip(".hipFatBinSegment", 24 + 16),
        flip(".rela.dyn", 16),
        flip(".rela.dyn", 17),
        flip(".dynamic", 16 * 5 + 8),
        header(".comment", 32, 3),
        header(".rocm_kpack_ref", 32, 3),
        header(".rodata", 16, 0x10),
        segment(0, 0, 6, "I"),
        segment(0, 4, 6, "I"),
        segment(0, 32, 0x800),
        segment(0, 40, 1 << 30),
        segment(1, 4, 5, "I"),
        segment(1, 16, 0),
        segment(1, 8, 1),
        segment(2, 40, 0x188),
        segment(2, 0, 0, "I"),
    ],
)
def test_faulty_results_have_issues(case: Case, change: Callable[[Case], None]) -> None:
    assert case.issues() == []
    change(case)
    assert case.issues() != []


def test_device_code_that_stays_mapped() -> None:
    case = make(ElfOptions(bundles=(small_bundle(20_000),), after=b""))
    # The segment keeps its length in memory.
    struct.pack_into("<Q", case.data, 64 + 56 + 40, case.before.loads[0].memsz)
    assert case.issues() != []


def test_joined_segments_may_become_executable_only_together() -> None:
    case = make(ElfOptions(bundles=(small_bundle(20_000),), text=b"code", extra=()))
    assert case.issues() == []
    struct.pack_into("<I", case.data, 64 + 4, 7)
    assert case.issues() != []
