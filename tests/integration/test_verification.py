"""Faults that verification must find, in wheels that we packed and in wheels that others converted."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING

import pytest

from kpack_build.archive import PackedKernelArchive
from kpack_build.cli import main
from kpack_build.errors import VerificationError, WheelError
from kpack_build.export import export_code_objects
from kpack_build.hostbinary import KpackReference
from kpack_build.inspection import inspect
from kpack_build.progress import SilentProgress
from kpack_build.verification import Verification, verify
from tests.converted import convert
from tests.fixtures.build import build_variant
from tests.unit.archives import code_object, write_archive
from tests.unit.wheels import FILE_NAME, write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.clang

BINARY = "pkg/lib.so"


def _verify(source: Path, against: Path | None = None) -> Verification:
    return verify(source, against=against, progress=SilentProgress())


def _problems(source: Path) -> str:
    result = _verify(source)
    assert not result.is_sound
    return "\n".join(map(str, result.faults))


def _pack(tmp_path: Path, variant: str, *options: str) -> tuple[Path, Path]:
    """Pack a wheel with one library; return the fat wheel and the tree of the packed one."""
    files = {"pkg/__init__.py": b"", BINARY: build_variant(variant).read_bytes()}
    wheel = write_wheel_file(tmp_path, files)
    assert main(["pack", str(wheel), "-o", str(tmp_path / "packed"), "--quiet", *options]) == 0
    with zipfile.ZipFile(tmp_path / "packed" / FILE_NAME) as archive:
        archive.extractall(tmp_path / "tree")
    return wheel, tmp_path / "tree"


@pytest.mark.parametrize("group_by", ["target", "sub-family", "family"])
@pytest.mark.parametrize(
    "variant",
    [
        *("plain-22", "compressed-22", "rdc-22", "executable-22", "features-22", "features-mixed-22"),
        *("generic-22", "generic-only-in-one-22", "units-differ-22"),
    ],
)
def test_packed_wheels_are_sound(tmp_path: Path, variant: str, group_by: str) -> None:
    wheel, tree = _pack(tmp_path, variant, "--group-by", group_by)
    result = _verify(tree, against=wheel)
    assert result.faults == ()
    assert result.counts.gpus
    assert result.counts.compared
    result.raise_for_faults()


def _rewrite(archive: Path, left_out: set[tuple[str, str]]) -> None:
    """Write an archive again without some of its entries."""
    with PackedKernelArchive.read(archive) as old:
        entries = {
            (key, target): bytes(old.get_kernel(key, target) or b"") for key, target, _ in old.entries()
        }
        listed = list(old.gfx_arches)
    assert left_out <= set(entries)
    write_archive(archive, listed, {entry: data for entry, data in entries.items() if entry not in left_out})


def test_entry_that_completion_should_have_made(tmp_path: Path) -> None:
    """Wrapper 1 has one object for all states of xnack; under a listed state it must be answered too."""
    _, tree = _pack(tmp_path, "features-mixed-22")
    for archive in tree.glob("pkg/.kpack/*gfx9_0*"):
        _rewrite(archive, {(f"{BINARY}#1", "gfx90a:sramecc+:xnack-")})
    problems = _problems(tree)
    assert f"{BINARY}#1 for gfx90a:sramecc+:xnack-" in problems


def test_index_and_binary_that_do_not_belong_together(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    [file] = tree.rglob(".kpack/*.json")
    index = json.loads(file.read_text())
    index["binaries"][0]["kernel_name"] = "other/lib.so"
    index["binaries"][0]["wrappers"].pop()
    index["binaries"].append({**index["binaries"][0], "path": "pkg/gone.so"})
    file.write_text(json.dumps(index))
    problems = _problems(tree)
    assert "other/lib.so" in problems
    assert "pkg/gone.so" in problems
    assert "wrappers" in problems


def test_index_that_is_none(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    [file] = tree.rglob(".kpack/*.json")
    file.write_text("{}")
    assert file.relative_to(tree).as_posix() in {fault.path for fault in _verify(tree).faults}


def test_damaged_binary(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    data = (tree / BINARY).read_bytes()
    (tree / BINARY).write_bytes(data[:200])
    assert BINARY in {fault.path for fault in _verify(tree).faults}


def test_binary_that_only_the_fat_wheel_has(tmp_path: Path) -> None:
    wheel, tree = _pack(tmp_path, "plain-22")
    (tree / BINARY).unlink()
    faults = _verify(tree, against=wheel).faults
    assert [fault.path for fault in faults if "fat wheel" in fault.problem] == [BINARY]


def test_other_code_in_the_fat_wheel(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    other = write_tree_of_wheel(tmp_path / "other", {BINARY: build_variant("debug-22").read_bytes()})
    result = _verify(tree, against=other)
    assert len(result.faults) == result.counts.compared > 0
    with pytest.raises(VerificationError) as caught:
        result.raise_for_faults()
    assert len(caught.value.issues) == len(result.faults)


def test_packed_wheel_in_the_place_of_the_fat_one(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    with pytest.raises(WheelError, match="packed itself"):
        _verify(tree, against=tree)


def test_fat_binary_is_compared_too(tmp_path: Path) -> None:
    data = build_variant("sanitized-22").read_bytes()
    wheel = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", BINARY: data})
    result = _verify(wheel, against=wheel)
    assert result.is_sound
    assert result.counts.compared
    assert result.notes


def test_fat_binary_outside_of_site_packages(tmp_path: Path) -> None:
    data = build_variant("plain-22").read_bytes()
    wheel = write_wheel_file(tmp_path, {"thing-1.0.data/scripts/tool": data})
    result = _verify(wheel)
    assert result.is_sound
    assert result.notes


def _foreign(tmp_path: Path, archives: Mapping[str, tuple[list[str], list[tuple[int, str, int]]]]) -> Path:
    """Make a wheel as another tool would: no index; archives with (wrapper, target, code object) entries.

    The library has three wrappers: gfx1100 (object 0), gfx1100 and gfx90a (1, 2), gfx90a (3).
    """
    reference = KpackReference(
        kernel_name=BINARY, search_paths=tuple(f".kpack/{name}.kpack" for name in archives)
    )
    converted = convert(build_variant("units-differ-22"), tmp_path / "lib.so", reference)
    files = {"pkg/__init__.py": b"", BINARY: converted.path.read_bytes()}
    for name, (listed, entries) in archives.items():
        if entries:
            file = tmp_path / f"{name}.kpack"
            content = {
                (f"{BINARY}#{wrapper}", target): converted.objects[n] for wrapper, target, n in entries
            }
            write_archive(file, listed, content)
            files[f"pkg/.kpack/{name}.kpack"] = file.read_bytes()
    return write_wheel_file(tmp_path, files)


GFX1100 = [(0, "gfx1100", 0), (1, "gfx1100", 1)]
GFX90A = [(1, "gfx90a", 2), (2, "gfx90a", 3)]


def test_wheel_of_another_tool(tmp_path: Path) -> None:
    wheel = _foreign(tmp_path, {"a": (["gfx1100"], GFX1100), "b": (["gfx90a"], GFX90A)})
    result = _verify(wheel)
    assert result.is_sound
    assert result.notes
    assert result.counts.answers


def test_wrapper_numbers_counted_per_target(tmp_path: Path) -> None:
    wrong = [(0, "gfx90a", 2), (1, "gfx90a", 3)]
    assert f"{BINARY}#2" in _problems(
        _foreign(tmp_path, {"a": (["gfx1100"], GFX1100), "b": (["gfx90a"], wrong)})
    )


def test_qualified_archive_that_hides_the_bare_one(tmp_path: Path) -> None:
    wheel = _foreign(
        tmp_path,
        {
            "a": (["gfx1100"], GFX1100),
            "b": (["gfx90a"], GFX90A),
            "c": (["gfx90a:xnack-"], [(1, "gfx90a:xnack-", 2)]),
        },
    )
    assert "gfx90a:xnack-" in _problems(wheel)


def test_archive_that_is_not_there(tmp_path: Path) -> None:
    wheel = _foreign(tmp_path, {"a": (["gfx1100"], GFX1100), "b": (["gfx90a"], [])})
    assert ".kpack/b.kpack" in _problems(wheel)


def test_archive_that_lists_what_is_no_target(tmp_path: Path) -> None:
    wheel = _foreign(tmp_path, {"a": (["gfx1100", "sm_90"], [*GFX1100, *GFX90A])})
    assert "sm_90" in _problems(wheel)


@pytest.mark.parametrize("member", ["pkg/__init__.py", "pkg/_kpack/__init__.py", "pkg/_kpack/_table.py"])
def test_part_of_the_loader_that_is_not_there(tmp_path: Path, member: str) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    (tree / member).unlink()
    faults = _verify(tree).faults
    assert member in {fault.path for fault in faults}


def test_damaged_archive(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    archive = min(tree.glob("pkg/.kpack/*.kpack"))
    archive.write_bytes(archive.read_bytes()[:40])
    faults = _verify(tree).faults
    assert archive.relative_to(tree).as_posix() in {fault.path for fault in faults}
    assert any(archive.name in fault.problem for fault in faults if fault.path == BINARY)


def test_index_that_says_other_things_of_archives(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    [file] = tree.rglob(".kpack/*.json")
    index = json.loads(file.read_text())
    first, second = index["archives"][:2]
    first["targets"].append("gfx1200")
    index["code_objects"][0]["target"] = "gfx1201"
    [moved] = [row for row in index["code_objects"] if row["archive"] == 1][:1]
    moved["offset"] += 1
    file.write_text(json.dumps(index))
    problems = _problems(tree)
    assert f"{first['file']}: it lists other targets" in problems
    assert "was built for another target" in problems
    assert f"{second['file']}: it has no code object" in problems


def test_library_of_a_host_that_hip_does_not_run_on(tmp_path: Path) -> None:
    """A 32-bit library is none of our business, whoever compares it."""
    data = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x03\x00\x03\x00" + bytes(80)
    wheel = write_wheel_file(tmp_path, {"pkg/lib32.so": data})
    assert _verify(wheel, against=wheel).is_sound
    assert main(["extract", str(wheel), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    assert main(["inspect", str(wheel)]) == 0


def test_library_whose_bundle_hides_bytes(tmp_path: Path) -> None:
    data = bytearray(build_variant("plain-22").read_bytes())
    bundle = data.index(b"__CLANG_OFFLOAD_BUNDLE__")
    assert data[bundle + 4000] == 0
    data[bundle + 4000] = 1
    wheel = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", BINARY: bytes(data)})
    result = _verify(wheel)
    assert result.is_sound
    assert any(BINARY in note for note in result.notes)


def test_fat_binary_replaced_by_something_else(tmp_path: Path) -> None:
    wheel, tree = _pack(tmp_path, "plain-22")
    (tree / BINARY).write_bytes(b"no library")
    faults = _verify(tree, against=wheel).faults
    assert any(fault.path == BINARY and "nothing for" in fault.problem for fault in faults)


def test_kept_bundles(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "compressed-22", "--keep-ccob")
    assert _verify(tree).is_sound
    [kept] = tree.rglob("*.ccob")
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(data)
    name = kept.relative_to(tree).as_posix()
    assert [fault.path for fault in _verify(tree).faults if not fault.path.endswith("RECORD")] == [name]
    kept.unlink()
    assert name in {fault.path for fault in _verify(tree).faults}


def test_archive_that_nobody_looks_for(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.kpack", ["gfx1100"], {("k#0", "gfx1100"): code_object("gfx1100")})
    wheel = write_wheel_file(tmp_path, {"pkg/.kpack/x.kpack": (tmp_path / "x.kpack").read_bytes()})
    result = _verify(wheel)
    assert result.is_sound
    assert any("pkg/.kpack/x.kpack" in note for note in result.notes)


def test_damaged_binary_is_compared_too(tmp_path: Path) -> None:
    wheel, tree = _pack(tmp_path, "plain-22")
    (tree / BINARY).write_bytes((tree / BINARY).read_bytes()[:200])
    result = _verify(tree, against=wheel)
    assert len([fault for fault in result.faults if fault.path == BINARY]) > 1


def test_library_whose_compressed_bundle_is_damaged(tmp_path: Path) -> None:
    """It cannot be converted either, but damage is no good reason to stay fat."""
    data = bytearray(build_variant("compressed-22").read_bytes())
    data[data.rindex(b"CCOB") + 200] ^= 0xFF  # The hash no longer holds; headers can be read.
    wheel = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", BINARY: bytes(data)})
    assert [fault.path for fault in _verify(wheel).faults] == [BINARY]


def test_archive_that_is_found_twice_is_exported_once(tmp_path: Path) -> None:
    entries = {(f"{BINARY}#{wrapper}", target): n for wrapper, target, n in [*GFX1100, *GFX90A]}
    reference = KpackReference(kernel_name=BINARY, search_paths=("a.kpack", "../pkg/a.kpack"))
    converted = convert(build_variant("units-differ-22"), tmp_path / "lib.so", reference)
    folder = tmp_path / "pkg"
    content = {entry: converted.objects[number] for entry, number in entries.items()}
    write_archive(folder / "a.kpack", ["gfx1100", "gfx90a"], content)
    shutil.copyfile(converted.path, folder / "lib.so")
    result = export_code_objects(folder, tmp_path / "out", targets=None, progress=SilentProgress())
    assert {found.path for found in result.objects} == {
        "lib.so/0/gfx1100.hsaco",
        "lib.so/1/gfx1100.hsaco",
        "lib.so/1/gfx90a.hsaco",
        "lib.so/2/gfx90a.hsaco",
    }
    assert len(result.objects) == 4


def test_installed_package_is_inspected_with_its_archives(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "features-mixed-22")
    for place, name in ((tree / "pkg", "lib.so"), (tree / BINARY, "lib.so"), (tree, BINARY)):
        [binary] = [found for found in inspect(place).binaries if found.wrappers]
        assert binary.path == name
        assert binary.missing == ()
        assert all(
            {"gfx1100", "gfx90a:sramecc+:xnack-"} <= {answer.target for answer in wrapper.answers}
            for wrapper in binary.wrappers
        )


def _wrappers(data: bytes | bytearray) -> list[int]:
    """Return the places of the wrappers of a converted library."""
    record = b"HIPK" + (1).to_bytes(4, "little")
    places = [place for place in range(0, len(data), 8) if data.startswith(record, place)]
    assert places
    return places


def test_wrapper_with_the_number_of_another(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "plain-22")
    data = bytearray((tree / BINARY).read_bytes())
    data[_wrappers(data)[1] + 16] = 0
    (tree / BINARY).write_bytes(data)
    assert f"{BINARY}: wrapper 1 " in _problems(tree)


@pytest.mark.parametrize("step", [1, 1 << 40])
def test_wrapper_that_points_elsewhere(tmp_path: Path, step: int) -> None:
    """The pointers of an executable at a fixed address are plain words."""
    _, tree = _pack(tmp_path, "executable-22")
    data = bytearray((tree / BINARY).read_bytes())
    place = _wrappers(data)[1] + 8
    data[place : place + 8] = (int.from_bytes(data[place : place + 8], "little") + step).to_bytes(8, "little")
    (tree / BINARY).write_bytes(data)
    assert BINARY in {fault.path for fault in _verify(tree).faults}


def test_wrapper_with_a_map_of_its_own(tmp_path: Path) -> None:
    _, tree = _pack(tmp_path, "executable-22")
    data = bytearray((tree / BINARY).read_bytes())
    first, second = _wrappers(data)
    map_place = data.index(b"\x82\xabkernel_name")
    size = len(KpackReference.parse(memoryview(data)[map_place:], path=tree).to_bytes())
    other = KpackReference(kernel_name="other", search_paths=()).to_bytes()
    data[map_place + size : map_place + size + len(other)] = other
    pointer = int.from_bytes(data[second + 8 : second + 16], "little")
    data[second + 8 : second + 16] = (pointer + size).to_bytes(8, "little")
    assert first != second
    (tree / BINARY).write_bytes(data)
    assert f"{BINARY}: wrapper 1 points to another" in _problems(tree)
