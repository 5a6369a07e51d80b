"""Damaged ELF files give our error or a refusal, and never a bad result.

A converted file is a good result if its own check passed and the original comes back from it bit for bit,
whatever was wrong with the original's bytes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpack_build.errors import ConversionError, FormatError, RestorationError
from kpack_build.hostbinary import BinaryState, open_host_binary, restore
from tests.converted import convert
from tests.elfbuilder import PT_NOTE, PT_PHDR, ElfOptions, build_elf, small_bundle

#: In memory where that is possible: every conversion waits for its bytes to be on disk.
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a random name is made in it
TWO = (small_bundle(9000), small_bundle(300, 1))
if TYPE_CHECKING:
    from kpack_build.hostbinary import ConversionRecord

KINDS = {
    "rela": ElfOptions(bundles=TWO, wrappers=(1, 0)),
    "symbol": ElfOptions(bundles=TWO, wrappers=(1, 0), pointers="symbol", extra=(PT_NOTE,)),
    "relr": ElfOptions(bundles=TWO, wrappers=(0, 1), pointers="relr", names_first=True),
    "plain": ElfOptions(bundles=TWO, wrappers=(0, 1), pointers="plain", type=2, extra=(PT_NOTE,)),
    "no-sections": ElfOptions(bundles=TWO, wrappers=(0, 1), sections=False),
}
FILES = {name: build_elf(options) for name, options in KINDS.items()}
#: What is worth damaging: all but the code objects' content, which nothing here looks into.
HEADERS = {
    name: [
        *range(data.index(TWO[0][:30])),
        *range(data.index(TWO[0][:30]), data.index(TWO[0][:30]) + 200),
        *range(data.rindex(TWO[1][-100:]) + 100, len(data)),
    ]
    for name, data in FILES.items()
}


def attempt(data: bytes) -> BinaryState | None:
    """Open, convert and restore; any error but ours, and any wrong result, fails the test."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        path, output = Path(scratch, "lib.so"), Path(scratch, "out", "lib.so")
        path.write_bytes(data)
        output.parent.mkdir()
        try:
            binary = open_host_binary(path)
        except FormatError:
            return None
        if binary is None:
            return None
        with binary:
            state, refusals = binary.state, binary.refusals()
            if state is not BinaryState.NO_DEVICE_CODE:
                assert isinstance(binary.needed, tuple)
                assert binary.soname is None or isinstance(binary.soname, str)
        if state is BinaryState.FAT and not refusals:
            _convert_and_restore(path, output)
        else:
            assert list(output.parent.iterdir()) == []
        assert path.read_bytes() == data
        return state


def _convert_and_restore(path: Path, output: Path) -> None:
    try:
        result = convert(path, output)
    except (FormatError, ConversionError):
        assert list(output.parent.iterdir()) == []
        return
    back = output.with_name("back.so")
    assert restore(result.path, result.record, result.objects.__getitem__, back)
    assert back.read_bytes() == path.read_bytes()
    binary = open_host_binary(output)
    assert binary is not None
    with binary:
        assert binary.state is BinaryState.CONVERTED


@pytest.mark.parametrize("name", KINDS)
def test_whole_files_convert(name: str) -> None:
    assert attempt(FILES[name]) is BinaryState.FAT


@pytest.mark.parametrize("name", KINDS)
def test_every_prefix(name: str) -> None:
    data = FILES[name]
    lengths = [*range(0, 700, 3), *range(700, len(data), 211), *range(len(data) - 200, len(data), 7)]
    for length in lengths:
        attempt(data[:length])


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choice=st.data())
def test_flipped_bits(name: str, choice: st.DataObject) -> None:
    damaged = bytearray(FILES[name])
    for _ in range(choice.draw(st.integers(1, 3))):
        damaged[choice.draw(st.sampled_from(HEADERS[name]))] ^= 1 << choice.draw(st.integers(0, 7))
    attempt(bytes(damaged))


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choice=st.data())
def test_wild_words(name: str, choice: st.DataObject) -> None:
    damaged = bytearray(FILES[name])
    position = choice.draw(st.sampled_from(HEADERS[name])) // 4 * 4
    value = choice.draw(st.sampled_from((0, 1, 0x1000, 0x7FFFFFFF, 0xFFFFFFFF, len(damaged))))
    damaged[position : position + 4] = value.to_bytes(4, "little")
    attempt(bytes(damaged))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(80, 20_000), min_size=1, max_size=4),
    wrappers=st.data(),
    pointers=st.sampled_from(("rela", "symbol", "relr")),
    before=st.one_of(st.none(), st.binary(max_size=300)),
    after=st.binary(max_size=300),
    align=st.sampled_from((4096, 16384, 65536)),
    sections=st.booleans(),
    names_first=st.booleans(),
)
def test_any_layout_converts_and_comes_back(  # noqa: PLR0917 - Hypothesis gives them by name
    sizes: list[int],
    wrappers: st.DataObject,
    pointers: str,
    before: bytes | None,
    after: bytes,
    align: int,
    sections: bool,  # noqa: FBT001 - Hypothesis gives it by name
    names_first: bool,  # noqa: FBT001 - Hypothesis gives it by name
) -> None:
    numbers = range(len(sizes))
    further = wrappers.draw(st.lists(st.sampled_from(numbers), max_size=4))
    options = ElfOptions(
        bundles=tuple(small_bundle(size, number) for number, size in enumerate(sizes)),
        wrappers=(*wrappers.draw(st.permutations(numbers)), *further),
        pointers=pointers,
        before=before,
        after=after,
        align=align,
        sections=sections,
        names_first=names_first,
        extra=(PT_PHDR,),
    )
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        path = Path(scratch, "lib.so")
        path.write_bytes(build_elf(options))
        result = convert(path, Path(scratch, "out.so"))
        back = Path(scratch, "back.so")
        assert restore(result.path, result.record, result.objects.__getitem__, back)
        assert back.read_bytes() == path.read_bytes()
        binary = open_host_binary(result.path)
        assert binary is not None
        with binary:
            assert len(binary.wrappers) == len(options.wrappers)


def _damaged(record: object, choice: st.DataObject) -> object:
    """Return a JSON value in which one thing is something else."""
    if isinstance(record, dict) and record:
        key = choice.draw(st.sampled_from(sorted(record)))
        if choice.draw(st.integers(0, 9)) == 0:
            return {name: value for name, value in record.items() if name != key}
        return {**record, key: _damaged(record[key], choice)}
    if isinstance(record, list) and record:
        number = choice.draw(st.integers(0, len(record) - 1))
        return [*record[:number], _damaged(record[number], choice), *record[number + 1 :]]
    return choice.draw(st.sampled_from((None, "", "zz", "00", -1, 0, 1, 4097, 1 << 31, 1.5, [], {}, ["x"])))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choice=st.data())
def test_damaged_records_give_our_error_or_the_original(choice: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        path, back = Path(scratch, "lib.so"), Path(scratch, "out", "back.so")
        path.write_bytes(FILES["rela"])
        back.parent.mkdir()
        result = convert(path, Path(scratch, "converted.so"))
        record = cast("ConversionRecord", _damaged(result.record, choice))
        try:
            exact = restore(result.path, record, result.objects.__getitem__, back)
        except (ConversionError, RestorationError):
            assert list(back.parent.iterdir()) == []
            return
        assert not exact or back.read_bytes() == path.read_bytes()
