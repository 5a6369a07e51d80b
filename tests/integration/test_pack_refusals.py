"""Binaries that must stay fat, beside ones that need not, and runs that end early and leave nothing."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from kpack_build import pipeline
from kpack_build.bundle import Bundle, write_bundle
from kpack_build.elf.binary import ElfBinary
from kpack_build.errors import ConversionError, KpackError, MissingDeviceCodeError
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.report import BinaryAction, Outcome
from kpack_build.restoration import restore
from kpack_build.verification import verify
from kpack_build.wheel.tree import TreeContents
from kpack_build.wheel.zipwriter import ZipWriter
from tests.corpus import corpus_wheel
from tests.elfbuilder import ElfOptions, build_elf
from tests.fixtures.bundles import HOST_ID, entry_id, fat_bundle, fat_entries
from tests.fixtures.code_objects import write_code_object
from tests.packing import make_config, members_of
from tests.synthetic import compressed, fat_library, with_entry
from tests.unit.wheels import write_tree_of_wheel, write_wheel_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__: list[str] = []

T = TypeVar("T")

GOOD = fat_library(["gfx90a:xnack-", "gfx1100"], ["gfx1100"])
BUNDLE = fat_bundle("gfx90a", "gfx1100", seed=50)
SPIRV = "hipv4-spirv64-amd-amdhsa--amdgcnspirv"
OTHER_MAGIC = b"\x10\xff\x10\xad" + BUNDLE[4:]


def library(*bundles: bytes, **options: object) -> bytes:
    chosen = replace(ElfOptions(), bundles=bundles, wrappers=tuple(range(len(bundles))))
    return build_elf(replace(chosen, **options))  # type: ignore[arg-type]


def patched(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


CCOB = compressed(BUNDLE)
#: Where the table of a bundle has the offset of its first code object, behind the host's entry.
SECOND_ENTRY = 32 + 24 + len(HOST_ID)
TWO_BUNDLES = (fat_bundle("gfx1100", seed=60), fat_bundle("gfx1100", seed=61))
REFUSED = {
    "SPIR-V": with_entry(SPIRV, b"SPIR-V module", "gfx1100"),
    "empty SPIR-V": with_entry(SPIRV, b"", "gfx1100"),
    "unknown triple": with_entry("openmp-nvptx64--sm_90", b"cubin", "gfx1100"),
    "host code": library(write_bundle([(HOST_ID, b"host object"), *fat_entries(["gfx1100"])[1:]])),
    "bytes in a gap": library(patched(BUNDLE, 4000, b"\1")),
    "bytes after the bundles": library(BUNDLE, fatbin_tail=bytes(500) + b"more"),
    "bytes in a gap of a CCOB": library(compressed(patched(BUNDLE, 4000, b"\1"))),
    "CCOB with a flipped bit": library(patched(CCOB, len(CCOB) // 2, bytes([CCOB[len(CCOB) // 2] ^ 1]))),
    "CCOB with a wrong hash": library(patched(CCOB, 24, bytes(8))),
    "CCOB of another version": library(patched(CCOB, 4, b"\x09")),
    "CCOB that lies about its size": library(patched(CCOB, 16, struct.pack("<Q", len(BUNDLE) + 1))),
    "CCOB beside a good bundle": library(BUNDLE, patched(CCOB, 24, bytes(8))),
    "offload binary": library(OTHER_MAGIC),
    "entry out of bounds": library(patched(BUNDLE, SECOND_ENTRY, struct.pack("<Q", 1 << 40))),
    "code object of another target": with_entry(entry_id("gfx1030"), write_code_object("gfx942"), "gfx1100"),
    "code object that is none": with_entry(entry_id("gfx1030"), b"nothing of the kind" * 9, "gfx1100"),
    "the same id twice": with_entry(entry_id("gfx1100"), write_code_object("gfx1100"), "gfx1100"),
    "the same target twice": with_entry(
        "hip-amdgcn-amd-amdhsa--gfx1100", write_code_object("gfx1100"), "gfx1100"
    ),
    "bundle without a wrapper": library(*TWO_BUNDLES, wrappers=(0,)),
    "wrapper without a relocation": library(BUNDLE, pointers="none"),
    "wrapper of another version": library(BUNDLE, wrappers=(b"FPIH\2\0\0\0" + bytes(16),)),
    "wrapper that is converted already": library(BUNDLE, wrappers=(0, b"HIPK\1\0\0\0" + bytes(16))),
    "cut short": GOOD[: len(GOOD) // 2],
    "cut in its headers": GOOD[:100],
}


def write_mixed(folder: Path, bad: bytes) -> Path:
    files = {"pkg/__init__.py": b"", "pkg/bad.so": bad, "pkg/good.so": GOOD}
    return write_wheel_file(folder, files)


@pytest.mark.parametrize("name", REFUSED)
def test_one_binary_stays_fat_and_the_other_is_packed(name: str, tmp_path: Path) -> None:
    source = write_mixed(tmp_path, REFUSED[name])
    report = pack(source, tmp_path / "packed", make_config())
    assert report.outcome is Outcome.DONE
    found = {binary.path: binary for binary in report.binaries}
    assert found["pkg/good.so"].action is BinaryAction.CONVERTED
    assert found["pkg/bad.so"].action is BinaryAction.KEPT_FAT
    assert all(found["pkg/bad.so"].reasons)
    assert found["pkg/bad.so"].reasons
    assert found["pkg/bad.so"].size.growth == 0
    after = members_of(report.output)
    assert after["pkg/bad.so"] == members_of(source)["pkg/bad.so"]
    assert after["pkg/good.so"] != members_of(source)["pkg/good.so"]
    assert members_of(restore(report.output, tmp_path / "back").output) == members_of(source)
    # What is packed is what is packed without the other binary.
    alone = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/good.so": GOOD})
    archives = {path: found for path, found in after.items() if path.endswith(".kpack")}
    alone_after = members_of(pack(alone, tmp_path / "alone", make_config()).output)
    assert archives == {path: found for path, found in alone_after.items() if path.endswith(".kpack")}


@pytest.mark.parametrize("name", REFUSED)
def test_strict_makes_it_an_error(name: str, tmp_path: Path) -> None:
    source = write_mixed(tmp_path, REFUSED[name])
    before = source.read_bytes()
    with pytest.raises(ConversionError) as caught:
        pack(source, tmp_path / "packed", make_config(strict=True))
    assert "pkg/bad.so" in str(caught.value)
    assert list((tmp_path / "packed").glob("*")) == []
    assert source.read_bytes() == before


@pytest.mark.parametrize("name", ["SPIR-V", "bytes in a gap", "CCOB with a flipped bit", "cut short"])
def test_wheel_that_can_only_stay_fat(name: str, tmp_path: Path) -> None:
    source = write_wheel_file(tmp_path, {"pkg/__init__.py": b"", "pkg/bad.so": REFUSED[name]})
    report = pack(source, tmp_path / "packed", make_config())
    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.output.read_bytes() == source.read_bytes()
    [binary] = report.binaries
    assert binary.reasons
    with pytest.raises(MissingDeviceCodeError):
        pack(source, tmp_path / "required", make_config(require_device_code=True))
    assert list((tmp_path / "required").glob("*")) == []


def test_odd_place_of_an_empty_host_entry_comes_back(tmp_path: Path) -> None:
    odd = library(patched(BUNDLE, 32, struct.pack("<Q", 1 << 40)))
    source = write_mixed(tmp_path, odd)
    packed = pack(source, tmp_path / "packed", make_config(strict=True)).output
    assert members_of(restore(packed, tmp_path / "back").output) == members_of(source)


def test_verification_knows_what_stays_fat(tmp_path: Path) -> None:
    source = write_mixed(tmp_path, REFUSED["SPIR-V"])
    packed = pack(source, tmp_path / "packed", make_config()).output
    result = verify(packed, against=source, progress=SilentProgress())
    assert result.faults == ()
    assert any("pkg/bad.so" in note for note in result.notes)


class Watcher(SilentProgress):
    """A progress that is interrupted at a given call."""

    def __init__(self, left: int) -> None:
        self.left = left

    def advance(self, amount: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt(amount)

    def finish(self) -> None:
        self.advance(0)


@pytest.mark.parametrize("form", ["wheel", "tree"])
@pytest.mark.parametrize("calls", range(4))
def test_interrupt_while_extracting_leaves_nothing(calls: int, form: str, tmp_path: Path) -> None:
    files = {"pkg/__init__.py": b"", "pkg/good.so": GOOD}
    source = (
        write_wheel_file(tmp_path, files)
        if form == "wheel"
        else write_tree_of_wheel(tmp_path / "thing", files)
    )
    before = members_of(source)
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "packed", make_config(), progress=Watcher(calls))
    assert list((tmp_path / "packed").glob("*")) == []
    assert members_of(source) == before


def fail(error: BaseException) -> Callable[..., None]:
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


PLACES = ["create_compressor", "extract", "convert_binaries", "embed", "write_contents"]
ERRORS = [KeyboardInterrupt(), OSError(28, "No space left on device"), MemoryError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", PLACES)
def test_failure_between_two_steps_leaves_nothing(
    place: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_mixed(tmp_path, GOOD)
    before = source.read_bytes()
    monkeypatch.setattr(pipeline, place, fail(error))
    with pytest.raises(type(error)):
        pack(source, tmp_path / "packed", make_config())
    assert list((tmp_path / "packed").glob("*")) == []
    assert source.read_bytes() == before


def interrupt_copying(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Interrupt the writing of a wheel or a tree when some unchanged members are copied."""
    left = [calls]

    def after(original: Callable[..., T]) -> Callable[..., T]:
        def counted(*arguments: object) -> T:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return original(*arguments)

        return counted

    monkeypatch.setattr(ZipWriter, "copy", after(ZipWriter.copy))
    monkeypatch.setattr(TreeContents, "iter_content", after(TreeContents.iter_content))


