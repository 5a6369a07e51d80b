"""The process that loads libraries beside a HIP runtime; `runner.run_hip` starts it as a script.

It is given a request as JSON on the command line and appends one JSON line for each thing that happened to
its records, at once: what went before a crash is kept. A stand-in for the library below HIP writes to the
same file, so that the order tells what belongs to what. It imports next to nothing, because each case starts
it anew. A program of a test's own may use `look_up_kernels`.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["look_up_kernels", "main"]

HIP = "libamdhip64.so.7"
HIPK_MAGIC = 0x4B504948
#: More parameters than any kernel of the tests has, each a zero of any size.
ARGUMENTS = 256


class Dim3(ctypes.Structure):
    """HIP's `dim3`."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def look_up_kernels(*, launch: bool = False) -> None:
    """Bring HIP up and touch every registered kernel and variable on every GPU.

    For that, HIP chooses and loads the code object that holds the kernel.

    Args:
        launch: Launch each kernel, too, and wait until it is done.
    """
    hip, count = ctypes.CDLL(HIP), ctypes.c_int(-1)
    code = hip.hipGetDeviceCount(ctypes.byref(count))
    _report(kind="devices", code=code, count=count.value)
    rows = list(_registered())
    for gpu in range(count.value):
        hip.hipSetDevice(gpu)
        for wrapper, row in enumerate(row for row in rows if row[0] == "binary"):
            _report(kind="wrapper", gpu=gpu, wrapper=wrapper)
            _touch(hip, [other for other in rows if other[1] == row[6]], launch=launch)


def _touch(hip: ctypes.CDLL, rows: list[list[str]], *, launch: bool) -> None:
    """Touch what is registered with one wrapper, on the current GPU."""
    kernels = {int(row[3]): row[2] for row in rows if row[0] == "function"}
    for address, name in kernels.items():
        function = ctypes.c_void_p()
        code = hip.hipGetFuncBySymbol(ctypes.byref(function), ctypes.c_void_p(address))
        _report(kind="kernel", name=name, code=code)
    for row in rows:
        if row[0] == "variable":
            size = ctypes.c_size_t()
            code = hip.hipGetSymbolSize(ctypes.byref(size), ctypes.c_void_p(int(row[3])))
            _report(kind="variable", name=row[2], code=code, size=size.value)
    for address, name in kernels.items() if launch else ():
        _report(kind="launching", name=name)
        _report(kind="launched", name=name, code=_launch(hip, address))


def _launch(hip: ctypes.CDLL, address: int) -> int:
    """Launch one work-item of a kernel; return the first error that is not 0."""
    zeros = ctypes.create_string_buffer(4096)
    arguments = (ctypes.c_void_p * ARGUMENTS)(*[ctypes.addressof(zeros)] * ARGUMENTS)
    one, no_stream = Dim3(1, 1, 1), ctypes.c_void_p()
    shared = ctypes.c_size_t(0)
    code = hip.hipLaunchKernel(ctypes.c_void_p(address), one, one, arguments, shared, no_stream)
    return int(code or hip.hipDeviceSynchronize())


def main(request_text: str) -> None:
    """Do what the request asks: load libraries, bring HIP up, ask ROCm's reader."""
    request = json.loads(request_text)
    for path in request["preload"]:
        _report(kind="preload", path=path, error=_load(path, ctypes.RTLD_GLOBAL))
    if request["hip_first"]:
        hip = ctypes.CDLL(HIP)
        hip.hipInit(0)
        # A GPU's own context is made by the first call that needs it.
        hip.hipFree(None)
    for name in request["imports"]:
        importlib.import_module(name)
    for path in request["libraries"]:
        _report(kind="load", path=path, error=_load(path, ctypes.DEFAULT_MODE))
    if request["initialise"]:
        look_up_kernels(launch=request["launch"])
    if request["targets"]:
        _ask_rocm(request["targets"])


def _report(**event: object) -> None:
    with open(os.environ["KPACK_TEST_GPU_LOG"], "a", encoding="utf-8") as stream:  # noqa: PTH123 - pathlib takes time
        stream.write(json.dumps(event) + "\n")


def _registered() -> Iterator[list[str]]:
    """Iterate over what the recorder in front of HIP has seen."""
    path = os.environ["KPACK_TEST_HIP_LOG"]
    if os.path.exists(path):  # noqa: PTH110 - as above
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - as above
            yield from (line.rstrip("\n").split("\t") for line in stream)


def _load(path: str, mode: int) -> str | None:
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError as error:
        return str(error)
    return None


def _ask_rocm(targets: list[list[str]]) -> None:
    """Ask ROCm's reader, as the runtime would, for the code objects of each converted wrapper."""
    # Only here: the reader is a library of ROCm's and must not be there before the test's own libraries.
    from pathlib import Path  # noqa: PLC0415

    from tests.rocm import RocmKpackCache  # noqa: PLC0415

    with RocmKpackCache() as cache:
        for row in _registered():
            if row[0] != "binary" or int(row[2]) != HIPK_MAGIC:
                continue
            address, index, binary = int(row[4]), int(row[5]), row[7]
            for archs in targets:
                answer = cache.load_code_object(address, Path(binary), index, archs)
                data = answer if isinstance(answer, bytes) else None
                _report(
                    kind="answer",
                    binary=binary,
                    index=index,
                    archs=archs,
                    error=answer if isinstance(answer, int) else None,
                    size=None if data is None else len(data),
                    sha256=None if data is None else hashlib.sha256(data).hexdigest(),
                )


if __name__ == "__main__":
    main(sys.argv[1])
