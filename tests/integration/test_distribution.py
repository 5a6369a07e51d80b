"""What kpack-build itself is shipped as."""

from __future__ import annotations

import email
import tarfile
import zipfile
from configparser import ConfigParser
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.environments import Environment, copy_sources, make_environment, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

DIST_INFO = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
SDIST_EXTRAS = {
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
    "setup.cfg",
    *(
        f"kpack_build.egg-info/{name}"
        for name in (
            "PKG-INFO",
            "SOURCES.txt",
            "dependency_links.txt",
            "entry_points.txt",
            "requires.txt",
            "top_level.txt",
        )
    ),
}


@pytest.fixture(scope="module")
def environment() -> Environment:
    return make_environment("setuptools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An sdist, the wheel that was built from it, and the sources that both came from."""

    source: Path
    sdist: Path
    wheel: Path

    def files(self, *folders: str) -> set[str]:
        """All files of folders of the sources, whatever they are: a stray one is to be noticed."""
        paths = (path for folder in folders for path in (self.source / folder).rglob("*"))
        return {path.relative_to(self.source).as_posix() for path in paths if path.is_file()}


@pytest.fixture(scope="module")
def built(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Built:
    source = copy_sources(tmp_path_factory.mktemp("source"))
    (source / "tests").mkdir()
    (source / "tests" / "test_not_shipped.py").touch()
    output = tmp_path_factory.mktemp("dist")
    done = environment.run("-m", "build", "--no-isolation", "--outdir", output, ".", directory=source)
    assert done.code == 0, done.output
    assert "deprecat" not in done.output.lower(), done.output
    (sdist,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    return Built(source=source, sdist=sdist, wheel=wheel)


def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (found for found in archive.namelist() if found.endswith(f".dist-info/{name}"))
        return archive.read(member).decode()


def in_wheel(names: Iterable[str]) -> set[str]:
    return {f"kpack_build/{name}" if name.startswith("hooks/") else name for name in names}


def test_the_wheel_holds_exactly_the_package(built: Built) -> None:
    dist_info = {f"kpack_build-{built.wheel.name.split('-')[1]}.dist-info/{name}" for name in DIST_INFO}
    expected = in_wheel(built.files("kpack_build", "hooks")) | dist_info
    assert sorted(wheel_names(built.wheel)) == sorted(expected)
    assert {
        "kpack_build/py.typed",
        "kpack_build/config.schema.json",
        "kpack_build/hooks/setuptools.py",
    } <= expected


def test_the_sdist_holds_exactly_the_package_and_its_documents(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert sorted(names) == sorted(built.files("kpack_build", "hooks", "docs") | SDIST_EXTRAS)
    assert {"docs/format.md", "docs/safety.md", "docs/setuptools.md"} <= names


def test_the_wheel_is_pure_and_needs_no_build_tool(built: Built) -> None:
    assert built.wheel.name.endswith("-py3-none-any.whl")
    requirements = email.message_from_string(metadata(built.wheel, "METADATA")).get_all("Requires-Dist", [])
    needed = {text.split(">")[0].split(";")[0].strip() for text in requirements if "extra ==" not in text}
    assert needed == {"msgpack", "packaging", "rocm-bootstrap", "tomli", "zstandard"}


def test_the_entry_points_can_be_loaded(built: Built, environment: Environment, tmp_path: Path) -> None:
    parser = ConfigParser(delimiters=("=",))
    parser.read_string(metadata(built.wheel, "entry_points.txt"))
    points = {name: value for section in parser.sections() for name, value in parser[section].items()}
    assert {"bdist_kpack", "kpack", "kpack_build", "kpack-build"} <= set(points)
    program = (
        "import sys; from importlib.metadata import EntryPoint\n"
        "for value in sys.argv[1:]: assert EntryPoint('name', value, 'group').load()\n"
    )
    installed = Environment(python=environment.python, python_path=(unpack(built.wheel, tmp_path / "site"),))
    done = installed.run("-c", program, *points.values(), directory=tmp_path)
    assert done.code == 0, done.output


def test_an_editable_install_reaches_all_packages(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    copy_sources(source)
    site = tmp_path / "site"
    done = environment.run(
        *("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--prefix", site, "-e", "."),
        directory=source,
    )
    assert done.code == 0, done.output
    (packages,) = site.glob("lib/python*/site-packages")
    program = (
        f"import site; site.addsitedir({str(packages)!r})\n"
        "import kpack_build.config, kpack_build.hooks.setuptools as hook\n"
        "print(kpack_build.__file__, hook.__file__)\n"
    )
    done = environment.run("-c", program, directory=tmp_path)
    assert done.code == 0, done.output
    assert done.output.split() == [
        str(source / "kpack_build/__init__.py"),
        str(source / "hooks/setuptools.py"),
    ]