@pytest.mark.parametrize("calls", [0, 2])
@pytest.mark.parametrize("form", ["wheel", "tree"])
def test_interrupt_while_writing_leaves_what_was_there(
    form: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of an earlier run stays as it was; a new one appears whole or not at all."""
    files = {"pkg/__init__.py": b"", "pkg/good.so": GOOD, "pkg/a.txt": b"a", "pkg/b.txt": b"b"}
    (tmp_path / "packed").mkdir()
    if form == "wheel":
        source = write_wheel_file(tmp_path, files)
        (tmp_path / "packed" / source.name).write_bytes(b"an earlier result")
    else:
        source = write_tree_of_wheel(tmp_path / "thing", files)
    before = members_of(source)
    interrupt_copying(monkeypatch, calls)
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "packed", make_config())
    monkeypatch.undo()
    found = {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir()}
    assert found == ({source.name: b"an earlier result"} if form == "wheel" else {})
    assert members_of(source) == before


@pytest.mark.corpus
def test_interrupt_from_the_keyboard_leaves_nothing(tmp_path: Path) -> None:
    """The signal comes while the workers compress, at the level at which that takes longest."""
    source, output = corpus_wheel("jax-rocm7-plugin"), tmp_path / "packed"
    command = ["-m", "kpack_build", "pack", "--level", "22", str(source), "-o", str(output)]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(output.rglob("*.kpack*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, errors
    assert "Traceback" not in errors
    assert not output.exists()


@pytest.mark.parametrize("stage", ["to_hipk", "open_decoded"])
@pytest.mark.parametrize("workers", [1, 3])
def test_failure_in_a_worker_leaves_nothing(
    stage: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_mixed(tmp_path, GOOD)
    owner = ElfBinary if stage == "to_hipk" else Bundle
    monkeypatch.setattr(owner, stage, fail(OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        pack(source, tmp_path / "packed", make_config(workers=workers))
    assert list((tmp_path / "packed").glob("*")) == []


def test_conversion_that_fails_late_is_an_error_that_names_the_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_mixed(tmp_path, GOOD)
    monkeypatch.setattr(ElfBinary, "to_hipk", fail(ConversionError(tmp_path / "x.so", ("it is odd",))))
    with pytest.raises(KpackError):
        pack(source, tmp_path / "packed", make_config())
    assert list((tmp_path / "packed").glob("*")) == []
