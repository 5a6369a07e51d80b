"""Imports go one way, and the rules that hold for every module of the package.

The table names every module once, areas from the bottom up. An area may use itself and the areas that it
lists, which stand above it in the table. Modules of one area may name each other's types, but they never
need each other in a circle.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
#: The package's folders: `package-dir` in pyproject.toml puts the adapters into it.
FOLDERS = {"kpack_build": ROOT / "kpack_build", "kpack_build.hooks": ROOT / "hooks"}
LONGEST = 440
LOADER_PYTHON = (3, 8)
BUILD_SYSTEMS = {"distutils", "hatchling", "mesonpy", "scikit_build_core", "setuptools", "wheel"}
#: What changes the process, or starts another one; a library that is called from a build must do neither.
FORBIDDEN = {"chdir", "execv", "fork", "popen", "posix_spawn", "system", "_exit"}
FORBIDDEN_MODULES = {"multiprocessing", "pty", "subprocess"}
#: Who may use the loader's code: what makes fat binaries again is one piece of code for both.
USERS_OF_LOADER = {"kpack_build.hostbinary", "kpack_build.hostmodel", "kpack_build.elf"}


@dataclass(frozen=True, slots=True)
class Area:
    """Modules that belong together (names below `kpack_build`), and the areas that they may use."""

    modules: str
    uses: tuple[str, ...] = ()

    def names(self) -> list[str]:
        return ["kpack_build" if name == "." else f"kpack_build.{name}" for name in self.modules.split()]


AREAS = {
    "loader": Area(
        "runtime runtime.__main__ runtime._gpus runtime._locations runtime._masks runtime._messages"
        " runtime._record runtime._report runtime._restore runtime._serving runtime._status runtime._table"
    ),
    "ground": Area(". errors layout outputs processors progress report shapes"),
    "targets": Area("targets", ("ground",)),
    "code objects": Area("codeobject device_elf", ("ground", "targets")),
    "bundles": Area("bundle bundle_table ccob", ("ground", "targets")),
    "archives": Area("archive archive_toc archive_writer compression compressor mapped schemes", ("ground",)),
    "host binaries": Area(
        "hostbinary hostmodel elf elf.binary elf.constants elf.convert elf.devicecode elf.fatbin elf.headers"
        " elf.image elf.names elf.plan elf.refusal elf.relocations elf.slots elf.verify",
        ("ground", "bundles", "loader"),
    ),
    "wheels": Area(
        "wheel wheel.changes wheel.contents wheel.identity wheel.names wheel.record wheel.textedit wheel.tree"
        " wheel.verify wheel.writer wheel.zipcontents wheel.zipreader wheel.zipwriter",
        ("ground",),
    ),
    "configuration": Area("config settings", ("ground", "targets")),
    "index": Area("index injection loader", ("ground", "host binaries", "wheels")),
    "files": Area(
        "filesets kernelsearch magic packedwheel", ("ground", "targets", "archives", "wheels", "index")
    ),
    "packing": Area(
        "advice assembly assignment embedding extraction reporting scan",
        (
            *("ground", "targets", "code objects", "bundles", "archives", "host binaries", "wheels"),
            *("configuration", "index"),
        ),
    ),
    "looking": Area(
        "comparison export inspection inventory",
        (
            *("ground", "targets", "code objects", "bundles", "host binaries", "wheels", "files"),
            *("packing",),
        ),
    ),
    "work": Area(
        "pipeline restoration verification",
        (
            *("ground", "targets", "code objects", "archives", "host binaries", "wheels", "configuration"),
            *("index", "files", "packing", "looking"),
        ),
    ),
    "command line": Area(
        "__main__ cli cli.command cli.extract cli.inspect cli.output cli.pack cli.progress cli.restore"
        " cli.signals cli.terminal cli.verify",
        ("ground", "code objects", "configuration", "looking", "work"),
    ),
    "build systems": Area(
        "hooks hooks.bdist_kpack hooks.build_log hooks.setuptools", ("ground", "configuration", "work")
    ),
}
AREA_OF = {name: area for area, content in AREAS.items() for name in content.names()}


def _find_modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            name = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
            found[name.removesuffix(".__init__")] = file
    return found


MODULES = _find_modules()
TREES = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in MODULES.items()}
OF_LOADER = sorted(name for name, area in AREA_OF.items() if area == "loader")


@dataclass(frozen=True, slots=True)
class Import:
    """An imported module; whether only type checkers see the import, and whether a function does it."""

    module: str
    is_typing: bool
    is_late: bool


def _imports(name: str) -> Iterator[Import]:
    """Iterate over all imports of a module, those in functions too."""
    typing = _inside(
        name, lambda node: isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    late = _inside(name, lambda node: isinstance(node, ast.FunctionDef))
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(name, node)
            full = [f"{base}.{alias.name}" for alias in node.names]
            modules = [module if module in MODULES else base for module in full]
        else:
            continue
        yield from (Import(module, node in typing, node in late) for module in modules)


def _inside(name: str, condition: Callable[[ast.AST], bool]) -> set[ast.AST]:
    return {inner for node in ast.walk(TREES[name]) if condition(node) for inner in ast.walk(node)}


def _absolute(name: str, node: ast.ImportFrom) -> str:
    package = name.split(".")
    if MODULES[name].name != "__init__.py":
        package.pop()
    parent = package[: len(package) + 1 - node.level] if node.level else []
    return ".".join([*parent, *([node.module] if node.module else [])])


def _own_imports(name: str) -> Iterator[Import]:
    return (found for found in _imports(name) if found.module.partition(".")[0] == "kpack_build")


def _public(name: str) -> tuple[set[str], set[str]]:
    """Return what a module defines at its top level without an underscore, and its other names."""
    defined, others = set(), set()
    for node in TREES[name].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {
                found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)
            }
        elif isinstance(node, ast.Import | ast.ImportFrom):
            others |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    hidden = {found for found in defined if found.startswith("_")} | {"TYPE_CHECKING"}
    return defined - hidden, others | hidden


def _is_type_variable(node: ast.Assign | ast.AnnAssign) -> bool:
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"


def _exported(name: str) -> list[str]:
    [exported] = [
        node.value
        for node in TREES[name].body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == "__all__"
    ]
    assert exported is not None
    names: list[str] = ast.literal_eval(exported)
    return names


def test_the_table_names_every_module_once() -> None:
    listed = [name for area in AREAS.values() for name in area.names()]
    assert sorted(listed) == sorted(MODULES)


def test_areas_use_those_above_in_the_table() -> None:
    order = list(AREAS)
    for place, area in enumerate(AREAS.values()):
        assert set(area.uses) <= set(order[:place])


def test_no_area_may_use_more_than_it_does() -> None:
    """A permission that nobody needs is one that somebody will take."""
    used: dict[str, set[str]] = {area: set() for area in AREAS}
    for name, area in AREA_OF.items():
        used[area] |= {AREA_OF[found.module] for found in _own_imports(name)} - {area}
    assert used == {name: set(area.uses) for name, area in AREAS.items()}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_one_way(name: str) -> None:
    own = AREA_OF[name]
    assert {AREA_OF[found.module] for found in _own_imports(name)} <= {own, *AREAS[own].uses}


def test_no_module_needs_itself_to_be_imported() -> None:
    needed = {
        name: {found.module for found in _own_imports(name) if not found.is_typing and not found.is_late}
        for name in MODULES
    }
    graphlib.TopologicalSorter(needed).prepare()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_loader_is_used_for_restoring_only(name: str) -> None:
    found = {found.module for found in _own_imports(name) if AREA_OF[found.module] == "loader"}
    if AREA_OF[name] == "loader":
        return
    user = name in USERS_OF_LOADER or name.startswith("kpack_build.elf.")
    assert found <= ({"kpack_build.runtime._restore"} if user else set())


@pytest.mark.parametrize("name", OF_LOADER)
def test_the_loader_stands_alone(name: str) -> None:
    for found in _imports(name):
        if found.module.startswith("kpack_build."):
            assert AREA_OF[found.module] == "loader"
        elif not found.is_typing:
            assert found.module.partition(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("name", OF_LOADER)
def test_the_loader_names_itself_by_its_place(name: str) -> None:
    """It is copied into packages of any name, so each of its imports of itself is relative."""
    for node in ast.walk(TREES[name]):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [module for module in modules if module.partition(".")[0] == "kpack_build"]


@pytest.mark.parametrize("name", OF_LOADER)
def test_the_loader_has_the_syntax_of_an_old_python(name: str) -> None:
    ast.parse(MODULES[name].read_text(encoding="utf-8"), feature_version=LOADER_PYTHON)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_build_systems_are_known_to_their_adapters_only(name: str) -> None:
    found = {found.module.partition(".")[0] for found in _imports(name)}
    assert AREA_OF[name] == "build systems" or not found & BUILD_SYSTEMS


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_module_changes_its_process_or_starts_another(name: str) -> None:
    assert not {found.module.partition(".")[0] for found in _imports(name)} & FORBIDDEN_MODULES
    called = {
        node.func.attr
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "os"
    }
    assert not called & FORBIDDEN


@pytest.mark.parametrize(
    "name", sorted(set(MODULES) - set(AREAS["command line"].names()) - {"kpack_build.runtime.__main__"})
)
def test_only_programs_print_and_exit(name: str) -> None:
    used = {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}
    used |= {ast.unparse(node) for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
    assert not used & {"print", "SystemExit", "sys.exit", "exit", "quit"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_all_is_there_and_true(name: str) -> None:
    exported = _exported(name)
    defined, others = _public(name)
    assert len(exported) == len(set(exported))
    assert set(exported) <= defined | others
    assert defined - {"__all__"} <= set(exported)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(TREES[name])


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_module_is_long(name: str) -> None:
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= LONGEST
