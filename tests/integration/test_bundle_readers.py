"""Bundles and code objects against LLVM's own programs, and against an independent reader of real wheels."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kpack_build.bundle import (
    BUNDLE_ALIGNMENT,
    Bundle,
    CcobMethod,
    EntryKind,
    iter_bundles,
    parse_bundle,
    plain_header,
    write_bundle,
    write_ccob,
)
from kpack_build.codeobject import parse_code_object, read_kernels
from kpack_build.processors import PROCESSORS
from tests.corpus import CORPUS, corpus_tree
from tests.fat import read_fat_binary
from tests.fixtures.build import llvm_tool
from tests.fixtures.bundles import fat_entries
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = ("gfx90a:xnack-", "gfx942:sramecc+:xnack-", "gfx1100", "gfx11-generic")
COMPILERS = (19, 22)
#: Processors of other compilers than these; they were never in one table together.
ELSEWHERE = {"gfx940", "gfx941", "gfx1250-strict"}


def run(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def bundler_entries(compiler: int) -> list[tuple[str, bytes]]:
    """Return the entries as a bundler names them: that of LLVM 19 writes the host's triple twice."""
    host, *others = fat_entries(TARGETS)
    return [(host[0] * 2 if compiler == 19 else host[0], host[1]), *others]


def bundle_with_llvm(directory: Path, compiler: int, *options: str) -> bytes:
    """Bundle the entries of `TARGETS` with LLVM's bundler."""
    inputs = []
    for number, (_, data) in enumerate(fat_entries(TARGETS)):
        path = directory / f"input{number}"
        path.write_bytes(data)
        inputs.append(f"--input={path}")
    output = directory / "bundle"
    names = ",".join(name for name, _ in fat_entries(TARGETS))
    run(
        llvm_tool("clang-offload-bundler", compiler),
        "--type=o",
        f"--bundle-align={BUNDLE_ALIGNMENT}",
        f"--targets={names}",
        *inputs,
        f"--output={output}",
        *options,
    )
    return output.read_bytes()


def parse(data: bytes) -> Bundle:
    return parse_bundle(memoryview(data), 0, limit=len(data), path=Path("bundle"))


@pytest.mark.clang
@pytest.mark.parametrize("compiler", COMPILERS)
def test_plain_bundles_are_llvms_byte_for_byte(tmp_path: Path, compiler: int) -> None:
    assert write_bundle(bundler_entries(compiler)) == bundle_with_llvm(tmp_path, compiler)


@pytest.mark.clang
@pytest.mark.parametrize("compiler", COMPILERS)
def test_llvms_compressed_bundles_are_read(tmp_path: Path, compiler: int) -> None:
    stored = bundle_with_llvm(tmp_path, compiler, "--compress")
    bundle = parse(stored)
    assert bundle.stored_size == len(stored)
    assert bundle.ccob is not None
    assert bundle.ccob.version == {19: 2, 22: 3}[compiler]
    with bundle.open_decoded() as decoded:
        assert decoded.data == write_bundle(bundler_entries(compiler))


@pytest.mark.clang
@pytest.mark.parametrize("method", CcobMethod)
@pytest.mark.parametrize(("compiler", "version"), [(19, 1), (19, 2), (22, 1), (22, 2), (22, 3)])
def test_llvm_reads_our_compressed_bundles(
    tmp_path: Path, compiler: int, version: int, method: CcobMethod
) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(write_ccob(write_bundle(fat_entries(TARGETS)), version=version, method=method, level=3))
    tool = llvm_tool("clang-offload-bundler", compiler)
    listed = run(tool, "--list", "--type=o", f"--input={path}").split()
    assert sorted(listed) == sorted(name for name, _ in fat_entries(TARGETS))
    name, data = fat_entries(TARGETS)[2]
    output = tmp_path / "output"
    run(tool, "--unbundle", "--type=o", f"--input={path}", f"--targets={name}", f"--output={output}")
    assert output.read_bytes() == data


@pytest.mark.clang
@pytest.mark.parametrize("processor", sorted(PROCESSORS.keys() - ELSEWHERE))
def test_what_clang_builds_for_a_processor(tmp_path: Path, processor: str) -> None:
    path = tmp_path / "object"
    source = tmp_path / "source.c"
    source.write_text("")
    version = 6 if processor.endswith("-generic") else 5
    command = [llvm_tool("clang"), "--target=amdgcn-amd-amdhsa", f"-mcpu={processor}", "-nogpulib", "-c"]
    run(*command, f"-mcode-object-version={version}", "-o", path, source)
    found = parse_code_object(memoryview(path.read_bytes()), path=path)
    assert str(found.target) == processor
    assert found.code_object_version == version
    assert found.generic_version == (1 if version == 6 else None)
    # The flags tell which features a processor has at all: "any" is not "unsupported".
    assert bool(found.flags & 0x300) == PROCESSORS[processor].xnack
    assert bool(found.flags & 0xC00) == PROCESSORS[processor].sramecc


