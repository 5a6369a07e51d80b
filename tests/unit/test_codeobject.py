from __future__ import annotations

import struct
from pathlib import Path

import msgpack
import pytest

from kpack_build.codeobject import CodeObject, Kernel, parse_code_object, read_kernels
from kpack_build.errors import FormatError
from kpack_build.processors import PROCESSORS
from kpack_build.targets import TargetId
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object

PATH = Path("some.hsaco")
KERNEL = Kernel(
    name="_Z3addPf",
    symbol="_Z3addPf.kd",
    vgprs=12,
    agprs=4,
    sgprs=20,
    lds_bytes=1024,
    scratch_bytes=16,
    kernarg_bytes=280,
    wavefront_size=64,
    max_workgroup_size=1024,
)


def parse(data: bytes) -> CodeObject:
    return parse_code_object(memoryview(data), path=PATH)


def patched(data: bytes, offset: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, offset, value)
    return bytes(changed)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_every_processor_of_the_table_is_told_by_its_number(processor: str) -> None:
    found = parse(write_code_object(processor))
    assert found.target == TargetId(processor=processor.removesuffix("-strict"))
    assert found.agrees_with(TargetId.parse(processor))


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize(
    "text",
    ["gfx90a", "gfx90a:sramecc+", "gfx90a:xnack-", "gfx942:sramecc-:xnack+", "gfx1030", "gfx900:xnack-"],
)
def test_features_of_version_4_and_later(text: str, version: int) -> None:
    data = write_code_object(text, CodeObjectOptions(version=version))
    found = parse(data)
    assert str(found.target) == text
    assert found.code_object_version == version
    assert found.abi_version == version - 2
    assert found.size == len(data)
    assert found.generic_version is None


def test_generic_version() -> None:
    found = parse(write_code_object("gfx11-generic", CodeObjectOptions(version=6)))
    assert str(found.target) == "gfx11-generic"
    assert found.generic_version == 1


@pytest.mark.parametrize(
    ("built_for", "claimed", "agrees"),
    [
        ("gfx90a:xnack-", "gfx90a:xnack-", True),
        ("gfx90a:xnack-", "gfx90a", False),
        ("gfx90a", "gfx90a:xnack-", False),
        ("gfx90a:xnack-", "gfx90a:xnack+", False),
        ("gfx90a:sramecc+", "gfx90a:sramecc-", False),
        ("gfx1100", "gfx1101", False),
        ("gfx1100", "gfx1300", False),
        ("gfx1250", "gfx1250-strict", True),
        ("gfx1100", "gfx1100-strict", True),
        ("gfx1300", "gfx1300", True),
        ("gfx1300:xnack-", "gfx1300:xnack-", True),
        ("gfx1300", "gfx1301", False),
        ("gfx1300", "gfx1100", False),
    ],
)
def test_a_bundles_id_must_agree(built_for: str, claimed: str, agrees: bool) -> None:  # noqa: FBT001 - a column
    assert parse(write_code_object(built_for)).agrees_with(TargetId.parse(claimed)) is agrees


@pytest.mark.parametrize(
    ("built_for", "claimed", "agrees"),
    [
        ("gfx90a", "gfx90a", True),
        ("gfx90a", "gfx90a:sramecc+:xnack+", True),
        ("gfx90a", "gfx90a:xnack-", False),
        ("gfx90a:xnack-", "gfx90a:xnack-", True),
        ("gfx90a:xnack-", "gfx90a:xnack+", False),
        ("gfx90a:xnack-", "gfx90a", True),
        ("gfx90a:sramecc-", "gfx90a:sramecc+", False),
        ("gfx900", "gfx906", False),
    ],
)
def test_version_3_has_one_bit_for_on_and_any(built_for: str, claimed: str, agrees: bool) -> None:  # noqa: FBT001 - a column
    found = parse(write_code_object(built_for, CodeObjectOptions(version=3)))
    assert found.code_object_version == 3
    assert found.target.features == frozenset()
    assert found.agrees_with(TargetId.parse(claimed)) is agrees


def test_a_new_processor_is_named_by_its_metadata() -> None:
    found = parse(write_code_object("gfx1300:xnack+", CodeObjectOptions(mach=0x7A)))
    assert str(found.target) == "gfx1300:xnack+"
    assert found.mach == 0x7A


def test_a_new_processor_without_metadata_is_called_by_its_number() -> None:
    found = parse(write_code_object("gfx1300", CodeObjectOptions(mach=0x7A, metadata=False)))
    assert found.target.processor == "amdgpu-0x7a"
    assert found.agrees_with(TargetId.parse("gfx1300"))
    assert not found.agrees_with(TargetId.parse("gfx1100"))


