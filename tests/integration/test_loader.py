"""The loader in installed packages, imported by real interpreters of every version that it is meant for."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.loaders import VERSIONS, Recipe, find_python, make_package, run_python
from tests.topology import write_topology

QUIET = {"KPACK_TOPOLOGY_ROOT": "/nowhere"}


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """An interpreter of each version."""
    found = find_python(request.param)
    if found is None:
        # A skip in CI too: no distribution has all of them.
        pytest.skip(f"missing: Python {request.param} (on PATH, or in pyenv)")
    return found


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder with a package in it."""
    make_package(tmp_path / "site")
    return tmp_path / "site"


def topology(tmp_path: Path, *processors: str) -> dict[str, str]:
    return {"KPACK_TOPOLOGY_ROOT": str(write_topology(tmp_path / "topology", processors))}


def imported(site: Path, program: str, variables: dict[str, str], python: str | Path = sys.executable) -> str:
    """Run a program, and return what it wrote to both outputs."""
    done = run_python(python, "-c", program, site=site, variables=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_without_gpus_every_python_imports_in_silence(python: Path, site: Path) -> None:
    done = run_python(python, "-W", "error", "-c", "import demo", site=site, variables=QUIET)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_with_its_gpu_every_python_imports_in_silence(python: Path, site: Path, tmp_path: Path) -> None:
    variables = topology(tmp_path, "gfx1100", "gfx1100")
    done = run_python(python, "-W", "error", "-c", "import demo", site=site, variables=variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_python_warns_and_shows_the_table(python: Path, site: Path, tmp_path: Path) -> None:
    variables = topology(tmp_path, "gfx90a", "gfx1036")
    text = imported(site, "import demo, importlib; importlib.reload(demo)", variables, python)
    assert text.count("KpackWarning") == 1
    # The warning points at the program's own import.
    assert "<string>:1" in text
    done = run_python(python, "-m", "demo._kpack", site=site, variables=variables)
    assert done.returncode == 0, done.stderr
    assert str(site / "demo" / ".kpack" / "demo-gfx9_0.kpack") in done.stdout
    done = run_python(python, "-W", "ignore", "-m", "demo._kpack", "--json", site=site, variables=variables)
    rows = json.loads(done.stdout)["gpus"]
    assert [row["archive"] for row in rows] == ["demo-gfx9_0.kpack", None]
    assert done.stderr == ""


@pytest.mark.parametrize("damage", ["folder", "__init__.py", "_gpus.py", "_table.py", "_status.py"])
@pytest.mark.parametrize("content", [None, "x = (", "raise RuntimeError('damaged')"])
def test_a_damaged_loader_leaves_the_package_whole(
    site: Path, tmp_path: Path, damage: str, content: str | None
) -> None:
    loader = site / "demo" / "_kpack"
    if damage == "folder":
        shutil.rmtree(loader)
    elif content is None:
        (loader / damage).unlink()
    else:
        (loader / damage).write_text(content, encoding="ascii")
    done = run_python(
        sys.executable,
        *("-W", "error", "-c", "import demo; print(demo.__doc__)"),
        site=site,
        variables=topology(tmp_path, "gfx1100"),
    )
    assert (done.returncode, done.stdout) == (0, "A package.\n")
    assert done.stderr


@pytest.mark.parametrize("damage", ["version", "cut"])
def test_a_loader_that_is_there_says_what_hurts(site: Path, damage: str) -> None:
    if damage == "cut":
        (site / "demo" / ".kpack" / "demo-gfx110x.kpack").write_bytes(b"K")
    else:
        (site / "demo" / ".kpack" / "demo-gfx110x.kpack").unlink()
    text = imported(site, "import demo", {"KPACK_TARGETS": "gfx1100"})
    assert "demo-gfx110x.kpack" in text


def test_a_package_in_a_zip_file_imports(site: Path, tmp_path: Path) -> None:
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(site.rglob("*")):
            packed.write(path, path.relative_to(site))
    variables = topology(tmp_path, "gfx1100")
    program = f"import sys; sys.path[0] = {str(archive)!r}; import demo; print(demo.__file__)"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert imported(empty, program, variables) == f"{archive}/demo/__init__.py\n"
    program = f"import sys; sys.path[0] = {str(archive)!r}; import demo; print(demo._kpack.status().gpus)"
    assert "gfx1100" in imported(empty, program, variables)


@pytest.mark.parametrize("way", ["site", "package", "files"])
def test_symlinked_installs_find_their_archives(site: Path, tmp_path: Path, way: str) -> None:
    links = tmp_path / "links"
    if way == "site":
        links.symlink_to(site)
    elif way == "package":
        links.mkdir()
        (links / "demo").symlink_to(site / "demo")
    else:
        for path in (path for path in site.rglob("*") if path.is_file()):
            link = links / path.relative_to(site)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    program = (
        f"import sys; sys.path[0] = {str(links)!r};"
        "import demo; s = demo._kpack.status(); print(s.gpus[0].path, s.search_prefix)"
    )
    expected = links / "demo" / ".kpack" / "demo-gfx110x.kpack"
    assert imported(links, program, {"KPACK_TARGETS": "gfx1100"}) == f"{expected} ()\n"


def test_an_editable_install_finds_its_archives(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "demo.pth").write_text(f"{site}\n", encoding="utf-8")
    program = (
        f"import site; site.addsitedir({str(other)!r}); import demo; print(demo._kpack.status().gpus[0].path)"
    )
    expected = site / "demo" / ".kpack" / "demo-gfx110x.kpack"
    assert imported(other, program, {"KPACK_TARGETS": "gfx1100"}) == f"{expected}\n"


def test_scattered_files_are_named_to_the_reader(site: Path, tmp_path: Path) -> None:
    library = site / "demo" / "lib" / "_C.so"
    (tmp_path / "store").mkdir()
    library.rename(tmp_path / "store" / "blob")
    library.symlink_to(tmp_path / "store" / "blob")
    archive = site / "demo" / ".kpack" / "demo-gfx110x.kpack"
    program = (
        "import ctypes, demo, os\n"
        "print(os.environ['ROCM_KPACK_PATH_PREFIX'])\n"
        "getenv = ctypes.CDLL(None).getenv\n"
        "getenv.restype = ctypes.c_char_p\n"
        "print(getenv(b'ROCM_KPACK_PATH_PREFIX').decode())\n"
        "print(*demo._kpack.status().search_prefix)\n"
    )
    assert imported(site, program, {"KPACK_TARGETS": "gfx1100"}).split() == [str(archive)] * 3
    # Children inherit it and add nothing; machines without GPUs never get it.
    inherited = {"KPACK_TARGETS": "gfx1100", "ROCM_KPACK_PATH_PREFIX": str(archive)}
    program = "import demo, os; print(os.environ.get('ROCM_KPACK_PATH_PREFIX'))"
    assert imported(site, program, inherited) == f"{archive}\n"
    assert imported(site, program, QUIET) == "None\n"


def test_two_packages_live_side_by_side(site: Path) -> None:
    make_package(site, Recipe(package="other.inner", families={"gfx12_0": ("gfx1201",)}))
    (site / "other" / "__init__.py").write_bytes(b"")
    program = (
        "import demo, other.inner\n"
        "first, second = demo._kpack.status(), other.inner._kpack.status()\n"
        "print(first.gpus[0].archive, second.gpus[0].archive, second.package)\n"
    )
    text = imported(site, program, {"KPACK_TARGETS": "gfx1201"})
    assert "None other.inner-gfx12_0.kpack other.inner\n" in text
    assert text.count("KpackWarning") == 1


def test_forks_and_threads_share_the_answer(site: Path) -> None:
    program = (
        "import os, threading, demo\n"
        "from demo._kpack import activate, status\n"
        "threads = [threading.Thread(target=activate) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "first = status()\n"
        "child = os.fork()\n"
        "if not child: activate(); os._exit(status() is not first)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    text = imported(site, program, {"KPACK_TARGETS": "gfx1030"})
    assert text.count("KpackWarning") == 1
    assert text.endswith("0\n") or "\n0\n" in text or text.startswith("0\n")


def test_importing_starts_no_process_and_loads_no_library(site: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(event))\n"
        "import demo\n"
        "wrong = ('subprocess', 'os.fork', 'os.posix_spawn', 'os.exec', 'os.system', 'ctypes', 'socket')\n"
        "print(*[event for event in seen if event.startswith(wrong)])\n"
        "slow = {'json', 'pathlib', 'typing', 'dataclasses', 'ctypes', 'importlib.metadata'}\n"
        "print(*slow & set(sys.modules))\n"
    )
    done = run_python(
        *(sys.executable, "-S", "-W", "ignore", "-c", program),
        site=site,
        variables=topology(tmp_path, "gfx1100", "gfx1030"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n\n"


def test_the_environment_is_left_alone(site: Path, tmp_path: Path) -> None:
    program = "import os; before = dict(os.environ); import demo; print(before == dict(os.environ))"
    variables = {**topology(tmp_path, "gfx1100"), "HSA_OVERRIDE_GFX_VERSION": "11.0.1"}
    assert imported(site, program, variables) == "True\n"


def test_a_read_only_install_imports(site: Path) -> None:
    for path in [site, *site.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert imported(site, "import demo", {"KPACK_TARGETS": "gfx1100"}) == ""
    finally:
        for path in [site, *site.rglob("*")]:
            path.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="missing: /proc")
def test_the_machines_own_gpus_are_looked_at_without_harm(site: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name.endswith("VISIBLE_DEVICES")}
    text = imported(site, "import demo; print(demo._kpack.status().state)", clean)
    assert text.split()[-1] in {"found", "none", "unknown"}
