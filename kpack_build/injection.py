"""Put the call of the loader into a package's `__init__.py`.

It goes after the docstring and the `from __future__` imports, where Python's grammar allows it first, between
two marks. Encoding, byte order mark and line ends stay as they are, and the module means what it meant: its
syntax tree is compared before the result is given out. A loader that is missing or damaged does not break the
import, whatever filters of warnings there are: HIP finds archives without it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Final

from kpack_build.errors import KpackError

__all__ = ["CALL", "InjectionError", "has_loader_call", "inject_loader_call"]

#: What is put in.
CALL: Final = """\
# kpack-build: begin (added to the wheel; the GPU code of this package lies in .kpack archives)
try:
    from . import _kpack

    _kpack.activate()
except Exception as _kpack_error:
    __import__("logging").getLogger(__name__).warning("its kpack loader is damaged: %r", _kpack_error)
# kpack-build: end
"""

_NEWLINE = re.compile(r"\r\n|\r|\n")
_SKIPPED = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.INDENT, tokenize.DEDENT})


class InjectionError(KpackError):
    """A module that cannot be given the call.

    Attributes:
        problem: Why, a clause.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"the loader's call cannot be added: {problem} (call <package>._kpack.activate() by hand)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A module's text, with line ends as they are in the file.

    Attributes:
        text: The text, without a byte order mark.
        mark: The byte order mark, or nothing.
        encoding: The encoding of `text`.
    """

    text: str
    mark: bytes
    encoding: str

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.encoding)


@dataclass(frozen=True, slots=True)
class _Gap:
    """A place in a text: what lies between two offsets is replaced."""

    start: int
    end: int


def inject_loader_call(source: bytes) -> bytes:
    """Add the loader's call to a module; one that has it already stays as it is.

    Args:
        source: The bytes of the package's `__init__.py`.

    Returns:
        The bytes with the call.

    Raises:
        InjectionError: The module does not parse, or could not be written back as it is.
    """
    module = _decode(source)
    tree = _parse(source)
    if _calls(tree):
        return source
    result = module.encode(_insert(module.text, _header_length(tree)))
    _check(tree, result)
    return result


def has_loader_call(source: bytes) -> bool:
    """Tell whether a module has the call.

    Args:
        source: The bytes of the package's `__init__.py`.

    Raises:
        InjectionError: The module does not parse.
    """
    return bool(_calls(_parse(source)))


def _parse(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InjectionError(f"it does not parse: {error}") from error


def _decode(source: bytes) -> _Source:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        mark = BOM_UTF8 if source.startswith(BOM_UTF8) else b""
        plain = "utf-8" if mark else encoding
        module = _Source(text=source[len(mark) :].decode(plain), mark=mark, encoding=plain)
        written = module.encode(module.text)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise InjectionError(f"it cannot be decoded: {error}") from error
    if written != source:
        raise InjectionError(f"its text in {encoding} cannot be written back as it is")
    return module


def _header_length(tree: ast.Module) -> int:
    """Return how many statements must stay first: the docstring and the imports from `__future__`."""
    length = 0 if ast.get_docstring(tree, clean=False) is None else 1
    for statement in tree.body[length:]:
        if not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            break
        length += 1
    return length


def _insert(text: str, header: int) -> str:
    """Insert the call after that many statements."""
    gap = _find_gap(text, header)
    newline = _newline(text)
    call = CALL.replace("\n", newline)
    before, after = text[: gap.start], text[gap.end :]
    if before and not before.endswith(("\r", "\n")):
        before += newline
    return before + call + after


def _newline(text: str) -> str:
    """Return the line end of the first line."""
    found = _NEWLINE.search(text)
    return found.group() if found else "\n"


def _find_gap(text: str, header: int) -> _Gap:
    """Find the place after that many statements.

    It is the beginning of a line, unless a semicolon puts another statement on the line of the last one: then
    the semicolon and what surrounds it give way to a line end.
    """
    lines = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
    tokens = [token for token in _tokenize(text) if token.type not in _SKIPPED]
    if header == 0:
        return _Gap(lines[tokens[0].start[0] - 1], lines[tokens[0].start[0] - 1])
    ends = [number for number, token in enumerate(tokens) if _ends_statement(tokens, number, token)]
    last, following = ends[header - 1], tokens[ends[header - 1] + 1]
    if tokens[last].string == ";" and following.type != tokenize.NEWLINE:
        return _Gap(_offset(lines, tokens[last - 1].end), _offset(lines, following.start))
    row = tokens[last].start[0] if tokens[last].type == tokenize.NEWLINE else following.start[0]
    return _Gap(lines[row], lines[row])


def _tokenize(text: str) -> list[tokenize.TokenInfo]:
    """Tokenize a text, with the line ends that Python's grammar knows; rows and columns stay the same."""
    plain = io.StringIO(_NEWLINE.sub("\n", text))
    try:
        return list(tokenize.generate_tokens(plain.readline))
    except (tokenize.TokenError, SyntaxError) as error:
        # The module is sound, but `tokenize` is stricter than the grammar with backslashes at a text's end.
        raise InjectionError(f"no tokens can be made of it: {error}") from error


def _ends_statement(tokens: list[tokenize.TokenInfo], number: int, token: tokenize.TokenInfo) -> bool:
    """Tell whether a token ends a simple statement; a semicolon at the end of a line has ended it already."""
    if token.string == ";":
        return token.type == tokenize.OP
    return token.type == tokenize.NEWLINE and tokens[number - 1].string != ";"


def _offset(lines: list[int], position: tuple[int, int]) -> int:
    return lines[position[0] - 1] + position[1]


def _calls(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a module that are the loader's call."""
    call = ast.parse(CALL).body[0]
    wanted = ast.dump(call)
    # Dumping all of a large module would take longer than the rest of the injection.
    return [
        statement
        for statement in tree.body
        if type(statement) is type(call) and ast.dump(statement) == wanted
    ]


def _check(tree: ast.Module, result: bytes) -> None:
    """See that nothing but the call was added."""
    changed = _parse(result)
    calls = _calls(changed)
    changed.body = [statement for statement in changed.body if statement not in calls]
    if len(calls) != 1 or ast.dump(changed) != ast.dump(tree):
        raise InjectionError("there is no place for it that leaves the rest as it is")
