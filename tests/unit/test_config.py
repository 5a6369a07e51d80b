from __future__ import annotations

import dataclasses
import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import jsonschema
import pytest

import kpack_build
from kpack_build import settings
from kpack_build.config import (
    OPTIONS,
    Config,
    Loader,
    Mode,
    override_config,
    parse_config,
    parse_text,
    read_config,
    render_schema,
    to_schema,
)
from kpack_build.errors import ConfigError
from kpack_build.targets import GroupBy

KEYS = [option.key for option in OPTIONS]


def rejected(table: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(table, source="somewhere")
    assert caught.value.source == "somewhere"
    return caught.value


def test_an_empty_table_gives_the_defaults() -> None:
    assert parse_config({}) == Config()
    assert Config() == Config(
        mode=Mode.EMBEDDED,
        scheme="zstd-per-kernel",
        level=15,
        group_by=GroupBy.SUB_FAMILY,
        loader=Loader.INJECT,
        targets=None,
        group=None,
        require_device_code=False,
        strict=False,
        keep_ccob=False,
        workers=None,
    )


def test_every_field_has_an_option_and_every_option_a_field() -> None:
    assert [option.field for option in OPTIONS] == [field.name for field in dataclasses.fields(Config)]


def test_every_key_is_taken() -> None:
    table: dict[str, object] = {
        "mode": "embedded",
        "scheme": "none",
        "level": 22,
        "group-by": "family",
        "loader": "manual",
        "targets": ["gfx1100", "gfx90a:xnack-"],
        "group": "my.group-1",
        "require-device-code": True,
        "strict": True,
        "keep-ccob": True,
        "workers": 4,
    }
    assert list(table) == KEYS
    assert parse_config(table) == Config(
        mode=Mode.EMBEDDED,
        scheme="none",
        level=22,
        group_by=GroupBy.FAMILY,
        loader=Loader.MANUAL,
        targets=("gfx1100", "gfx90a:xnack-"),
        group="my.group-1",
        require_device_code=True,
        strict=True,
        keep_ccob=True,
        workers=4,
    )


@pytest.mark.parametrize(
    ("key", "meant"), [("group_by", "group-by"), ("lvl", "level"), ("Target", "targets"), ("colour", None)]
)
def test_an_unknown_key_is_named_with_all_keys_and_the_closest(key: str, meant: str | None) -> None:
    error = rejected({key: 1})
    assert error.key == key
    assert error.allowed.split(", ") == KEYS
    assert ("did you mean" in error.problem) == (meant is not None)
    assert meant is None or repr(meant) in error.problem


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("mode", "split", "'embedded'"),
        ("mode", 1, "'embedded'"),
        ("scheme", "zstd", "'zstd-per-kernel', 'none'"),
        ("scheme", [], "'zstd-per-kernel', 'none'"),
        ("level", 0, "an integer from 1 to 22"),
        ("level", 23, "an integer from 1 to 22"),
        ("level", True, "an integer from 1 to 22"),
        ("level", 3.0, "an integer from 1 to 22"),
        ("group-by", "subfamily", "'target', 'sub-family', 'family'"),
        ("loader", "injekt", "'inject', 'manual', 'none'"),
        ("group", "a:b", "letters, digits"),
        ("group", "a+b", "letters, digits"),
        ("group", "a/b", "letters, digits"),
        ("group", "a\n", "letters, digits"),
        ("group", "", "letters, digits"),
        ("group", None, "letters, digits"),
        ("strict", 1, "true or false"),
        ("strict", "yes", "true or false"),
        ("workers", 0, "an integer from 1"),
        ("targets", "gfx1100", "an array of target ids"),
        ("targets", [], "an array of target ids"),
        ("targets", [1100], "an array of target ids"),
        ("targets", ["gfx110X"], "gfx110x"),
        ("targets", ["gfx1100;gfx942"], "an array of target ids"),
        ("targets", {}, "an array of target ids"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(key: str, value: object, allowed: str) -> None:
    error = rejected({key: value})
    assert error.key == key
    assert allowed in error.allowed


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("loader", "Inject", "inject"),
        ("scheme", "zstd-per-kernal", "zstd-per-kernel"),
        ("targets", ["gfx110X"], "gfx110x"),
        ("targets", ["gfx11-genric"], "gfx11-generic"),
    ],
)
def test_the_closest_value_is_suggested(key: str, value: object, meant: str) -> None:
    assert repr(meant) in rejected({key: value}).problem


def test_families_stand_for_their_members_and_the_generics_that_serve_them() -> None:
    found = parse_config({"targets": ["gfx110x"]}).targets
    assert found == ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx11-generic")
    whole = parse_config({"targets": ["gfx9"]}).targets
    assert whole is not None
    assert {"gfx90a", "gfx942", "gfx950", "gfx9-generic", "gfx9-4-generic"} <= set(whole)


