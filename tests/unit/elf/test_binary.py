"""The whole conversion, on layouts that the linkers at hand do not make."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.elf import binary as module
from kpack_build.elf.binary import ElfBinary, open_elf
from kpack_build.elf.refusal import layout_faults
from kpack_build.errors import ConversionError, FormatError
from kpack_build.hostbinary import BinaryState, restore
from tests.converted import REFERENCE, Converted, convert
from tests.elfbuilder import (
    PT_GNU_PROPERTY,
    PT_INTERP,
    PT_NOTE,
    PT_NULL,
    PT_PHDR,
    ElfOptions,
    build_elf,
    small_bundle,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096
LARGE = small_bundle(30_000)
TWO = (small_bundle(9000), small_bundle(5000, 1))
RESERVED = struct.pack("<4sIQQ", b"FPIH", 1, 0, 5)


def write(directory: Path, options: ElfOptions) -> Path:
    path = directory / "lib.so"
    path.write_bytes(build_elf(options))
    return path


def opened(directory: Path, options: ElfOptions) -> ElfBinary:
    binary = open_elf(write(directory, options))
    assert binary is not None
    return binary


def converted(directory: Path, options: ElfOptions) -> Converted:
    """Convert, check what is true of every conversion, and that it comes back."""
    source = write(directory, options)
    source.chmod(0o751)
    result = convert(source, directory / "converted.so")
    assert result.path.stat().st_mode & 0o7777 == 0o751
    back = directory / "back.so"
    assert restore(result.path, result.record, result.objects.__getitem__, back)
    assert back.read_bytes() == source.read_bytes()
    with opened_at(result.path) as after, opened_at(source) as before:
        assert after.state is BinaryState.CONVERTED
        assert after.reference == REFERENCE
        assert after.refusals()
        assert (after.needed, after.soname) == (before.needed, before.soname)
        assert [wrapper.address for wrapper in after.wrappers] == [item.address for item in before.wrappers]
        assert list(layout_faults(after.image)) == []
        assert after.image.header.phoff == 64
        assert after.image.header.entry == before.image.header.entry
    return result


def opened_at(path: Path) -> ElfBinary:
    binary = open_elf(path)
    assert binary is not None
    return binary


def hole(result: Converted) -> int:
    return result.record["size"] - result.record["host_size"]


@pytest.mark.parametrize(
    "options",
    [
        ElfOptions(bundles=TWO, wrappers=(0, 1)),
        ElfOptions(bundles=TWO, wrappers=(1, 0, 1)),
        ElfOptions(bundles=TWO, wrappers=(1, 0), pointers="symbol"),
        ElfOptions(bundles=TWO, wrappers=(1, 0), pointers="relr"),
        ElfOptions(bundles=TWO, wrappers=(0, 1), pointers="plain", type=2, extra=(PT_NOTE,)),
        ElfOptions(bundles=TWO, wrappers=(0, 1), repeat_addend=True),
        ElfOptions(bundles=TWO, wrappers=(0, 1), machine=183, pointers="symbol"),
        ElfOptions(bundles=TWO, wrappers=(0, 1), sections=False),
        ElfOptions(bundles=TWO, wrappers=(0, 1), names_first=True),
        ElfOptions(bundles=TWO, wrappers=(0, 1), names_first=True, names_gap=b"Z" * 20),
        ElfOptions(bundles=TWO, wrappers=(0, 1), trailer=b"signature" * 1000),
        ElfOptions(bundles=TWO, wrappers=(0, 1), text=b"code" * 100),
        ElfOptions(bundles=TWO, wrappers=(0, 1), fatbin_tail=bytes(5000)),
        ElfOptions(bundles=(LARGE,), extra=(PT_NULL,)),
        ElfOptions(bundles=(LARGE,), extra=(), room=bytes(64)),
        ElfOptions(bundles=(LARGE,), extra=(PT_PHDR, PT_INTERP, PT_NOTE, PT_GNU_PROPERTY)),
        ElfOptions(bundles=(LARGE,), extra=(PT_PHDR, PT_INTERP, PT_NOTE)),
        ElfOptions(bundles=(LARGE,), extra=(), text=b"code"),
    ],
)
def test_layouts(tmp_path: Path, options: ElfOptions) -> None:
    result = converted(tmp_path, options)
    assert hole(result) > 2 * PAGE


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8191, 8192, 8193, 12287, 12288, 12289])
@pytest.mark.parametrize("before", [None, b"data"])
@pytest.mark.parametrize("after", [b"", b"data"])
def test_sizes_around_pages(tmp_path: Path, size: int, before: bytes | None, after: bytes) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(packed_bundle(size),), before=before, after=after))
    # The map has its page, whole pages behind it leave, and a section name comes in.
    assert hole(result) == max(size - PAGE, 0) // PAGE * PAGE - 16


def packed_bundle(size: int) -> bytes:
    """Return a bundle without padding."""
    data, name = small_bundle(size), b"hipv4-amdgcn-amd-amdhsa--gfx1100"
    header = 32 + 24 + len(name)
    entry = struct.pack("<QQQ", header, size - header, len(name)) + name
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 1) + entry + data[PAGE : PAGE + size - header]


@pytest.mark.parametrize("align", [PAGE, 16384, 65536, 1 << 21])
def test_large_alignments(tmp_path: Path, align: int) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(small_bundle(200_000),), align=align))
    left = (result.record["size"] - result.record["host_size"] + 16) % align
    assert left == 0
    assert (hole(result) > 0) is (align < 200_000)


def test_last_in_its_segment_needs_no_slot(tmp_path: Path) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(LARGE,), after=b"", extra=(PT_NOTE,)))
    assert result.record["warnings"] == []
    assert hole(result) > 6 * PAGE


def test_small_device_code_needs_no_slot(tmp_path: Path) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(packed_bundle(3000),), extra=()))
    assert hole(result) < 0


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (ElfOptions(bundles=(LARGE,), extra=(PT_NOTE,)), 1),
        (ElfOptions(bundles=(LARGE,), extra=(), text=b"code"), 1),
        (ElfOptions(bundles=(LARGE,), extra=(PT_PHDR,)), 0),
        (ElfOptions(bundles=(LARGE,), extra=(PT_NOTE, PT_GNU_PROPERTY)), 0),
    ],
)
def test_warns_of_what_was_given_up(tmp_path: Path, options: ElfOptions, count: int) -> None:
    assert len(converted(tmp_path, options).record["warnings"]) == count


def test_stays_small_on_disk(tmp_path: Path) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(small_bundle(1_000_000),)))
    assert result.path.stat().st_size < 4 * PAGE
    assert result.path.stat().st_blocks * 512 <= 8 * PAGE


@pytest.mark.parametrize(
    "options",
    [
        ElfOptions(pointers="none"),
        ElfOptions(wrappers=(0, bytes(24))),
        ElfOptions(wrappers=(bytes(8), 0)),
        ElfOptions(wrappers=(0, bytes(40), 0)),
        ElfOptions(wrappers=(0, b"HIPK\1\0\0\0" + bytes(16))),
        ElfOptions(wrappers=(0, b"FPIH\2\0\0\0" + bytes(16))),
        ElfOptions(wrappers=(0, RESERVED)),
        ElfOptions(wrappers=()),
        ElfOptions(bundles=TWO, wrappers=(0,)),
        ElfOptions(fatbin_tail=b"stray"),
        ElfOptions(bundles=(small_bundle() + bytes(100) + b"stray",)),
        ElfOptions(bundles=(small_bundle().replace(b"gfx1100", b"spirv64"),)),
        ElfOptions(bundles=(LARGE,), extra=()),
        ElfOptions(bundles=(LARGE,), extra=(PT_PHDR, PT_INTERP)),
        ElfOptions(fatbin_name=".hip_other"),
        ElfOptions(fatbin_name=".hipFatBinSegment"),
        ElfOptions(wrappers=(0, bytes(24), 0), sections=False),
        ElfOptions(bundles=(small_bundle() + bytes(3000) + b"stray",), wrappers=(0,)),
    ],
)
def test_stays_fat(tmp_path: Path, options: ElfOptions) -> None:
    with opened(tmp_path, options) as binary:
        assert binary.state is BinaryState.FAT
        assert binary.refusals()
        with pytest.raises(ConversionError) as error:
            binary.to_hipk(tmp_path / "out.so", REFERENCE, [])
    assert error.value.reasons == binary.refusals()
    assert [path.name for path in tmp_path.iterdir()] == ["lib.so"]


def test_llvm_offload_binary_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        open_elf(write(tmp_path, ElfOptions(bundles=(b"\x10\xff\x10\xad" + bytes(100),))))


@pytest.mark.parametrize("pointers", ["rela", "relr"])
def test_strangers_keep_device_code(tmp_path: Path, pointers: str) -> None:
    options = ElfOptions(bundles=(LARGE,), pointers=pointers, relocations=((0, 0, 0),), symbols=(0,))
    with opened(tmp_path, options) as binary:
        image = binary.image
        inside, place = image.sections_named(".hip_fatbin")[0].address + 64, image.loads[1].vaddr
        wrapper = binary.wrappers[0].address
    for relocation in ((place, 8, inside), (place, 1 << 32 | 6, 0), (wrapper + 16, 8, 0), (wrapper, 6, 0)):
        with opened(tmp_path, replace(options, relocations=(relocation,), symbols=(inside,))) as binary:
            assert binary.refusals()


def _section(image_path: Path, name: str) -> tuple[int, int]:
    """Return the file offset of a section's header, and the section's number."""
    with opened_at(image_path) as binary:
        [section] = binary.image.sections_named(name)
        return binary.image.header.shoff + 64 * section.index, section.index


def _poke_section(field: int, value: int, name: str) -> Callable[[bytearray, Path], None]:
    def poke(data: bytearray, path: Path) -> None:
        start = _section(path, name)[0]
        struct.pack_into("<Q", data, start + field, value)

    return poke


def _poke_segment(number: int, field: int, value: int) -> Callable[[bytearray, Path], None]:
    def poke(data: bytearray, _: Path) -> None:
        struct.pack_into("<Q", data, 64 + 56 * number + field, value)

    return poke


def _poke_header(field: int, value: int) -> Callable[[bytearray, Path], None]:
    def poke(data: bytearray, _: Path) -> None:
        struct.pack_into("<Q", data, field, value)

    return poke


@pytest.mark.parametrize(
    "poke",
    [
        _poke_section(24, 0x1100, ".comment"),
        _poke_section(24, 0x1100, ".rodata"),
        _poke_section(16, 0x1100, ".bss"),
        _poke_section(16, 0x1200, ".rodata"),
        _poke_section(16, 0x100000, ".hip_fatbin"),
        _poke_section(8, 3, ".hip_fatbin"),
        _poke_section(16, 0x200000, ".hipFatBinSegment"),
        _poke_section(24, 0x2000, ".hip_fatbin"),
        _poke_header(24, 0x1100),
        _poke_segment(0, 8, 0x1000),
        _poke_segment(1, 48, 3),
        _poke_segment(1, 8, 8),
        _poke_segment(1, 40, 16),
        _poke_segment(2, 16, 0),
        _poke_segment(2, 32, 1 << 30),
        _poke_segment(3, 16, 0x1100),
    ],
)
def test_broken_layouts_stay_fat(tmp_path: Path, poke: Callable[[bytearray, Path], None]) -> None:
    path = write(tmp_path, ElfOptions(bundles=(LARGE,)))
    data = bytearray(path.read_bytes())
    poke(data, path)
    path.write_bytes(data)
    try:
        binary = open_elf(path)
    except FormatError:
        return
    assert binary is not None
    with binary:
        changed_flags_only = data[_section(path, ".hip_fatbin")[0] + 8] == 3
        assert changed_flags_only or binary.refusals()


def test_odd_files_without_device_code_are_nobodys_business(tmp_path: Path) -> None:
    for fatbin_name, error in ((".hip_fatbin", True), (".text", False)):
        options = ElfOptions(wrappers=() if not error else (0,), fatbin_name=fatbin_name)
        path = write(tmp_path, options)
        data = bytearray(path.read_bytes())
        with opened_at(path) as binary:
            dynamic = binary.image.sections_named(".dynamic")[0].offset
        struct.pack_into("<Q", data, dynamic + 8, 1 << 20)
        path.write_bytes(data)
        if error:
            with pytest.raises(FormatError):
                open_elf(path)
            continue
        with opened_at(path) as binary:
            assert binary.state is BinaryState.NO_DEVICE_CODE
            assert (binary.soname, binary.needed) == (None, ())


def test_converted_file_whose_pointers_lead_nowhere(tmp_path: Path) -> None:
    result = converted(tmp_path, ElfOptions(bundles=(LARGE,)))
    data = bytearray(result.path.read_bytes())
    with opened_at(result.path) as binary:
        [relocations] = binary.image.sections_named(".rela.dyn")
        reference = binary.image.header.shoff + 64 * binary.image.sections_named(".rocm_kpack_ref")[0].index
    struct.pack_into("<Q", data, relocations.offset + 16, 1 << 40)
    result.path.write_bytes(data)
    with opened_at(result.path) as binary:
        # The section still tells where the map is.
        assert binary.reference == REFERENCE
    struct.pack_into("<I", data, reference, 0)
    result.path.write_bytes(data)
    with pytest.raises(FormatError):
        open_elf(result.path)


def test_executables_keep_their_table_where_old_kernels_look(tmp_path: Path) -> None:
    options = ElfOptions(bundles=(LARGE,), extra=(PT_PHDR, PT_INTERP, PT_NOTE))
    result = converted(tmp_path, options)
    with opened_at(result.path) as after:
        table = after.image.segments[0]
        assert (table.type, table.vaddr, table.offset) == (6, 64, 64)
    path = write(tmp_path, options)
    data = bytearray(path.read_bytes())
    # As patchelf leaves it: the table is mapped at an address that is not its offset.
    for number in (0, 1, 2, 3):
        struct.pack_into("<Q", data, 64 + 56 * number + 16, 0)
    struct.pack_into("<Q", data, 64 + 16, 4096 + 64)
    path.write_bytes(data)
    with opened_at(path) as binary:
        assert binary.refusals()


def _open_descriptors(directory: Path) -> int:
    return len(list(directory.joinpath("/proc/self/fd").iterdir()))


def test_open_binary_holds_one_descriptor(tmp_path: Path) -> None:
    before = _open_descriptors(tmp_path)
    with opened(tmp_path, ElfOptions()):
        assert _open_descriptors(tmp_path) == before + 1
    assert _open_descriptors(tmp_path) == before


def test_debug_files_have_no_device_code(tmp_path: Path) -> None:
    with opened(tmp_path, ElfOptions(debug=True)) as binary:
        assert binary.state is BinaryState.NO_DEVICE_CODE
        assert binary.refusals()
        assert (binary.device_bytes, binary.wrappers, binary.bundles) == (0, (), ())


@pytest.mark.parametrize("sections", [True, False])
def test_converted_once_is_converted(tmp_path: Path, *, sections: bool) -> None:
    result = converted(tmp_path, ElfOptions(bundles=TWO, wrappers=(1, 0), sections=sections))
    with opened_at(result.path) as binary:
        assert binary.bundles == ()
        assert binary.device_bytes == 0
        assert [wrapper.bundle for wrapper in binary.wrappers] == [None, None]
        with pytest.raises(ConversionError):
            binary.to_hipk(tmp_path / "again.so", REFERENCE, [])


def test_library_without_wrappers(tmp_path: Path) -> None:
    for sections in (True, False):
        options = ElfOptions(bundles=(), wrappers=(), sections=sections)
        with opened(tmp_path, options) as binary:
            assert binary.state is BinaryState.NO_DEVICE_CODE


def test_symbols_that_are_not_there_keep_device_code(tmp_path: Path) -> None:
    with opened(tmp_path, ElfOptions(bundles=(LARGE,), relocations=((0, 1 << 60 | 1, 0),))) as binary:
        assert binary.refusals()


def test_bundles_in_several_segments_without_sections(tmp_path: Path) -> None:
    path = write(tmp_path, ElfOptions(bundles=TWO, wrappers=(0, 1), sections=False))
    data = bytearray(path.read_bytes())
    with opened_at(path) as binary:
        load, second = binary.image.loads[0], binary.bundles[1].offset
        number = binary.image.segments.index(load)
        stack = [segment.type for segment in binary.image.segments].index(0x6474E551)
    struct.pack_into("<QQ", data, 64 + 56 * number + 32, second, second)
    # The rest of the segment is mapped by one of its own, in the place of PT_GNU_STACK.
    rest = load.filesz - second
    struct.pack_into("<IIQQQQQQ", data, 64 + 56 * stack, 1, 4, second, second, second, rest, rest, PAGE)
    path.write_bytes(data)
    with opened_at(path) as binary:
        assert len(binary.bundles) == 2
        assert binary.device_bytes == 0
        assert binary.refusals()


def test_words_that_look_like_wrappers(tmp_path: Path) -> None:
    words = (
        b"FPIH\1\0\0\0" + bytes(16),
        0,
        b"HIPK\1\0\0\0" + bytes(16),
        bytes(4) + b"FPIH\1\0\0\0" + bytes(12),
    )
    with opened(tmp_path, ElfOptions(wrappers=words, sections=False)) as binary:
        assert len(binary.wrappers) == 1
        assert binary.refusals() == ()


def test_facts(tmp_path: Path) -> None:
    with opened(tmp_path, ElfOptions(bundles=TWO, wrappers=(1, 0, 1), machine=183)) as binary:
        assert binary.machine == "aarch64"
        assert binary.size == binary.path.stat().st_size
        assert binary.hip_library == "libamdhip64.so.7"
        assert [wrapper.bundle for wrapper in binary.wrappers] == [1, 0, 1]
        assert [wrapper.index for wrapper in binary.wrappers] == [0, 1, 2]
        assert binary.reference is None
        assert binary.device_bytes == len(TWO[0]) + -len(TWO[0]) % PAGE + len(TWO[1])
        data = binary.path.read_bytes()
        for wrapper in binary.wrappers:
            assert data[wrapper.file_offset : wrapper.file_offset + 4] == b"FPIH"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("libc.so.6", "libamdhip64.so.6"), "libamdhip64.so.6"),
        (("libamdhip64-69e34bce.so.7.14.60850",), "libamdhip64-69e34bce.so.7.14.60850"),
        (("libhipblas.so.2", "libamdhip64x.so"), None),
    ],
)
def test_hip_library(tmp_path: Path, names: tuple[str, ...], expected: str | None) -> None:
    with opened(tmp_path, ElfOptions(needed=names)) as binary:
        assert binary.hip_library == expected


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", bytes(100)])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert open_elf(path) is None


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        open_elf(tmp_path / "missing")


def test_faulty_results_are_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> list[str]:
        return ["it is faulty"]

    monkeypatch.setattr(module, "iter_issues", faulty)
    source = write(tmp_path, ElfOptions(bundles=(LARGE,)))
    (tmp_path / "out").mkdir()
    with pytest.raises(ConversionError):
        convert(source, tmp_path / "out" / "lib.so")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("part", [slice(0), slice(1000), slice(None)])
def test_damaged_results_are_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: slice) -> None:
    source = write(tmp_path, ElfOptions(bundles=(LARGE,)))

    def write_part(*arguments: object) -> None:
        descriptor = arguments[3]
        assert isinstance(descriptor, int)
        with open(descriptor, "wb", closefd=False) as output:
            output.write(source.read_bytes()[part])

    monkeypatch.setattr(module, "apply_plan", write_part)
    (tmp_path / "out").mkdir()
    with pytest.raises(ConversionError):
        convert(source, tmp_path / "out" / "lib.so")
    assert list((tmp_path / "out").iterdir()) == []


def test_copies_where_the_kernel_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = converted(tmp_path, ElfOptions(bundles=(LARGE,))).path.read_bytes()

    def refused(*_: object) -> int:
        raise OSError(18, "across file systems")

    monkeypatch.setattr("os.copy_file_range", refused)
    assert converted(tmp_path, ElfOptions(bundles=(LARGE,))).path.read_bytes() == expected
    monkeypatch.setattr("os.copy_file_range", lambda *_: 0)
    assert converted(tmp_path, ElfOptions(bundles=(LARGE,))).path.read_bytes() == expected


def test_source_is_not_touched(tmp_path: Path) -> None:
    source = write(tmp_path, ElfOptions(bundles=(LARGE,)))
    before = (source.read_bytes(), source.stat().st_mtime_ns)
    convert(source, tmp_path / "one.so")
    convert(source, tmp_path / "two.so")
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert (tmp_path / "one.so").read_bytes() == (tmp_path / "two.so").read_bytes()


def test_maps_larger_than_the_device_code(tmp_path: Path) -> None:
    long = replace(REFERENCE, search_paths=("x" * 5000,))
    source = write(tmp_path, ElfOptions(bundles=(packed_bundle(3000),)))
    with pytest.raises(ConversionError):
        convert(source, tmp_path / "out.so", long)
    source = write(tmp_path, ElfOptions(bundles=(LARGE,)))
    result = convert(source, tmp_path / "out.so", long)
    with opened_at(result.path) as binary:
        assert binary.reference == long
    # The section has a page more than its code object, and the map takes two.
    assert hole(result) == (len(LARGE) - 2 * PAGE) // PAGE * PAGE - 16
