"""The process that loads libraries beside a HIP runtime; `runner.run_hip` starts it.

It is given a request as JSON on the command line and appends one JSON line for each thing that happened to
the file that the request names, at once: what went before a crash is kept.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from pathlib import Path

__all__ = ["main"]

HIPK_MAGIC = 0x4B504948


def _report(events: str, /, **event: object) -> None:
    with Path(events).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(event) + "\n")


def _load(path: str, mode: int) -> str | None:
    try:
        ctypes.CDLL(path, mode=mode)
    except OSError as error:
        return str(error)
    return None


def _ask_rocm(log: str, events: str, targets: list[list[str]]) -> None:
    """Ask ROCm's reader, as the runtime would, for the code objects of each converted wrapper."""
    # Only here: the reader is a library of ROCm's and must not be there before the test's own libraries.
    from tests.rocm import RocmKpackCache  # noqa: PLC0415

    with RocmKpackCache() as cache:
        for line in Path(log).read_text(encoding="utf-8").splitlines():
            kind, *fields = line.split("\t")
            if kind != "binary" or int(fields[1]) != HIPK_MAGIC:
                continue
            address, index, binary = int(fields[3]), int(fields[4]), fields[6]
            for archs in targets:
                answer = cache.load_code_object(address, Path(binary), index, archs)
                data = answer if isinstance(answer, bytes) else None
                _report(
                    events,
                    kind="answer",
                    binary=binary,
                    index=index,
                    archs=archs,
                    error=answer if isinstance(answer, int) else None,
                    size=None if data is None else len(data),
                    sha256=None if data is None else hashlib.sha256(data).hexdigest(),
                )


def _look_up_kernels(log: str, events: str, hip: ctypes.CDLL, gpus: int) -> None:
    """Look every registered kernel up on every GPU: HIP loads the code object of the kernel for it."""
    rows = [line.split("\t") for line in Path(log).read_text(encoding="utf-8").splitlines()]
    kernels = {int(row[3]): row[2] for row in rows if row[0] == "function"}
    for gpu in range(gpus):
        hip.hipSetDevice(gpu)
        for address, name in kernels.items():
            function = ctypes.c_void_p()
            code = hip.hipGetFuncBySymbol(ctypes.byref(function), ctypes.c_void_p(address))
            _report(events, kind="kernel", gpu=gpu, name=name, code=code)


def main(request_text: str) -> None:
    """Do what the request asks: load libraries, bring HIP up, ask ROCm's reader."""
    request = json.loads(request_text)
    events = request["events"]
    for path in request["preload"]:
        _report(events, kind="preload", path=path, error=_load(path, ctypes.RTLD_GLOBAL))
    for path in request["libraries"]:
        _report(events, kind="load", path=path, error=_load(path, ctypes.DEFAULT_MODE))
    if request["initialise"]:
        count = ctypes.c_int(-1)
        hip = ctypes.CDLL(request["hip_library"])
        code = hip.hipGetDeviceCount(ctypes.byref(count))
        _report(events, kind="devices", code=code, count=count.value)
        _look_up_kernels(request["log"], events, hip, count.value)
    if request["targets"]:
        _ask_rocm(request["log"], events, request["targets"])


if __name__ == "__main__":
    main(sys.argv[1])
