"""ROCm's own kpack reader, to hold our archives and converted binaries against.

It is `librocm_kpack` 0.1.0 from a published wheel of the corpus (`vapoursynth-bm3dhip`), called through
ctypes. The libraries of that wheel find each other by an RPATH of `$ORIGIN`, so loading one by its path is
enough. Nothing here starts a HIP runtime. The C interface:

    kpack_open(const char* path, void** archive)      kpack_close(void* archive)
    kpack_get_architecture_count(void*, size_t*)      kpack_get_architecture(void*, size_t, const char**)
    kpack_get_binary_count(void*, size_t*)            kpack_get_binary(void*, size_t, const char**)
    kpack_get_kernel(void*, const char* binary, const char* arch, void** data, size_t* size)
    kpack_free_kernel(void* data)
    kpack_cache_create(void** cache)                          kpack_cache_destroy(void* cache)
    kpack_load_code_object(void* cache, const void* metadata, const char* binary_path, uint32_t index,
                           const char* const* archs, size_t n_archs, void** data, size_t* size)
    kpack_free_code_object(void* data)
    kpack_discover_binary_path(const void* address, char* out, size_t out_size, size_t* offset)

All return 0 for success, else an error code, which is what the functions here return in place of bytes.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.corpus import corpus_tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["RocmError", "RocmKpackArchive", "RocmKpackCache", "discover_binary_path", "rocm_library"]

RUNTIME_WHEEL = "vapoursynth-bm3dhip"
PATH_ROOM = 4096

_SIGNATURES: dict[str, tuple[type[ctypes._SimpleCData[Any] | ctypes._Pointer[Any]], ...]] = {
    "kpack_open": (c_char_p, ctypes.POINTER(c_void_p)),
    "kpack_close": (c_void_p,),
    "kpack_get_architecture_count": (c_void_p, ctypes.POINTER(c_size_t)),
    "kpack_get_architecture": (c_void_p, c_size_t, ctypes.POINTER(c_char_p)),
    "kpack_get_binary_count": (c_void_p, ctypes.POINTER(c_size_t)),
    "kpack_get_binary": (c_void_p, c_size_t, ctypes.POINTER(c_char_p)),
    "kpack_get_kernel": (c_void_p, c_char_p, c_char_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t)),
    "kpack_free_kernel": (c_void_p,),
    "kpack_cache_create": (ctypes.POINTER(c_void_p),),
    "kpack_cache_destroy": (c_void_p,),
    "kpack_load_code_object": (
        *(c_void_p, c_void_p, c_char_p, c_uint32, ctypes.POINTER(c_char_p), c_size_t),
        *(ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t)),
    ),
    "kpack_free_code_object": (c_void_p,),
    "kpack_discover_binary_path": (c_void_p, c_char_p, c_size_t, ctypes.POINTER(c_size_t)),
}


class RocmError(Exception):
    """ROCm's library answered with an error where the test needs an answer.

    Attributes:
        function: The function that was called.
        code: Its return value.
    """

    def __init__(self, function: str, code: int) -> None:
        self.function = function
        self.code = code
        super().__init__(f"{function} returned {code}")


def rocm_library(stem: str) -> Path:
    """Return the library of ROCm whose file name starts with `stem` (as in "librocm_kpack") and a dash."""
    (path,) = (corpus_tree(RUNTIME_WHEEL) / "vapoursynth_bm3dhip.libs").glob(f"{stem}-*.so*")
    return path


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(rocm_library("librocm_kpack")))
    for name, arguments in _SIGNATURES.items():
        # An attribute is kept by the library object; an item would be a new, undeclared function each time.
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int
    return library


def _call(name: str, *arguments: object) -> None:
    code = getattr(_library(), name)(*arguments)
    if code:
        raise RocmError(name, code)


def _taken(data: c_void_p, size: c_size_t, free: str) -> bytes:
    """Copy what ROCm allocated and give it back."""
    copy = ctypes.string_at(data, size.value) if size.value else b""
    getattr(_library(), free)(data)
    return copy


class RocmKpackArchive:
    """An archive opened by ROCm's reader; a context manager."""

    def __init__(self, path: Path) -> None:
        """Open the archive at `path`.

        Raises:
            RocmError: ROCm refuses the archive.
        """
        self._handle = c_void_p()
        _call("kpack_open", str(path).encode(), byref(self._handle))

    @property
    def architectures(self) -> list[str]:
        """Targets that the archive lists, in its order."""
        return self._names("kpack_get_architecture")

    @property
    def binaries(self) -> list[str]:
        """Binaries that the archive lists, in its order."""
        return self._names("kpack_get_binary")

    def get_kernel(self, binary: str, arch: str) -> bytes | int:
        """Return the code object under `binary` and `arch`, or ROCm's error code."""
        data, size = c_void_p(), c_size_t()
        arguments = (self._handle, binary.encode(), arch.encode(), byref(data), byref(size))
        code = _library().kpack_get_kernel(*arguments)
        return int(code) if code else _taken(data, size, "kpack_free_kernel")

    def close(self) -> None:
        """Close the archive; a second time does nothing."""
        if self._handle.value:
            _library().kpack_close(self._handle)
            self._handle = c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _names(self, getter: str) -> list[str]:
        count = c_size_t()
        _call(f"{getter}_count", self._handle, byref(count))
        names = []
        for index in range(count.value):
            name = c_char_p()
            _call(getter, self._handle, index, byref(name))
            names.append((name.value or b"").decode())
        return names


class RocmKpackCache:
    """The archives that a HIP runtime keeps open; a context manager.

    `load_code_object` is the call that the HIP runtime makes when it needs a module's device code. The
    environment (`ROCM_KPACK_PATH`, `ROCM_KPACK_PATH_PREFIX`) is that of the process when the cache is made.
    """

    def __init__(self) -> None:
        self._handle = c_void_p()
        _call("kpack_cache_create", byref(self._handle))

    def load_code_object(
        self, metadata: bytes | int, binary_path: Path, index: int, archs: Sequence[str]
    ) -> bytes | int:
        """Return the code object that HIP would load, or ROCm's error code.

        Args:
            metadata: The MessagePack map, or its address in this process (the pointer of a loaded wrapper).
            binary_path: The binary that holds the map; relative search paths start at its directory.
            index: The number at offset 16 of the wrapper.
            archs: Candidate target ids, the best one first.
        """
        # A bytes object is passed by address and lives until the call returns.
        address = (
            c_void_p(metadata) if isinstance(metadata, int) else ctypes.cast(c_char_p(metadata), c_void_p)
        )
        candidates = (c_char_p * len(archs))(*(arch.encode() for arch in archs))
        data, size = c_void_p(), c_size_t()
        code = _library().kpack_load_code_object(
            *(self._handle, address, str(binary_path).encode(), index),
            *(candidates, len(archs), byref(data), byref(size)),
        )
        return int(code) if code else _taken(data, size, "kpack_free_code_object")

    def close(self) -> None:
        """Close every archive; a second time does nothing."""
        if self._handle.value:
            _library().kpack_cache_destroy(self._handle)
            self._handle = c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def discover_binary_path(address: int) -> tuple[Path, int]:
    """Return the file mapped at `address` in this process as ROCm finds it, and the offset it reports.

    Raises:
        RocmError: Nothing with a file is mapped there.
    """
    out, offset = ctypes.create_string_buffer(PATH_ROOM), c_size_t()
    _call("kpack_discover_binary_path", address, out, PATH_ROOM, byref(offset))
    return Path(out.value.decode()), offset.value
