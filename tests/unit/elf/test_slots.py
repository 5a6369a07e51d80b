from __future__ import annotations

from pathlib import Path

import pytest

from kpack_build.elf.constants import SegmentType
from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.names import is_free
from kpack_build.elf.slots import Slot, SlotKind, iter_slots
from tests.elfbuilder import (
    PT_GNU_PROPERTY,
    PT_INTERP,
    PT_NOTE,
    PT_NULL,
    PT_PHDR,
    ElfOptions,
    build_elf,
)


def parse(options: ElfOptions) -> ElfImage:
    return parse_image(memoryview(build_elf(options)), Path("lib.so"))


def slots(options: ElfOptions) -> list[Slot]:
    return list(iter_slots(parse(options)))


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (ElfOptions(extra=()), []),
        (ElfOptions(extra=(PT_PHDR,)), [SlotKind.PHDR]),
        (ElfOptions(extra=(PT_PHDR, PT_INTERP)), []),
        (ElfOptions(extra=(PT_PHDR,), type=2, pointers="plain"), []),
        (ElfOptions(extra=(PT_PHDR,), flags_1=0x08000000), []),
        (ElfOptions(extra=(PT_NOTE,)), [SlotKind.NOTE]),
        (ElfOptions(extra=(PT_NULL, PT_NOTE)), [SlotKind.NULL, SlotKind.NOTE]),
        (
            ElfOptions(extra=(PT_PHDR, PT_NOTE, PT_GNU_PROPERTY)),
            [SlotKind.PROPERTY_NOTE, SlotKind.PHDR, SlotKind.NOTE],
        ),
        (ElfOptions(extra=(), room=bytes(64)), [SlotKind.ROOM]),
        (ElfOptions(extra=(), room=b"Z" * 64), [SlotKind.ROOM]),
        (ElfOptions(extra=(), room=b"A" * 64), []),
        (ElfOptions(extra=(), room=bytes(40)), []),
        (ElfOptions(extra=(), room=bytes(64), sections=False), []),
        (ElfOptions(extra=(), text=b"code"), [SlotKind.MERGE]),
    ],
)
def test_order_of_slots(options: ElfOptions, kinds: list[SlotKind]) -> None:
    assert [slot.kind for slot in slots(options)] == kinds


def test_room_lengthens_the_table() -> None:
    options = ElfOptions(extra=(PT_PHDR, PT_INTERP), room=bytes(64))
    [slot] = slots(options)
    before = parse(options).segments
    assert len(slot.segments) == len(before)
    assert slot.segments[0].filesz == before[0].filesz + 56
    assert slot.segments[1:] == before[1:]


def test_other_slots_take_one_entry() -> None:
    options = ElfOptions(extra=(PT_PHDR, PT_NOTE, PT_GNU_PROPERTY, PT_NULL))
    before = parse(options).segments
    for slot in slots(options):
        assert len(slot.segments) == len(before) - 1
        assert [segment for segment in before if segment in slot.segments] == list(slot.segments)


def test_joined_segments_cover_both() -> None:
    options = ElfOptions(extra=(), text=b"code")
    [slot] = slots(options)
    first, second = parse(options).loads[:2]
    joined = slot.segments[0]
    assert (joined.offset, joined.vaddr, joined.flags) == (first.offset, first.vaddr, 5)
    assert (joined.end, joined.vend) == (second.end, second.vend)
    assert [segment.type for segment in slot.segments].count(SegmentType.LOAD) == 3


def test_stack_is_never_taken() -> None:
    for slot in slots(ElfOptions(extra=(PT_PHDR, PT_NOTE, PT_GNU_PROPERTY, PT_NULL), text=b"code")):
        assert SegmentType.GNU_STACK in {segment.type for segment in slot.segments}


def test_room_behind_the_end_is_not_free() -> None:
    image = parse(ElfOptions())
    assert not is_free(image, image.size - 4, image.size + 4)
