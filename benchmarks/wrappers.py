"""Time of packing one library against the number of its wrappers, which has to grow no faster than they do.

    python -m benchmarks.wrappers [--rounds N]

The bundles are those of a library that clang makes of 130 translation units (it is compiled once, into the
test cache). Libraries with the first 1, 10, 50 and 130 of them are put together, and packed in turn, the
original one too. The code objects are small, so that what is measured is the work for each wrapper. What each
wrapper adds to the time of one has to be the same from 10 to 130.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path

from kpack_build.config import Config
from kpack_build.hostbinary import open_host_binary
from kpack_build.pipeline import pack
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.build import build_variant
from tests.unit.wheels import write_tree_of_wheel

_COUNTS = (1, 10, 50, 130)


def make_trees(folder: Path) -> dict[str, Path]:
    """Write the unpacked wheels, each with one library, and return them by what they are."""
    original = build_variant("many-units")
    binary = open_host_binary(original)
    if binary is None:
        raise SystemExit(f"{original} is no library")
    with binary:
        bundles = tuple(bytes(bundle.stored) for bundle in binary.bundles)
    libraries = {
        f"{count} wrappers": build_elf(ElfOptions(bundles=bundles[:count], wrappers=tuple(range(count))))
        for count in _COUNTS
    }
    libraries[f"{len(bundles)} as linked"] = original.read_bytes()
    return {
        name: write_tree_of_wheel(folder / name, {"thing/__init__.py": b"", "thing/lib.so": library})
        for name, library in libraries.items()
    }


def timed(tree: Path, folder: Path) -> tuple[float, float]:
    """Return the milliseconds of looking at the library, and of packing its tree."""
    gc.collect()
    start = time.perf_counter()
    binary = open_host_binary(tree / "thing" / "lib.so")
    if binary is None:
        raise SystemExit(f"the library in {tree} is none")
    with binary:
        binary.refusals()
    looked = time.perf_counter()
    pack(tree, folder, Config(workers=1))
    return 1000 * (looked - start), 1000 * (time.perf_counter() - looked)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Time of packing against the number of wrappers.")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        trees = make_trees(root)
        for number in range(arguments.rounds + 1):
            for name, tree in trees.items():
                pair = timed(tree, root / f"{number}-{name}")
                if number:
                    times.setdefault(name, []).append(pair)
    one_scan, one_pack = (statistics.median(column) for column in zip(*times["1 wrappers"], strict=True))
    print("library         scan        pack        for each wrapper more than 1: scan, pack")
    for name, pairs in times.items():
        scan, packed = (statistics.median(column) for column in zip(*pairs, strict=True))
        more = int(name.split()[0]) - 1
        rates = f"  {(scan - one_scan) / more:.3f} ms, {(packed - one_pack) / more:.3f} ms" if more else ""
        print(f"{name:14}  {scan:7.2f} ms  {packed:7.2f} ms{rates}")


if __name__ == "__main__":
    main()
