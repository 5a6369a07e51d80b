"""Build the sample twice, fat and packed, and print what came out.

    python sample_project/demo.py [TARGET …]

kpack-build has to be installed in the environment that runs this. The packed wheel is then installed,
imported, and asked which archive serves a GPU (one that is made up, where the machine has none).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = "[tool.kpack-build]"
REQUIREMENT = ', "kpack-build"'
INDEX = "kpack_sample/.kpack/kpack-sample.json"


def build(work: Path, targets: list[str], *, packed: bool) -> Path:
    """Return the wheel built from a copy of the sample, without kpack-build's settings unless `packed`."""
    project = work / ("packed" if packed else "fat")
    shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
    if not packed:
        settings = project / "pyproject.toml"
        text = settings.read_text(encoding="utf-8").replace(REQUIREMENT, "").replace(TABLE, "")
        settings.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "KPACK_SAMPLE_TARGETS": ",".join(targets)}
    subprocess.run([*command, "--wheel-dir", project / "dist", project], check=True, env=environment)
    (wheel,) = (project / "dist").glob("*.whl")
    return wheel


def kind_of(name: str) -> str:
    """Return what sort of file of the wheel this is; the loader and the index cost the same in any wheel."""
    if name.endswith(".so"):
        return name
    if "/_kpack/" in name:
        return "the loader"
    if name.endswith(".kpack"):
        return "archives of device code"
    return "index of the archives" if "/.kpack/" in name else "all else"


def sizes_by_kind(wheel: Path) -> dict[str, int]:
    """Return the size of the wheel's files when installed, in bytes, for each sort of file."""
    sizes: dict[str, int] = {}
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            kind = kind_of(member.filename)
            sizes[kind] = sizes.get(kind, 0) + member.file_size
    return sizes


def print_row(label: str, *cells: object) -> None:
    """Print one line of the tables."""
    print(f"  {label:34}" + "".join(f"{cell:>14}" for cell in cells))


def print_sizes(fat: Path, packed: Path) -> None:
    """Print the sizes of both wheels, and of what is in them."""
    print_row("bytes", "fat", "packed")
    print_row("wheel file", fat.stat().st_size, packed.stat().st_size)
    before, after = sizes_by_kind(fat), sizes_by_kind(packed)
    print_row("installed", sum(before.values()), sum(after.values()))
    for kind in sorted(before | after):
        print_row(f"  {kind}", before.get(kind, "-"), after.get(kind, "-"))
    print("\nThe loader and its index cost about this in any wheel; the device code here is next to nothing.")


def print_families(packed: Path) -> None:
    """Print one line for each archive, from the index that lies beside them in the wheel."""
    with zipfile.ZipFile(packed) as archive:
        index = json.loads(archive.read(INDEX))
    print_row("archive", "code objects", "their bytes", "archive bytes")
    for number, entry in enumerate(index["archives"]):
        objects = [item for item in index["code_objects"] if item["archive"] == number]
        code = sum(item["size"] for item in objects)
        print_row(entry["file"], len(objects), code, entry["size"])


def show_import(work: Path, packed: Path) -> None:
    """Install the packed wheel, and let the package say what computes and what serves the GPUs."""
    site = work / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", site, packed], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    if not Path("/sys/class/kfd/kfd/topology/nodes").is_dir():
        print("\nNo AMD GPU here: KPACK_TARGETS stands in for one.")
        environment["KPACK_TARGETS"] = "gfx1100"
    program = "import kpack_sample as k; print(k.backend(), k.polynomial([1.0, 2.0], [0.0, 3.0]))"
    for arguments in (["-c", program], ["-m", "kpack_sample._kpack"]):
        print(f"\n$ python {' '.join(arguments)}", flush=True)
        subprocess.run([sys.executable, *arguments], check=True, env=environment)


def main(targets: list[str]) -> None:
    """Run the demonstration for these targets, or the sample's own."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        fat, packed = build(work, targets, packed=False), build(work, targets, packed=True)
        print(packed.name, end="\n\n")
        print_sizes(fat, packed)
        print()
        print_families(packed)
        show_import(work, packed)


if __name__ == "__main__":
    main(sys.argv[1:])
