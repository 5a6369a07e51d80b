from __future__ import annotations

import ast
import hashlib
import mmap
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from kpack_build.runtime import _restore
from kpack_build.runtime._restore import (
    BundleRecord,
    ConversionRecord,
    EntryRecord,
    FatWriter,
    RestoreError,
    join_bundle,
    pack_bundle_header,
    pack_ccob,
)

HOST = "host-x86_64-unknown-linux-gnu-"
OBJECTS = {0: b"A" * 300, 1: b"B" * 5000, 2: bytes(range(256)) * 64}
IDS = (
    "hipv4-amdgcn-amd-amdhsa--gfx90a",
    "hipv4-amdgcn-amd-amdhsa--gfx1030",
    "hipv4-amdgcn-amd-amdhsa--gfx1100",
)
START, END = 0x1000, 0x9000


def entries() -> list[EntryRecord]:
    found: list[EntryRecord] = [{"id": HOST, "offset": 4096, "size": 0, "object": None}]
    position = 4096
    for number, name in enumerate(IDS):
        size = len(OBJECTS[number])
        found.append({"id": name, "offset": position, "size": size, "object": number})
        position += -(-size // 4096) * 4096
    return found


def bundle(**changes: object) -> BundleRecord:
    found: BundleRecord = {
        "offset": START,
        "room": END - START,
        "decoded_size": 0,
        "entries": entries(),
        "ccob": None,
    }
    found.update(changes)  # type: ignore[typeddict-item]
    return found


def compressed(room: int = END - START, *, kept: int | None = None) -> tuple[BundleRecord, bytes]:
    plain = join_bundle(entries(), OBJECTS.__getitem__)
    stored = pack_ccob(plain, 3, 0, zlib.compress(plain, 9))
    digest = hashlib.sha256(stored).hexdigest()
    return bundle(
        room=room,
        decoded_size=len(plain),
        ccob={"version": 3, "method": 0, "size": len(stored), "sha256": digest, "kept": kept},
    ), stored


def original(stored: bytes | memoryview) -> bytes:
    fat = bytearray(b"head" * 1024 + bytes(END - START) + b"tail" * 100)
    fat[START : START + len(stored)] = stored
    return bytes(fat)


def record(fat: bytes, *bundles: BundleRecord) -> ConversionRecord:
    return {
        "format": 1,
        "size": len(fat),
        "sha256": hashlib.sha256(fat).hexdigest(),
        "host_size": START + 400,
        "moved": [
            {"host": 0, "original": 0, "length": START},
            {"host": START, "original": END, "length": 400},
        ],
        "patches": [{"offset": 4, "data": b"head".hex()}],
        "bundles": list(bundles),
        "warnings": [],
    }


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The converted binary of `original`: without device code, and four bytes changed."""
    path = tmp_path / "host.so"
    path.write_bytes(b"headHEAD" + b"head" * 1022 + b"tail" * 100)
    path.chmod(0o640)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_original_comes_back(host: Path, tmp_path: Path) -> None:
    fat = original(join_bundle(entries(), OBJECTS.__getitem__))
    output = tmp_path / "fat.so"
    assert FatWriter(record(fat, bundle()), OBJECTS.__getitem__).write(host, output)
    assert output.read_bytes() == fat
    assert output.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["fat.so", "host.so"]


def test_views_and_strings_will_do(host: Path, tmp_path: Path) -> None:
    fat = original(join_bundle(entries(), OBJECTS.__getitem__))
    views = {number: memoryview(data) for number, data in OBJECTS.items()}
    assert FatWriter(record(fat, bundle()), views.__getitem__).write(str(host), str(tmp_path / "fat.so"))


def test_holes_stay_holes(host: Path, tmp_path: Path) -> None:
    chosen = FatWriter(
        record(original(b""), bundle()), OBJECTS.__getitem__, keep=lambda name: "gfx90a" in name
    )
    output = tmp_path / "fat.so"
    assert not chosen.write(host, output)
    assert output.stat().st_size == len(original(b""))
    assert output.stat().st_blocks * 512 < output.stat().st_size


def _entries_of(plain: bytes) -> dict[str, bytes]:
    (count,) = struct.unpack_from("<Q", plain, 24)
    position, found = 32, {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", plain, position)
        name = plain[position + 24 : position + 24 + length].decode()
        assert offset % 4096 == 0
        found[name] = plain[offset : offset + size]
        position += 24 + length
    return found


@pytest.mark.parametrize("chosen", [(), (0,), (2,), (0, 2), (0, 1, 2)])
def test_choice_of_targets(host: Path, tmp_path: Path, chosen: tuple[int, ...]) -> None:
    wanted = {IDS[number]: OBJECTS[number] for number in chosen}
    writer = FatWriter(record(original(b""), bundle()), OBJECTS.__getitem__, keep=wanted.__contains__)
    output = tmp_path / "fat.so"
    assert not writer.write(host, output)
    data = output.read_bytes()
    assert _entries_of(data[START:END]) == {HOST: b"", **wanted}
    assert (data[:START], data[END:]) == (original(b"")[:START], original(b"")[END:])


def test_objects_that_were_not_kept(host: Path, tmp_path: Path) -> None:
    partial = entries()
    partial[1]["object"] = None
    fat = original(join_bundle(entries(), OBJECTS.__getitem__))
    writer = FatWriter(record(fat, bundle(entries=partial)), OBJECTS.__getitem__)
    with pytest.raises(RestoreError):
        writer.write(host, tmp_path / "fat.so")
    assert names(tmp_path) == ["host.so"]
    some = FatWriter(record(fat, bundle(entries=partial)), OBJECTS.__getitem__, keep=lambda _: True)
    some.write(host, tmp_path / "fat.so")
    assert IDS[0] not in _entries_of((tmp_path / "fat.so").read_bytes()[START:END])


def test_compressed_bundle_comes_back(host: Path, tmp_path: Path) -> None:
    found, stored = compressed()
    fat = original(stored)
    assert FatWriter(record(fat, found), OBJECTS.__getitem__).write(host, tmp_path / "fat.so")
    assert (tmp_path / "fat.so").read_bytes() == fat


def test_kept_bytes_come_back(host: Path, tmp_path: Path) -> None:
    found, stored = compressed(kept=9)
    fat = original(stored)
    kept = {9: stored}
    assert FatWriter(record(fat, found), kept.__getitem__).write(host, tmp_path / "fat.so")
    assert (tmp_path / "fat.so").read_bytes() == fat


def test_other_compression_is_not_the_original(host: Path, tmp_path: Path) -> None:
    found, stored = compressed()

    def encode(plain: memoryview, ccob: object, room: int) -> bytes:
        assert room == END - START
        assert ccob == found["ccob"]
        return pack_ccob(plain, 3, 0, zlib.compress(plain, 1))

    writer = FatWriter(record(original(stored), found), OBJECTS.__getitem__, encode=encode)
    assert not writer.write(host, tmp_path / "fat.so")
    data = (tmp_path / "fat.so").read_bytes()
    (total,) = struct.unpack_from("<Q", data, START + 8)
    plain = zlib.decompress(data[START + 32 : START + total])
    assert plain == join_bundle(entries(), OBJECTS.__getitem__)


def test_large_bundles_are_put_together_in_an_unlinked_file(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = join_bundle(entries(), OBJECTS.__getitem__, 1 << 16)
    assert isinstance(expected.obj, bytearray)
    monkeypatch.setattr(_restore, "_MEMORY_LIMIT", len(expected) - 1)
    found = join_bundle(entries(), OBJECTS.__getitem__, 1 << 16)
    assert isinstance(found.obj, mmap.mmap)
    assert found == expected
    assert len(found) == 1 << 16
    assert found.readonly


def test_choice_of_a_compressed_bundle_is_plain_where_it_fits(host: Path, tmp_path: Path) -> None:
    found, _ = compressed(room=8192)
    rest = bundle(offset=START + 8192, room=END - START - 8192, entries=[])
    writer = FatWriter(record(original(b""), found, rest), OBJECTS.__getitem__, keep=IDS[0].__eq__)
    assert not writer.write(host, tmp_path / "fat.so")
    assert _entries_of((tmp_path / "fat.so").read_bytes()[START:END]) == {HOST: b"", IDS[0]: OBJECTS[0]}


def test_choice_of_a_compressed_bundle_is_compressed_where_it_has_to_be(host: Path, tmp_path: Path) -> None:
    found, _ = compressed(room=4096)
    rest = bundle(offset=START + 4096, room=END - START - 4096, entries=[])
    writer = FatWriter(record(original(b""), found, rest), OBJECTS.__getitem__, keep=IDS[2].__eq__)
    assert not writer.write(host, tmp_path / "fat.so")
    data = (tmp_path / "fat.so").read_bytes()
    magic, version, method, total, size, digest = struct.unpack_from("<4sHHQQQ", data, START)
    assert (magic, version, method) == (b"CCOB", 3, 0)
    plain = zlib.decompress(data[START + 32 : START + total])
    assert len(plain) == size
    assert digest == int.from_bytes(hashlib.md5(plain, usedforsecurity=False).digest()[:8], "little")
    assert _entries_of(plain) == {HOST: b"", IDS[2]: OBJECTS[2]}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_all_versions(version: int) -> None:
    size = {1: 20, 2: 24, 3: 32}[version]
    packed = pack_ccob(b"plain", version, 1, b"payload")
    assert packed[size:] == b"payload"
    assert packed[:8] == struct.pack("<4sHH", b"CCOB", version, 1)
    if version > 1:
        assert struct.unpack_from("<I", packed, 8)[0] == len(packed)


def test_bundles_that_do_not_fit(host: Path, tmp_path: Path) -> None:
    small = compressed(room=16)[0]
    for found in (bundle(room=8192), small):
        with pytest.raises(RestoreError):
            FatWriter(record(original(b""), found), OBJECTS.__getitem__).write(host, tmp_path / "fat.so")
    nothing = FatWriter(record(original(b""), small), OBJECTS.__getitem__, encode=lambda *_: None)
    with pytest.raises(RestoreError):
        nothing.write(host, tmp_path / "fat.so")
    assert names(tmp_path) == ["host.so"]


def test_changed_host(host: Path, tmp_path: Path) -> None:
    fat = original(join_bundle(entries(), OBJECTS.__getitem__))
    data = host.read_bytes()
    for changed in (data + b"\0", data[:-1], b"HEAD" + data[4:]):
        host.write_bytes(changed)
        with pytest.raises(RestoreError):
            FatWriter(record(fat, bundle()), OBJECTS.__getitem__).write(host, tmp_path / "fat.so")
    assert names(tmp_path) == ["host.so"]


def test_pieces_behind_the_end_of_the_host(host: Path, tmp_path: Path) -> None:
    wrong = record(original(b""), bundle())
    wrong["moved"][1]["length"] = 500
    with pytest.raises(RestoreError):
        FatWriter(wrong, OBJECTS.__getitem__).write(host, tmp_path / "fat.so")


@pytest.mark.parametrize(
    "change",
    [
        {"size": 1 << 40},
        {"moved": [{"host": -1, "original": 0, "length": 8}]},
        {"moved": [{"host": 0, "original": 1 << 30, "length": 8}]},
        {"patches": [{"offset": -4, "data": "00"}]},
        {"patches": [{"offset": 1 << 30, "data": "00"}]},
        {"bundles": [bundle(room=1 << 30)]},
        {"bundles": [bundle(entries=[{**entries()[1], "offset": 1 << 30}])]},
        {"bundles": [bundle(entries=[{**entries()[1], "offset": -1}])]},
    ],
)
def test_records_that_lead_out_of_their_files(change: dict[str, object], host: Path, tmp_path: Path) -> None:
    wrong = {**record(original(b""), bundle()), **change}
    with pytest.raises(RestoreError):
        FatWriter(wrong, OBJECTS.__getitem__).write(host, tmp_path / "fat.so")  # type: ignore[arg-type]
    assert names(tmp_path) == ["host.so"]


def test_wrong_objects(host: Path, tmp_path: Path) -> None:
    wrong = {**OBJECTS, 1: b"short"}
    with pytest.raises(RestoreError):
        FatWriter(record(original(b""), bundle()), wrong.__getitem__).write(host, tmp_path / "fat.so")
    assert names(tmp_path) == ["host.so"]


def test_unknown_record() -> None:
    unknown = record(b"")
    unknown["format"] = 2
    with pytest.raises(RestoreError):
        FatWriter(unknown, OBJECTS.__getitem__)


def test_errors_of_the_source_of_objects_leave_nothing(host: Path, tmp_path: Path) -> None:
    nothing: dict[int, bytes] = {}
    with pytest.raises(KeyError):
        FatWriter(record(original(b""), bundle()), nothing.__getitem__).write(host, tmp_path / "fat.so")
    assert names(tmp_path) == ["host.so"]


def test_header_is_what_clang_writes() -> None:
    header = pack_bundle_header(entries()[:1])
    assert header == b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 4096, 0, len(HOST)) + HOST.encode()


def test_stands_alone_in_old_pythons() -> None:
    source = Path(_restore.__file__).read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (node.names if isinstance(node, ast.Import) else [ast.alias(name=node.module or "")])
    }
    assert imported <= {*sys.stdlib_module_names}


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_runs_in_old_pythons(version: str, host: Path, tmp_path: Path) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"missing: Python {version} (pyenv install {version})")
    fat = original(join_bundle(entries(), OBJECTS.__getitem__))
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import _restore\n"
        f"objects = {OBJECTS!r}\n"
        f"print(_restore.FatWriter({record(fat, bundle())!r}, objects.__getitem__).write(*sys.argv[2:]))"
    )
    command = [str(found[0]), "-c", script, str(Path(_restore.__file__).parent)]
    command += [str(host), str(tmp_path / "fat.so")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("True\n", "")
    assert (tmp_path / "fat.so").read_bytes() == fat
