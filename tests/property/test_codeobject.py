"""No damage to a code object gives anything but our error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpack_build.codeobject import Kernel, parse_code_object, read_kernels
from kpack_build.errors import FormatError
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object

PATH = Path("some.hsaco")
KERNEL = Kernel(
    name="k",
    symbol="k.kd",
    vgprs=1,
    agprs=0,
    sgprs=2,
    lds_bytes=300,
    scratch_bytes=0,
    kernarg_bytes=8,
    wavefront_size=32,
    max_workgroup_size=70000,
)
WHOLE = write_code_object("gfx90a:xnack-", CodeObjectOptions(kernels=[KERNEL]))
UNKNOWN = write_code_object("gfx1300", CodeObjectOptions(kernels=[KERNEL]))


def test_every_prefix_is_refused() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(FormatError):
            parse_code_object(memoryview(WHOLE)[:length], path=PATH)
        with pytest.raises(FormatError):
            read_kernels(memoryview(WHOLE)[:length], path=PATH)


@pytest.mark.parametrize("whole", [WHOLE, UNKNOWN], ids=["known", "unknown"])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_gives_our_error_or_none(whole: bytes, bit: int) -> None:
    data = bytearray(whole)
    for position in range(len(data)):
        data[position] ^= 1 << bit
        with suppress(FormatError):
            assert parse_code_object(memoryview(data), path=PATH).size <= len(data)
        with suppress(FormatError):
            read_kernels(memoryview(data), path=PATH)
        data[position] ^= 1 << bit


@given(st.binary(max_size=600))
def test_any_bytes_behind_a_header_give_our_error_or_none(tail: bytes) -> None:
    data = WHOLE[:176] + tail
    with suppress(FormatError):
        read_kernels(memoryview(data), path=PATH)


@given(st.binary(max_size=200))
def test_any_bytes_give_our_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_code_object(memoryview(data), path=PATH)
