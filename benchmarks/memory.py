"""Peak of anonymous memory of `pack`, `verify` and `restore`, against the budget.

    python -m benchmarks.memory [NAME ...] [--level N] [--workers N]

The budget is 64 MB + workers x (the largest code object, or decoded bundle that is kept in memory, + the
context of zstd's level). Bundles that decode to more than 256 MB go to an unlinked file. To restore a
compressed bundle, levels up to 22 are tried, so that level's context counts there. A process of its own does
the work; its RssAnon (proc(5)), which leaves maps of files out, is read every two milliseconds. Inputs are
wheels of the corpus, and libraries made on the spot: of holes, which compress to nothing, and of random
bytes, which do not compress at all.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from benchmarks.large import TARGETS, Content, write_ccob_library, write_library
from kpack_build.bundle import BundleEncoding
from kpack_build.ccob import MEMORY_LIMIT
from kpack_build.config import Config
from kpack_build.hostbinary import open_host_binary
from tests.corpus import corpus_tree, corpus_wheel
from tests.unit.wheels import FILE_NAME, write_tree_of_wheel

if TYPE_CHECKING:
    from collections.abc import Callable

_FIXED = 64_000_000
_HIGHEST = 22
_INTERVAL = 0.002
_ANONYMOUS = re.compile(r"^RssAnon:\s*(\d+) kB$", re.MULTILINE)
_CORPUS = ("bitsandbytes", "torch-scatter-rocm", "vapoursynth-bm3dhip")
_MADE: dict[str, tuple[Callable[[Path, Content], int], Content]] = {
    "plain-holes": (write_library, Content(size=256 << 20)),
    "plain-random": (write_library, Content(size=64 << 20, dense=True)),
    "plain-random.whl": (write_library, Content(size=16 << 20, dense=True)),
    "ccob-holes": (write_ccob_library, Content(size=64 << 20)),
    "ccob-random": (write_ccob_library, Content(size=24 << 20, dense=True)),
    "ccob-one": (write_ccob_library, Content(size=200 << 20, targets=TARGETS[:1], dense=True)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A wheel, or its unpacked tree.

    Attributes:
        path: Where it is.
        largest: Size in bytes of the largest thing in it that has to be in memory.
        decoded: Size in bytes of the largest compressed bundle, decoded.
    """

    path: Path
    largest: int
    decoded: int

    def budget(self, level: int, workers: int) -> int:
        """Return the budget of packing in bytes."""
        return _FIXED + workers * (self.largest + _context(level))

    def restore_budget(self, level: int, workers: int) -> int:
        """Return the budget of restoring in bytes; one thread compresses."""
        recompressing = _context(_HIGHEST, self.decoded) if self.decoded else 0
        return max(self.budget(level, workers), _FIXED + workers * self.largest + recompressing)


def _context(level: int, size: int = 0) -> int:
    """Return the size in bytes of zstd's context for inputs of a size, 0 for any."""
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=size)
    return int(parameters.estimated_compression_context_size())


def find_source(name: str, folder: Path) -> Source:
    """Return a wheel of the corpus, or make a wheel, or the tree of one, with a large library."""
    if name in _CORPUS:
        return _source(corpus_wheel(name), corpus_tree(name))
    write, content = _MADE[name]
    tree = write_tree_of_wheel(folder / name, {"thing/__init__.py": b"", "thing/lib.so": b""})
    write(tree / "thing" / "lib.so", content)
    record = tree / "thing-1.0.dist-info" / "RECORD"
    # A row without hash and size: the library is too large to be given to the tree's writer as bytes.
    rows = record.read_text().splitlines()
    record.write_text("".join(f"{'thing/lib.so,,' if 'lib.so' in row else row}\n" for row in rows))
    if not name.endswith(".whl"):
        return _source(tree, tree)
    made = shutil.make_archive(str(folder / "wheel"), "zip", tree)
    return _source(Path(made).rename(folder / FILE_NAME), tree)


def _source(path: Path, tree: Path) -> Source:
    largest = decoded = 0
    for file in tree.rglob("*"):
        binary = open_host_binary(file) if file.is_file() else None
        if binary is None:
            continue
        with binary:
            for bundle in binary.bundles:
                largest = max([largest, *(entry.size for entry in bundle.entries)])
                if bundle.encoding is BundleEncoding.CCOB:
                    decoded = max(decoded, bundle.decoded_size)
    in_memory = decoded if decoded <= MEMORY_LIMIT else 0
    return Source(path=path, largest=max(largest, in_memory), decoded=decoded)


def peak(*arguments: str | Path) -> int:
    """Run the tool, and return the peak of its anonymous memory in bytes."""
    highest = 0
    command = (sys.executable, "-m", "kpack_build", *map(str, arguments))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = Path("/proc", str(process.pid), "status")
        while process.poll() is None:
            found = _ANONYMOUS.search(status.read_text())
            highest = max(highest, 1024 * int(found[1]) if found else 0)
            time.sleep(_INTERVAL)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return highest


def measure(name: str, level: int, workers: int, folder: Path) -> bool:
    """Print the peaks for one source; return whether all are within the budget."""
    source = find_source(name, folder)
    budget = source.budget(level, workers)
    budgets = {"pack": budget, "verify": budget, "restore": source.restore_budget(level, workers)}
    packed = folder / "packed" / source.path.name
    options = ("--level", str(level), "--workers", str(workers))
    peaks = {
        "pack": peak("pack", source.path, "-o", packed.parent, *options),
        "verify": peak("verify", packed, "--against", source.path),
        "restore": peak("restore", packed, "-o", folder / "restored"),
    }
    shown = "  ".join(
        f"{what} {size / 1e6:4.0f} of {budgets[what] / 1e6:4.0f}" for what, size in peaks.items()
    )
    over = [what for what, size in peaks.items() if size > budgets[what]]
    verdict = f"over the budget: {', '.join(over)}" if over else "within"
    print(f"{name:20} largest {source.largest / 1e6:6.1f}  {shown} MB  {verdict}")
    return not over


def main() -> int:
    """Run the benchmark; return 1 where the budget is broken."""
    parser = argparse.ArgumentParser(description="Peaks of anonymous memory against the budget.")
    parser.add_argument("names", nargs="*", default=(*_CORPUS, *_MADE), metavar="NAME")
    parser.add_argument("--level", type=int, default=Config().level)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    good = True
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            good &= measure(name, arguments.level, arguments.workers, Path(folder))
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
