"""Conversion of what real linkers made: compiled fixtures of all variants, and libraries of published wheels.

Results are held against readers that are not ours (pyelftools, LIEF, elfutils, LLVM), are loaded by the real
loader with the real HIP runtimes, and go back to the original.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lief
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from elftools.elf.sections import SymbolTableSection

from kpack_build.hostbinary import BinaryState, open_host_binary, restore
from kpack_build.runtime._restore import FatWriter
from tests.converted import REFERENCE, Converted, convert
from tests.corpus import CORPUS, FAT_CORPUS, corpus_tree
from tests.fat import read_fat_binary
from tests.fixtures.build import build_variant, llvm_tool, stub_library
from tests.fixtures.variants import VARIANTS
from tests.hip import HipRuntime, run_hip, run_hip_command
from tests.missing import missing
from tests.toolchain import run_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__: list[str] = []

KEPT = ("only-keep-debug", "no-device-code", "sanitized")
CONVERTIBLE = [name for name in VARIANTS if not name.startswith(KEPT)]
WITH_SECTIONS = [name for name in CONVERTIBLE if not name.startswith("no-sections")]
PROGRAMS = ("pie", "executable", "static-pie", "aarch64-executable")
LOADABLE = [name for name in CONVERTIBLE if not name.startswith((*PROGRAMS, "aarch64"))]
WRAPPER_SIZE = 24
#: Local symbols that stood in the device code have nothing to stand on any more. And where a linker put code
#: and device code into one segment, the part that holds no code is executable still.
HARMLESS = re.compile("st_value out of bounds|executable but contains no executable sections|No errors")


@pytest.fixture(scope="module")
def conversion(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Converted]]:
    """Return a function that gives a fixture by its name, and its conversion (made once)."""
    directory = tmp_path_factory.mktemp("converted")

    @functools.cache
    def get(name: str) -> tuple[Path, Converted]:
        source = build_variant(name)
        return source, convert(source, directory / f"{name}-{source.name}")

    return get


def corpus_libraries(name: str) -> list[Path]:
    """Return the libraries with device code of a wheel, in the order of their paths."""
    found = []
    for path in sorted(corpus_tree(name).rglob("*.so*")):
        binary = open_host_binary(path)
        if binary is not None:
            with binary:
                found += [path] if binary.state is BinaryState.FAT else []
    return found


def is_compressed(converted: Converted) -> bool:
    return any(bundle["ccob"] is not None for bundle in converted.record["bundles"])


def check_way_back(source: Path, converted: Converted, back: Path) -> None:
    exact = restore(converted.path, converted.record, converted.objects.__getitem__, back)
    assert exact or is_compressed(converted)
    assert (back.read_bytes() == source.read_bytes()) is exact
    if not exact:
        before, after = read_fat_binary(source), read_fat_binary(back)
        assert [wrapper.entries for wrapper in after] == [wrapper.entries for wrapper in before]
        assert [list(wrapper.entries) for wrapper in after] == [list(wrapper.entries) for wrapper in before]


@pytest.mark.clang
@pytest.mark.parametrize("name", CONVERTIBLE)
def test_variants_go_there_and_back(
    name: str, conversion: Callable[[str], tuple[Path, Converted]], tmp_path: Path
) -> None:
    source, converted = conversion(name)
    check_way_back(source, converted, tmp_path / "back")
    again = convert(source, tmp_path / "again")
    assert again.path.read_bytes() == converted.path.read_bytes()
    assert again.record == converted.record


@pytest.mark.corpus
@pytest.mark.parametrize("name", FAT_CORPUS)
def test_corpus_goes_there_and_back(name: str, tmp_path: Path) -> None:
    libraries = corpus_libraries(name)
    assert len(libraries) == len(CORPUS[name].wrappers)
    total = 0
    for source in libraries:
        converted = convert(source, tmp_path / source.name)
        total += sum(map(len, converted.objects))
        saved = source.stat().st_size - converted.path.stat().st_size
        device = sum(bundle["room"] for bundle in converted.record["bundles"])
        # What stays of the device code is the map's page, and less than a page at the end.
        assert saved > device - 2 * 4096 - 32
        check_way_back(source, converted, tmp_path / "back")
    assert total == CORPUS[name].device_bytes


@pytest.mark.clang
@pytest.mark.parametrize("name", [f"{kind}-{compiler}" for kind in KEPT[:2] for compiler in (22, 19)])
def test_files_without_device_code(name: str) -> None:
    binary = open_host_binary(build_variant(name))
    assert binary is not None
    with binary:
        assert binary.state is BinaryState.NO_DEVICE_CODE


@pytest.mark.clang
@pytest.mark.parametrize("compiler", [22, 19])
def test_gaps_between_wrappers_are_refused(compiler: int) -> None:
    binary = open_host_binary(build_variant(f"sanitized-{compiler}"))
    assert binary is not None
    with binary:
        assert binary.state is BinaryState.FAT
        assert binary.refusals()


@pytest.mark.corpus
def test_what_others_converted_is_recognised() -> None:
    folder = corpus_tree("vapoursynth-dfttest2-hip") / "vapoursynth_dfttest2_hip.libs"
    [path] = folder.glob("librocfft-*.so*")
    binary = open_host_binary(path)
    assert binary is not None
    with binary:
        assert binary.state is BinaryState.CONVERTED
        assert binary.reference is not None
        assert binary.reference.search_paths == ("../.kpack/fft_lib_@GFXARCH@.kpack",)


@dataclass(frozen=True)
class Facts:
    """What pyelftools sees of a library, in terms that the conversion must not change."""

    needed: list[str]
    tags: list[tuple[str, int]]
    symbols: dict[str, list[tuple[str, int, int, object]]]
    versions: list[tuple[str | None, list[str | None]]]
    relocations: dict[int, tuple[object, ...]]
    contents: dict[str, str]
    wrappers: set[int]


def facts(path: Path) -> Facts:
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        segment = elf.get_section_by_name(".hipFatBinSegment")
        assert segment is not None
        places = range(segment["sh_addr"] + 8, segment["sh_addr"] + segment["sh_size"], WRAPPER_SIZE)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return Facts(
            needed=[str(vars(tag)["needed"]) for tag in dynamic.iter_tags("DT_NEEDED")],
            tags=[(tag.entry.d_tag, tag.entry.d_val) for tag in dynamic.iter_tags()],
            symbols={
                table.name: [
                    (symbol.name, symbol["st_value"], symbol["st_size"], symbol["st_shndx"])
                    for symbol in table.iter_symbols()
                ]
                for table in elf.iter_sections()
                if isinstance(table, SymbolTableSection)
            },
            versions=[
                (version.name, [item.name for item in items])
                for table in elf.iter_sections()
                if isinstance(table, GNUVerNeedSection)
                for version, items in table.iter_versions()
            ],
            relocations=_relocations(elf),
            contents={
                section.name: hashlib.sha256(section.data()).hexdigest()
                for section in elf.iter_sections()
                if section["sh_type"] != "SHT_NOBITS"
            },
            wrappers=set(places),
        )


def _relocations(elf: ELFFile) -> dict[int, tuple[object, ...]]:
    found: dict[int, tuple[object, ...]] = {}
    for table in elf.iter_sections():
        if isinstance(table, RelrRelocationSection):
            found.update({item["r_offset"]: ("relr",) for item in table.iter_relocations()})
        elif isinstance(table, RelocationSection):
            for item in table.iter_relocations():
                found[item["r_offset"]] = (item["r_info"], item["r_addend"])
    return found


@pytest.mark.clang
@pytest.mark.parametrize(
    "name", [name for name in WITH_SECTIONS if not name.startswith(("many-units", "static"))]
)
def test_pyelftools_sees_only_the_wrappers_change(
    name: str, conversion: Callable[[str], tuple[Path, Converted]]
) -> None:
    source, converted = conversion(name)
    _compare(facts(source), facts(converted.path))


@pytest.mark.corpus
@pytest.mark.parametrize("name", FAT_CORPUS)
def test_pyelftools_sees_only_the_wrappers_change_in_the_corpus(name: str, tmp_path: Path) -> None:
    for source in corpus_libraries(name):
        _compare(facts(source), facts(convert(source, tmp_path / source.name).path))


def _compare(before: Facts, after: Facts) -> None:
    assert after.needed == before.needed
    assert after.tags == before.tags
    assert after.symbols == before.symbols
    assert after.versions == before.versions
    assert after.wrappers == before.wrappers
    changed = {place for place in before.relocations if before.relocations[place] != after.relocations[place]}
    assert before.relocations.keys() == after.relocations.keys()
    assert changed <= before.wrappers
    old = {".hip_fatbin", ".rocm_kpack_ref", ".hipFatBinSegment", ".shstrtab", ".rela.dyn"}
    assert {name for name in before.contents if before.contents[name] != after.contents.get(name)} <= old
    assert set(after.contents) - set(before.contents) == {".rocm_kpack_ref"}
    assert ".hip_fatbin" not in after.contents


@pytest.mark.clang
@pytest.mark.parametrize(
    "name", ["plain-22", "gnu-ld-22", "rdc-19", "relr-22", "pie-22", "aarch64-19", "debug-22"]
)
def test_lief_sees_the_same_interface(name: str, conversion: Callable[[str], tuple[Path, Converted]]) -> None:
    source, converted = conversion(name)
    before, after = lief.ELF.parse(str(source)), lief.ELF.parse(str(converted.path))
    assert before is not None
    assert after is not None
    assert after.libraries == before.libraries
    for attribute in ("imported_symbols", "exported_symbols"):
        names = [[item.name for item in getattr(binary, attribute)] for binary in (before, after)]
        assert names[0] == names[1]
    reference = after.get_section(".rocm_kpack_ref")
    assert reference is not None
    assert bytes(reference.content) == REFERENCE.to_bytes()
    assert after.virtual_address_to_offset(reference.virtual_address) == reference.file_offset
    for section in after.sections:
        if section.virtual_address and section.size and section.type != lief.ELF.Section.TYPE.NOBITS:
            assert after.virtual_address_to_offset(section.virtual_address) == section.file_offset


@pytest.mark.clang
@pytest.mark.parametrize("name", [name for name in WITH_SECTIONS if name.endswith("-22")])
def test_elfutils_and_llvm_find_nothing_new(
    name: str, conversion: Callable[[str], tuple[Path, Converted]]
) -> None:
    lint = shutil.which("eu-elflint") or missing("eu-elflint (Debian: elfutils)")
    source, converted = conversion(name)
    found = []
    for path in (source, converted.path):
        command = [lint, "--gnu-ld", str(path)]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found.append(set(output.splitlines()))
    assert [line for line in found[1] - found[0] if not HARMLESS.search(line)] == []
    command = [str(llvm_tool("llvm-readobj")), "--all", str(converted.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert ".rocm_kpack_ref" in result.stdout


@pytest.mark.clang
@pytest.mark.rocm
@pytest.mark.parametrize("name", LOADABLE)
def test_real_runtime_registers_converted_libraries(
    name: str, conversion: Callable[[str], tuple[Path, Converted]]
) -> None:
    source, converted = conversion(name)
    fat = run_hip(runtime=HipRuntime.KPACK, libraries=[source])
    result = run_hip(runtime=HipRuntime.KPACK, libraries=[converted.path])
    assert result.returncode == 0
    assert result.load_errors == {}
    assert len(result.registrations) == len(fat.registrations)
    assert {item.magic for item in result.registrations} == {b"HIPK"}
    assert all(item.accepted for item in result.registrations)
    # Wrappers register in the order of the file, except where one registers for all (-fgpu-rdc).
    indexes = sorted(item.index for item in result.registrations)
    assert indexes == list(range(len(indexes)))
    assert [item.functions for item in result.registrations] == [item.functions for item in fat.registrations]


@pytest.mark.clang
@pytest.mark.rocm
@pytest.mark.parametrize("name", ["plain-22", "compressed-22", "rdc-19", "relr-gnu-ld-22", "no-sections-22"])
def test_fat_copies_with_some_targets_work_without_kpack(
    name: str, conversion: Callable[[str], tuple[Path, Converted]], tmp_path: Path
) -> None:
    source, converted = conversion(name)
    copy = tmp_path / source.name
    writer = FatWriter(converted.record, converted.objects.__getitem__, keep=lambda entry: "gfx1100" in entry)
    assert not writer.write(converted.path, copy)
    assert copy.stat().st_size == source.stat().st_size
    if not name.startswith("no-sections"):
        for before, after in zip(read_fat_binary(source), read_fat_binary(copy), strict=True):
            wanted = {key: data for key, data in before.entries.items() if not data or "gfx1100" in key}
            assert after.entries == wanted
    for runtime in (HipRuntime.FAT_ONLY, HipRuntime.KPACK):
        result = run_hip(runtime=runtime, libraries=[copy])
        assert result.load_errors == {}
        assert {(item.magic, item.accepted) for item in result.registrations} == {(b"FPIH", True)}


@pytest.mark.clang
@pytest.mark.rocm
@pytest.mark.parametrize("compiler", [22, 19])
@pytest.mark.parametrize("kind", ["pie", "executable", "executable-gnu-ld", "static-pie"])
@pytest.mark.parametrize(
    "steps",
    [(), ("strip",), ("llvm-strip",), ("rpath-0.19.3.0",), ("rpath-0.17.2.4", "strip"), ("rpath-0.14.5.0",)],
)
def test_converted_programs_run(
    kind: str,
    compiler: int,
    steps: tuple[str, ...],
    conversion: Callable[[str], tuple[Path, Converted]],
    tmp_path: Path,
) -> None:
    source, converted = conversion(f"{kind}-{compiler}")
    results = []
    for number, path in enumerate((source, converted.path)):
        program = tmp_path / f"program{number}"
        shutil.copy(path, program)
        complained = not run_steps(program, steps)
        result = run_hip_command([program], runtime=HipRuntime.KPACK)
        accepted = [item.accepted for item in result.registrations]
        results.append((complained, result.returncode, result.stdout, accepted))
    assert results[1] == results[0]
    # patchelf breaks static programs, fat or not.
    assert results[0][1] == 0 or (kind == "static-pie" and steps[0].startswith("rpath"))


@pytest.mark.clang
@pytest.mark.parametrize("compiler", [22, 19])
@pytest.mark.parametrize("steps", [(), ("rpath-0.19.3.0",), ("llvm-strip",)])
def test_converted_programs_run_on_aarch64(
    compiler: int,
    steps: tuple[str, ...],
    conversion: Callable[[str], tuple[Path, Converted]],
    tmp_path: Path,
) -> None:
    emulator = shutil.which("qemu-aarch64") or missing("qemu-aarch64 (Debian: qemu-user)")
    source, converted = conversion(f"aarch64-executable-{compiler}")
    stub = stub_library(machine="aarch64")
    results = []
    for number, path in enumerate((source, converted.path)):
        program = tmp_path / f"program{number}"
        shutil.copy(path, program)
        assert run_steps(program, steps)
        command = [emulator, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={stub.parent}"]
        result = subprocess.run([*command, str(program)], capture_output=True, text=True, check=False)
        results.append((result.returncode, result.stdout, result.stderr))
    assert results[0][0] == 0
    assert results[1] == results[0]
