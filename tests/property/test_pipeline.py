"""Whatever is in a wheel: packed it is sound and the same for any number of workers, and it comes back."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kpack_build.config import Config, Loader
from kpack_build.pipeline import pack
from kpack_build.progress import SilentProgress
from kpack_build.report import Outcome
from kpack_build.restoration import restore
from kpack_build.targets import GroupBy
from kpack_build.verification import verify
from tests.synthetic import fat_library, without_device_code
from tests.unit.wheels import write_tree_of_wheel

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

__all__: list[str] = []

#: What compilers let stand side by side in one bundle.
UNITS = (
    ("gfx1100",),
    ("gfx90a:xnack+", "gfx90a:xnack-", "gfx1100"),
    ("gfx90a", "gfx11-generic"),
    ("gfx942:sramecc+:xnack-", "gfx1999"),
    ("gfx9-4-generic", "gfx950"),
    ("gfx1250", "gfx1250-strict"),
)
FOLDERS = ("pkg", "pkg/sub", "pkg/sub/deep", "plugins", "thing-1.0.data/platlib/other")


@st.composite
def wheels(draw: DrawFn) -> dict[str, bytes]:
    """Draw the files of a wheel; some of its libraries are copies of others."""
    files = {"pkg/__init__.py": b"x = 1\n", "pkg/host.so": without_device_code()}
    for folder in draw(st.lists(st.sampled_from(FOLDERS), max_size=3)):
        units = draw(st.lists(st.sampled_from(UNITS), min_size=1, max_size=3))
        seed, encoded = draw(st.integers(0, 1)), draw(st.booleans())
        files[f"{folder}/{len(files)}.so"] = fat_library(*units, seed=seed, encoded=encoded)
    if draw(st.booleans()):
        files["pkg/sub/__init__.py"] = b""
    return files


@st.composite
def configurations(draw: DrawFn) -> Config:
    return Config(
        level=1,
        scheme=draw(st.sampled_from(["none", "zstd-per-kernel"])),
        group_by=draw(st.sampled_from(GroupBy)),
        loader=draw(st.sampled_from(Loader)),
        keep_ccob=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


def contents(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }


@settings(max_examples=25)
@given(files=wheels(), config=configurations(), workers=st.integers(1, 4))
def test_packed_checked_and_restored(files: dict[str, bytes], config: Config, workers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = write_tree_of_wheel(folder / "tree", files)
        report = pack(tree, folder / "packed", config)
        result = verify(report.output, against=tree, progress=SilentProgress())
        assert result.faults == ()
        assert all(binary.reasons == () for binary in report.binaries)
        again = pack(report.output, folder / "again", config)
        assert again.outcome is Outcome.NOTHING_TO_DO
        assert contents(again.output) == contents(report.output)
        other = pack(tree, folder / "other", replace(config, workers=workers))
        assert contents(other.output) == contents(report.output)
        if report.outcome is Outcome.DONE:
            restored = restore(report.output, folder / "restored")
            assert restored.recompressed == ()
            assert contents(restored.output) == contents(tree)