def test_targets_keep_their_order_and_are_named_once() -> None:
    found = parse_config({"targets": ["gfx942", "gfx9_4", "gfx950", "gfx942"]}).targets
    assert found == ("gfx942", "gfx9-4-generic", "gfx950")


def test_features_are_put_in_their_canonical_order() -> None:
    assert parse_config({"targets": ["gfx90a:xnack+:sramecc-"]}).targets == ("gfx90a:sramecc-:xnack+",)


@pytest.mark.parametrize("target", ["gfx803", "gfx1310", "gfx1250-strict", "gfx12-generic"])
def test_processors_that_the_table_of_families_does_not_know_are_taken_as_written(target: str) -> None:
    assert parse_config({"targets": [target]}).targets == (target,)


def test_a_scheme_that_a_package_registers_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="zstd-dictionary", value="x:y", group="kpack_build.compression")

    def entry_points(*, group: str) -> EntryPoints:
        assert group == point.group
        return EntryPoints([point])

    monkeypatch.setattr(settings, "entry_points", entry_points)
    assert parse_config({"scheme": "zstd-dictionary"}).scheme == "zstd-dictionary"
    assert "'zstd-dictionary'" in rejected({"scheme": "zst"}).allowed


def test_overriding_keeps_the_rest() -> None:
    base = parse_config({"level": 19, "group": "g"})
    assert override_config(base, {"level": 4}, source="x") == dataclasses.replace(base, level=4)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("level", "19", 19),
        ("level", "high", "high"),
        ("strict", "yes", True),
        ("strict", "OFF", False),
        ("strict", "maybe", "maybe"),
        ("loader", "none", "none"),
        ("group", "name", "name"),
        ("scheme", "none", "none"),
        ("targets", "gfx1100,gfx942; gfx9_4 ", ["gfx1100", "gfx942", "gfx9_4"]),
        ("targets", "", []),
    ],
)
def test_text_becomes_the_value_of_a_table(key: str, text: str, value: object) -> None:
    assert parse_text(key, text, source="x") == value


def test_text_for_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ConfigError):
        parse_text("lvl", "1", source="x")


def write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_bytes(text.encode())
    return path


def test_the_table_is_read(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, "[tool.kpack-build]\nlevel = 7\n"))
    assert config == Config(level=7)


@pytest.mark.parametrize("text", ["", "[tool.other]\n", "tool = 3\n", "# kpack-build\n"])
def test_a_file_without_the_table_has_no_settings(tmp_path: Path, text: str) -> None:
    assert read_config(write(tmp_path, text)) is None


def test_a_missing_file_has_no_settings(tmp_path: Path) -> None:
    assert read_config(tmp_path / "pyproject.toml") is None


@pytest.mark.parametrize(
    "content",
    [
        b"[tool.kpack-build\n",
        b"a = '\xff'\n",
        b"[tool]\nkpack-build = 1\n",
        b"a = " + b"[" * 10**5,
        b"[tool.kpack-build]\nlevel = " + b"9" * 5000,
    ],
)
def test_a_damaged_file_or_table_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in caught.value.source


def test_a_wrong_value_is_reported_with_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[tool.kpack-build]\nlevel = 99\n")
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in caught.value.source


def test_the_schema_beside_the_module_is_the_generated_one() -> None:
    shipped = Path(kpack_build.__file__).with_name("config.schema.json")
    assert shipped.read_text(encoding="utf-8") == render_schema(), "write render_schema() into the file"


def test_the_schema_is_a_schema_and_lists_what_the_parser_takes() -> None:
    schema = json.loads(render_schema())
    jsonschema.Draft7Validator.check_schema(schema)
    assert list(schema["properties"]) == KEYS
    assert schema == to_schema()


@pytest.mark.parametrize(
    "table",
    [
        {"level": 99},
        {"level": True},
        {"colour": 1},
        {"mode": "split"},
        {"group": "a:b"},
        {"targets": []},
        {"targets": ["1100"]},
        {"strict": "yes"},
        {"workers": 0},
        {"scheme": 3},
    ],
)
def test_schema_and_parser_reject_alike(table: dict[str, object]) -> None:
    rejected(table)
    assert not jsonschema.Draft7Validator(to_schema()).is_valid(table)


def test_the_schema_takes_the_defaults() -> None:
    table = {option.key: option.default for option in OPTIONS if option.default is not None}
    assert parse_config(table) == Config()
    jsonschema.Draft7Validator(to_schema()).validate(table)
