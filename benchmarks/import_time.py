"""Measure what the loader adds to the import of a package: `python benchmarks/import_time.py [PYTHON …]`.

A package with the loader and the same package without it are imported by fresh interpreters, in turn, with
warm bytecode. The figure is the difference of what `-X importtime` gives as the package's cumulative time;
the median of 20 runs is printed, for a machine without GPUs, one with a GPU that is served, and one with a
GPU that is not, whose warning is built and then ignored: printing it is Python's own work. The table is of
the size of a large wheel: 25 targets, and 6 libraries of 130 wrappers.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.loaders import Recipe, make_package, run_python
from tests.topology import write_topology

RUNS = 20
LIMIT = 5.0
TARGETS = tuple(f"gfx{number}" for number in range(1100, 1125))
MACHINES: dict[str, tuple[str, ...]] = {
    "no GPU": (),
    "served GPU": ("gfx1101",),
    "GPU without code": ("gfx942",),
}


def main(pythons: list[str]) -> int:
    """Print one line for each interpreter and machine; return 1 where the limit is broken."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        recipe = Recipe(
            families={"gfx11": TARGETS},
            binaries={f"lib/lib{number}.so": TARGETS for number in range(6)},
            wrappers=130,
        )
        make_package(root / "with", recipe)
        (make_package(root / "without", recipe) / "__init__.py").write_bytes(recipe.source)
        for python in pythons:
            for machine, processors in MACHINES.items():
                variables = {"KPACK_TOPOLOGY_ROOT": str(root / machine)}
                if processors and not (root / machine).exists():
                    write_topology(root / machine, processors)
                added = measure(python, root, variables)
                worst = max(worst, added)
                print(f"{python}: {machine}: {added:.2f} ms")
    print(f"limit: {LIMIT} ms")
    return int(worst > LIMIT)


def measure(python: str, root: Path, variables: dict[str, str]) -> float:
    """Return the median of the added milliseconds."""
    added = [
        import_time(python, root / "with", variables) - import_time(python, root / "without", variables)
        for _ in range(RUNS + 1)
    ]
    # The first run writes the bytecode.
    return statistics.median(added[1:])


def import_time(python: str, site: Path, variables: dict[str, str]) -> float:
    """Return the cumulative milliseconds of one import."""
    done = run_python(
        python, "-W", "ignore", "-X", "importtime", "-c", "import demo", site=site, variables=variables
    )
    match = re.search(r"\|\s*(\d+) \| demo$", done.stderr, re.MULTILINE)
    if match is None:
        raise SystemExit(done.stderr)
    return int(match[1]) / 1000


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or [sys.executable]))
