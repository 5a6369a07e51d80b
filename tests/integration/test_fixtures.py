"""Each compile variant is what its name says, as pyelftools sees it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from elftools.elf.sections import Section, SymbolTableSection

from tests.fat import read_fat_binary
from tests.fixtures.build import build_variant
from tests.fixtures.variants import COMPILERS, MANY, VARIANTS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__: list[str] = []

pytestmark = pytest.mark.clang

S = TypeVar("S", bound=Section)

PAGE = 4096
#: Those whose wrappers pyelftools and the plain reader of the tests cannot list, and that is their point.
UNREADABLE = ("sanitized", "only-keep-debug", "no-sections", "no-device-code")
READABLE = [name for name in VARIANTS if not name.startswith(UNREADABLE)]
LINKED = [name for name in VARIANTS if not name.startswith(("only-keep-debug", "no-sections"))]
AMDGPU_ABI_VERSIONS = {4: 2, 5: 3, 6: 4}


@contextmanager
def opened(path: Path) -> Iterator[ELFFile]:
    with path.open("rb") as stream:
        yield ELFFile(stream)


def section(elf: ELFFile, name: str, kind: type[S]) -> S:
    found = elf.get_section_by_name(name)
    assert isinstance(found, kind), name
    return found


def needed(elf: ELFFile) -> list[str]:
    dynamic = section(elf, ".dynamic", DynamicSection)
    return [str(vars(tag)["needed"]) for tag in dynamic.iter_tags("DT_NEEDED")]


def load_alignments(elf: ELFFile) -> set[int]:
    return {segment["p_align"] for segment in elf.iter_segments("PT_LOAD")}


@pytest.mark.parametrize("name", READABLE)
def test_wrappers_hold_the_targets_of_their_units(name: str) -> None:
    variant, wrappers = VARIANTS[name], read_fat_binary(build_variant(name))
    assert [sorted(wrapper.code_objects) for wrapper in wrappers] == [
        sorted(unit.targets) for unit in variant.units
    ]
    assert len({wrapper.bundle_address for wrapper in wrappers}) == (1 if variant.rdc else len(variant.units))
    for wrapper in wrappers:
        assert all(data.startswith(b"\x7fELF") for data in wrapper.code_objects.values())


@pytest.mark.parametrize("name", LINKED)
def test_host_part_is_linked_as_named(name: str) -> None:
    variant = VARIANTS[name]
    with opened(build_variant(name)) as elf:
        assert elf["e_machine"] == {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[variant.machine]
        assert elf["e_type"] == ("ET_EXEC" if variant.kind is Kind.EXECUTABLE else "ET_DYN")
        interpreters = list(elf.iter_segments("PT_INTERP"))
        assert bool(interpreters) == (variant.kind in {Kind.PIE, Kind.EXECUTABLE})
        assert (elf.get_section_by_name(".note.gnu.build-id") is None) == (
            "-Wl,--build-id=none" in variant.link_flags
        )
        assert (b"LLD" in section(elf, ".comment", Section).data()) == (variant.linker == "lld")
        if variant.units and variant.kind is not Kind.STATIC_PIE:
            assert variant.hip_soname in needed(elf)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["compressed", "compressed-gnu-ld", "rdc-compressed", "tiny"])
def test_compressed_bundles_have_the_compilers_version(name: str, compiler: int) -> None:
    with opened(build_variant(f"{name}-{compiler}")) as elf:
        data = section(elf, ".hip_fatbin", Section).data()
    assert data[:8] == b"CCOB" + {22: b"\3\0", 19: b"\2\0"}[compiler] + b"\1\0"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["relr", "relr-gnu-ld", "aarch64-relr"])
def test_relr_variants_relocate_their_wrappers_by_relr(name: str, compiler: int) -> None:
    path = build_variant(f"{name}-{compiler}")
    pointers = {wrapper.address + 8 for wrapper in read_fat_binary(path)}
    with opened(path) as elf:
        relr = section(elf, ".relr.dyn", RelrRelocationSection)
        relocated = {relocation["r_offset"] for relocation in relr.iter_relocations()}
        plain = section(elf, ".rela.dyn", RelocationSection)
        others = {relocation["r_offset"] for relocation in plain.iter_relocations()}
    assert pointers <= relocated
    assert not pointers & others


@pytest.mark.parametrize("compiler", COMPILERS)
def test_rdc_wrappers_are_relocated_by_symbol(compiler: int) -> None:
    path = build_variant(f"rdc-{compiler}")
    pointers = {wrapper.address + 8 for wrapper in read_fat_binary(path)}
    with opened(path) as elf:
        symbols = section(elf, ".dynsym", SymbolTableSection)
        names = {
            symbols.get_symbol(relocation["r_info_sym"]).name
            for relocation in section(elf, ".rela.dyn", RelocationSection).iter_relocations()
            if relocation["r_offset"] in pointers
        }
    # The other unit's pointer is a relative one.
    assert len(names - {""}) == 1
    assert (names - {""}).pop().startswith("__hip_fatbin_")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_page_sizes_are_those_named(compiler: int) -> None:
    for name, alignment in (("page-64k", 0x10000), ("page-64k-gnu-ld", 0x10000), ("plain", PAGE)):
        with opened(build_variant(f"{name}-{compiler}")) as elf:
            assert load_alignments(elf) == {alignment}
    with opened(build_variant(f"aarch64-{compiler}")) as elf:
        assert load_alignments(elf) == {0x10000}
    with opened(build_variant(f"aarch64-page-4k-{compiler}")) as elf:
        assert load_alignments(elf) == {PAGE}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("version", AMDGPU_ABI_VERSIONS)
def test_code_objects_have_the_version_named(compiler: int, version: int) -> None:
    for wrapper in read_fat_binary(build_variant(f"cov{version}-{compiler}")):
        assert {data[8] for data in wrapper.code_objects.values()} == {AMDGPU_ABI_VERSIONS[version]}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_debug_file_has_no_device_code(compiler: int) -> None:
    with opened(build_variant(f"debug-{compiler}")) as elf:
        assert elf.get_section_by_name(".debug_info") is not None
        assert section(elf, ".hip_fatbin", Section)["sh_type"] == "SHT_PROGBITS"
    with opened(build_variant(f"only-keep-debug-{compiler}")) as elf:
        assert elf.get_section_by_name(".debug_info") is not None
        assert section(elf, ".hip_fatbin", Section)["sh_type"] == "SHT_NOBITS"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_odd_ones_are_odd_as_named(compiler: int) -> None:
    with opened(build_variant(f"tiny-{compiler}")) as elf:
        assert section(elf, ".hip_fatbin", Section)["sh_size"] < PAGE
    with opened(build_variant(f"no-sections-{compiler}")) as elf:
        assert elf.num_sections() == 0
        assert list(elf.iter_segments("PT_DYNAMIC"))
    with opened(build_variant(f"no-device-code-{compiler}")) as elf:
        assert elf.get_section_by_name(".hip_fatbin") is None
    with opened(build_variant(f"sanitized-{compiler}")) as elf:
        assert section(elf, ".hipFatBinSegment", Section)["sh_size"] > 2 * 24
    with opened(build_variant(f"no-spare-header-{compiler}")) as elf:
        kinds = {segment["p_type"] for segment in elf.iter_segments()}
        assert not kinds & {"PT_PHDR", "PT_NOTE"}
    with opened(build_variant(f"one-segment-{compiler}")) as elf:
        fatbin = section(elf, ".hip_fatbin", Section)
        (segment,) = (
            segment for segment in elf.iter_segments("PT_LOAD") if segment.section_in_segment(fatbin)
        )
        assert segment["p_flags"] & 1


def test_many_units_are_many() -> None:
    wrappers = read_fat_binary(build_variant("many-units"))
    assert len(wrappers) == MANY
    assert len({wrapper.code_objects["gfx1100"] for wrapper in wrappers}) == MANY


def test_a_variant_is_built_once() -> None:
    first = build_variant("plain-22")
    before = first.stat()
    assert build_variant("plain-22") == first
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
