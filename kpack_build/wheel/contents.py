"""What a wheel offers to those who read it, whether it is a file or the folder of its unpacked files.

A source is never changed. Structure (names, the dist-info folder, RECORD's form) is checked when a wheel is
opened; what costs a pass over all bytes (hashes, checksums) is checked by `check`, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO

    from packaging.tags import Tag
    from typing_extensions import Self

    from kpack_build.wheel.record import Record, RowFacts

__all__ = ["Member", "WheelContents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file of a wheel.

    Attributes:
        path: Its POSIX path in the wheel.
        size: Its size in bytes, unpacked.
        mode: Its permission bits (0o644 where the wheel does not say).
    """

    path: str
    size: int
    mode: int


class WheelContents(Protocol):
    """An open wheel; a context manager. All methods may be called from any thread."""

    @property
    def path(self) -> Path:
        """What was opened."""

    @property
    def dist_info(self) -> str:
        """Name of the dist-info folder."""

    @property
    def name(self) -> str:
        """The distribution's name as METADATA has it."""

    @property
    def version(self) -> str:
        """The distribution's version as METADATA has it."""

    @property
    def build(self) -> str:
        """The build tag, "" where there is none."""

    @property
    def tags(self) -> frozenset[Tag]:
        """The tags, compressed sets expanded."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the wheel but does not keep it from being installed."""

    @property
    def members(self) -> tuple[Member, ...]:
        """All files, in the wheel's order (a tree's are sorted)."""

    @property
    def record(self) -> Record:
        """Its RECORD."""

    @property
    def is_signed(self) -> bool:
        """Whether RECORD has a signature file, which no longer holds once anything is changed."""

    def open(self, member: str) -> BinaryIO:
        """Open a member for reading from its start to its end."""

    def read(self, member: str) -> bytes:
        """Return the bytes of a (small) member."""

    def materialise(self, member: str) -> Path:
        """Return a real file with a member's bytes, not to be written to; it lasts until `close`."""

    def check(self) -> None:
        """Check all contents against their checksums and RECORD, once.

        Raises:
            WheelError: RECORD does not tell the truth.
            FormatError: A member is damaged.
        """

    def facts(self, member: str) -> RowFacts:
        """Return what RECORD has to say of a member; known for all after `check`."""

    def close(self) -> None:
        """Close the wheel and remove what was made for it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
