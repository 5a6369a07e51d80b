"""The pytest plugin: `hip_runtime` gives code to the real HIP runtime, on any GPUs.

A case is a fresh process with HIP 7.14 in it and made-up GPUs below it. It loads libraries, touches each
kernel and variable of each wrapper on each GPU, and says what HIP handed down. Nothing is kept between cases,
so that any number may run at the same time.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tests.hip import HipResult, HipRuntime, run_hip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["HipCases", "binaries_below", "hip_runtime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HipCases:
    """What the fixture gives: call it for each case.

    Attributes:
        directory: Where wheels are unpacked.
        unpacked: The wheels that were, and where.
    """

    directory: Path
    unpacked: dict[Path, Path] = field(default_factory=dict)

    def __call__(
        self,
        gpus: Sequence[str],
        *libraries: Path,
        hip_first: bool = False,
        launch: bool = False,
        preload: Sequence[Path] = (),
        imports: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> HipResult:
        """Run a case.

        Args:
            gpus: Target ids of the machine's GPUs, for example `gfx90a:sramecc+:xnack-`.
            libraries: Libraries with device code, or wheels and directories of which all are loaded.
            hip_first: Bring HIP up before they are loaded, not after.
            launch: Launch each kernel, too.
            preload: Libraries that these need besides HIP.
            imports: Modules to import before the libraries are loaded; `environment` says where they are.
            environment: Further variables.
        """
        return run_hip(
            runtime=HipRuntime.KPACK,
            libraries=[binary for library in libraries for binary in self._binaries(library)],
            preload=preload,
            imports=imports,
            gpus=gpus,
            hip_first=hip_first,
            launch=launch,
            environment=environment,
        )

    def _binaries(self, library: Path) -> Sequence[Path]:
        if library.is_dir():
            return binaries_below(library)
        if library.suffix != ".whl":
            return [library]
        if library not in self.unpacked:
            self.unpacked[library] = self.directory / f"wheel-{len(self.unpacked)}"
            with zipfile.ZipFile(library) as wheel:
                wheel.extractall(self.unpacked[library])
        return binaries_below(self.unpacked[library])


def binaries_below(directory: Path) -> list[Path]:
    """Return the libraries below a directory that have wrappers, fat or converted, sorted by path."""
    return [path for path in sorted(directory.rglob("*.so*")) if path.is_file() and _has_wrappers(path)]


def _has_wrappers(path: Path) -> bool:
    with path.open("rb") as stream:
        try:
            section = ELFFile(stream).get_section_by_name(".hipFatBinSegment")
        except ELFError:
            return False
        return section is not None and section["sh_type"] != "SHT_NOBITS"


@pytest.fixture
def hip_runtime(tmp_path_factory: pytest.TempPathFactory) -> HipCases:
    """Give the real HIP runtime on made-up GPUs: call it with the GPUs and what is to be loaded."""
    return HipCases(directory=tmp_path_factory.mktemp("wheels"))
