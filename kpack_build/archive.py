"""The .kpack archive: kernels of many binaries, for the targets of one family, in one file.

Names and meaning follow ROCm's Python reference (`PackedKernelArchive`), format version 1. Beyond it: with
`output_path` kernels go to disk as they come, and the file appears under its name only when it is complete;
equal kernels are stored once; kernels of the scheme "none" are aligned, and returned as views of a map.

Equal kernels, added in equal order, give equal bytes. An archive that is read holds no open file and no
position: `get_kernel` may be called from many threads, and after a fork, and reads only what it returns.

What a compressed kernel looks like is in `kpack_build.compression`, the table of contents in
`kpack_build.archive_toc`. Which targets must be listed so that ROCm's runtime finds every kernel is not
decided here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from kpack_build.archive_toc import BLOB_OFFSET, FORMAT_VERSION, HEADER_SIZE, MAGIC, map_file, parse_toc
from kpack_build.archive_writer import ArchiveWriter, PreparedKernel, replacing
from kpack_build.compression import (
    COMPRESSION_SCHEMES,
    MappedCompressor,
    NoOpCompressor,
    StreamingCompressor,
    scheme_of_toc,
)
from kpack_build.errors import (
    ArchiveLimitError,
    ArchiveStateError,
    ConfigError,
    DuplicateKernelError,
    MissingKernelError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from kpack_build.archive_toc import JsonValue, Toc, TocEntry
    from kpack_build.compression import Buffer, Compressor
    from kpack_build.errors import PathLike

__all__ = ["KernelLocation", "PackedKernelArchive", "PreparedKernel"]

_SUFFIX: Final = ".kpack"
_OWN_SUFFIX: Final = ".kpkb"
_IN_MEMORY: Final = Path("<memory>")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLocation:
    """Where a kernel is stored.

    Attributes:
        ordinal: Its number in the archive; entries that share a kernel share it.
        offset: File offset in bytes of what is stored: for zstd-per-kernel the frame itself.
        stored_size: Size in bytes of that.
        original_size: Size in bytes of the kernel.
    """

    ordinal: int
    offset: int
    stored_size: int
    original_size: int


class _State(Enum):
    WRITING = "being written"
    FINAL = "final"
    CLOSED = "closed"


class PackedKernelArchive:
    """An archive of kernels: new ones are written, and `read` opens existing ones.

    As a context manager, a new archive is finalized at a clean end of the block and thrown away if the block
    raises; either way it is closed.
    """

    MAGIC: ClassVar[bytes] = MAGIC
    FORMAT_VERSION: ClassVar[int] = FORMAT_VERSION
    HEADER_SIZE: ClassVar[int] = HEADER_SIZE
    BLOB_ALIGNMENT: ClassVar[int] = BLOB_OFFSET

    def __init__(
        self,
        group_name: str,
        gfx_arch_family: str,
        gfx_arches: Sequence[str],
        output_path: PathLike | None = None,
        compressor: Compressor | None = None,
    ) -> None:
        """Begin a new archive.

        Args:
            group_name: Name of the group of archives that it belongs to.
            gfx_arch_family: Name of the family that it serves.
            gfx_arches: The target ids that it lists; ROCm's reader finds kernels of no others.
            output_path: Where to write it as kernels come; parent directories are made. Without it the
                archive is held in memory until `write`.
            compressor: The scheme; None is "none".

        Raises:
            ArchiveStateError: The file's name is one for ROCm's runtime, which does not read the scheme.
            OSError: The output's directory cannot be written to.
        """
        self.group_name = group_name
        self.gfx_arch_family = gfx_arch_family
        self.gfx_arches = list(gfx_arches)
        self.toc: dict[str, dict[str, TocEntry]] = {}
        self._compressor: Compressor = NoOpCompressor() if compressor is None else compressor
        self._path = None if output_path is None else Path(output_path)
        # Asked once: to hold an object against a protocol takes as long as to compress a small kernel.
        self._streams = isinstance(self._compressor, StreamingCompressor)
        self._state = _State.WRITING
        self._image: memoryview | None = None
        self._writer: ArchiveWriter | None = None
        if self._path is not None:
            self._check_suffix(self._path)
            self._writer = ArchiveWriter(self._compressor, self._path)

    @staticmethod
    def read(path: PathLike) -> PackedKernelArchive:
        """Open an archive for reading.

        Raises:
            FormatError: The file is no archive, is damaged, or has a scheme that is not known.
            OSError: It cannot be opened.
        """
        return PackedKernelArchive._read(Path(path))

    @classmethod
    def _read(cls, path: Path) -> PackedKernelArchive:
        image = map_file(path)
        toc, toc_offset = parse_toc(image, path)
        compressor = _open_mapped(toc, image, path, toc_offset) or scheme_of_toc(toc, path).from_toc(
            toc, path
        )
        archive = cls(toc["group_name"], toc["gfx_arch_family"], toc["gfx_arches"], compressor=compressor)
        archive.toc = toc["toc"]
        archive._path = path
        archive._image = image
        archive._state = _State.FINAL
        return archive

    @staticmethod
    def compute_pack_filename(group_name: str, gfx_arch_family: str, *, scheme: str = "none") -> str:
        """Return the file name of an archive.

        Args:
            group_name: Name of the group.
            gfx_arch_family: Name of the family: without features, because ":" ends an entry of ROCm's search
                path and is no part of a file name on other systems, and "+" is none of a distribution's name.
            scheme: The compression scheme; one that ROCm does not read has another extension.

        Raises:
            ConfigError: A name cannot be part of a file name, or there is no such scheme.
        """
        for key, name in (("group", group_name), ("family", gfx_arch_family)):
            if not name or name.startswith(".") or any(c in ":+/\\\0" for c in name):
                raise ConfigError(
                    key, f"{name!r} cannot be part of an archive's name", allowed="gfx90a, my_group"
                )
        try:
            suffix = _SUFFIX if COMPRESSION_SCHEMES[scheme].READ_BY_ROCM else _OWN_SUFFIX
        except KeyError as error:
            raise ConfigError("scheme", f"{scheme!r} is not known", allowed="a registered scheme") from error
        return f"{group_name}-{gfx_arch_family}{suffix}"

    @property
    def compression_scheme(self) -> str:
        """Name of the archive's scheme."""
        return self._compressor.SCHEME_NAME

    def prepare_kernel(
        self,
        relative_path: str,
        gfx_arch: str,
        hsaco_data: Buffer,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> PreparedKernel:
        """Compress a kernel; may be called from many threads at once.

        The result may be added to any archive of the same scheme.

        Args:
            relative_path: Key of the binary; backslashes become slashes.
            gfx_arch: Target id.
            hsaco_data: The code object. The scheme "none" keeps it, uncopied, until the kernel is added.
            metadata: What to store beside it, of MessagePack's types.

        Raises:
            ArchiveLimitError: It is larger than the format allows.
        """
        key = _normal(relative_path)
        view = memoryview(hsaco_data).cast("B")
        kept = view if self._streams else bytes(view)
        kernel_id = f"{key}@{gfx_arch}"
        return PreparedKernel(
            relative_path=key,
            gfx_arch=gfx_arch,
            compression_input=self._compressor.prepare_kernel(kept, kernel_id),
            kernel_id=kernel_id,
            original_size=len(view),
            metadata=metadata,
            digest=hashlib.sha256(view).hexdigest(),
        )

    def add_kernel(self, prepared: PreparedKernel) -> int:
        """Add a kernel, from one thread at a time; an equal one that is stored already is not stored again.

        Returns:
            The ordinal of the stored kernel.

        Raises:
            DuplicateKernelError: The archive has this binary and target already.
            ArchiveLimitError: The archive would be larger than the format allows; it stays as it was.
            ArchiveStateError: The archive is finalized or closed.
            OSError: It cannot be written; the archive is thrown away.
        """
        writer = self._require_writer("add_kernel")
        key = _normal(prepared.relative_path)
        self._require_new(key, prepared.gfx_arch)
        try:
            ordinal = writer.store(prepared)
        except ArchiveLimitError:
            # Limits are checked before anything is written.
            raise
        except BaseException:
            self.close()
            raise
        self.add_alias(key, prepared.gfx_arch, ordinal=ordinal, metadata=prepared.metadata)
        return ordinal

    def add_alias(
        self,
        relative_path: str,
        gfx_arch: str,
        *,
        ordinal: int,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """Add another entry for a kernel that is stored already.

        Args:
            relative_path: Key of the binary; backslashes become slashes.
            gfx_arch: Target id.
            ordinal: What `add_kernel` returned for the kernel.
            metadata: What to store beside it, of MessagePack's types.

        Raises:
            DuplicateKernelError: The archive has this binary and target already.
            OrdinalError: No kernel of that number is stored.
            ArchiveStateError: The archive is finalized or closed.
        """
        size = self._require_writer("add_alias").size_of(ordinal)
        key = _normal(relative_path)
        self._require_new(key, gfx_arch)
        entry: TocEntry = {"type": "hsaco", "ordinal": ordinal, "original_size": size}
        if metadata:
            entry["metadata"] = dict(metadata)
        self.toc.setdefault(key, {})[gfx_arch] = entry

    def finalize_archive(self, *, sync: bool = True) -> None:
        """Complete the archive; with an output path the file appears there.

        The finished file is read back and validated before that.

        Args:
            sync: Whether to wait for the disk. A file that is soon copied elsewhere need not.

        Raises:
            ArchiveLimitError: The table of contents is larger than the format allows.
            ArchiveStateError: The archive is finalized or closed.
            OSError: It cannot be written. After any exception nothing of the archive is left.
        """
        writer = self._require_writer("finalize_archive")
        new: Toc = {
            "format_version": FORMAT_VERSION,
            "group_name": self.group_name,
            "gfx_arch_family": self.gfx_arch_family,
            "gfx_arches": self.gfx_arches,
            "toc": self.toc,
            "compression_scheme": self.compression_scheme,
        }
        self._state = _State.CLOSED
        with writer.finish(new, sync=sync) as image:
            toc, toc_offset = parse_toc(image, self._name)
            # The map stays when the file gets its name.
            reader: Compressor | None = _open_mapped(toc, image, self._name, toc_offset)
        if reader is None and self._path is not None:
            reader = self._compressor.from_toc(toc, self._path)
        if reader is not None:
            # Else the scheme reads files and there is none: the compressor still has what it finalized.
            self._compressor = reader
        self._image, self._writer, self._state = image, None, _State.FINAL

    def write(self, path: PathLike) -> None:
        """Write a finalized archive, or one that was read, to a file; parent directories are made.

        Raises:
            ArchiveStateError: It is not finalized, or is closed, or the file's name is one for ROCm's
                runtime, which does not read the scheme.
            OSError: It cannot be written; nothing is left at `path` then.
        """
        self._require(_State.FINAL, "write")
        self._check_suffix(Path(path))
        assert self._image is not None  # noqa: S101 - a final archive has one
        with replacing(Path(path)) as file:
            file.write(self._image)

    def get_kernel(self, relative_path: str, gfx_arch: str) -> bytes | memoryview | None:
        """Return a kernel, or None where the archive does not list it; may be called from many threads.

        Args:
            relative_path: Key of the binary; backslashes become slashes.
            gfx_arch: Target id, exactly as it is listed.

        Returns:
            The kernel's bytes: for "none" a view of the mapped file, which stays valid after `close`.

        Raises:
            ArchiveStateError: The archive is not finalized, or is closed.
            FormatError: The archive is damaged.
        """
        self._require(_State.FINAL, "get_kernel")
        entry = self.toc.get(_normal(relative_path), {}).get(gfx_arch)
        return None if entry is None else self._compressor.decompress_kernel(entry["ordinal"])

    def location(self, relative_path: str, gfx_arch: str) -> KernelLocation:
        """Return where a kernel is stored in the file.

        Raises:
            MissingKernelError: The archive does not list it.
            ArchiveStateError: The archive is not finalized, or is closed, or its scheme cannot tell.
            FormatError: The archive is damaged.
        """
        self._require(_State.FINAL, "location")
        entry = self.toc.get(_normal(relative_path), {}).get(gfx_arch)
        if entry is None:
            raise MissingKernelError(self._name, relative_path, gfx_arch)
        return self._locate(entry)

    def entries(self) -> Iterator[tuple[str, str, KernelLocation]]:
        """Yield each (binary, target id, location) in the order of the table of contents.

        Raises:
            ArchiveStateError: The archive is not finalized, or is closed, or its scheme cannot tell.
            FormatError: The archive is damaged.
        """
        self._require(_State.FINAL, "entries")
        for relative_path, arches in self.toc.items():
            for gfx_arch, entry in arches.items():
                yield relative_path, gfx_arch, self._locate(entry)

    def close(self) -> None:
        """Let go of the file; an archive that is not finalized is thrown away. Twice does nothing."""
        if self._writer is not None:
            self._writer.discard()
        if self._state is _State.FINAL:
            self._compressor.close()
        self._image = self._writer = None
        self._state = _State.CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._state is _State.WRITING:
                self.finalize_archive()
        finally:
            self.close()

    def __repr__(self) -> str:
        entries = sum(len(arches) for arches in self.toc.values())
        return (
            f"<{type(self).__name__} {self.group_name!r} for {self.gfx_arch_family}"
            f" ({', '.join(self.gfx_arches)}), {entries} kernels of {len(self.toc)} binaries,"
            f" {self.compression_scheme}, {self._state.value}, {self._name}>"
        )

    @property
    def _name(self) -> Path:
        return self._path or _IN_MEMORY

    def _locate(self, entry: TocEntry) -> KernelLocation:
        ordinal = entry["ordinal"]
        span = self._compressor.locate(ordinal)
        size = entry.get("original_size")
        return KernelLocation(
            ordinal=ordinal,
            offset=span.offset,
            stored_size=span.size,
            original_size=self._compressor.kernel_size(ordinal) if size is None else size,
        )

    def _require(self, state: _State, call: str) -> None:
        if self._state is not state:
            raise ArchiveStateError(
                f"{self._name} is {self._state.value}: {call} needs an archive that is {state.value}"
            )

    def _require_writer(self, call: str) -> ArchiveWriter:
        self._require(_State.WRITING, call)
        if self._writer is None:
            self._writer = ArchiveWriter(self._compressor, None)
        return self._writer

    def _require_new(self, key: str, gfx_arch: str) -> None:
        if gfx_arch in self.toc.get(key, {}):
            raise DuplicateKernelError(key, gfx_arch)

    def _check_suffix(self, path: Path) -> None:
        if path.suffix == _SUFFIX and not self._compressor.READ_BY_ROCM:
            raise ArchiveStateError(
                f"{path}: ROCm does not read the scheme {self.compression_scheme}"
                f" (give the file another extension than {_SUFFIX}, as {_OWN_SUFFIX})"
            )


def _normal(relative_path: str) -> str:
    return relative_path.replace("\\", "/")


def _open_mapped(toc: Toc, image: memoryview, path: Path, toc_offset: int) -> MappedCompressor | None:
    """Return what reads kernels from a map of an archive, or None where the scheme opens the file itself."""
    scheme = scheme_of_toc(toc, path)
    return scheme.from_view(toc, image, path, toc_offset) if issubclass(scheme, MappedCompressor) else None
