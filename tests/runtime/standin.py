"""Build the stand-in for the library below HIP (`hsa/`), and say what it lacks for a HIP library.

The stand-in has the name under which the HIP library asks for the real one. What the HIP library imports and
the stand-in does not know is an error that names it, because nobody has watched what becomes of it; functions
that are known and not needed (`hsa/refused.txt`) are there, refuse, and are named in the log.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from tests.cache import cache_directory, make_once
from tests.missing import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HEADER", "StandInError", "build_stand_in"]

SOURCES = Path(__file__).parent / "hsa"
HEADER = Path("/usr/include/hsa/hsa_ext_amd.h")
NAME = "libhsa-runtime64"
VERSION = "ROCR_1"
FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fno-builtin")


class StandInError(Exception):
    """The stand-in does not fit a HIP library.

    Attributes:
        hip: The HIP library.
        missing: What it wants and the stand-in does not have: functions, or a version or name.
    """

    def __init__(self, hip: Path, missing: tuple[str, ...]) -> None:
        self.hip = hip
        self.missing = missing
        super().__init__(
            f"{hip.name} wants what the stand-in below HIP does not have: {', '.join(missing)}; watch what it"
            f" asks for, then add it to {SOURCES}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a HIP library asks of the library below it."""

    name: str
    functions: tuple[str, ...]


@functools.cache
def build_stand_in(hip: Path) -> Path:
    """Return the stand-in for the HIP library `hip`, made once for each content of its sources.

    The test that asks is skipped where there is no compiler or no header; the reason names it.

    Raises:
        StandInError: The HIP library is of a version that the stand-in does not fit.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("a C compiler (Debian: gcc)")
    if not HEADER.exists():
        missing("the headers of the library below HIP (Debian: libhsa-runtime-dev)")
    wanted = _read_wanted(hip)
    parts = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    digest = hashlib.sha256(b"\0".join([*parts, repr((compiler, FLAGS, wanted.name)).encode()])).hexdigest()

    def make(directory: Path) -> None:
        (directory / "refused.c").write_text(_refusing_functions(), encoding="ascii")
        (directory / "versions.map").write_text(
            f"{VERSION} {{ global: hsa_*; local: *; }};\n", encoding="ascii"
        )
        command = [compiler, *FLAGS, f"-Wl,-soname,{wanted.name}", "-Wl,--version-script=versions.map"]
        command += ["-I", str(SOURCES), *map(str, sorted(SOURCES.glob("*.c"))), "refused.c"]
        subprocess.run([*command, "-o", wanted.name], cwd=directory, check=True)

    library = make_once(cache_directory("runtimes") / f"hsa-{digest[:16]}", make) / wanted.name
    unknown = set(wanted.functions) - _exported(library)
    if unknown:
        raise StandInError(hip, tuple(sorted(unknown)))
    return library


def _refusing_functions() -> str:
    names = (SOURCES / "refused.txt").read_text(encoding="ascii").split()
    functions = "".join(f'int {name}(void) {{ return rig_refuse("{name}", 0); }}\n' for name in names)
    return f"int rig_refuse(const char *function, int attribute);\n{functions}"


def _read_wanted(hip: Path) -> _Wanted:
    with hip.open("rb") as stream:
        elf = ELFFile(stream)
        names = [name for name in _needed(elf) if name.startswith(NAME)]
        if len(names) != 1:
            raise StandInError(hip, (f"nothing: it does not need {NAME}",))
        versions = set(_versions(elf, names[0]))
        if versions - {VERSION}:
            raise StandInError(hip, tuple(f"version {version}" for version in sorted(versions - {VERSION})))
        functions = {symbol for symbol in _symbols(elf, defined=False) if symbol.startswith("hsa_")}
    return _Wanted(name=names[0], functions=tuple(sorted(functions)))


@functools.cache
def _exported(library: Path) -> frozenset[str]:
    with library.open("rb") as stream:
        return frozenset(_symbols(ELFFile(stream), defined=True))


def _needed(elf: ELFFile) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    for tag in dynamic.iter_tags("DT_NEEDED"):
        yield str(vars(tag)["needed"])


def _versions(elf: ELFFile, library: str) -> Iterator[str]:
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return
    for needed, versions in section.iter_versions():
        if needed.name == library:
            yield from (version.name for version in versions)


def _symbols(elf: ELFFile, *, defined: bool) -> Iterator[str]:
    symbols = elf.get_section_by_name(".dynsym")
    assert isinstance(symbols, SymbolTableSection)
    for symbol in symbols.iter_symbols():
        if (symbol["st_shndx"] != "SHN_UNDEF") == defined:
            yield symbol.name
