"""Whatever is damaged in a wheel, an archive or an index: looking into it ends with our error or a result."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpack_build.bundle import CcobMethod, write_ccob
from kpack_build.cli import main
from kpack_build.errors import KpackError
from kpack_build.export import export_code_objects
from kpack_build.inspection import inspect
from kpack_build.progress import SilentProgress
from kpack_build.restoration import restore
from kpack_build.verification import verify
from tests.fixtures.build import build_variant
from tests.fixtures.bundles import fat_bundle
from tests.unit.archives import code_object, write_archive
from tests.unit.wheels import FILE_NAME, write_wheel_file

_SILENT = SilentProgress()


def _look(path: Path) -> None:
    """Use everything that reads; our errors are a fine result."""
    with contextlib.suppress(KpackError):
        inspect(path, kernels=True)
    with contextlib.suppress(KpackError):
        verify(path, against=path, progress=_SILENT)
    with tempfile.TemporaryDirectory() as folder:
        try:
            export_code_objects(path, Path(folder, "out"), targets=None, progress=_SILENT)
        except KpackError:
            assert list(Path(folder).iterdir()) == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One file of each kind that can be read without a wheel around it."""
    folder = tmp_path_factory.mktemp("files")
    write_archive(
        folder / "a.kpack",
        ["gfx1100", "gfx90a:xnack-"],
        {("l#0", "gfx1100"): code_object("gfx1100"), ("l#1", "gfx90a:xnack-"): code_object("gfx90a:xnack-")},
    )
    plain = fat_bundle("gfx1100", "gfx90a:xnack-")
    return {
        "a.kpack": (folder / "a.kpack").read_bytes(),
        "plain.co": plain[:9000],
        "packed.co": write_ccob(fat_bundle("gfx942"), version=3, method=CcobMethod.ZSTD, level=3),
        "bare.hsaco": code_object("gfx1030"),
        "wheel.whl": write_wheel_file(folder, {"pkg/x.co": code_object("gfx1030")}).read_bytes(),
    }


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_flipped_bits_and_cut_files(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        _look(path)
        _look(Path(folder))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of a packed wheel with one library."""
    folder = tmp_path_factory.mktemp("packed")
    library = build_variant("features-mixed-22").read_bytes()
    wheel = write_wheel_file(folder, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    assert main(["pack", str(wheel), "-o", str(folder / "out"), "--quiet"]) == 0
    with zipfile.ZipFile(folder / "out" / FILE_NAME) as archive:
        archive.extractall(folder / "tree")
    return folder / "tree"


@pytest.mark.clang
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_packed_wheel_with_a_flipped_bit(packed: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = shutil.copytree(packed, Path(folder, "tree"))
        file = data.draw(st.sampled_from(sorted(file for file in tree.rglob("*") if file.is_file())))
        content = bytearray(file.read_bytes() or b"\0")
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        _look(tree)


def _places(value: object, place: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """Return the place of every value in parsed JSON."""
    inner: list[tuple[int | str, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [place, *(found for key, part in inner for found in _places(part, (*place, key)))]


@pytest.mark.clang
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_index_with_a_wrong_value(packed: Path, data: st.DataObject) -> None:
    [file] = packed.rglob(".kpack/*.json")
    original = file.read_text()
    index = json.loads(original)
    *path, last = data.draw(st.sampled_from(_places(index)[1:]))
    holder = index
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from([None, -1, 0, 1, 2**63, "", "x", "../x", [], {}, True]))
    file.write_text(json.dumps(index))
    try:
        _look(packed)
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KpackError):
            restore(packed, Path(folder), progress=_SILENT)
    finally:
        file.write_text(original)
