from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from kpack_build.injection import CALL, InjectionError, has_loader_call, inject_loader_call

(OURS,) = ast.parse(CALL).body

DOCSTRINGS = st.sampled_from(
    [
        "",
        '"""Doc."""',
        "'d' 'e'",
        'r"""Two\nlines"""',
        '("a"\n"b")',
        'b"no doc"',
        '"é\u2028\x0c"',
        '"""\\\n"""',
    ]
)
FUTURES = st.sampled_from(
    [
        "",
        "from __future__ import annotations",
        "from __future__ import (annotations,\n    division)",
        "from __future__ import division; from __future__ import generators",
    ]
)
STATEMENTS = st.sampled_from(
    [
        "",
        "import os",
        "x = [\n1,\n]",
        "def f():\n    pass",
        "@a\nclass B:\n\ty: 'é'",
        "try:\n    1\nfinally:\n    2",
    ]
)
JOINTS = st.sampled_from(
    ["\n", "\n\n", "; ", " ;", " # c; d\n", "  \n#\n", ";\n", " \\\n", "; \\\n ", "\x0c\n", ""]
)
HEADS = st.sampled_from(["", "\ufeff", "# coding: utf-8\n", "#!x\n# -*- coding: latin-1 -*-\n", "\n \n"])
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def modules(draw: st.DrawFn) -> bytes:
    """Return modules that mostly parse."""
    parts = [draw(HEADS), draw(DOCSTRINGS), draw(JOINTS), draw(FUTURES), draw(JOINTS)]
    for _ in range(draw(st.integers(0, 3))):
        parts += [draw(STATEMENTS), draw(JOINTS)]
    text = "".join(parts).replace("\n", draw(NEWLINES))
    return text.encode("latin-1" if "latin-1" in text and text.isascii() else "utf-8")


def syntax(source: bytes) -> list[str]:
    return [ast.dump(statement) for statement in ast.parse(source).body]


@given(modules())
def test_only_the_call_is_added(source: bytes) -> None:
    try:
        result = inject_loader_call(source)
    except InjectionError:
        return
    statements = syntax(result)
    statements.remove(ast.dump(OURS))
    assert statements == syntax(source)
    assert inject_loader_call(result) == result


@given(modules().filter(lambda source: b"\\" not in source))
def test_a_module_that_parses_is_not_refused(source: bytes) -> None:
    try:
        ast.parse(source)
    except SyntaxError:
        return
    assert has_loader_call(inject_loader_call(source))


@given(st.binary(max_size=60))
def test_any_bytes_give_the_call_or_our_error(source: bytes) -> None:
    try:
        result = inject_loader_call(source)
    except InjectionError:
        return
    assert has_loader_call(result)
