"""Make a fat (HIPF) binary from a converted (HIPK) one, its restore record, and the code objects.

This is the whole of the way back, for the tool and for the import-time loader, which is why it stands
alone: standard library only, Python 3.8 syntax, imports nothing of the project. Because a conversion
changes no address, the way back is short: the kept bytes go to where they were, the overwritten ones get
their old values, and bundles are written where the wrappers point. With all entries the result is the
original, bit for bit; with a choice of entries each bundle is a smaller one in the same place. Files are
written beside their destination and renamed. What the record holds is described by `ConversionRecord`;
`kpack_build.elf` makes it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
import tempfile
import zlib
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    Buffer = bytes | bytearray | memoryview
    Fetch = Callable[[int], Buffer]

__all__ = [
    "BUNDLE_MAGIC",
    "ENTRY_ALIGNMENT",
    "RECORD_FORMAT",
    "BundleRecord",
    "CcobRecord",
    "ConversionRecord",
    "EntryRecord",
    "FatWriter",
    "Patch",
    "Piece",
    "RestoreError",
    "join_bundle",
    "pack_bundle_header",
    "pack_ccob",
]

RECORD_FORMAT = 1
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
ENTRY_ALIGNMENT = 4096

_CHUNK = 1 << 20
_CCOB_HEADERS = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}
_CCOB_ZLIB = 0
#: Uncompressed bundles above this many bytes are put together in an unlinked file, not in memory.
_MEMORY_LIMIT = 256 << 20


class RestoreError(Exception):
    """The fat binary cannot be made; nothing was written."""


class Piece(TypedDict):
    """Bytes that moved: offsets in the converted and in the original file, and their length."""

    host: int
    original: int
    length: int


class Patch(TypedDict):
    """Original bytes of a place that the conversion wrote over, in hexadecimal, and its original offset."""

    offset: int
    data: str


class EntryRecord(TypedDict):
    """An entry of a bundle: its id, its place in the decoded bundle, and the number of its code object.

    The number is None for an empty entry, and for a code object that was not kept.
    """

    id: str
    offset: int
    size: int
    object: int | None


class CcobRecord(TypedDict):
    """How a compressed bundle was encoded, and the size and digest of its stored bytes.

    `kept` is the number under which the stored bytes themselves can be fetched, or None.
    """

    version: int
    method: int
    size: int
    sha256: str
    kept: int | None


class BundleRecord(TypedDict):
    """A bundle: its original file offset, the bytes up to the next one, its decoded size, what is in it."""

    offset: int
    room: int
    decoded_size: int
    entries: list[EntryRecord]
    ccob: CcobRecord | None


class ConversionRecord(TypedDict):
    """All that the way back needs beside the converted file and the code objects.

    `warnings` says what the conversion had to give up.
    """

    format: int
    size: int
    sha256: str
    host_size: int
    moved: list[Piece]
    patches: list[Patch]
    bundles: list[BundleRecord]
    warnings: list[str]


def pack_bundle_header(entries: list[EntryRecord]) -> bytes:
    """Return the table at the start of an uncompressed bundle (LLVM, clang-offload-bundler)."""
    parts = [BUNDLE_MAGIC, struct.pack("<Q", len(entries))]
    for entry in entries:
        name = entry["id"].encode()
        parts.append(struct.pack("<QQQ", entry["offset"], entry["size"], len(name)) + name)
    return b"".join(parts)


def join_bundle(entries: list[EntryRecord], fetch: Fetch, size: int = 0) -> memoryview:
    """Return a whole uncompressed bundle: in memory, or as a map of an unlinked file where it is large.

    Args:
        entries: What it has, with places.
        fetch: Returns a code object by its number.
        size: The least size of the bundle in bytes; zeros are added up to it.
    """
    bundle = _zeros(max(size, _extent(entries)))
    header = pack_bundle_header(entries)
    bundle[: len(header)] = header
    for entry in entries:
        if entry["size"]:
            bundle[entry["offset"] : entry["offset"] + entry["size"]] = _fetched(entry, fetch)
    return bundle.toreadonly()


def _zeros(size: int) -> memoryview:
    if size <= _MEMORY_LIMIT:
        return memoryview(bytearray(size))
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return memoryview(mmap.mmap(file.fileno(), size))


def pack_ccob(plain: Buffer, version: int, method: int, payload: bytes) -> bytes:
    """Return a compressed bundle: its header, whose hash is the first half of an MD5, and the payload."""
    layout = _CCOB_HEADERS[version]
    digest = struct.unpack("<Q", hashlib.md5(plain).digest()[:8])[0]  # noqa: S324 - the format asks for it
    total = 8 + struct.calcsize(layout) + len(payload)
    fields = (len(plain), digest) if version == 1 else (total, len(plain), digest)
    return struct.pack("<4sHH", b"CCOB", version, method) + struct.pack(layout, *fields) + payload


def _fetched(entry: EntryRecord, fetch: Fetch) -> Buffer:
    if entry["object"] is None:
        raise RestoreError(f"the code object of {entry['id']} was not kept")
    data = fetch(entry["object"])
    if len(data) != entry["size"]:
        raise RestoreError(f"the code object of {entry['id']} has {len(data)} bytes, not {entry['size']}")
    return data


if TYPE_CHECKING:
    Encode = Callable[[memoryview, CcobRecord, int], "bytes | None"]


class FatWriter:
    """Writes fat binaries from one record.

    Args:
        record: The restore record.
        fetch: Returns a code object by its number.
        keep: Tells by an entry's id whether it is wanted; None makes the original again.
        encode: Compresses an uncompressed bundle: gets its bytes, what the original was, and the
            largest size; returns None where that cannot be met. Without it zlib is tried.
    """

    def __init__(
        self,
        record: ConversionRecord,
        fetch: Fetch,
        keep: Callable[[str], bool] | None = None,
        encode: Encode | None = None,
    ) -> None:
        if record["format"] != RECORD_FORMAT:
            raise RestoreError(f"the restore record has the unknown format {record['format']}")
        self._record = record
        self._fetch = fetch
        self._keep = keep
        self._encode = encode

    def write(self, host: str | os.PathLike[str], destination: str | os.PathLike[str]) -> bool:
        """Write the fat binary.

        Args:
            host: The converted binary, as the record describes it.
            destination: Where the fat one goes; it has the mode bits of the converted one.

        Returns:
            Whether the result is the original, bit for bit. It is not with a choice of entries, or where a
            bundle could not be compressed as it was.

        Raises:
            RestoreError: The converted binary or a code object is not what the record says, or a bundle
                does not fit into its place.
            OSError: A file cannot be read or written.
        """
        target = os.fspath(destination)
        handle, private = tempfile.mkstemp(prefix=".kpack-", dir=os.path.dirname(os.path.abspath(target)))
        try:
            with open(handle, "w+b") as output, open(host, "rb") as source:
                exact = self._fill(source, output)
                os.fchmod(output.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode))
                output.flush()
                os.fsync(output.fileno())
            os.replace(private, target)
        except BaseException:
            os.unlink(private)
            raise
        return exact

    def _fill(self, source: BinaryIO, output: BinaryIO) -> bool:
        size = os.fstat(source.fileno()).st_size
        if size != self._record["host_size"]:
            raise RestoreError(
                f"the converted binary was changed: it has {size} bytes, not {self._record['host_size']}"
            )
        _check_places(self._record)
        output.truncate(self._record["size"])
        for piece in self._record["moved"]:
            _copy(source, output, piece)
        for patch in self._record["patches"]:
            output.seek(patch["offset"])
            output.write(bytes.fromhex(patch["data"]))
        originals = [self._write_bundle(bundle, output) for bundle in self._record["bundles"]]
        exact = all(originals)
        output.flush()
        if exact and _sha256(output) != self._record["sha256"]:
            raise RestoreError("the result is not the original: the converted binary was changed")
        return exact

    def _write_bundle(self, bundle: BundleRecord, output: BinaryIO) -> bool:
        """Write a bundle; tells whether it is the original one."""
        entries = self._chosen(bundle)
        ccob = bundle["ccob"]
        if ccob is None or (self._keep is not None and _extent(entries) <= bundle["room"]):
            self._write_plain(bundle, entries, output)
            return self._keep is None
        encoded = self._encoded(bundle, ccob, entries)
        if encoded is None or len(encoded) > bundle["room"]:
            raise RestoreError(f"the bundle at {bundle['offset']:#x} does not fit into its place")
        output.seek(bundle["offset"])
        output.write(encoded)
        return hashlib.sha256(encoded).hexdigest() == ccob["sha256"]

    def _write_plain(self, bundle: BundleRecord, entries: list[EntryRecord], output: BinaryIO) -> None:
        if _extent(entries) > bundle["room"]:
            raise RestoreError(f"the bundle at {bundle['offset']:#x} does not fit into its place")
        output.seek(bundle["offset"])
        output.write(pack_bundle_header(entries))
        for entry in entries:
            if entry["size"]:
                output.seek(bundle["offset"] + entry["offset"])
                output.write(_fetched(entry, self._fetch))

    def _encoded(self, bundle: BundleRecord, ccob: CcobRecord, entries: list[EntryRecord]) -> Buffer | None:
        """Return a bundle in compressed form: as it was kept, or compressed again."""
        if self._keep is None and ccob["kept"] is not None:
            return self._fetch(ccob["kept"])
        size = bundle["decoded_size"] if self._keep is None else 0
        plain = join_bundle(entries, self._fetch, size)
        if self._encode is not None:
            return self._encode(plain, ccob, bundle["room"])
        return pack_ccob(plain, ccob["version"], _CCOB_ZLIB, zlib.compress(plain, 9))

    def _chosen(self, bundle: BundleRecord) -> list[EntryRecord]:
        """Return the wanted entries; if some are left out, laid out anew."""
        if self._keep is None:
            return bundle["entries"]
        keep = self._keep
        chosen = [
            entry
            for entry in bundle["entries"]
            if not entry["size"] or (entry["object"] is not None and keep(entry["id"]))
        ]
        position = len(pack_bundle_header(chosen))
        moved: list[EntryRecord] = []
        for entry in chosen:
            position = -(-position // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT
            moved.append(
                {"id": entry["id"], "offset": position, "size": entry["size"], "object": entry["object"]}
            )
            position += entry["size"]
        return moved


def _check_places(record: ConversionRecord) -> None:
    """Refuse a record that leads out of its files, or to a size that the device code cannot account for."""
    size, host_size = record["size"], record["host_size"]
    end = max([0] + [bundle["offset"] + bundle["room"] for bundle in record["bundles"]])
    places = [(0, end, size), (0, size, host_size + end)]
    for piece in record["moved"]:
        places.append((piece["host"], piece["length"], host_size - piece["host"]))
        places.append((piece["original"], piece["length"], size - piece["original"]))
    places += [
        (patch["offset"], len(patch["data"]) // 2, size - patch["offset"]) for patch in record["patches"]
    ]
    for bundle in record["bundles"]:
        room = bundle["room"] if bundle["ccob"] is None else bundle["decoded_size"]
        places.append((bundle["offset"], bundle["room"], size - bundle["offset"]))
        places += [
            (entry["offset"], entry["size"], room - entry["offset"])
            for entry in bundle["entries"]
            if entry["size"]
        ]
    if not all(start >= 0 and 0 <= length <= room for start, length, room in places):
        raise RestoreError("the restore record leads out of its files")


def _extent(entries: list[EntryRecord]) -> int:
    """Return the size of an uncompressed bundle in bytes."""
    return max(
        [
            len(pack_bundle_header(entries)),
            *(entry["offset"] + entry["size"] for entry in entries if entry["size"]),
        ]
    )


def _copy(source: BinaryIO, output: BinaryIO, piece: Piece) -> None:
    source.seek(piece["host"])
    output.seek(piece["original"])
    left = piece["length"]
    while left:
        data = source.read(min(left, _CHUNK))
        if not data:
            raise RestoreError("the converted binary is shorter than its record says")
        output.write(data)
        left -= len(data)


def _sha256(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    stream.seek(0)
    while True:
        data = stream.read(_CHUNK)
        if not data:
            return digest.hexdigest()
        digest.update(data)
