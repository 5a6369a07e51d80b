"""Names of wheels and of their members."""

from __future__ import annotations

from pathlib import Path

import pytest

from kpack_build.errors import WheelError
from kpack_build.wheel.names import check_member_names, member_name_problem, parse_wheel_name

__all__: list[str] = []

WHEEL = Path("w.whl")


def test_a_wheel_name_keeps_its_build_tag_and_expands_its_tags() -> None:
    name = parse_wheel_name("a/My_Thing-1.0+rocm7-2b-cp310.cp311-cp310.cp311-linux_x86_64.whl")
    assert (name.distribution, name.version, name.build) == ("My_Thing", "1.0+rocm7", "2b")
    assert {str(tag) for tag in name.tags} == {
        f"{python}-{abi}-linux_x86_64" for python in ("cp310", "cp311") for abi in ("cp310", "cp311")
    }


def test_a_wheel_name_need_not_have_a_build_tag() -> None:
    assert parse_wheel_name("x-1-py3-none-any.whl").build == ""


@pytest.mark.parametrize(
    "name", ["x.whl", "x-1.zip", "x-1-py3-none.whl", "x-1-b-py3-none-any.whl", "x-?-a-b-c.whl"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(WheelError) as caught:
        parse_wheel_name(Path("/d") / name)
    assert caught.value.path == Path("/d") / name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a/./b",
        "a//b",
        "a\\b",
        "C:x",
        "c:/x",
        "a\0b",
        "a\nb",
        "a/",
        "..",
    ],
)
def test_unsafe_member_names(name: str) -> None:
    assert member_name_problem(name) is not None
    with pytest.raises(WheelError, match="member"):
        check_member_names(WHEEL, [name])


@pytest.mark.parametrize("name", ["a", "a/b.c", "a/..b", "ä/ö", "a b/c,d", "...", "ab:c/d"])
def test_safe_member_names(name: str) -> None:
    assert member_name_problem(name) is None
    check_member_names(WHEEL, [name])


@pytest.mark.parametrize("name", ["ä" * 128, f"a/{'b' * 256}", "a/" * 1536 + "b"])
def test_member_names_that_no_file_system_takes(name: str) -> None:
    assert member_name_problem(name) is not None


def test_longest_part_of_a_member_name() -> None:
    assert member_name_problem(f"a/{'b' * 255}") is None


@pytest.mark.parametrize(
    ("names", "folders", "culprit"),
    [
        (["a", "b", "a"], [], "a"),
        (["a/b/c", "a/b"], [], "a/b"),
        (["a", "a/b/c"], [], "a"),
        (["a"], ["a/b/"], "a"),
        (["a/b/c", "a"], ["a/b/"], "a"),
        (["a/b"], ["a/b/"], "a/b"),
    ],
)
def test_names_that_collide(names: list[str], folders: list[str], culprit: str) -> None:
    with pytest.raises(WheelError, match=f"member {culprit} is"):
        check_member_names(WHEEL, names, folders)


def test_folders_with_entries_of_their_own_do_not_collide_with_their_files() -> None:
    check_member_names(WHEEL, ["a/b/c", "a/d"], ["a/", "a/b/", "e/"])
