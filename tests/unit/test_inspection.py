"""What is in a path, for archives and files of device code."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from kpack_build.bundle import BundleEntry, CcobMethod, EntryKind, plain_header, write_bundle, write_ccob
from kpack_build.codeobject import Kernel
from kpack_build.errors import FormatError
from kpack_build.filesets import SourceKind
from kpack_build.inspection import inspect
from kpack_build.targets import TargetId
from tests.fixtures.bundles import chain, entry_id, fat_bundle, fat_entries
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object
from tests.unit.archives import code_object, write_archive
from tests.unit.wheels import write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = Kernel(
    name="add",
    symbol="add.kd",
    vgprs=8,
    agprs=0,
    sgprs=16,
    lds_bytes=64,
    scratch_bytes=0,
    kernarg_bytes=32,
    wavefront_size=32,
    max_workgroup_size=256,
)


def test_archive(tmp_path: Path) -> None:
    same = code_object("gfx90a:xnack-")
    write_archive(
        tmp_path / "a.kpack",
        ["gfx90a:xnack-", "gfx90a:sramecc+:xnack-"],
        {("l#0", "gfx90a:xnack-"): same, ("l#0", "gfx90a:sramecc+:xnack-"): same},
    )
    found = inspect(tmp_path / "a.kpack")
    assert found.kind is SourceKind.FILE
    [archive] = found.archives
    assert (archive.group, archive.family, archive.scheme) == ("group", "family", "none")
    assert archive.targets == ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-")
    assert [(entry.key, entry.target, entry.ordinal, entry.size) for entry in archive.entries] == [
        ("l#0", "gfx90a:xnack-", 0, len(same)),
        ("l#0", "gfx90a:sramecc+:xnack-", 0, len(same)),
    ]
    assert {entry.kernels for entry in archive.entries} == {None}


def test_bare_code_object(tmp_path: Path) -> None:
    data = write_code_object("gfx1100", CodeObjectOptions(kernels=(KERNEL,)))
    (tmp_path / "x.bin").write_bytes(data)
    [loose] = inspect(tmp_path / "x.bin").loose
    assert loose.code_object is not None
    assert (loose.code_object.target, loose.code_object.kernels) == ("gfx1100", None)
    [loose] = inspect(tmp_path / "x.bin", kernels=True).loose
    assert loose.code_object is not None
    assert loose.code_object.kernels == (KERNEL,)


def test_bundles(tmp_path: Path) -> None:
    entries = fat_entries(["gfx1100", "gfx90a:xnack-"])
    entries.append(("hipv4-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07" * 8))
    plain = write_bundle(entries)
    packed = write_ccob(fat_bundle("gfx942"), version=3, method=CcobMethod.ZSTD, level=3)
    data, places = chain([plain, packed])
    (tmp_path / "x.hsaco").write_bytes(data)
    [loose] = inspect(tmp_path / "x.hsaco").loose
    assert [bundle.offset for bundle in loose.bundles] == places
    assert [bundle.encoding for bundle in loose.bundles] == ["plain", "CCOB v3 zstd"]
    first, second = loose.bundles
    assert [(entry.kind, entry.target) for entry in first.entries] == [
        ("host", None),
        ("code object", "gfx1100"),
        ("code object", "gfx90a:xnack-"),
        ("other", None),
    ]
    assert first.entries[2].size == len(entries[2][1])
    assert second.entries[1].target == "gfx942"
    assert second.stored_size == len(packed)


def test_kernels_of_bundles_and_archives(tmp_path: Path) -> None:
    data = write_code_object("gfx1100", CodeObjectOptions(kernels=(KERNEL,)))
    (tmp_path / "x.co").write_bytes(
        write_bundle([("host-x86_64-unknown-linux-gnu-", b""), ("hipv4-amdgcn-amd-amdhsa--gfx1100", data)])
    )
    write_archive(tmp_path / "x.kpack", ["gfx1100"], {("l#0", "gfx1100"): data})
    found = inspect(tmp_path, kernels=True)
    assert found.loose[0].bundles[0].entries[0].kernels is None
    assert found.loose[0].bundles[0].entries[1].kernels == (KERNEL,)
    assert found.archives[0].entries[0].kernels == (KERNEL,)


def test_damaged_file_of_a_folder_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "bad.kpack").write_bytes(b"KPAK")
    (tmp_path / "good.co").write_bytes(code_object("gfx1030"))
    (tmp_path / "text").write_text("text")
    found = inspect(tmp_path)
    assert [damaged.path for damaged in found.damaged] == ["bad.kpack"]
    assert [loose.path for loose in found.loose] == ["good.co"]
    assert found.files == 3


def test_damaged_single_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.kpack").write_bytes(b"KPAK")
    with pytest.raises(FormatError):
        inspect(tmp_path / "bad.kpack")


def test_wheel(tmp_path: Path) -> None:
    found = inspect(write_wheel_file(tmp_path, {"pkg/x.co": code_object("gfx1030"), "pkg/small": b""}))
    assert (found.kind, found.distribution, found.version) == (SourceKind.WHEEL, "thing", "1.0")
    assert [loose.path for loose in found.loose] == ["pkg/x.co"]


def test_file_without_device_code(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    found = inspect(tmp_path / "x")
    assert (found.binaries, found.archives, found.loose, found.damaged) == ((), (), (), ())


def test_json(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_bytes(fat_bundle("gfx1100"))
    data = json.loads(json.dumps(inspect(tmp_path).to_json()))
    assert data["kind"] == "folder"
    assert data["loose"][0]["bundles"][0]["entries"][1]["target"] == "gfx1100"


def test_headers_alone_are_read(tmp_path: Path) -> None:
    """Reading these 16 GB, which are a hole, would take seconds."""
    targets = ("gfx90a", "gfx942", "gfx1030", "gfx1100")
    size = 4 << 30
    entries = [
        BundleEntry(
            id=entry_id(target),
            kind=EntryKind.CODE_OBJECT,
            target=TargetId.parse(target),
            offset=4096 + number * size,
            size=size,
        )
        for number, target in enumerate(targets)
    ]
    file = tmp_path / "large.co"
    file.write_bytes(plain_header(entries))
    os.truncate(file, 4096 + len(targets) * size)
    start = time.process_time()
    [loose] = inspect(file).loose
    assert time.process_time() - start < 1
    assert [(entry.target, entry.size) for entry in loose.bundles[0].entries] == [
        (target, size) for target in targets
    ]