def test_a_new_processor_with_strange_metadata_is_called_by_its_number() -> None:
    data = write_code_object("gfx1300", CodeObjectOptions(mach=0x7A))
    found = parse(data.replace(b"--gfx1300", b"--GFX1300"))
    assert found.target.processor == "amdgpu-0x7a"


def test_bytes_behind_the_end_are_no_part_of_it() -> None:
    data = write_code_object("gfx1100")
    assert parse(data + b"more").size == len(data)


def test_kernels() -> None:
    data = write_code_object("gfx90a", CodeObjectOptions(kernels=[KERNEL, KERNEL]))
    assert read_kernels(memoryview(data), path=PATH) == (KERNEL, KERNEL)


def test_code_without_metadata_has_no_kernels() -> None:
    data = write_code_object("gfx90a", CodeObjectOptions(metadata=False))
    assert read_kernels(memoryview(data), path=PATH) == ()


def test_other_notes_are_passed_over() -> None:
    data = write_code_object("gfx90a", CodeObjectOptions(kernels=[KERNEL]))
    foreign = data.replace(b"AMDGPU\0\0", b"FOREIGN\0")
    assert read_kernels(memoryview(foreign), path=PATH) == ()


def replace_metadata(data: bytes, change: object) -> bytes:
    """Write something smaller over the metadata, padded by a note of nobody."""
    start = data.index(b"AMDGPU\0\0") + 8
    (size,) = struct.unpack_from("<I", data, start - 16)
    packed: bytes = msgpack.packb(change)
    assert len(packed) <= size
    note = struct.pack("<I", len(packed))
    return (
        data[: start - 16]
        + note
        + data[start - 12 : start]
        + packed.ljust(size, b"\0")
        + data[start + size :]
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"amdhsa.kernels": 5},
        {"amdhsa.kernels": ["kernel"]},
        {"amdhsa.kernels": [{}]},
        {"amdhsa.kernels": [{".name": 7}]},
        {"amdhsa.kernels": [{".name": "k", ".symbol": "k.kd"}]},
        {"amdhsa.kernels": [{".name": "k", ".symbol": "k.kd", ".vgpr_count": "many"}]},
    ],
)
def test_metadata_of_a_wrong_shape_is_refused(metadata: dict[str, object]) -> None:
    data = write_code_object("gfx90a", CodeObjectOptions(kernels=[KERNEL]))
    with pytest.raises(FormatError):
        read_kernels(memoryview(replace_metadata(data, metadata)), path=PATH)


@pytest.mark.parametrize("metadata", [[], 5, "text"])
def test_metadata_that_is_no_map_is_refused(metadata: object) -> None:
    data = write_code_object("gfx90a")
    with pytest.raises(FormatError) as raised:
        read_kernels(memoryview(replace_metadata(data, metadata)), path=PATH)
    assert raised.value.found == type(metadata).__name__


def test_metadata_with_something_behind_it_is_refused() -> None:
    data = bytearray(write_code_object("gfx90a"))
    data[data.index(b"AMDGPU\0\0") + 8] = 0x90
    with pytest.raises(FormatError):
        read_kernels(memoryview(data), path=PATH)


def test_metadata_without_kernels_has_none() -> None:
    data = write_code_object("gfx90a", CodeObjectOptions(kernels=[KERNEL]))
    assert read_kernels(memoryview(replace_metadata(data, {"a": 1})), path=PATH) == ()


@pytest.mark.parametrize(
    ("offset", "layout", "value", "reported"),
    [
        (0, "<B", 0, 0),
        (4, "<B", 1, 0),
        (5, "<B", 2, 0),
        (7, "<B", 0, 0),
        (8, "<B", 0, 8),
        (8, "<B", 5, 8),
        (18, "<H", 62, 0),
        (32, "<Q", 1 << 40, 32),
        (40, "<Q", 1 << 63, 40),
        (54, "<H", 32, 32),
        (58, "<H", 40, 40),
        (64 + 32, "<Q", 1 << 62, 0),
    ],
)
def test_damaged_headers_are_refused_with_their_place(
    offset: int, layout: str, value: int, reported: int
) -> None:
    data = patched(write_code_object("gfx1100"), offset, layout, value)
    with pytest.raises(FormatError) as raised:
        parse_code_object(memoryview(data), path=PATH, offset=0x1000)
    assert raised.value.path == PATH
    assert raised.value.offset == 0x1000 + reported


def test_a_note_beyond_its_segment_is_refused() -> None:
    data = write_code_object("gfx1100")
    place = data.index(b"AMDGPU\0\0") - 8
    with pytest.raises(FormatError) as raised:
        read_kernels(memoryview(patched(data, place, "<I", 1 << 31)), path=PATH)
    assert raised.value.offset == place - 4


def test_tables_that_are_empty_may_be_anywhere() -> None:
    data = patched(write_code_object("gfx1100"), 60, "<H", 0)
    assert parse(patched(data, 40, "<Q", 1 << 60)).size < len(data)
