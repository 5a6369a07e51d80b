from __future__ import annotations

import posixpath

import pytest

from kpack_build.layout import (
    Home,
    archive_path,
    find_home,
    group_name,
    index_path,
    installed_path,
    search_paths,
    toc_key,
)


@pytest.mark.parametrize(
    ("member", "installed"),
    [
        ("pkg/_ext.so", "pkg/_ext.so"),
        ("pkg-1.0.data/platlib/pkg/_ext.so", "pkg/_ext.so"),
        ("pkg-1.0.data/purelib/pkg/_ext.so", "pkg/_ext.so"),
        ("pkg-1.0.data/scripts/tool", None),
        ("pkg-1.0.data/data/share/x.so", None),
    ],
)
def test_installed_path(member: str, installed: str | None) -> None:
    assert installed_path(member) == installed


@pytest.mark.parametrize(
    ("binary", "others", "folder", "is_package"),
    [
        ("pkg/_ext.so", ["pkg/__init__.py"], "pkg", True),
        ("pkg/lib/_ext.so", ["pkg/__init__.py"], "pkg", True),
        ("pkg/sub/_ext.so", ["pkg/__init__.py", "pkg/sub/__init__.py"], "pkg/sub", True),
        ("pkg/_ext.so", ["pkg/__init__.cpython-311-x86_64-linux-gnu.so"], "pkg", True),
        ("_ext.so", ["pkg/__init__.py"], "", False),
        ("other/plugins/x/lib.so", ["other/notinit.py"], "other/plugins/x", False),
        ("pkg.libs/lib.so", ["pkg/__init__.py"], "pkg.libs", False),
        (
            "pkg-1.data/platlib/pkg/_ext.so",
            ["pkg-1.data/platlib/pkg/__init__.py"],
            "pkg-1.data/platlib/pkg",
            True,
        ),
    ],
)
def test_home_is_the_nearest_package_of_this_wheel(
    binary: str, others: list[str], folder: str, *, is_package: bool
) -> None:
    home = find_home(binary, {binary, *others})
    assert home == Home(folder=folder, is_package=is_package)


def test_no_home_outside_of_site_packages() -> None:
    assert find_home("pkg-1.0.data/scripts/tool", {"pkg-1.0.data/scripts/tool"}) is None


def test_a_home_names_its_places() -> None:
    home = Home(folder="a/b", is_package=True)
    assert home.archive_folder == "a/b/.kpack"
    assert home.loader_folder == "a/b/_kpack"
    assert home.init_path == "a/b/__init__.py"
    assert home.package == "a.b"
    assert archive_path(home, "g-gfx11.kpack") == "a/b/.kpack/g-gfx11.kpack"
    assert index_path(home, "g") == "a/b/.kpack/g.json"


def test_the_package_of_a_home_in_data_is_the_installed_one() -> None:
    assert Home(folder="p-1.data/platlib/p", is_package=True).package == "p"


def test_a_home_that_is_no_package_has_no_import_name() -> None:
    home = Home(folder="", is_package=False)
    assert home.package is None
    assert archive_path(home, "g-gfx11.kpack") == ".kpack/g-gfx11.kpack"


@pytest.mark.parametrize(
    ("configured", "is_package", "expected"),
    [
        (None, True, "my-package"),
        (None, False, "my-package"),
        ("mine", True, "mine"),
        ("mine", False, "my-package-mine"),
        ("my-package.x", False, "my-package.x"),
    ],
)
def test_group_names_hold_the_distribution_where_folders_are_shared(
    configured: str | None, expected: str, *, is_package: bool
) -> None:
    assert group_name("My_Package", configured, Home(folder="x", is_package=is_package)) == expected


@pytest.mark.parametrize("binary", ["pkg/_ext.so", "pkg/deep/er/lib.so", "_ext.so"])
def test_search_paths_lead_from_the_binary_to_the_archives(binary: str) -> None:
    archives = ["pkg/.kpack/g-gfx9_0.kpack", "pkg/.kpack/g-gfx11.kpack"]
    paths = search_paths(binary, archives)
    assert list(paths) == sorted(paths)
    reached = {posixpath.normpath(posixpath.join(posixpath.dirname(binary), path)) for path in paths}
    assert reached == set(archives)


def test_toc_key() -> None:
    assert toc_key("pkg/_ext.so", 3) == "pkg/_ext.so#3"
