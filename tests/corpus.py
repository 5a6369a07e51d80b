"""The corpus: wheels with HIP code, as their authors published them on PyPI.

They are downloaded with pip into the test cache, checked against the digests written here, and never changed.
Nothing of them is part of this project.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.cache import cache_directory, make_once
from tests.missing import missing

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CORPUS", "FAT_CORPUS", "CorpusWheel", "corpus_tree", "corpus_wheel"]

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusWheel:
    """A published wheel and what is known to be in it.

    Attributes:
        name: Distribution name as on PyPI.
        version: Its version.
        python: Version of Python that pip is to resolve for.
        tags: The tag part of the file name.
        sha256: Digest of the wheel.
        wrappers: Number of wrappers of each fat library (libraries in the order of their paths).
        targets: Number of different target ids.
        code_objects: Number of code objects, over all wrappers.
        device_bytes: Size of all code objects together, decompressed.
    """

    name: str
    version: str
    python: str
    tags: str
    sha256: str
    wrappers: tuple[int, ...]
    targets: int
    code_objects: int
    device_bytes: int

    @property
    def file_name(self) -> str:
        """Name of the wheel file."""
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tags}.whl"

    @property
    def platform(self) -> str:
        """The platform tag that the wheel was published for."""
        return self.tags.rpartition("-")[2]


_WHEELS = (
    CorpusWheel(
        name="bitsandbytes",
        version="0.50.2",
        python="3.11",
        tags="py3-none-manylinux_2_24_x86_64",
        sha256="55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        wrappers=(2, 2, 2, 2, 2, 2),
        targets=25,
        code_objects=218,
        device_bytes=109_569_384,
    ),
    CorpusWheel(
        name="gafime-rocm",
        version="0.4.7",
        python="3.11",
        tags="cp311-cp311-manylinux_2_28_x86_64",
        sha256="9286d4fdc7b0e4b6e8edd08324f36c6619f63d9f43c393a6d9edcd4028a4ef70",
        wrappers=(1,),
        targets=13,
        code_objects=13,
        device_bytes=3_207_960,
    ),
    CorpusWheel(
        name="jax-rocm7-plugin",
        version="0.10.2",
        python="3.11",
        tags="cp311-cp311-manylinux_2_27_x86_64",
        sha256="fc6c3f6641d99916ea1896353a0c27187f1fcddb811768d4607d7e78834571a3",
        wrappers=(1, 1, 2),
        targets=27,
        code_objects=108,
        device_bytes=3_363_888,
    ),
    CorpusWheel(
        name="torch-scatter-rocm",
        version="2.1.2",
        python="3.11",
        tags="cp311-cp311-manylinux_2_39_x86_64",
        sha256="bb82ad0866cb99bf4837671ea5e4fe7401b3084375c31ffc5d3ae4908c90b01d",
        wrappers=(1, 1, 1),
        targets=11,
        code_objects=33,
        device_bytes=34_168_872,
    ),
    CorpusWheel(
        name="torch-spline-conv-rocm",
        version="1.2.2",
        python="3.11",
        tags="cp311-cp311-manylinux_2_39_x86_64",
        sha256="b5a5171a704afa69cc8f9c015d5664936fa1c1b85196857fbdb3bb5ce41fc047",
        wrappers=(1, 1),
        targets=11,
        code_objects=22,
        device_bytes=1_388_464,
    ),
    CorpusWheel(
        name="vapoursynth-bm3dhip",
        version="2.17.5",
        python="3.12",
        tags="py3-none-manylinux_2_28_x86_64",
        sha256="993f7815c32e962775183cd4b55ee18554b97a14d1fd98fbceb2516d7e7e9069",
        wrappers=(1,),
        targets=20,
        code_objects=20,
        device_bytes=11_353_056,
    ),
    # Its one HIP binary is HIPK already and its archives were lost before it was published.
    CorpusWheel(
        name="vapoursynth-dfttest2-hip",
        version="11.1.0",
        python="3.12",
        tags="py3-none-manylinux_2_28_x86_64",
        sha256="fbf3922eeeb36d5c3e9bf486bad8efe650e40d44efb1efa5c6bc53b0377b1db8",
        wrappers=(),
        targets=0,
        code_objects=0,
        device_bytes=0,
    ),
    CorpusWheel(
        name="vapoursynth-nlm-hip",
        version="4",
        python="3.12",
        tags="py3-none-manylinux_2_39_x86_64",
        sha256="b8a3e7ae4892a06232892394b32346773096ce2df8da5e8a02fa63c4097b0a20",
        wrappers=(1,),
        targets=16,
        code_objects=16,
        device_bytes=615_560,
    ),
)

#: Every wheel of the corpus by its distribution name.
CORPUS: Mapping[str, CorpusWheel] = MappingProxyType({wheel.name: wheel for wheel in _WHEELS})
#: The names of those that hold fat binaries and can be packed.
FAT_CORPUS = tuple(wheel.name for wheel in _WHEELS if wheel.wrappers)


@functools.cache
def corpus_wheel(name: str) -> Path:
    """Return the wheel of `name`, downloaded into the test cache if it is not there yet.

    The test that asks is skipped if the wheel is not there and cannot be had; in CI it fails.
    """
    wheel = CORPUS[name]
    path = cache_directory("corpus") / wheel.file_name
    if not path.exists():
        _download(wheel, path)
    found = _sha256(path)
    assert found == wheel.sha256, (
        f"{path}: sha256 is {found}, not that of the published wheel; remove the file"
    )
    return path


@functools.cache
def corpus_tree(name: str) -> Path:
    """Return the unpacked wheel of `name`: a directory in the test cache that nobody writes to."""
    archive = corpus_wheel(name)
    destination = cache_directory("trees") / f"{name}-{CORPUS[name].sha256[:12]}"
    return make_once(destination, functools.partial(_unpack, archive))


def _download(wheel: CorpusWheel, destination: Path) -> None:
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        # What pip's own environment says about retries and indexes stays in force.
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--only-binary", ":all:", "--python-version", wheel.python, "--platform", wheel.platform]
        command += ["--dest", scratch, f"{wheel.name}=={wheel.version}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        downloaded = Path(scratch, wheel.file_name)
        if result.returncode or not downloaded.exists():
            reason = (result.stderr.strip().splitlines() or ["pip gave another file"])[-1]
            missing(f"{wheel.name} {wheel.version} from PyPI ({reason})")
        downloaded.replace(destination)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(archive: Path, directory: Path) -> None:
    with zipfile.ZipFile(archive) as wheel:
        wheel.extractall(directory)
        for member in wheel.infolist():
            mode = member.external_attr >> 16 & 0o777
            if mode and not member.is_dir():
                # As an installer does: readable by all, executable where the wheel says so.
                (directory / member.filename).chmod(0o755 if mode & 0o100 else 0o644)