@pytest.mark.clang
@pytest.mark.parametrize("version", [3, 4, 5, 6])
@pytest.mark.parametrize("target", ["gfx90a:sramecc+:xnack-", "gfx90a", "gfx900:xnack+", "gfx1100"])
def test_the_flags_of_our_code_objects_are_what_llvm_takes_them_for(
    tmp_path: Path, target: str, version: int
) -> None:
    path = tmp_path / "object"
    path.write_bytes(write_code_object(target, CodeObjectOptions(version=version)))
    shown = run(llvm_tool("llvm-readobj"), "--file-header", path)
    names = set(re.findall(r"EF_AMDGPU_(\w+)", shown))
    found = parse_code_object(memoryview(path.read_bytes()), path=path)
    assert f"MACH_AMDGCN_{found.target.processor.upper()}" in names
    if version > 3:
        states = {(True, "ON"), (False, "OFF")}
        for feature, state in (("SRAMECC", found.target.sramecc), ("XNACK", found.target.xnack)):
            named = {word for value, word in states if value is state}
            assert {word for _, word in states if f"FEATURE_{feature}_{word}_V4" in names} == named


def fat_libraries(tree: Path) -> Iterator[tuple[Path, int, int, int]]:
    """Iterate over the libraries with device code: path, address, file offset and size of the section."""
    for path in sorted(tree.rglob("*.so*")):
        with path.open("rb") as stream:
            if stream.read(4) != b"\x7fELF":
                continue
            section = ELFFile(stream).get_section_by_name(".hip_fatbin")
            if section is not None:
                yield path, section["sh_addr"], section["sh_offset"], section["sh_size"]


@pytest.mark.corpus
def test_bundles_of_real_wheels(fat_corpus_name: str) -> None:
    """Every entry as the independent reader has it, every code object for the target that its id says."""
    sizes = []
    for path, address, offset, size in fat_libraries(corpus_tree(fat_corpus_name)):
        expected = {wrapper.bundle_address: wrapper.entries for wrapper in read_fat_binary(path)}
        data = path.read_bytes()
        found = {}
        for bundle in iter_bundles(memoryview(data), offset, offset + size, path):
            with bundle.open_decoded() as decoded:
                assert decoded.unaccounted() == []
                assert plain_header(bundle.entries) == decoded.data[: bundle.header_size]
                contents = {entry.id: bytes(decoded.entry(entry)) for entry in bundle.entries}
                found[bundle.offset - offset + address] = contents
                for entry in bundle.entries:
                    if entry.kind is not EntryKind.HOST:
                        assert entry.target is not None
                        code = parse_code_object(decoded.entry(entry), path=path)
                        assert code.agrees_with(entry.target)
                        assert code.size == entry.size
                        sizes.append(entry.size)
        assert found == expected
    assert (len(sizes), sum(sizes)) == (
        CORPUS[fat_corpus_name].code_objects,
        CORPUS[fat_corpus_name].device_bytes,
    )


@pytest.mark.corpus
def test_kernels_of_real_wheels(fat_corpus_name: str) -> None:
    """The kernels in the metadata are those that have a descriptor in the symbol table."""
    for path, _, offset, size in fat_libraries(corpus_tree(fat_corpus_name)):
        data = path.read_bytes()
        for bundle in iter_bundles(memoryview(data), offset, offset + size, path):
            with bundle.open_decoded() as decoded:
                code = decoded.entry(bundle.entries[-1])
                symbols = ELFFile(io.BytesIO(code)).get_section_by_name(".dynsym")
                assert isinstance(symbols, SymbolTableSection)
                names = [symbol.name for symbol in symbols.iter_symbols()]
                descriptors = {name for name in names if name.endswith(".kd")}
                assert {kernel.symbol for kernel in read_kernels(code, path=path)} >= descriptors
                assert descriptors


@pytest.mark.corpus
def test_some_real_compressed_bundles_can_be_made_again() -> None:
    """Those whose compressor was of the same mind as ours: LLVM compresses with long distance matching."""
    stored = made_again = 0
    for path, _, offset, size in fat_libraries(corpus_tree("bitsandbytes")):
        data = path.read_bytes()
        for bundle in iter_bundles(memoryview(data), offset, offset + size, path):
            stored += 1
            with bundle.open_decoded() as decoded:
                assert bundle.ccob is not None
                again = write_ccob(
                    decoded.data, version=bundle.ccob.version, method=bundle.ccob.method, level=3
                )
            made_again += again == bundle.stored
    assert stored == 12
    if zstandard.ZSTD_VERSION == (1, 5, 7):
        # That of ROCm 7.14 and 7.15, which compressed four of them.
        assert made_again == 4
