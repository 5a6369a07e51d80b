"""What a run did, as data: never a gain that is none, and all of it as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kpack_build.report import (
    ArchiveReport,
    BinaryAction,
    BinaryReport,
    Outcome,
    PackReport,
    RestoreReport,
    Sizes,
)


def report(before: int, after: int, outcome: Outcome = Outcome.DONE, *encodings: str) -> PackReport:
    return PackReport(
        source=Path("a.whl"),
        output=Path("out/a.whl"),
        outcome=outcome,
        binaries=(
            BinaryReport(
                path="pkg/lib.so",
                action=BinaryAction.CONVERTED,
                wrappers=2,
                code_objects=3,
                device_bytes=400,
                size=Sizes(before=500, after=100),
                encodings=encodings,
            ),
        ),
        archives=(
            ArchiveReport(
                path="pkg/.kpack/a-gfx110x.kpack",
                family="gfx110x",
                targets=("gfx1100",),
                code_objects=3,
                original_bytes=400,
                repeated_bytes=30,
                size=200,
            ),
        ),
        wheel=Sizes(before=before, after=after),
        installed=Sizes(before=1000, after=700),
        scheme="none",
        dropped=("gfx90a",),
        warnings=("look out",),
    )


@pytest.mark.parametrize(("before", "after", "grew"), [(10, 9, 0), (10, 10, 0), (10, 13, 3)])
def test_growth(before: int, after: int, grew: int) -> None:
    found = report(before, after)
    assert found.grew == grew
    assert found.wheel.growth == after - before
    assert (found.advice is None) is (grew == 0)


@pytest.mark.parametrize("outcome", [Outcome.NOTHING_TO_DO, Outcome.NOTHING_WANTED])
def test_no_advice_on_what_was_not_packed(outcome: Outcome) -> None:
    assert report(1, 2, outcome).advice is None


def test_advice_names_amount_and_cause() -> None:
    compressed = report(1000, 3345, Outcome.DONE, "CCOB v3", "plain").advice
    plain = report(1000, 3345, Outcome.DONE, "plain").advice
    assert compressed is not None
    assert plain is not None
    assert "2345" in compressed
    assert "CCOB" in compressed
    assert "2345" in plain
    assert "CCOB" not in plain


@pytest.mark.parametrize(
    ("targets", "mixed"),
    [(("gfx1100",), False), (("gfx90a", "gfx90a:xnack+"), False), (("gfx1100", "gfx1101"), True)],
)
def test_several_processors_may_meet_in_one_machine(targets: tuple[str, ...], *, mixed: bool) -> None:
    found = report(2, 1)
    archives = (dataclasses.replace(found.archives[0], targets=targets),)
    sentence = dataclasses.replace(found, archives=archives).mixed_machines
    assert (sentence is not None) is mixed
    assert sentence is None or "HIP_VISIBLE_DEVICES" in sentence


def test_json() -> None:
    value = json.loads(json.dumps(report(10, 13).to_json()))
    assert (value["source"], value["output"], value["outcome"]) == ("a.whl", "out/a.whl", "done")
    assert value["mixed_machines"] is None
    assert value["wheel"] == {"before": 10, "after": 13}
    assert (value["grew"], value["dropped"], value["warnings"]) == (3, ["gfx90a"], ["look out"])
    assert value["binaries"][0] == {
        "path": "pkg/lib.so",
        "action": "converted",
        "reasons": [],
        "wrappers": 2,
        "code_objects": 3,
        "device_bytes": 400,
        "size": {"before": 500, "after": 100},
        "encodings": [],
    }
    assert value["archives"][0]["repeated_bytes"] == 30


def test_json_of_a_restoration() -> None:
    found = RestoreReport(source=Path("a"), output=Path("b"), exact=("x.so",), recompressed=("y.so",))
    assert found.to_json() == {"source": "a", "output": "b", "exact": ["x.so"], "recompressed": ["y.so"]}
