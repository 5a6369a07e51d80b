"""Real builds of a small project by real setuptools, old and new, through every front end."""

from __future__ import annotations

import shutil
import sys
import tarfile
import textwrap
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.environments import Environment, Finished, copy_sources, make_environment, run, unpack
from tests.fixtures.build import build_variant

if TYPE_CHECKING:
    from pathlib import Path

#: The oldest setuptools that is promised; from Python 3.12 on, the oldest one that works there.
OLDEST = "64.0.0" if sys.version_info < (3, 12) else "66.1.0"
#: Build tools: with `bdist_wheel` in the package wheel, on both sides of its move, and in setuptools.
TOOLS = {
    "oldest": (f"setuptools=={OLDEST}", "wheel==0.37.1"),
    "before the move": ("setuptools==70.0.0", "wheel==0.43.0"),
    "newest": ("setuptools",),
    "newest with wheel": ("setuptools", "wheel"),
}
TABLE = """
[tool.kpack-build]
group-by = "family"
"""
LIBRARY = "kpack_demo/libkernels.so"
DEVICE_CODE = (b"__CLANG_OFFLOAD_BUNDLE__", b"FPIH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """kpack-build as a wheel to install from, and unpacked."""

    wheel: Path
    site: Path


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    source = copy_sources(tmp_path_factory.mktemp("kpack-build"))
    output = tmp_path_factory.mktemp("wheels")
    newest = make_environment("setuptools")
    done = newest.run("-m", "build", "--wheel", "--no-isolation", "--outdir", output, ".", directory=source)
    assert done.code == 0, done.output
    (wheel,) = output.glob("*.whl")
    return Tools(wheel=wheel, site=unpack(wheel, tmp_path_factory.mktemp("site")))


@pytest.fixture(params=TOOLS)
def environment(request: pytest.FixtureRequest, tools: Tools) -> Environment:
    return environment_of(request.param, tools)


@pytest.fixture(params=["oldest", "newest"])
def extreme(request: pytest.FixtureRequest, tools: Tools) -> Environment:
    return environment_of(request.param, tools)


@pytest.fixture
def newest(tools: Tools) -> Environment:
    return environment_of("newest", tools)


def environment_of(name: str, tools: Tools) -> Environment:
    bare = make_environment(*TOOLS[name])
    return Environment(python=bare.python, python_path=(tools.site,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project with an extension module in C and a shared library with device code."""

    root: Path

    @property
    def output(self) -> Path:
        return self.root.parent / "out"

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")

    def wheel(self) -> zipfile.ZipFile:
        """The one file in the output folder."""
        (path,) = self.output.iterdir()
        assert path.suffix == ".whl"
        return zipfile.ZipFile(path)

    def leftovers(self) -> list[Path]:
        """Wheels anywhere in the project."""
        return list(self.root.rglob("*.whl"))


PYPROJECT = """
[build-system]
requires = ["setuptools", "kpack-build"]
build-backend = "setuptools.build_meta"

[project]
name = "kpack-demo"
version = "1.0"

[tool.setuptools]
packages = ["kpack_demo"]
package-data = { kpack_demo = ["*.so"] }
"""
SETUP = """
from setuptools import Extension, setup

setup(ext_modules=[Extension("kpack_demo._native", ["native.c"])])
"""
NATIVE = """
#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project(root=tmp_path / "project")
    found.write("pyproject.toml", PYPROJECT + TABLE)
    found.write("setup.py", SETUP)
    found.write("native.c", NATIVE)
    found.write("kpack_demo/__init__.py", '"""A package with device code."""\n')
    shutil.copyfile(build_variant("plain-22"), found.root / LIBRARY)
    return found


def assert_packed(project: Project, done: Finished) -> list[str]:
    """Check that the packed wheel is the one thing that came out, and return its members."""
    assert done.code == 0, done.output
    with project.wheel() as wheel:
        names = wheel.namelist()
        library = wheel.read(LIBRARY)
        record = wheel.read("kpack_demo-1.0.dist-info/RECORD").decode()
    archives = {name for name in names if name.endswith(".kpack")}
    assert archives == {
        f"kpack_demo/.kpack/kpack-demo-{family}.kpack" for family in ("gfx9", "gfx10", "gfx11")
    }
    assert not any(magic in library for magic in DEVICE_CODE)
    assert b"HIPK" in library
    assert all(f"{name}," in record for name in names)
    assert any(name.startswith("kpack_demo/_native") for name in names)
    assert project.leftovers() == []
    return names


def assert_fat(contents: bytes) -> None:
    assert all(magic in contents for magic in DEVICE_CODE)


def test_pip_wheel(environment: Environment, project: Project) -> None:
    done = environment.run(
        *("-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", project.output, "."),
        directory=project.root,
    )
    assert_packed(project, done)
    assert "kpack-build: kpack_demo-1.0-" in done.output


def test_setup_py_bdist_wheel(environment: Environment, project: Project) -> None:
    done = environment.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)
    assert "kpack-build: kpack_demo-1.0-" in done.output


def test_setup_py_bdist_kpack_without_a_table(environment: Environment, project: Project) -> None:
    project.write("pyproject.toml", PYPROJECT)
    done = environment.run(
        *("setup.py", "bdist_kpack", "--group-by=family", "--level=1", "-d", project.output),
        directory=project.root,
    )
    assert_packed(project, done)


def test_python_m_build(extreme: Environment, project: Project) -> None:
    done = extreme.run(
        *("-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", "-o", project.output, "."),
        directory=project.root,
    )
    assert_packed(project, done)
    assert "kpack-build: kpack_demo-1.0-" in done.output


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python's own distutils ended with 3.11")
def test_pythons_own_distutils(extreme: Environment, project: Project) -> None:
    legacy = Environment(
        python=extreme.python,
        python_path=extreme.python_path,
        variables=(("SETUPTOOLS_USE_DISTUTILS", "stdlib"),),
    )
    done = legacy.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)


def test_an_isolated_build_by_build(newest: Environment, tools: Tools, project: Project) -> None:
    alone = Environment(python=newest.python, variables=(("PIP_FIND_LINKS", str(tools.wheel.parent)),))
    done = alone.run("-m", "build", "--wheel", "-o", project.output, ".", directory=project.root)
    assert_packed(project, done)


def test_an_isolated_build_by_uv(tools: Tools, project: Project) -> None:
    uv = make_environment("uv")
    done = uv.run(
        *("-m", "uv", "build", "--wheel", "--no-config", "--python", sys.executable),
        *("--find-links", tools.wheel.parent, "-o", project.output, "."),
        directory=project.root,
    )
    # uv puts a .gitignore beside the wheel.
    (project.output / ".gitignore").unlink(missing_ok=True)
    assert_packed(project, done)


def test_all_front_ends_give_the_same_bytes(newest: Environment, project: Project, tmp_path: Path) -> None:
    results: list[bytes] = []
    for command in (
        ("setup.py", "bdist_wheel", "-d"),
        ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", ".", "-w"),
        ("-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", ".", "-o"),
    ):
        output = tmp_path / f"out-{len(results)}"
        dated = Environment(
            python=newest.python,
            python_path=newest.python_path,
            variables=(("SOURCE_DATE_EPOCH", "1700000000"),),
        )
        done = dated.run(*command, output, directory=project.root)
        assert done.code == 0, done.output
        (wheel,) = output.iterdir()
        results.append(wheel.read_bytes())
    assert results[0] == results[1] == results[2]


def test_without_the_table_the_wheel_is_what_setuptools_makes(extreme: Environment, project: Project) -> None:
    project.write("pyproject.toml", PYPROJECT)
    done = extreme.run(
        *("-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", project.output, "."),
        directory=project.root,
    )
    assert done.code == 0, done.output
    assert "kpack-build:" not in done.output
    with project.wheel() as wheel:
        assert_fat(wheel.read(LIBRARY))
        assert not any(".kpack" in name for name in wheel.namelist())


def test_a_build_without_device_code_passes_through(newest: Environment, project: Project) -> None:
    (project.root / LIBRARY).unlink()
    done = newest.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert done.code == 0, done.output
    assert "no device code" in done.output
    with project.wheel() as wheel:
        assert not any("kpack/" in name for name in wheel.namelist())


def test_require_device_code_fails_and_leaves_nothing(extreme: Environment, project: Project) -> None:
    (project.root / LIBRARY).unlink()
    project.write("pyproject.toml", PYPROJECT + TABLE + "require-device-code = true\n")
    done = extreme.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert done.code == 1
    assert "require-device-code" in done.output
    assert "Traceback" not in done.output
    assert not project.output.exists() or list(project.output.iterdir()) == []
    assert project.leftovers() == []


@pytest.mark.parametrize("command", ["bdist_wheel", "bdist_kpack", "build"])
def test_a_wrong_setting_fails_before_anything_is_compiled(
    extreme: Environment, project: Project, command: str
) -> None:
    project.write("pyproject.toml", PYPROJECT + TABLE + "levl = 3\n")
    done = extreme.run("setup.py", command, directory=project.root)
    assert done.code == 1
    assert "levl" in done.output
    assert "'level'" in done.output
    assert "Traceback" not in done.output
    assert list(project.root.rglob("*.o")) == []
    assert not (project.root / "build").exists()


def test_a_wrong_option_fails_before_anything_is_compiled(newest: Environment, project: Project) -> None:
    done = newest.run("setup.py", "bdist_kpack", "--targets=gfx110X", directory=project.root)
    assert done.code == 1
    assert "gfx110x" in done.output
    assert not (project.root / "build").exists()


def test_a_wrong_setting_reaches_the_user_of_pip(newest: Environment, project: Project) -> None:
    project.write("pyproject.toml", PYPROJECT + TABLE + 'loader = "no"\n')
    done = newest.run(
        *("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", project.output, "."),
        directory=project.root,
    )
    assert done.code != 0
    assert "'inject', 'manual', 'none'" in done.output


def test_the_help_of_the_command(extreme: Environment, project: Project) -> None:
    done = extreme.run("setup.py", "bdist_kpack", "--help", directory=project.root)
    assert done.code == 0, done.output
    listed = extreme.run("setup.py", "--help-commands", directory=project.root)
    assert "bdist_kpack" in listed.output
    for option in ("--mode", "--targets", "--scheme", "--level", "--group-by", "--dist-dir"):
        assert option in done.output


def test_an_editable_install_stays_fat_and_a_wheel_built_beside_it_is_packed(
    extreme: Environment, project: Project, tmp_path: Path
) -> None:
    before = (project.root / LIBRARY).read_bytes()
    site = tmp_path / "site"
    done = extreme.run(
        *("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--prefix", site, "-e", "."),
        directory=project.root,
    )
    assert done.code == 0, done.output
    assert list(project.root.glob("kpack_demo/_native*.so"))
    assert list(tmp_path.rglob(".kpack")) == []
    done = extreme.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)
    assert (project.root / LIBRARY).read_bytes() == before


def test_an_sdist_stays_as_it_is(extreme: Environment, project: Project) -> None:
    done = extreme.run(
        *("-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check", "-o", project.output, "."),
        directory=project.root,
    )
    assert done.code == 0, done.output
    (sdist,) = project.output.iterdir()
    with tarfile.open(sdist) as archive:
        member = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/{LIBRARY}")
        assert member is not None
        assert_fat(member.read())
        assert not any("kpack/" in name for name in archive.getnames())


def test_a_project_with_nothing_but_setup_py(environment: Environment, project: Project) -> None:
    (project.root / "pyproject.toml").unlink()
    project.write(
        "setup.py",
        SETUP.replace(
            "setup(",
            'setup(name="kpack-demo", version="1.0", packages=["kpack_demo"],'
            ' package_data={"kpack_demo": ["*.so"]}, kpack=dict(group_by="family"), ',
        ),
    )
    done = environment.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)


CUSTOM = """
from setuptools import Extension, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class StableWheel(bdist_wheel):
    user_options = [*bdist_wheel.user_options, ("note=", None, "a line for the log")]

    def initialize_options(self):
        super().initialize_options()
        self.note = None

    def get_tag(self):
        return ("cp310", "abi3", super().get_tag()[2])

    def run(self):
        print("the project says", self.note)
        super().run()


setup(
    ext_modules=[Extension("kpack_demo._native", ["native.c"])],
    cmdclass={"bdist_wheel": StableWheel},
)
"""


def test_a_bdist_wheel_of_the_projects_own_keeps_working(extreme: Environment, project: Project) -> None:
    project.write("setup.py", CUSTOM)
    done = extreme.run(
        *("setup.py", "bdist_wheel", "--note=hello", "-d", project.output), directory=project.root
    )
    assert_packed(project, done)
    assert "the project says hello" in done.output
    assert "-cp310-abi3-" in next(project.output.iterdir()).name


def test_a_command_class_from_pyproject_keeps_working(newest: Environment, project: Project) -> None:
    project.write("build_commands.py", CUSTOM.partition("setup(")[0])
    project.write(
        "pyproject.toml",
        PYPROJECT + 'cmdclass = { bdist_wheel = "build_commands.StableWheel" }\n' + TABLE,
    )
    done = newest.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)
    assert "-cp310-abi3-" in next(project.output.iterdir()).name


def test_the_list_of_built_files_names_the_packed_wheel(newest: Environment, project: Project) -> None:
    project.write("setup.py", SETUP.replace("setup(", "found = setup(") + "\nprint(found.dist_files)\n")
    done = newest.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    names = assert_packed(project, done)
    assert names
    (wheel,) = project.output.iterdir()
    assert repr(str(wheel)) in done.output


def test_a_packed_wheel_can_be_installed_and_imported(
    newest: Environment, project: Project, tmp_path: Path
) -> None:
    done = newest.run("setup.py", "bdist_wheel", "-d", project.output, directory=project.root)
    assert_packed(project, done)
    (wheel,) = project.output.iterdir()
    site = tmp_path / "installed"
    done = newest.run("-m", "pip", "install", "--no-deps", "--target", site, wheel, directory=tmp_path)
    assert done.code == 0, done.output
    done = run(
        newest.python,
        *("-c", "import kpack_demo._native; print(kpack_demo.__file__)"),
        directory=tmp_path,
        variables={"PYTHONPATH": str(site)},
    )
    assert done.code == 0, done.output
    assert str(site) in done.output
