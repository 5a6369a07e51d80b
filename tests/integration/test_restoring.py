"""Packed wheels are given back member by member; the original's compressed bundles as far as that can be."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.errors import KpackError, RestorationError
from kpack_build.pipeline import pack
from kpack_build.restoration import restore
from tests.corpus import FAT_CORPUS, corpus_tree, corpus_wheel
from tests.fat import read_fat_binary
from tests.packing import indexes_of, make_config, members_of
from tests.synthetic import fat_library
from tests.unit.wheels import FILE_NAME, write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.packing import PackedCorpus

__all__: list[str] = []

#: Wheels with compressed bundles (CCOB), which come back with equal code objects.
COMPRESSED = ("bitsandbytes", "jax-rocm7-plugin")
PLAIN = tuple(name for name in FAT_CORPUS if name not in COMPRESSED)
FILES = {
    "pkg/__init__.py": b'"""A package."""\r\nx = 1',
    "pkg/lib.so": fat_library(["gfx90a:xnack+", "gfx90a:xnack-"], ["gfx1100", "gfx11-generic"]),
    "pkg/sub/__init__.py": b"",
    "pkg/sub/other.so": fat_library(["gfx1100", "gfx942"], seed=9, encoded=True),
}


def facts_of(wheel: Path) -> list[tuple[object, ...]]:
    """Return all that a wheel says of its members, in their order (we put RECORD last, as wheels should)."""
    with zipfile.ZipFile(wheel) as archive:
        return [
            (info.filename, info.CRC, info.file_size, info.external_attr, info.date_time, info.compress_type)
            for info in archive.infolist()
        ]


@pytest.mark.corpus
@pytest.mark.parametrize("name", PLAIN)
def test_wheel_with_plain_bundles_comes_back_bit_for_bit(
    name: str, packed_corpus: PackedCorpus, tmp_path: Path
) -> None:
    report = restore(packed_corpus.pack(name).wheel, tmp_path)
    assert report.recompressed == ()
    assert report.exact
    assert report.output.name == corpus_wheel(name).name
    assert members_of(report.output) == members_of(corpus_wheel(name))
    assert set(facts_of(report.output)) == set(facts_of(corpus_wheel(name)))


@pytest.mark.corpus
@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_bundles_come_back_with_equal_code_objects(
    name: str, packed_corpus: PackedCorpus, tmp_path: Path
) -> None:
    packed = packed_corpus.pack(name)
    report = restore(packed.wheel, tmp_path)
    assert {*report.exact, *report.recompressed} == {binary.path for binary in packed.report.binaries}
    before, after = members_of(corpus_wheel(name)), members_of(report.output)
    assert list(after) == list(before)
    [record] = (path for path in before if path.endswith(".dist-info/RECORD"))
    assert {path for path in before if before[path] != after[path]} == {*report.recompressed, record}
    with zipfile.ZipFile(corpus_wheel(name)) as old, zipfile.ZipFile(report.output) as new:
        rows = zip(old.read(record).decode().split("\n"), new.read(record).decode().split("\n"), strict=True)
        assert {was.split(",")[0] for was, now in rows if was != now} == set(report.recompressed)
    for path in report.recompressed:
        back = tmp_path / "back.so"
        with zipfile.ZipFile(report.output) as archive:
            back.write_bytes(archive.read(path))
        found, original = read_fat_binary(back), read_fat_binary(corpus_tree(name) / path)
        # Equal code objects, under equal ids, in equal order, at the addresses of the original.
        assert [list(wrapper.entries.items()) for wrapper in found] == [
            list(wrapper.entries.items()) for wrapper in original
        ]
        assert [(w.address, w.bundle_address) for w in found] == [
            (w.address, w.bundle_address) for w in original
        ]


@pytest.mark.corpus
@pytest.mark.parametrize("name", COMPRESSED)
def test_kept_bundles_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    packed = pack(corpus_wheel(name), tmp_path / "packed", make_config(keep_ccob=True))
    report = restore(packed.output, tmp_path / "back")
    assert report.recompressed == ()
    assert members_of(report.output) == members_of(corpus_wheel(name))


@pytest.mark.corpus
def test_growth_is_called_by_its_name(packed_corpus: PackedCorpus) -> None:
    for name in COMPRESSED:
        report = packed_corpus.pack(name).report
        assert report.grew == report.wheel.after - report.wheel.before > 0
        assert "CCOB" in str(report.advice)
    report = packed_corpus.pack("torch-scatter-rocm").report
    assert (report.grew, report.advice) == (0, None)


@pytest.mark.corpus
def test_kept_bundles_count_as_growth(packed_corpus: PackedCorpus, tmp_path: Path) -> None:
    usual = packed_corpus.pack("jax-rocm7-plugin").report
    kept = pack(corpus_wheel("jax-rocm7-plugin"), tmp_path, make_config(keep_ccob=True))
    stored = sum(binary.device_bytes for binary in kept.binaries)
    assert kept.installed.after - usual.installed.after > stored * 9 // 10


@pytest.mark.parametrize("loader", ["inject", "manual", "none"])
@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
@pytest.mark.parametrize("form", ["wheel", "tree"])
def test_made_up_wheels_come_back(form: str, scheme: str, loader: str, tmp_path: Path) -> None:
    write = write_wheel_file if form == "wheel" else write_tree_of_wheel
    source = write(tmp_path if form == "wheel" else tmp_path / "thing", FILES)
    config = make_config(loader=loader, scheme=scheme, keep_ccob=True)
    packed = pack(source, tmp_path / "packed", config)
    assert len(packed.archives) > 1
    report = restore(packed.output, tmp_path / "back")
    assert members_of(report.output) == members_of(source)
    assert set(report.exact) == {"pkg/lib.so", "pkg/sub/other.so"}
    if form == "wheel":
        assert facts_of(report.output) == facts_of(source)


def test_dropped_targets_cannot_come_back(tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, FILES)
    packed = pack(source, tmp_path / "packed", make_config(targets=["gfx1100"]))
    assert packed.dropped
    with pytest.raises(RestorationError):
        restore(packed.output, tmp_path / "back")
    assert list((tmp_path / "back").glob("*")) == []


DAMAGES = [
    ("archive", "cut"),
    ("archive", "flipped"),
    ("archive", "gone"),
    ("binary", "cut"),
    ("binary", "flipped"),
    ("index", "cut"),
    ("index", "numbers"),
    ("init", "flipped"),
]


@pytest.mark.parametrize(("what", "how"), DAMAGES)
def test_damaged_packed_tree_gives_an_error_and_nothing_else(what: str, how: str, tmp_path: Path) -> None:
    """A tree has no checksums of its own but RECORD's, which somebody may have mended."""
    source = write_tree_of_wheel(tmp_path / "thing", FILES)
    tree = pack(source, tmp_path / "packed", make_config()).output
    patterns = {
        "archive": "pkg/.kpack/*gfx9_0*.kpack",
        "binary": "pkg/lib.so",
        "index": "pkg/.kpack/*.json",
        "init": "pkg/__init__.py",
    }
    [file] = tree.glob(patterns[what])
    damage(file, how)
    (tree / "thing-1.0.dist-info/RECORD").write_bytes(loose_record(tree))
    with pytest.raises(KpackError) as caught:
        restore(tree, tmp_path / "back")
    assert file.name in str(caught.value) or tree.name in str(caught.value)
    assert list((tmp_path / "back").glob("*")) == []


def damage(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    if how == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    elif how == "gone":
        file.unlink()
    else:
        index = json.loads(data)
        index["code_objects"].pop()
        file.write_text(json.dumps(index))


def loose_record(tree: Path) -> bytes:
    """Return a RECORD that has no hashes, as some published wheels have."""
    files = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())
    return "".join(f"{name},,\n" for name in files).encode()


def test_wheel_that_was_never_packed(tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, FILES)
    with pytest.raises(KpackError):
        restore(source, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_output_in_place_of_the_source(tmp_path: Path) -> None:
    packed = pack(write_wheel_file(tmp_path, FILES), tmp_path / "packed", make_config()).output
    before = packed.read_bytes()
    with pytest.raises(KpackError):
        restore(packed, tmp_path / "packed")
    assert packed.read_bytes() == before


def test_packed_restored_and_packed_again_is_the_same(tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, FILES)
    once = pack(source, tmp_path / "once", make_config(keep_ccob=True)).output
    back = restore(once, tmp_path / "back").output
    again = pack(back, tmp_path / "again", make_config(keep_ccob=True)).output
    assert again.read_bytes() == once.read_bytes()
    assert back.name == FILE_NAME
    assert indexes_of(again) == indexes_of(once)
