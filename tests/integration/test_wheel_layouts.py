"""Wheels of every layout that projects use: where archives and loader go, and that everything is found."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import WheelError
from kpack_build.layout import installed_path
from kpack_build.pipeline import pack
from kpack_build.report import BinaryAction
from kpack_build.restoration import restore
from tests.fixtures.build import build_variant
from tests.packing import (
    answers_from_files,
    indexes_of,
    make_config,
    members_of,
    run_module,
    wrappers_of,
)
from tests.unit.wheel.builder import INFO, WheelRecipe, row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__: list[str] = []

pytestmark = [pytest.mark.clang, pytest.mark.rocm]

BUILD_TAG = "thing-1.0-1-py3-none-any.whl"
TAGS = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: %s\n"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A wheel, and what packing must make of it.

    Attributes:
        libraries: Path of each fat library → the compile variant.
        others: Other files.
        kept: The fat libraries that have to stay as they are.
        homes: Folders that get archives.
        loaders: Those of them that get a loader.
        injected: The files that call it.
        words: What the report must mention, one warning each.
        name: The wheel's file name.
        tag: Its tag in WHEEL.
        info: More files of its dist-info folder.
    """

    libraries: Mapping[str, str]
    others: Mapping[str, bytes] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    homes: tuple[str, ...]
    loaders: tuple[str, ...] = ()
    injected: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    name: str = "thing-1.0-py3-none-any.whl"
    tag: bytes = b"py3-none-any"
    info: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        files = {**self.others, **{path: build_variant(v).read_bytes() for path, v in self.libraries.items()}}
        recipe = WheelRecipe(files=files, modes=dict.fromkeys(self.libraries, 0o100755))
        recipe.info["WHEEL"] = TAGS % self.tag + (b"Build: 1\n" if self.name == BUILD_TAG else b"")
        recipe.info.update(self.info)
        return recipe.write(folder, name=self.name)


