"""Make the code objects in this directory from the sources, byte for byte.

    python prebuilt/build.py            # write them anew
    python prebuilt/build.py --check    # compare them, exit status 1 if one differs

They serve a machine that has no compiler for HIP. The bytes depend on the compiler: `COMPILER` names the one
that made those in the tree, and another one is refused.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from hip_build import DEFAULT_TARGETS, NATIVE, UNITS, device_flags  # noqa: E402 - needs the path above

COMPILER = "clang++-22"
VERSION = "22.1.8"


def compile_all(directory: Path) -> None:
    """Compile each unit for each target into `directory`."""
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    if VERSION not in version:
        raise SystemExit(f"{COMPILER} {VERSION} made these files; this is {version.splitlines()[0]}")
    for unit in UNITS:
        for target in DEFAULT_TARGETS:
            output = directory / f"{unit}-{target}.hsaco"
            flags = [*device_flags(unit), f"--offload-arch={target}"]
            flags += ["--cuda-device-only", "--no-gpu-bundle-output"]
            subprocess.run([COMPILER, *flags, str(NATIVE / f"{unit}.hip"), "-o", str(output)], check=True)
            output.chmod(0o644)


def main(arguments: list[str]) -> int:
    """Write the files, or compare them; return the exit status."""
    if arguments not in ([], ["--check"]):
        raise SystemExit(__doc__)
    if not arguments:
        compile_all(HERE)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        compile_all(Path(scratch))
        new = {path.name: path.read_bytes() for path in Path(scratch).iterdir()}
    old = {path.name: path.read_bytes() for path in HERE.glob("*.hsaco")}
    differing = sorted(name for name in old | new if old.get(name) != new.get(name))
    for name in differing:
        sys.stderr.write(f"{name} differs\n")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
