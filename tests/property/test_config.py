from __future__ import annotations

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from kpack_build.config import OPTIONS, Config, override_config, parse_text, to_schema
from kpack_build.errors import ConfigError

SCHEMA = jsonschema.Draft7Validator(to_schema())
KEYS = st.sampled_from([option.key for option in OPTIONS])
TARGETS = st.sampled_from(
    ["gfx1100", "gfx90a:xnack-", "gfx9", "gfx11_0", "gfx110X", "gfx", "", "gfx12-generic"]
)
WORDS = st.sampled_from(["embedded", "none", "inject", "family", "zstd-per-kernel", "a-b", "a:b", "yes"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 30) | st.floats(allow_nan=False) | WORDS | st.text()
VALUES = SCALARS | st.lists(TARGETS | SCALARS, max_size=4) | st.dictionaries(st.text(), SCALARS, max_size=2)
TABLES = st.dictionaries(KEYS | st.text(), VALUES, max_size=4)


def attempt(table: dict[str, object]) -> Config | ConfigError:
    try:
        return override_config(Config(), table, source="somewhere")
    except ConfigError as error:
        return error


@given(TABLES)
def test_a_table_is_taken_or_rejected_by_our_error_and_what_is_taken_fits_the_schema(
    table: dict[str, object],
) -> None:
    result = attempt(table)
    if isinstance(result, ConfigError):
        assert result.key in table
    else:
        SCHEMA.validate(table)


@given(KEYS, st.text() | WORDS | TARGETS | st.integers(-3, 30).map(str))
def test_a_text_is_taken_or_rejected_by_our_error(key: str, text: str) -> None:
    result = attempt({key: parse_text(key, text, source="option")})
    if isinstance(result, ConfigError):
        assert result.key == key