INIT = {"pkg/__init__.py": b""}
LAYOUTS = {
    "package": Layout(
        libraries={"pkg/lib.so": "features-mixed-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
    ),
    "libraries in folders of a package": Layout(
        libraries={"pkg/lib/a.so": "generic-only-in-one-22", "pkg/lib/deep/b.so": "units-differ-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
    ),
    "two packages": Layout(
        libraries={"a/lib.so": "plain-22", "b/lib.so": "features-22"},
        others={"a/__init__.py": b"", "b/__init__.py": b"'''b'''\n"},
        homes=("a", "b"),
        loaders=("a", "b"),
        injected=("a/__init__.py", "b/__init__.py"),
    ),
    "package in a package": Layout(
        libraries={"pkg/lib.so": "generic-22", "pkg/sub/lib.so": "compressed-22"},
        others={**INIT, "pkg/sub/__init__.py": b"x = 1"},
        homes=("pkg", "pkg/sub"),
        loaders=("pkg", "pkg/sub"),
        injected=("pkg/__init__.py", "pkg/sub/__init__.py"),
    ),
    "package in a namespace": Layout(
        libraries={"space/pkg/lib.so": "rdc-22"},
        others={"space/pkg/__init__.py": b""},
        homes=("space/pkg",),
        loaders=("space/pkg",),
        injected=("space/pkg/__init__.py",),
    ),
    "platlib in .data": Layout(
        libraries={"thing-1.0.data/platlib/pkg/lib.so": "features-mixed-22"},
        others={"thing-1.0.data/platlib/pkg/__init__.py": b""},
        homes=("thing-1.0.data/platlib/pkg",),
        loaders=("thing-1.0.data/platlib/pkg",),
        injected=("thing-1.0.data/platlib/pkg/__init__.py",),
    ),
    "package split over .data": Layout(
        # The package's source is installed to the same place, but that is not seen from a path in the wheel.
        libraries={"thing-1.0.data/platlib/pkg/lib.so": "plain-22"},
        others=INIT,
        homes=("thing-1.0.data/platlib/pkg",),
        words=("no package of this wheel",),
    ),
    "top-level modules": Layout(
        libraries={"_a.so": "plain-22", "_b.so": "units-differ-22"},
        others={"thing.py": b"import _a, _b\n"},
        homes=("",),
        words=("no package of this wheel",),
    ),
    "plugin in a package of others": Layout(
        libraries={"host/plugins/thing/plugin.so": "plain-22"},
        homes=("host/plugins/thing",),
        words=("no package of this wheel",),
    ),
    "versioned copies": Layout(
        libraries={"pkg/lib.so": "plain-22", "pkg/lib.so.1": "plain-22", "pkg/lib.so.1.2": "plain-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
        words=("copies",),
    ),
    "build tag": Layout(
        libraries={"pkg/lib.so": "plain-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
        name=BUILD_TAG,
    ),
    "stable ABI": Layout(
        libraries={"pkg/_ext.abi3.so": "plain-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
        name="thing-1.0-cp39-abi3-manylinux_2_28_x86_64.whl",
        tag=b"cp39-abi3-manylinux_2_28_x86_64",
    ),
    "signed": Layout(
        libraries={"pkg/lib.so": "plain-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        words=("signed", "sign it again"),
        info={"RECORD.jws": b"{}"},
    ),
    "compiled __init__": Layout(
        libraries={"pkg/__init__.cpython-311-x86_64-linux-gnu.so": "plain-22"},
        homes=("pkg",),
        loaders=("pkg",),
        words=("compiled",),
    ),
    "__init__ that is no Python": Layout(
        libraries={"pkg/lib.so": "plain-22"},
        others={"pkg/__init__.py": b"def broken(:\n"},
        homes=("pkg",),
        loaders=("pkg",),
        words=("pkg/__init__.py",),
    ),
    "program beside a library": Layout(
        libraries={"pkg/lib.so": "plain-22", "thing-1.0.data/scripts/tool": "executable-22"},
        others=INIT,
        kept=("thing-1.0.data/scripts/tool",),
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
    ),
    "executable in a package": Layout(
        libraries={"pkg/bin/tool": "executable-22", "pkg/bin/pie": "pie-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
        words=("pkg/bin/pie, pkg/bin/tool",),
    ),
    "another machine": Layout(
        libraries={"pkg/lib.so": "aarch64-22"},
        others=INIT,
        homes=("pkg",),
        loaders=("pkg",),
        injected=("pkg/__init__.py",),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    source = layout.write(tmp_path)
    report = pack(source, tmp_path / "packed", make_config(keep_ccob=True))
    assert report.output.name == layout.name
    actions = {binary.path: binary.action for binary in report.binaries}
    assert {path for path, action in actions.items() if action is BinaryAction.KEPT_FAT} == set(layout.kept)
    assert set(actions) == set(layout.libraries)
    _check_members(layout, source, report.output)
    assert len(report.warnings) == len(layout.words)
    assert all(any(word in warning for warning in report.warnings) for word in layout.words)
    _check_installed(layout, report.output, tmp_path / "site")
    back = restore(report.output, tmp_path / "back").output
    assert members_of(back) == members_of(source)


def _check_members(layout: Layout, source: Path, packed: Path) -> None:
    before, after = members_of(source), members_of(packed)
    added = set(after) - set(before)
    changed = {path for path in before if after[path][0] != before[path][0]}
    assert {path.partition(".kpack/")[0].rstrip("/") for path in added if ".kpack/" in path} == set(
        layout.homes
    )
    assert {path.partition("/_kpack/")[0] for path in added if "/_kpack/" in path} == set(layout.loaders)
    assert all("/.kpack/" in f"/{path}" or "/_kpack/" in path for path in added)
    converted = set(layout.libraries) - set(layout.kept)
    assert changed == {*converted, *layout.injected, f"{INFO}/RECORD"}
    # Modes, and the order of what was there, are as they were.
    assert {path: after[path][1] for path in before} == {path: before[path][1] for path in before}
    assert [path for path in after if path in before and not path.endswith("/RECORD")] == [
        path for path in before if not path.endswith("/RECORD")
    ]
    with zipfile.ZipFile(packed) as archive:
        stored = {m.filename for m in archive.infolist() if m.compress_type == zipfile.ZIP_STORED}
        rows = archive.read(f"{INFO}/RECORD").decode().splitlines()
    assert {path for path in added if path.endswith(".kpack")} <= stored
    assert all(":" not in path and "+" not in path for path in added)
    assert {row.split(",")[0] for row in rows} | {f"{INFO}/RECORD.jws"} >= set(after)
    for path, (digest, _) in after.items():
        encoded = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
        if not path.startswith(f"{INFO}/RECORD"):
            assert any(row.startswith(f"{path},sha256={encoded},") for row in rows), path


def _check_installed(layout: Layout, packed: Path, site: Path) -> None:
    """Install the wheel, and ask ROCm's reader for everything that the fat libraries held."""
    platform = ("--python-platform", "x86_64-manylinux_2_39", "--python-version", "3.11")
    run_module(
        "uv", "pip", "install", "--no-deps", "--no-index", *platform, "--target", str(site), str(packed)
    )
    paths = {path: str(installed_path(path)) for path in layout.libraries if path not in layout.kept}
    fat = wrappers_of({paths[path]: build_variant(layout.libraries[path]) for path in paths})
    targets = [(target,) for target in sorted({target for wrapper in fat for target in wrapper.digests})]
    answers = answers_from_files(site, [site / path for path in paths.values()], targets)
    for wrapper in fat:
        for target, digest in wrapper.digests.items():
            assert answers[wrapper.path, wrapper.index, (target,)] == digest


def test_copies_are_stored_once(tmp_path: Path) -> None:
    report = pack(LAYOUTS["versioned copies"].write(tmp_path), tmp_path / "packed", make_config())
    [index] = indexes_of(report.output).values()
    assert len(index["binaries"]) == 3
    digests = [row["sha256"] for row in index["code_objects"]]
    assert len(digests) == len(set(digests)) == sum(archive.code_objects for archive in report.archives)


@pytest.mark.parametrize("group", [None, "others"])
def test_archives_in_a_folder_of_others_have_the_distributions_name(
    group: str | None, tmp_path: Path
) -> None:
    source = LAYOUTS["plugin in a package of others"].write(tmp_path)
    report = pack(source, tmp_path / "packed", make_config(**({"group": group} if group else {})))
    assert {archive.path.rpartition("/")[2].startswith("thing-") for archive in report.archives} == {True}
    own = pack(LAYOUTS["package"].write(tmp_path), tmp_path / "own", make_config(group="others"))
    assert {archive.path.rpartition("/")[2].startswith("others-") for archive in own.archives} == {True}


@pytest.mark.parametrize("loader", ["inject", "manual", "none"])
def test_loader_settings(loader: str, tmp_path: Path) -> None:
    source = LAYOUTS["package"].write(tmp_path)
    packed = pack(source, tmp_path / "packed", make_config(loader=loader)).output
    before, after = members_of(source), members_of(packed)
    assert any("/_kpack/" in path for path in after) == (loader != "none")
    assert (before["pkg/__init__.py"] != after["pkg/__init__.py"]) == (loader == "inject")


def test_injected_package_imports(tmp_path: Path) -> None:
    packed = pack(LAYOUTS["package"].write(tmp_path), tmp_path / "packed", make_config()).output
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "site")
    program = "import pkg; assert pkg._kpack.status() is not None"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=environment)


def test_file_in_the_way(tmp_path: Path) -> None:
    """A wheel that has a file of the name of a new one is refused, and nothing is written."""
    layout = LAYOUTS["package"]
    source = Layout(
        libraries=layout.libraries, others={**INIT, "pkg/_kpack/__init__.py": b"mine"}, homes=()
    ).write(tmp_path)
    with pytest.raises(WheelError) as caught:
        pack(source, tmp_path / "packed", make_config())
    assert "pkg/_kpack/__init__.py" in str(caught.value)
    assert list((tmp_path / "packed").glob("*")) == []


def write_distribution(folder: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel of a distribution of any name."""
    info = f"{name}-1.0.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": TAGS % b"py3-none-any",
    }
    rows = [row(path, data) for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,\n"]).encode()
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return wheel


SHARED_FOLDERS = {"top-level modules": "_%s.so", "plugins of others": "host/plugins/%s.so"}


@pytest.mark.parametrize("pattern", SHARED_FOLDERS.values(), ids=SHARED_FOLDERS)
def test_distributions_that_share_a_folder(pattern: str, tmp_path: Path) -> None:
    """Both serve their libraries; what one leaves when it is uninstalled is the other, whole."""
    site, variants = tmp_path / "site", {"one": "plain-22", "two": "features-22"}
    for name, variant in variants.items():
        files = {pattern % name: build_variant(variant).read_bytes()}
        source = write_distribution(tmp_path, name, files)
        packed = pack(source, tmp_path / "packed", make_config(group="gpu")).output
        run_module("uv", "pip", "install", "--no-deps", "--no-index", "--target", str(site), str(packed))
    for name, variant in variants.items():
        path = pattern % name
        fat = wrappers_of({path: build_variant(variant)})
        targets = [(target,) for target in fat[0].digests]
        answers = answers_from_files(site, [site / path], targets)
        for wrapper in fat:
            found = {target: answers[path, wrapper.index, (target,)] for target in wrapper.digests}
            assert found == wrapper.digests
        run_module("uv", "pip", "uninstall", "--target", str(site), name)
        assert not (site / path).exists()
    assert [path for path in site.rglob("*.kpack") if path.is_file()] == []
    assert list(site.rglob(".kpack")) == []
