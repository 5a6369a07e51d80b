from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kpack_build.elf.image import ElfImage, parse_image
from kpack_build.elf.relocations import PointerKind, find_pointers, iter_pointers_into, iter_touched
from kpack_build.errors import FormatError
from tests.elfbuilder import ElfOptions, build_elf, small_bundle

PATH = Path("lib.so")
TWO = (small_bundle(5000), small_bundle(600, 1))


def parse(options: ElfOptions) -> ElfImage:
    return parse_image(memoryview(build_elf(options)), PATH)


def wrappers(image: ElfImage) -> tuple[int, int]:
    [section] = image.sections_named(".hipFatBinSegment")
    return section.address, section.address + section.size


def bundles(image: ElfImage) -> tuple[int, int]:
    [section] = image.sections_named(".hip_fatbin")
    return section.address, section.address + section.size


@pytest.mark.parametrize("machine", [62, 183])
@pytest.mark.parametrize(
    ("pointers", "kind"),
    [
        ("rela", PointerKind.RELATIVE),
        ("symbol", PointerKind.SYMBOLIC),
        ("relr", PointerKind.RELR),
        ("plain", PointerKind.PLAIN),
    ],
)
def test_finds_pointers(machine: int, pointers: str, kind: PointerKind) -> None:
    image = parse(
        ElfOptions(
            bundles=TWO,
            wrappers=(1, 0, 1),
            pointers=pointers,
            machine=machine,
            type=2 if pointers == "plain" else 3,
        )
    )
    start, end = wrappers(image)
    found = find_pointers(image, start, end)
    places = [start + 8, start + 32, start + 56]
    first = bundles(image)[0]
    assert [found[place].value for place in places] == [first + 0x3000, first, first + 0x3000]  # type: ignore[index]
    assert {found[place].kind for place in places} == {kind}  # type: ignore[index]
    for place in places:
        pointer = found[place]  # type: ignore[index]
        assert image.offset_of(place) == pointer.word
        if pointer.addend is None:
            assert image.data[pointer.word : pointer.word + 8] == struct.pack("<Q", pointer.value)
        else:
            stored = struct.unpack_from("<q", image.data, pointer.addend)[0]
            assert pointer.base + stored == pointer.value


def test_no_relocation_is_no_pointer() -> None:
    image = parse(ElfOptions(pointers="none"))
    assert find_pointers(image, *wrappers(image)) == {}


def test_other_relocations_give_no_value() -> None:
    start = wrappers(parse(ElfOptions(pointers="none", relocations=((0, 6, 0),))))[0]
    image = parse(ElfOptions(pointers="none", relocations=((start + 8, 6, 0),)))
    assert find_pointers(image, *wrappers(image)) == {}
    assert list(iter_touched(image, *wrappers(image))) == [start + 8]


def test_pointers_into_device_code() -> None:
    image = parse(ElfOptions(bundles=TWO, wrappers=(1, 0)))
    start = wrappers(image)[0]
    assert sorted(iter_pointers_into(image, *bundles(image))) == [start + 8, start + 32]
    assert list(iter_pointers_into(image, 1, 2)) == []


@pytest.mark.parametrize("kind", [8, 37])
def test_strangers_into_device_code(kind: int) -> None:
    base = parse(ElfOptions(relocations=((0, 0, 0),)))
    inside, place = bundles(base)[0] + 100, base.loads[1].vaddr
    image = parse(ElfOptions(relocations=((place, kind, inside),)))
    assert place in list(iter_pointers_into(image, *bundles(image)))


def test_symbols_into_device_code() -> None:
    base = parse(ElfOptions(relocations=((0, 0, 0),), symbols=(0, 0)))
    inside, place = bundles(base)[0] + 100, base.loads[1].vaddr
    image = parse(
        ElfOptions(
            relocations=((place, 2 << 32 | 6, 0), (place + 8, 1 << 32 | 6, 0), (place + 16, 2 << 32 | 1, 0)),
            symbols=(1, inside),
        )
    )
    found = list(iter_pointers_into(image, *bundles(image)))
    assert found[:2] == [place, place + 16]
    assert place + 8 not in found


def test_relr_into_device_code() -> None:
    image = parse(ElfOptions(bundles=TWO, wrappers=(0, 1), pointers="relr"))
    start = wrappers(image)[0]
    assert list(iter_pointers_into(image, *bundles(image))) == [start + 8, start + 32]
    assert list(iter_touched(image, *wrappers(image))) == [start + 8, start + 32]


def test_places_outside_of_the_file_are_no_pointers() -> None:
    base = parse(ElfOptions(relocations=((0, 0, 0),)))
    bss = base.loads[1].vaddr + base.loads[1].filesz
    image = parse(ElfOptions(relocations=((bss, 8, 0),)))
    assert bss not in find_pointers(image, bss, bss + 8)
    data = bytearray(build_elf(ElfOptions(pointers="relr")))
    image = parse_image(memoryview(data), PATH)
    [table] = image.sections_named(".relr.dyn")
    struct.pack_into("<Q", data, table.offset, bss & ~7)
    assert find_pointers(image, bss & ~7, (bss & ~7) + 8) == {}
    assert list(iter_pointers_into(image, *bundles(image))) == []


@pytest.mark.parametrize(("tag", "value"), [(7, 1 << 40), (8, 1 << 40), (7, 0xE000000)])
def test_tables_outside_of_the_file(tag: int, value: int) -> None:
    data = bytearray(build_elf())
    image = parse_image(memoryview(data), PATH)
    [dynamic] = image.sections_named(".dynamic")
    number = [found for found, _ in image.dynamic].index(tag)
    struct.pack_into("<Q", data, dynamic.offset + 16 * number + 8, value)
    with pytest.raises(FormatError):
        find_pointers(parse_image(memoryview(data), PATH), 0, 1 << 20)


def test_symbols_outside_of_the_file() -> None:
    start = wrappers(parse(ElfOptions(relocations=((0, 0, 0),))))[0]
    image = parse(ElfOptions(relocations=((start + 8, 1 << 60 | 1, 0),)))
    with pytest.raises(FormatError):
        find_pointers(image, *wrappers(image))
    with pytest.raises(FormatError):
        list(iter_pointers_into(image, *bundles(image)))
