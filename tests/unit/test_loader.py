from __future__ import annotations

import ast
import dataclasses
import re
from importlib.resources import files
from typing import TYPE_CHECKING, cast

import pytest
from rocm_bootstrap.targets import ALL_TARGETS

from kpack_build.index import INDEX_FORMAT, BinaryRow, Index, WheelUndo
from kpack_build.loader import TABLE_FORMAT, LoaderBinary, loader_files, loader_table
from kpack_build.runtime import _table
from kpack_build.targets import GENERIC_MEMBERS, generic_of
from tests.loaders import Recipe, make_table

if TYPE_CHECKING:
    from kpack_build.hostbinary import ConversionRecord


def read_table(data: bytes) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(data, names)  # noqa: S102 - our own text
    return {name: names[name] for name in _table.__all__}


def make_index(package: str | None, *paths: str) -> Index:
    table = make_table(Recipe())
    binaries = [
        BinaryRow(
            path=path,
            kernel_name=path,
            hip_library=None,
            wrappers=[{"gfx1100": 0}, {}],
            restore=cast("ConversionRecord", {}),
        )
        for path in paths
    ]
    return Index(
        format=INDEX_FORMAT,
        group="group",
        distribution="demo-dist",
        version="1.2",
        package=package,
        scheme="zstd-per-kernel",
        archives=list(table.archives),
        code_objects=list(table.objects),
        binaries=binaries,
        kept=[],
        restore=WheelUndo(files={}, added=[], record=None),
    )


def test_every_file_of_the_runtime_is_copied_as_it_is() -> None:
    made = loader_files(make_table(Recipe()))
    runtime = files("kpack_build.runtime")
    names = {entry.name for entry in runtime.iterdir() if entry.name.endswith(".py")}
    # The restore code serves the tool alone until the loader writes fat libraries.
    assert set(made) == names - {"_restore.py"}
    for name in set(made) - {"_table.py"}:
        assert made[name] == runtime.joinpath(name).read_bytes()


def test_the_table_holds_what_it_was_given() -> None:
    table = make_table(Recipe())
    values = read_table(loader_files(table)["_table.py"])
    assert values["FORMAT"] == TABLE_FORMAT == _table.FORMAT
    assert (values["DISTRIBUTION"], values["VERSION"], values["PACKAGE"]) == ("demo-dist", "1.2", "demo")
    assert (values["GROUP"], values["SCHEME"]) == ("demo", "none")
    assert values["ARCHIVES"] == tuple(
        (row["file"], row["sha256"], row["size"], row["family"], tuple(row["targets"]))
        for row in table.archives
    )
    assert values["TARGETS"] == ("gfx1100", "gfx1101", "gfx9-4-generic", "gfx90a:xnack+", "gfx90a:xnack-")
    assert values["OBJECTS"] == ((0, 64, 3, 4),)
    assert values["BINARIES"] == (("lib/_C.so", "libamdhip64.so.7", ((0, -1, -1, -1, -1),)),)


def test_the_tables_of_processors_are_whole() -> None:
    values = read_table(loader_files(make_table(Recipe()))["_table.py"])
    generics = cast("dict[str, str]", values["GENERIC_OF"])
    assert generics == {name: generic_of(name) for members in GENERIC_MEMBERS.values() for name in members}
    processors = cast("dict[int, str]", values["PROCESSORS"])
    assert set(processors) == {target.gfx_target_version for target in ALL_TARGETS}
    assert processors[90010] == "gfx90a"
    assert processors[120500] == "gfx1250"


def test_equal_tables_give_equal_bytes() -> None:
    first, second = loader_files(make_table(Recipe())), loader_files(make_table(Recipe()))
    assert first == second
    assert list(first) == sorted(first)


def test_names_of_any_kind_are_written() -> None:
    table = dataclasses.replace(
        make_table(Recipe()),
        version='1"\\\n',
        binaries=(LoaderBinary(path="é'\".so", hip_library=None, wrappers=()),),
    )
    data = loader_files(table)["_table.py"]
    values = read_table(data)
    assert (values["VERSION"], values["BINARIES"]) == ('1"\\\n', (("é'\".so", None, ()),))
    assert data.isascii()


def test_an_index_gives_a_table() -> None:
    index = make_index("demo.sub", "demo/sub/_C.so", "demo/sub/lib/libx.so")
    table = loader_table(index)
    assert (table.distribution, table.version, table.package) == ("demo-dist", "1.2", "demo.sub")
    assert (table.group, table.scheme) == ("group", "zstd-per-kernel")
    assert [binary.path for binary in table.binaries] == ["_C.so", "lib/libx.so"]
    assert table.binaries[0].wrappers == ({"gfx1100": 0}, {})
    assert (list(table.archives), list(table.objects)) == (index["archives"], index["code_objects"])


def test_paths_of_a_data_folder_are_those_once_installed() -> None:
    table = loader_table(make_index("demo", "demo-1.data/platlib/demo/lib/_C.so"))
    assert [binary.path for binary in table.binaries] == ["lib/_C.so"]


def test_without_a_package_there_is_no_loader() -> None:
    with pytest.raises(AssertionError):
        loader_table(make_index(None))


@pytest.mark.parametrize("name", sorted(loader_files(make_table(Recipe()))))
def test_the_loader_is_python_3_8_and_imports_nothing_heavy(name: str) -> None:
    source = loader_files(make_table(Recipe()))[name]
    tree = ast.parse(source, feature_version=(3, 8))
    # What an installed loader may import while its package is imported; the command may import more.
    allowed = {"os", "warnings", "logging", "__future__"}
    allowed |= {"argparse", "json", "sys"} if name == "__main__.py" else set()
    guarded = {id(node) for block in tree.body if _is_type_checking(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= allowed
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module in allowed
    assert not re.search(rb"\bkpack_build\b", source) or name == "_table.py"


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
