"""Time of packing an unpacked wheel, against a floor taken in the same run.

The floor is what no packer can do without: compressing the same code objects from memory with `zstandard` at
the same level on as many threads, and a plain copy of all other bytes of the tree. Floor and run are timed in
turn, whole and in one process, so that the ratio holds where the machine's speed drifts. The ratio of
processor time, over all threads, is given as well: other programs on the machine disturb it less.

    python -m benchmarks.pack [NAME ...] [--level N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from kpack_build.config import Config
from kpack_build.hostbinary import BinaryState, open_host_binary
from kpack_build.pipeline import pack
from tests.corpus import corpus_tree

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("bitsandbytes", "torch-scatter-rocm")


class Floor:
    """The least work: its code objects in memory, and the files that are copied."""

    def __init__(self, tree: Path, level: int, workers: int) -> None:
        self._level = level
        self._workers = workers
        self._contexts = threading.local()
        self.objects: list[bytes] = []
        self.host: list[tuple[Path, int]] = []
        for file in sorted(path for path in tree.rglob("*") if path.is_file()):
            self.host.append((file, file.stat().st_size - self._take_objects(file)))

    def _take_objects(self, file: Path) -> int:
        binary = open_host_binary(file)
        if binary is None:
            return 0
        with binary:
            if binary.state is not BinaryState.FAT:
                return 0
            for bundle in binary.bundles:
                with bundle.open_decoded() as decoded:
                    wanted = [entry for entry in bundle.entries if entry.target is not None]
                    self.objects += [bytes(decoded.entry(entry)) for entry in wanted]
            return binary.device_bytes

    def run(self, folder: Path) -> None:
        """Compress all code objects, and copy the host bytes of all files."""
        with ThreadPoolExecutor(self._workers) as pool:
            for _ in pool.map(self._compress, self.objects):
                pass
        for number, (file, size) in enumerate(self.host):
            with file.open("rb") as source, (folder / str(number)).open("xb") as output:
                output.write(source.read(size))

    def _compress(self, data: bytes) -> int:
        context = getattr(self._contexts, "compressor", None)
        if context is None:
            context = self._contexts.compressor = zstandard.ZstdCompressor(level=self._level)
        return len(context.compress(data))


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time by the clock, and processor time of all threads, in seconds."""

    wall: float
    processor: float


def timed(action: Callable[[Path], object]) -> Seconds:
    """Return the time that an action takes in a fresh folder."""
    folder = Path(tempfile.mkdtemp())
    try:
        wall, processor = time.perf_counter(), time.process_time()
        action(folder)
        return Seconds(time.perf_counter() - wall, time.process_time() - processor)
    finally:
        shutil.rmtree(folder)


def measure(name: str, level: int, rounds: int) -> None:
    """Print the times and the ratio for one wheel of the corpus."""
    tree = corpus_tree(name)
    workers = len(os.sched_getaffinity(0))
    floor = Floor(tree, level, workers)
    config = Config(level=level, workers=workers)
    pairs = []
    for number in range(rounds + 1):
        pair = timed(floor.run), timed(lambda folder: pack(tree, folder, config))
        if number:
            pairs.append(pair)
    ratios = sorted(packed.wall / least.wall for least, packed in pairs)
    processor = statistics.median(packed.processor / least.processor for least, packed in pairs)
    print(
        f"{name:18} level {level:2}  {sum(map(len, floor.objects)) / 1e6:6.2f} MB of code objects"
        f"  floor {statistics.median(least.wall for least, _ in pairs):.3f} s"
        f"  pack {statistics.median(packed.wall for _, packed in pairs):.3f} s"
        f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        f"  of processor time {processor:.2f}"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time of packing, against a floor.")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--level", type=int, default=Config().level)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    for name in arguments.names:
        measure(name, arguments.level, arguments.rounds)


if __name__ == "__main__":
    main()
