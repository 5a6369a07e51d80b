"""Time of `kpack-build inspect` on very large files, which it must not read: under 100 ms per GB.

    python -m benchmarks.inspect_speed [--rounds N]

The files are made on the spot: a library and an archive of some GB, mostly holes, and a library whose
compressed bundle is large when decoded. Each is inspected by a process of its own, in turn with the same
command on a tiny library, whose time is that of starting the interpreter and the tool: the difference is what
the size costs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.large import TARGETS, Content, write_archive, write_ccob_library, write_library

_LIMIT = 100.0
_TINY = "tiny library"


def make_files(folder: Path) -> dict[str, tuple[Path, int]]:
    """Write the files; return each with its size in bytes, decoded, by what it is."""
    files = {}
    for name, write, content in (
        (_TINY, write_library, Content(size=1 << 20)),
        ("plain library", write_library, Content(size=512 << 20)),
        ("archive, none", write_archive, Content(size=512 << 20, targets=TARGETS[:4])),
        ("CCOB library", write_ccob_library, Content(size=64 << 20)),
    ):
        path = folder / name
        files[name] = path, write(path, content)
    return files


def timed(path: Path) -> float:
    """Return the milliseconds that `inspect` takes, with the start of its process."""
    start = time.perf_counter()
    command = (sys.executable, "-m", "kpack_build", "inspect", str(path))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 1000 * (time.perf_counter() - start)


def main() -> int:
    """Run the benchmark; return 1 where the limit is broken."""
    parser = argparse.ArgumentParser(description="Time of inspecting very large files.")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    worst = 0.0
    starts = []
    with tempfile.TemporaryDirectory() as scratch:
        files = make_files(Path(scratch))
        tiny, _ = files.pop(_TINY)
        timed(tiny)
        for name, (path, size) in files.items():
            pairs = [(timed(tiny), timed(path)) for _ in range(arguments.rounds)]
            starts += [start for start, _ in pairs]
            beyond = statistics.median(inspected - start for start, inspected in pairs)
            rate = beyond / (size / 1e9)
            worst = max(worst, rate)
            print(f"{name:14} {size / 1e9:6.3f} GB  {beyond:6.1f} ms more  {rate:6.1f} ms per GB")
    print(f"start of the interpreter and the tool: {statistics.median(starts):.0f} ms")
    print(f"limit: {_LIMIT:.0f} ms per GB")
    return int(worst > _LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
