"""Decide which archive serves a GPU: by processor, with its feature variants, else by its generic processor.

The archives' listed targets come from the generated table. The kernel driver does not tell a GPU's target
features, so all variants of its processor count, and what they have in common is named as a condition.
"""

from __future__ import annotations

from . import _table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Service", "binaries_without", "find_service"]


class Service:
    """What serves a GPU.

    Attributes:
        archive: Number of the archive.
        processor: The processor under which its code is listed: the GPU's own, or a generic one.
        targets: The listed targets that can answer.
        condition: Features that the GPU must have for any of them, as "xnack+"; empty for most.
    """

    __slots__ = ("archive", "condition", "processor", "targets")

    def __init__(self, archive: int, processor: str, targets: tuple[str, ...], condition: str) -> None:
        self.archive = archive
        self.processor = processor
        self.targets = targets
        self.condition = condition


def find_service(target: str, archives: Collection[int]) -> Service | None:
    """Find the archive that serves a GPU.

    Args:
        target: The GPU's processor, with those features that are known.
        archives: Numbers of the archives to look in.
    """
    processor, *features = target.split(":")
    for name in (processor, _table.GENERIC_OF.get(processor)):
        for number in sorted(archives) if name else ():
            listed = tuple(text for text in _table.ARCHIVES[number][4] if _answers(text, str(name), features))
            if listed:
                return Service(number, str(name), listed, _condition(listed, features))
    return None


def _answers(listed: str, processor: str, known: Collection[str]) -> bool:
    """Tell whether a listed target may answer a GPU with these known features."""
    name, *features = listed.split(":")
    return name == processor and not any(_opposite(feature) in known for feature in features)


def _opposite(feature: str) -> str:
    return feature[:-1] + ("-" if feature.endswith("+") else "+")


def _condition(listed: tuple[str, ...], known: Collection[str]) -> str:
    common = set.intersection(*(set(text.split(":")[1:]) for text in listed))
    return " ".join(sorted(common.difference(known)))


def binaries_without(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of the binaries that have code for none of these listed targets."""
    columns = [number for number, text in enumerate(_table.TARGETS) if text in targets]
    return tuple(
        path
        for path, _, wrappers in _table.BINARIES
        if not any(answers[column] >= 0 for answers in wrappers for column in columns)
    )
