"""The HIP runtimes that a test's process can have, and what stands in front of and below them.

Two real runtimes are there: HIP 7.14 with kpack, from a published wheel of the corpus, and Debian's HIP
5.2.3, which knows fat binaries only. Both run without a GPU. In front of them stands a small library that
writes down what each registration returned (`recorder.c`); below the first, in place of the library that
talks to the hardware, can stand one that makes GPUs up (`tests.runtime`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cache import cache_directory, make_once
from tests.fixtures.build import stub_library
from tests.missing import missing
from tests.rocm import rocm_library
from tests.runtime.standin import build_stand_in

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HipRuntime", "compiled", "hip_environment"]

HERE = Path(__file__).parent
DEBIAN_HIP = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")
#: Names under which libraries ask for HIP, of all versions: each runtime answers to all of them.
HIP_NAMES = ("libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so")
WARNINGS = ("-O1", "-Wall", "-Wextra", "-Werror")


class HipRuntime(str, Enum):
    """The runtimes that a process can have."""

    KPACK = "HIP 7.14 with kpack"
    FAT_ONLY = "Debian's HIP 5.2.3"
    STUB = "our own stand-in, which accepts everything and has no device"
    NONE = "no HIP library at all"


def hip_environment(runtime: HipRuntime, gpus: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that make a new process find `runtime`, and the recorder in front of it.

    Args:
        runtime: The runtime.
        gpus: Target ids of GPUs to make up, for the runtime with kpack only.
    """
    directory = _runtime_directory(runtime)
    search = [str(directory)] if directory else []
    search += [path for path in (os.environ.get("LD_LIBRARY_PATH"),) if path]
    variables = {"LD_LIBRARY_PATH": os.pathsep.join(search)} if search else {}
    if gpus:
        assert runtime is HipRuntime.KPACK
        return {
            **variables,
            "LD_PRELOAD": f"{_recorder()} {build_stand_in(rocm_library('libamdhip64'))}",
            "KPACK_TEST_GPUS": ",".join(gpus),
        }
    return {**variables, "LD_PRELOAD": str(_recorder())}


@functools.cache
def compiled(source: Path, compiler: str, *flags: str) -> Path:
    """Return what a C source of the tests gives with a compiler, made once for each content."""
    command = [compiler, *WARNINGS, *flags]
    digest = hashlib.sha256(source.read_bytes() + repr(command).encode()).hexdigest()[:16]

    def make(directory: Path) -> None:
        subprocess.run([*command, str(source), "-o", source.stem, "-ldl"], cwd=directory, check=True)

    return make_once(cache_directory("runtimes") / f"{source.stem}-{digest}", make) / source.stem


@functools.cache
def _runtime_directory(runtime: HipRuntime) -> Path | None:
    """Return a directory of links under which every library finds `runtime` by the name that it asks for."""
    if runtime is HipRuntime.NONE:
        return None
    if runtime is HipRuntime.FAT_ONLY:
        if not DEBIAN_HIP.exists():
            missing("a HIP runtime without kpack (Debian: libamdhip64-5)")
        links = dict.fromkeys(HIP_NAMES, DEBIAN_HIP)
    elif runtime is HipRuntime.STUB:
        links = dict.fromkeys(HIP_NAMES, stub_library())
    else:
        hip = rocm_library("libamdhip64")
        # Its own libraries lie beside it, and "beside" means here once it is loaded through a link.
        links = {path.name: path for path in sorted(hip.parent.iterdir())}
        links.update(dict.fromkeys(HIP_NAMES, hip))
        # HIP opens this one by its plain name, which auditwheel has changed.
        links["libamd_comgr.so.3"] = rocm_library("libamd_comgr")
    digest = hashlib.sha256(repr(sorted(links.items())).encode()).hexdigest()[:16]

    def make(directory: Path) -> None:
        for name, target in links.items():
            (directory / name).symlink_to(target)

    return make_once(cache_directory("runtimes") / f"{runtime.name.lower()}-{digest}", make)


def _c_compiler() -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("a C compiler (Debian: gcc)")
    return compiler


def _recorder() -> Path:
    return compiled(HERE / "recorder.c", _c_compiler(), "-shared", "-fPIC")
