"""Stand-ins for the libraries of ROCm that some packages need beside HIP: hipBLAS and its kin.

A stand-in has the name that the package asks for and the functions that it takes from there, none of which
does anything. It needs the HIP library, as the real ones do: some packages reach HIP only through them.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import TYPE_CHECKING

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.cache import cache_directory, make_once
from tests.fixtures.build import llvm_tool, stub_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["stand_ins"]

#: Names of ROCm's math libraries, which are the starts of their functions' names, too.
FAMILY = re.compile(r"(hip|roc)(blas|fft|rand|solver|sparse)", re.IGNORECASE)
#: Names that auditwheel gives to a HIP library that it puts into a wheel, which may not load on this machine.
OWN_HIP = re.compile(r"libamdhip64-[0-9a-f]+\.so")


def stand_ins(libraries: Sequence[Path]) -> list[Path]:
    """Return stand-ins for what `libraries` need of ROCm besides HIP, and for HIP libraries of their own.

    They are for `run_hip(preload=…)`. All are in one directory, for `LD_LIBRARY_PATH`.
    """
    needed, functions = set(), set()
    for library in libraries:
        with library.open("rb") as stream:
            elf = ELFFile(stream)
            needed |= {name for name in _needed(elf) if _is_replaced(name)}
            functions |= {name for name in _undefined(elf) if FAMILY.match(name)}
    source = "".join(f"void {name}(void) {{}}\n" for name in sorted(functions))
    digest = hashlib.sha256(repr((sorted(needed), source)).encode()).hexdigest()[:16]

    def make(directory: Path) -> None:
        (directory / "functions.c").write_text(source, encoding="ascii")
        for name in sorted(needed):
            flags = ["-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{name}", "-Wl,--no-as-needed"]
            command = [str(llvm_tool("clang")), *flags, "functions.c", str(stub_library()), "-o", name]
            subprocess.run(command, cwd=directory, check=True)

    directory = make_once(cache_directory("runtimes") / f"stand-ins-{digest}", make)
    return [directory / name for name in sorted(needed)]


def _is_replaced(name: str) -> bool:
    return bool(FAMILY.match(name.removeprefix("lib")) or OWN_HIP.match(name))


def _needed(elf: ELFFile) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    for tag in dynamic.iter_tags("DT_NEEDED"):
        yield str(vars(tag)["needed"])


def _undefined(elf: ELFFile) -> Iterator[str]:
    symbols = elf.get_section_by_name(".dynsym")
    assert isinstance(symbols, SymbolTableSection)
    for symbol in symbols.iter_symbols():
        if symbol["st_shndx"] == "SHN_UNDEF":
            yield symbol.name
