"""The words of a file: comments, docstrings and messages of code; all of a page or TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterator

# One lexer for Python and Cython: `ast` and `tokenize` need 5 seconds for the files.
STRING = r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"'
TOKEN = re.compile(rf"#[^\n]*(?:\n *#[^\n]*)*|{STRING}|{STRING.translate({34: 39})}", re.DOTALL)
# These read text with zeros for strings and blanks for comments.
DOCSTRING = re.compile(r"(?:\A|:\s*\n)\s*r?(?=\0\0\0)")
LITERALS = re.compile(r"\0+(?:\s+[rbf]{0,2}\0+)*")
MESSAGE = re.compile(r"raise |help=|logger\.\w+\(|Error\(")
STATEMENT = re.compile(r"( *).*(?:\n\1[ )\]].*)*")
NO_CODE = re.compile(r"(```.*?```|`[^`\n]*`)|[^`\n]+|`", re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`|\{[^{}\n]*\}")


def units(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, the scopes and the text of each part of a file that has words."""
    is_page = path.endswith((".md", ".toml"))
    yield 0, "names", f"{_code(text) if is_page else TOKEN.sub(_code_of_token, text)}\n{path}"
    if path.startswith("kafkalog/"):
        yield 0, "identifiers", TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for start, scopes, unit in [(0, "every", text)] if is_page else _parts(path, text):
        # Names are not words: a name in backticks, and the values of a message.
        yield start, scopes, INLINE_CODE.sub(lambda found: "_" * len(found[0]), unit)


def _code(text: str) -> str:
    """Return the text with blanks for all that is not in backticks."""
    return NO_CODE.sub(lambda found: found[1] or " " * len(found[0]), text)


def _code_of_token(token: re.Match[str]) -> str:
    return _code(token[0]) if token[0].startswith(("#", '"""')) else token[0]


def _parts(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    tokens = {found.start(): found[0] for found in TOKEN.finditer(text)}
    code = TOKEN.sub(lambda x: re.sub(r"[^\n]", " " if x[0][0] == "#" else "\0", x[0]), text)
    docstrings = {found.end() for found in DOCSTRING.finditer(code)}
    for start, token in tokens.items():
        if token.startswith("#") or (start in docstrings and token.startswith('"""')):
            is_help = "/cli/" in path and token.startswith('"')
            yield start, "every first-word" + " messages" * is_help, token
    end = 0
    for found in MESSAGE.finditer(code):
        statement = STATEMENT.match(code, code.rfind("\n", 0, found.start()) + 1)
        if statement and statement.start() >= end:
            start, end = statement.span()
            yield start, "every messages", _strings(text[start:end], statement[0])
            code = code[:start] + re.sub("\0", " ", code[start:end]) + code[end:]
    for found in LITERALS.finditer(code) if path.startswith("kafkalog/") else ():
        strings = _strings(text[found.start() : found.end()], found[0])
        if strings.count(" ") >= 3 and found.start() not in docstrings:
            yield found.start(), "every messages", strings


def _strings(text: str, code: str) -> str:
    """Return the text with underscores for all that is neither a string nor white space."""
    pairs = zip(text, code, strict=True)
    return "".join(each if mask == "\0" or each.isspace() else "_" for each, mask in pairs)
