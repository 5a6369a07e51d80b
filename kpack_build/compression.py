"""The compression schemes of .kpack archives by name: ROCm's two, and those that other packages add.

Other packages add schemes through the entry point group `kpack_build.compression`, whose names are scheme
names and whose objects are subclasses of `Compressor`. ROCm's runtime does not read those: see
`Compressor.READ_BY_ROCM`. Installed entry points are looked at only when a name is asked for that is not
built in.

All names of ROCm's Python reference that have to do with compression can be imported from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kpack_build.compressor import (
    BlobSpan,
    BlobStream,
    Buffer,
    CompressionInput,
    Compressor,
    StreamingCompressor,
)
from kpack_build.errors import ConfigError, FormatError
from kpack_build.mapped import MappedCompressor
from kpack_build.schemes import (
    NoOpCompressionInput,
    NoOpCompressor,
    ZstdCompressionInput,
    ZstdCompressor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpack_build.errors import PathLike

__all__ = [
    "COMPRESSION_SCHEMES",
    "BlobSpan",
    "BlobStream",
    "Buffer",
    "CompressionInput",
    "Compressor",
    "MappedCompressor",
    "NoOpCompressionInput",
    "NoOpCompressor",
    "StreamingCompressor",
    "ZstdCompressionInput",
    "ZstdCompressor",
    "create_compressor",
    "create_compressor_from_toc",
    "scheme_of_toc",
]

_ENTRY_POINT_GROUP: Final = "kpack_build.compression"


class _Schemes(dict[str, type[Compressor]]):
    """Schemes by name; asking for one that is not there looks it up among the installed entry points."""

    def __missing__(self, name: str) -> type[Compressor]:
        # Its import alone takes tens of milliseconds.
        from importlib.metadata import entry_points  # noqa: PLC0415

        for point in entry_points(group=_ENTRY_POINT_GROUP, name=name):
            found = point.load()
            if not (isinstance(found, type) and issubclass(found, Compressor)):
                raise ConfigError(
                    "scheme", f"{name!r} is registered as {found!r}", allowed="a Compressor class"
                )
            self[name] = found
            return found
        raise KeyError(name)


COMPRESSION_SCHEMES: Final[dict[str, type[Compressor]]] = _Schemes(
    {compressor.SCHEME_NAME: compressor for compressor in (NoOpCompressor, ZstdCompressor)}
)
"""Scheme names to compressor classes; indexing finds registered ones too."""


def create_compressor(scheme: str, *, level: int | None = None) -> Compressor:
    """Return a compressor that writes archives.

    Args:
        scheme: Name of a built-in or registered scheme.
        level: Level of schemes that have levels.

    Raises:
        ConfigError: The scheme or level does not exist.
    """
    try:
        found = COMPRESSION_SCHEMES[scheme]
    except KeyError as error:
        raise ConfigError(
            "scheme",
            f"{scheme!r} is not known",
            allowed=" | ".join(COMPRESSION_SCHEMES) + " | a registered one",
        ) from error
    return found.create(level=level)


def create_compressor_from_toc(toc: Mapping[str, object], file_path: PathLike) -> Compressor:
    """Return a compressor that reads an archive.

    Args:
        toc: The archive's table of contents; without `compression_scheme` it is "none".
        file_path: The archive.

    Raises:
        FormatError: The scheme is not known, or table and file do not fit together.
    """
    return scheme_of_toc(toc, Path(file_path)).from_toc(toc, file_path)


def scheme_of_toc(toc: Mapping[str, object], path: Path) -> type[Compressor]:
    """Return the class of the scheme that a table of contents names.

    Raises:
        FormatError: It is not known.
    """
    scheme = toc.get("compression_scheme", NoOpCompressor.SCHEME_NAME)
    try:
        return COMPRESSION_SCHEMES[scheme]  # type: ignore[index] # whatever it is, it is no key then
    except (KeyError, TypeError) as error:
        raise FormatError(
            path,
            "has a compression scheme that is not known",
            expected=" or ".join(COMPRESSION_SCHEMES),
            found=repr(scheme),
            remedy="install the package that registers it, or read it with a newer kpack-build",
        ) from error
