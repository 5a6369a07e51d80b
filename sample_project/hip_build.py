"""How the HIP parts of the sample are compiled: with hipcc, with clang, or from prebuilt code objects.

The first of these that is there is used:

* `hipcc`, of ROCm (on PATH, or the environment variable `HIPCC`);
* `clang++` with the AMDGPU back end (on PATH under its own name or a versioned one, or `KPACK_SAMPLE_CLANG`);
* neither: the code objects in `prebuilt/`, for the targets that are there, and the system's C compiler.

`KPACK_SAMPLE_COMPILER` (hipcc, clang or prebuilt) asks for one of them. `KPACK_SAMPLE_TARGETS`, target ids
between commas, says which GPUs to build for; nothing here looks at the GPUs of the machine.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools.command.build_ext import build_ext as setuptools_build_ext
from setuptools.errors import CompileError

if TYPE_CHECKING:
    from setuptools.extension import Extension

__all__ = ["DEFAULT_TARGETS", "UNITS", "build_ext", "device_flags"]

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
PREBUILT = HERE / "prebuilt"
#: One of each family: those that `prebuilt/` has code objects for.
DEFAULT_TARGETS = (
    *("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1010"),
    *("gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx1250"),
)
#: Translation units with device code, and the kernel of each.
UNITS = {
    "vectors": "sample_axpy_kernel",
    "matrices": "sample_multiply_kernel",
    "polynomial": "sample_polynomial_kernel",
}
LIBRARY_UNITS = ("vectors", "matrices")
MODULE_UNITS = ("polynomial",)
CLANGS = ("clang++-22", "clang++-21", "clang++-20", "clang++-19", "clang++", "amdclang++")
HIP_SONAME = "libamdhip64.so.7"
PAGE = 4096

CompileUnit = Callable[[str, Sequence[str], Path], Path]


def device_flags(unit: str) -> list[str]:
    """Return the compiler's arguments for the translation unit `unit`.

    The unit's name as its id makes the code the same wherever the sources lie.
    """
    return ["-x", "hip", "-nogpuinc", "-nogpulib", "-O2", f"-cuid={unit}", f"-I{NATIVE}"]


@dataclass(frozen=True)
class Toolchain:
    """What makes objects of the HIP translation units, and the HIP library to link them with.

    Attributes:
        name: As `KPACK_SAMPLE_COMPILER` calls it.
        compile_unit: Makes one object file of a unit, for some targets, in a directory.
        hip_library: Directory of the HIP library, None to make one to link against.
    """

    name: str
    compile_unit: CompileUnit
    hip_library: Path | None = None


class build_ext(setuptools_build_ext):  # noqa: N801 - commands are named so
    """Compiles the shared library and the HIP part of the module before the module itself."""

    def build_extension(self, ext: Extension) -> None:
        work = Path(self.build_temp).resolve() / "hip"
        work.mkdir(parents=True, exist_ok=True)
        targets, toolchain = requested_targets(), find_toolchain()
        print(f"kpack_sample: {toolchain.name}, for {' '.join(targets)}")
        hip = toolchain.hip_library or self._hip_to_link_against(work)
        objects = {unit: str(toolchain.compile_unit(unit, targets, work)) for unit in UNITS}
        library = self._library_path(ext)
        library.parent.mkdir(parents=True, exist_ok=True)
        self._link_library([objects[unit] for unit in LIBRARY_UNITS], library, hip, work)
        ext.extra_objects = [objects[unit] for unit in MODULE_UNITS]
        ext.library_dirs, ext.libraries = [str(library.parent), str(hip)], ["kpack_sample", "amdhip64"]
        super().build_extension(ext)

    def get_outputs(self) -> list[str]:
        libraries = [str(self._library_path(extension)) for extension in self.extensions]
        return super().get_outputs() + libraries

    def copy_extensions_to_source(self) -> None:
        """Put the shared library beside the module in the sources, where an editable install loads it."""
        super().copy_extensions_to_source()
        for extension in self.extensions:
            place = self._library_path(extension)
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(Path(self.build_lib, *extension.name.split(".")[:-1], "lib", place.name), place)

    def _library_path(self, ext: Extension) -> Path:
        return Path(self.get_ext_fullpath(ext.name)).parent / "lib" / "libkpack_sample.so"

    def _link_library(self, objects: list[str], library: Path, hip: Path, work: Path) -> None:
        host = self.compiler.compile(
            [str(NATIVE / "library.c")],
            output_dir=str(work),
            extra_postargs=["-fvisibility=hidden", "-O2"],
        )
        self.compiler.link_shared_object(
            host + objects,
            str(library),
            libraries=["amdhip64"],
            library_dirs=[str(hip)],
            extra_postargs=[f"-Wl,-soname,{library.name}"],
        )

    def _hip_to_link_against(self, work: Path) -> Path:
        """Make a HIP library that has nothing but its name and its symbols."""
        objects = self.compiler.compile(
            [str(NATIVE / "hip_stub.c")], output_dir=str(work), extra_postargs=["-fno-builtin"]
        )
        self.compiler.link_shared_object(
            objects,
            str(work / "libamdhip64.so"),
            extra_postargs=[f"-Wl,-soname,{HIP_SONAME}", f"-Wl,--version-script={NATIVE / 'hip_stub.map'}"],
        )
        return work


def requested_targets() -> tuple[str, ...]:
    """Return the target ids to build for."""
    text = os.environ.get("KPACK_SAMPLE_TARGETS", "")
    return tuple(dict.fromkeys(text.replace(",", " ").split())) or DEFAULT_TARGETS


def find_toolchain() -> Toolchain:
    """Return the best of the toolchains that are there, or the one that is asked for.

    Raises:
        CompileError: The one that is asked for is not there.
    """
    asked = os.environ.get("KPACK_SAMPLE_COMPILER")
    for name, find in (("hipcc", _hipcc), ("clang", _clang), ("prebuilt", _prebuilt)):
        if asked in {None, "", name} and (toolchain := find()) is not None:
            return toolchain
    raise CompileError(f"KPACK_SAMPLE_COMPILER={asked}: not found; hipcc, clang and prebuilt are known")


def _hipcc() -> Toolchain | None:
    path = os.environ.get("HIPCC") or shutil.which("hipcc")
    if not path:
        return None
    library = Path(path).resolve().parents[1] / "lib"
    known = library if (library / "libamdhip64.so").exists() else None
    return Toolchain(name="hipcc", compile_unit=_compiler(path), hip_library=known)


def _clang() -> Toolchain | None:
    for name in (os.environ.get("KPACK_SAMPLE_CLANG"), *CLANGS):
        path = shutil.which(name) if name else None
        if path and "amdgcn" in _output(path, "--print-targets"):
            return Toolchain(name="clang", compile_unit=_compiler(path))
    return None


def _prebuilt() -> Toolchain:
    return Toolchain(name="prebuilt", compile_unit=_assemble)


def _compiler(path: str) -> CompileUnit:
    def compile_unit(unit: str, targets: Sequence[str], work: Path) -> Path:
        output = work / f"{unit}.o"
        flags = [*device_flags(unit), "-fPIC", "-fvisibility=hidden"]
        flags += [f"--offload-arch={target}" for target in targets]
        _run(path, *flags, "-c", str(NATIVE / f"{unit}.hip"), "-o", str(output))
        return output

    return compile_unit


def _assemble(unit: str, targets: Sequence[str], work: Path) -> Path:
    """Bundle the prebuilt code objects of a unit, and compile what registers them."""
    code_objects = {}
    for target in targets:
        path = PREBUILT / f"{unit}-{target}.hsaco"
        if not path.exists():
            known = " ".join(DEFAULT_TARGETS)
            raise CompileError(
                f"no clang with the AMDGPU back end, and no prebuilt code for {target} ({known})"
            )
        code_objects[target] = path.read_bytes()
    bundle, output = work / f"{unit}.hipfb", work / f"{unit}.o"
    bundle.write_bytes(make_bundle(code_objects))
    compiler = os.environ.get("CC", "cc").split()
    defines = [f"-DKERNEL={UNITS[unit]}", f'-DBUNDLE="{bundle}"']
    _run(*compiler, "-fPIC", "-O2", *defines, "-c", str(NATIVE / "registration.c"), "-o", str(output))
    return output


def make_bundle(code_objects: dict[str, bytes]) -> bytes:
    """Return an offload bundle of code objects (target id → bytes) behind an empty entry for the host.

    The format is that of LLVM's clang-offload-bundler.
    """
    entries = {"host-x86_64-unknown-linux-gnu-": b""}
    entries.update({f"hipv4-amdgcn-amd-amdhsa--{target}": data for target, data in code_objects.items()})
    header = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    offset = _aligned(len(header) + sum(24 + len(name) for name in entries))
    body = b""
    for name, data in entries.items():
        header += struct.pack("<QQQ", offset + len(body), len(data), len(name)) + name.encode()
        body += data.ljust(_aligned(len(data)), b"\0")
    return header.ljust(offset, b"\0") + body


def _aligned(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompileError(f"{' '.join(command)}\n{result.stderr}")
