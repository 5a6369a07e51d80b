"""What the index says of archives, code objects and binaries is what the files hold."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.bundle import write_bundle
from kpack_build.config import Config
from kpack_build.hostbinary import open_host_binary
from kpack_build.index import parse_index
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.restoration import restore
from kpack_build.targets import GroupBy
from kpack_build.verification import verify
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import entry_id, fat_entries
from tests.fixtures.code_objects import CodeObjectOptions, write_code_object
from tests.synthetic import code_of, fat_library
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from kpack_build.hostbinary import KpackReference
    from kpack_build.index import Index

CONFIG = Config(level=1, workers=2)
UNITS = [("gfx1100", "gfx90a:xnack-"), ("gfx90a", "gfx11-generic")]
FILES = {
    "pkg/__init__.py": b"",
    "pkg/a.so": fat_library(*UNITS),
    "pkg/sub/b.so": fat_library(["gfx1030"], ["gfx1030", "gfx1100"], seed=5),
}


def packed(folder: Path, files: dict[str, bytes] = FILES, config: Config = CONFIG) -> tuple[Path, Index]:
    tree = pack(write_tree_of_wheel(folder / "tree", files), folder / "out", config).output
    index = tree / "pkg/.kpack/thing.json"
    return tree, parse_index(index.read_bytes(), index)


def reference_of(library: Path) -> KpackReference:
    binary = open_host_binary(library)
    assert binary is not None
    with binary:
        assert binary.reference is not None
        return binary.reference


@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
def test_archives_and_code_objects(tmp_path: Path, scheme: str) -> None:
    tree, index = packed(tmp_path, config=replace(CONFIG, scheme=scheme))
    archives = [tree / "pkg/.kpack" / row["file"] for row in index["archives"]]
    for row, file in zip(index["archives"], archives, strict=True):
        data = file.read_bytes()
        assert (row["size"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        with PackedKernelArchive.read(file) as archive:
            assert row["targets"] == list(archive.gfx_arches)
            places = {
                (place.offset, place.stored_size, place.original_size) for _, _, place in archive.entries()
            }
        found = [found for found in index["code_objects"] if archives[found["archive"]] == file]
        assert sorted((one["offset"], one["stored_size"], one["size"]) for one in found) == sorted(places)
        if scheme == "none":
            for one in found:
                stored = data[one["offset"] : one["offset"] + one["stored_size"]]
                assert hashlib.sha256(stored).hexdigest() == one["sha256"]


def test_answers(tmp_path: Path) -> None:
    _, index = packed(tmp_path)
    first, second = index["binaries"]
    assert (first["path"], first["kernel_name"], first["hip_library"]) == (
        "pkg/a.so",
        "pkg/a.so",
        "libamdhip64.so.7",
    )
    digests = {
        (unit, target): hashlib.sha256(code_of(target, targets, seed=unit)).hexdigest()
        for unit, targets in enumerate(UNITS)
        for target in targets
    }
    for (unit, target), digest in digests.items():
        row = index["code_objects"][first["wrappers"][unit][target]]
        assert (row["target"], row["sha256"]) == (target, digest)
    generic = index["code_objects"][first["wrappers"][1]["gfx1100"]]
    assert (generic["target"], generic["sha256"]) == ("gfx11-generic", digests[1, "gfx11-generic"])
    assert [set(answers) for answers in second["wrappers"]] == [{"gfx1030"}, {"gfx1030", "gfx1100"}]


def test_archives_count_the_binarys_wrappers_and_not_their_own(tmp_path: Path) -> None:
    """The second unit alone has code for gfx90a: its archive has the number 1 and no number 0."""
    files = {"pkg/__init__.py": b"", "pkg/lib.so": fat_library(["gfx1100"], ["gfx1100", "gfx90a"])}
    tree, _ = packed(tmp_path, files)
    keys = {}
    for file in (tree / "pkg/.kpack").glob("*.kpack"):
        with PackedKernelArchive.read(file) as archive:
            keys[archive.gfx_arch_family] = {key for key, _, _ in archive.entries()}
    assert keys["gfx110x"] == {"pkg/lib.so#0", "pkg/lib.so#1"}
    assert keys["gfx9_0"] == {"pkg/lib.so#1"}


def test_equal_objects_of_several_targets_keep_their_targets(tmp_path: Path) -> None:
    """Code object version 3 has one bit for a feature that is on and one that may be on or off."""
    old = write_code_object("gfx90a", CodeObjectOptions(version=3))
    new = write_code_object("gfx1250")
    bundles = [
        write_bundle([(entry_id(target), data) for target in targets])
        for data, targets in (
            (old, ["gfx90a"]),
            (old, ["gfx90a:xnack+"]),
            (new, ["gfx1250", "gfx1250-strict"]),
        )
    ]
    library = build_elf(ElfOptions(bundles=tuple(bundles), wrappers=(0, 1, 2)))
    tree, index = packed(tmp_path, {"pkg/__init__.py": b"", "pkg/lib.so": library})
    own = {"gfx90a", "gfx90a:xnack+", "gfx1250", "gfx1250-strict"}
    found = [
        {key: index["code_objects"][number]["target"] for key, number in answers.items() if key in own}
        for answers in index["binaries"][0]["wrappers"]
    ]
    assert found == [
        {"gfx90a": "gfx90a", "gfx90a:xnack+": "gfx90a"},
        {"gfx90a:xnack+": "gfx90a:xnack+"},
        {"gfx1250": "gfx1250", "gfx1250-strict": "gfx1250-strict"},
    ]
    # What differs in the index lies in one place.
    assert len({(row["archive"], row["offset"]) for row in index["code_objects"]}) == 2
    assert len(index["code_objects"]) == 4
    assert verify(tree, against=tmp_path / "tree", progress=SilentProgress()).faults == ()
    restored = restore(tree, tmp_path / "restored").output
    assert (restored / "pkg/lib.so").read_bytes() == library


def test_search_paths_lead_to_what_the_binary_uses(tmp_path: Path) -> None:
    tree, _ = packed(tmp_path)
    assert reference_of(tree / "pkg/a.so").search_paths == (
        ".kpack/thing-gfx11-generic.kpack",
        ".kpack/thing-gfx110x.kpack",
        ".kpack/thing-gfx9_0.kpack",
    )
    reference = reference_of(tree / "pkg/sub/b.so")
    assert reference.kernel_name == "pkg/sub/b.so"
    assert reference.search_paths == ("../.kpack/thing-gfx10_3.kpack", "../.kpack/thing-gfx110x.kpack")


def test_number_of_an_object_is_in_the_way_back(tmp_path: Path) -> None:
    _, index = packed(tmp_path)
    for binary in index["binaries"]:
        for bundle in binary["restore"]["bundles"]:
            for entry in bundle["entries"]:
                number = entry["object"]
                if entry["id"].startswith("host-"):
                    assert number is None
                else:
                    assert number is not None
                    assert index["code_objects"][number]["target"] == entry["id"].rpartition("--")[2]


def test_filtered_objects_have_no_number(tmp_path: Path) -> None:
    _, index = packed(tmp_path, config=replace(CONFIG, targets=("gfx90a",)))
    [archive] = index["archives"]
    assert archive["family"] == "gfx9_0"
    entries = index["binaries"][0]["restore"]["bundles"][0]["entries"]
    assert [entry["object"] is None for entry in entries] == [True, True, False]


def test_binary_without_anything_wanted_is_converted_and_finds_nothing(tmp_path: Path) -> None:
    """Beside one that has something: it must not keep code that nobody wants."""
    tree, index = packed(tmp_path, config=replace(CONFIG, targets=("gfx90a",)))
    assert index["binaries"][1]["wrappers"] == [{}, {}]
    assert reference_of(tree / "pkg/sub/b.so").search_paths == ()
    assert fat_entries(["gfx1030"], seed=5)[1][1] not in (tree / "pkg/sub/b.so").read_bytes()


def test_data_folder_of_a_wheel(tmp_path: Path) -> None:
    """What is installed beside the package lies elsewhere in the wheel; paths are those of the wheel."""
    root = "thing-1.0.data/platlib/pkg"
    files = {f"{root}/__init__.py": b"", f"{root}/sub/lib.so": fat_library(["gfx1100"])}
    tree = pack(write_tree_of_wheel(tmp_path / "tree", files), tmp_path / "out", CONFIG).output
    assert reference_of(tree / root / "sub/lib.so").search_paths == ("../.kpack/thing-gfx110x.kpack",)
    index = parse_index((tree / root / ".kpack/thing.json").read_bytes(), root)
    assert (index["package"], index["binaries"][0]["path"]) == ("pkg", f"{root}/sub/lib.so")


@pytest.mark.parametrize("group_by", GroupBy)
def test_equal_input_in_other_groups_answers_alike(tmp_path: Path, group_by: GroupBy) -> None:
    _, index = packed(tmp_path, config=replace(CONFIG, group_by=group_by))
    found = [
        {target: index["code_objects"][number]["sha256"] for target, number in answers.items()}
        for binary in index["binaries"]
        for answers in binary["wrappers"]
    ]
    (tmp_path / "whole").mkdir()
    _, whole = packed(tmp_path / "whole")
    assert found == [
        {target: whole["code_objects"][number]["sha256"] for target, number in answers.items()}
        for binary in whole["binaries"]
        for answers in binary["wrappers"]
    ]
