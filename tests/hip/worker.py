"""The process that loads libraries beside a HIP runtime; `runner.run_hip` starts it.

It is given a request as JSON on the command line and appends one JSON line for each thing that happened to
its records, at once: what went before a crash is kept. A program of a test's own may use `look_up_kernels`.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from pathlib import Path

from tests.hip.results import Records

__all__ = ["look_up_kernels", "main"]

HIP = "libamdhip64.so.7"
HIPK_MAGIC = 0x4B504948


def look_up_kernels() -> None:
    """Bring HIP up and look every registered kernel up on every GPU.

    For that, HIP chooses and loads the code object that holds the kernel.
    """
    hip, count = ctypes.CDLL(HIP), ctypes.c_int(-1)
    code = hip.hipGetDeviceCount(ctypes.byref(count))
    _report(kind="devices", code=code, count=count.value)
    kernels = {int(row[3]): row[2] for row in _registered("function")}
    for gpu in range(count.value):
        hip.hipSetDevice(gpu)
        for address, name in kernels.items():
            function = ctypes.c_void_p()
            code = hip.hipGetFuncBySymbol(ctypes.byref(function), ctypes.c_void_p(address))
            _report(kind="kernel", gpu=gpu, name=name, code=code)


def main(request_text: str) -> None:
    """Do what the request asks: load libraries, bring HIP up, ask ROCm's reader."""
    request = json.loads(request_text)
    for path in request["preload"]:
        _report(kind="preload", path=path, error=_load(path, ctypes.RTLD_GLOBAL))
    for path in request["libraries"]:
        _report(kind="load", path=path, error=_load(path, ctypes.DEFAULT_MODE))
    if request["initialise"]:
        look_up_kernels()
    if request["targets"]:
        _ask_rocm(request["targets"])


def _records() -> Records:
    return Records(directory=Path(os.environ["KPACK_TEST_HIP_LOG"]).parent)


def _report(**event: object) -> None:
    with _records().events.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(event) + "\n")


def _registered(kind: str) -> list[list[str]]:
    log = _records().registrations
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [row for line in lines if (row := line.split("\t"))[0] == kind]


def _load(path: str, mode: int) -> str | None:
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError as error:
        return str(error)
    return None


def _ask_rocm(targets: list[list[str]]) -> None:
    """Ask ROCm's reader, as the runtime would, for the code objects of each converted wrapper."""
    # Only here: the reader is a library of ROCm's and must not be there before the test's own libraries.
    from tests.rocm import RocmKpackCache  # noqa: PLC0415

    with RocmKpackCache() as cache:
        for row in _registered("binary"):
            address, index, binary = int(row[4]), int(row[5]), row[7]
            if int(row[2]) != HIPK_MAGIC:
                continue
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
