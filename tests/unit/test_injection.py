from __future__ import annotations

import ast
import codecs
import logging
import types

import pytest

from kpack_build.errors import KpackError
from kpack_build.injection import CALL, InjectionError, has_loader_call, inject_loader_call

CALLED = CALL.encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"", b"import os\n"),
        (b"#!/usr/bin/python\n# -*- coding: utf-8 -*-\n# A comment.\n\n", b"import os\n"),
        (b"# only a comment\n", b""),
        (b'"""Doc."""\n', b"import os\n"),
        (b'"""Doc."""\n', b""),
        (b'"""Two\nlines."""  # noqa\n', b"\nimport os\n"),
        (b'("joined"\n "doc")\n', b"import os\n"),
        (b"from __future__ import annotations\n", b"import os\n"),
        (b'"""Doc."""\n\n# why\nfrom __future__ import (\n    annotations,\n)  # noqa\n', b"\n\nx = 1\n"),
        (b'"""Doc."""; from __future__ import annotations;\n', b"x = 1\n"),
        (b'"""Doc.""" \\\n;\n', b"x = 1\n"),
        (b"", b"@staticmethod\ndef f(): pass\n"),
        (b"", b'b"no docstring"\n'),
        (b"", b'f"no docstring"\n'),
        (b"", b"# comment\n" * 0 + b"class A:\n    pass\n"),
        (b"\n\n\x0c\n", b"import os\n"),
        (b'"""\xc3\xa9\xe2\x80\xa8"""\n', b"import os\n"),
        (codecs.BOM_UTF8, b"import os\n"),
        (codecs.BOM_UTF8 + b'"""Doc."""\n', b"import os\n"),
        (b'# coding: latin-1\n"""\xe9"""\n', b"x = '\xe9'\n"),
        (b'# vim: set fileencoding=cp1252 :\n"""\x80"""\n', b"x = 1"),
        (b'# coding: iso2022_jp\n"""\x1b$B$"\x1b(B"""\n', b"x = 1\n"),
        (b'# coding: shift_jis\n"""\x83\x5c"""\n', b"x = 1\n"),
    ],
)
def test_the_call_goes_after_what_must_be_first(before: bytes, after: bytes) -> None:
    result = inject_loader_call(before + after)
    assert result == before + CALLED + after
    assert has_loader_call(result)
    assert inject_loader_call(result) == result


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b'"""Doc."""', b'"""Doc."""\n' + CALLED),
        (b"# comment", b"# comment\n" + CALLED),
        (b'"""Doc.""";', b'"""Doc.""";\n' + CALLED),
        (b'"""Doc."""; import os; x = 1', b'"""Doc."""\n' + CALLED + b"import os; x = 1"),
        (b'"""Doc."""  ;  import os  # why\n', b'"""Doc."""\n' + CALLED + b"import os  # why\n"),
        (b'"""Doc."""; \\\n  import os\n', b'"""Doc."""\n' + CALLED + b"import os\n"),
        (
            b"from __future__ import annotations; import os\n",
            b"from __future__ import annotations\n" + CALLED + b"import os\n",
        ),
        (b'# coding: latin-1\n"\xe9"; x = "\xe9"', b'# coding: latin-1\n"\xe9"\n' + CALLED + b'x = "\xe9"'),
    ],
)
def test_a_line_is_split_where_it_must_be(source: bytes, expected: bytes) -> None:
    assert inject_loader_call(source) == expected


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_line_ends_stay(newline: bytes) -> None:
    source = newline.join((b'"""Doc', b'more."""', b"import os", b""))
    result = inject_loader_call(source)
    call = CALLED.replace(b"\n", newline)
    assert result == source[: -len(b"import os" + newline)] + call + b"import os" + newline
    assert inject_loader_call(result) == result


@pytest.mark.parametrize(
    "source",
    [
        b"print 'Python 2'\n",
        b"x = (\n",
        b"  indented\n",
        b"\x00",
        b"x = '\xff'\n",
        b"# coding: no-such-encoding\n",
        codecs.BOM_UTF8 + b"# coding: latin-1\n",
        # Bytes that decode, but that the encoding writes in another way.
        b"# coding: utf-7\nx = '+AGE-'\n",
        b"(" * 500 + b")" * 500,
    ],
)
def test_what_cannot_be_changed_safely_is_refused(source: bytes) -> None:
    with pytest.raises(InjectionError) as caught:
        inject_loader_call(source)
    assert isinstance(caught.value, KpackError)
    assert caught.value.problem


def test_a_module_that_does_not_parse_has_no_answer() -> None:
    with pytest.raises(InjectionError):
        has_loader_call(b"x = (")
    assert not has_loader_call(b"import os\n")


def test_the_call_is_known_without_its_marks() -> None:
    bare = "\n".join(line for line in CALL.splitlines() if not line.startswith("#")).encode()
    assert inject_loader_call(bare) == bare


def test_docstring_and_future_keep_their_meaning() -> None:
    tree = ast.parse(inject_loader_call(b'"""Doc."""\nfrom __future__ import annotations\nx: y\n'))
    assert ast.get_docstring(tree) == "Doc."
    compile(tree, "demo", "exec")


def test_a_missing_loader_leaves_the_module_whole(caplog: pytest.LogCaptureFixture) -> None:
    module = types.ModuleType("demo_without_loader")
    module.__path__ = ["/nowhere"]
    with caplog.at_level(logging.WARNING):
        exec(inject_loader_call(b'"""Doc."""; x = 1'), vars(module))  # noqa: S102 - our own text
    assert module.x == 1
    assert [record.name for record in caplog.records] == ["demo_without_loader"]
    assert not {name for name in vars(module) if "kpack" in name}


def test_a_change_of_anything_else_is_never_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpack_build.injection._insert", lambda text, _: CALL + text + "y = 2\n")
    with pytest.raises(InjectionError):
        inject_loader_call(b"x = 1\n")
