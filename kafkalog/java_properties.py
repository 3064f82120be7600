"""Syntax of Java's properties files: Kafka's `server.properties` and `meta.properties`.

A line has a key and a value, separated by `=`, `:` or blanks. Lines that begin with `#` or `!` are
comments; a backslash at the end joins the next line, without its leading blanks; `\\t`, `\\n`,
`\\r`, `\\f` and `\\u` with four digits are escapes, and a backslash before other characters is
dropped. Blanks after a value belong to it. Files are always read as ISO-8859-1, as by Java.

Thread-safety: pure functions. This module has no list of keys and opens no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["ENCODING", "PropertiesSyntaxError", "Property", "parse_properties"]

ENCODING: Final = "iso-8859-1"

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# The key ends at the first '=', ':' or blank that no backslash precedes.
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)(?:(?<=u)([0-9A-Fa-f]{4}))?", re.DOTALL)
_UNESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """
    One pair of a properties file.

    Attributes:
        key, value: with escapes undone.
        line: number of the line it begins on, from 1.
    """

    key: str
    value: str
    line: int


class PropertiesSyntaxError(ValueError):
    """A line that Java refuses too; `line` is its number."""

    def __init__(self, message: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """
    Return the pairs of a properties file in their order, all of those that name one key twice.

    In Java the last of several pairs with one key counts; which it is here is the caller's affair.

    Raises:
        PropertiesSyntaxError: a `\\u` escape without four hex digits.
    """
    found = []
    for line, number in _logical_lines(text):
        match = _KEY.match(line)
        end = match.end() if match else 0
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        found.append(Property(_unescape(line[:end], number), _unescape(rest, number), number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the lines that hold pairs, joined, with the number of the first of each."""
    if text.endswith(("\n", "\r")) and not text.endswith("\r\n"):
        # Java sees no end of a line there, only that of the file; it matters after a backslash.
        text = text[:-1]
    joined, first, open_ended = "", 0, False
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            open_ended = False
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        # An odd number of backslashes: the last one escapes the end of the line.
        open_ended = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if open_ended:
            joined = joined[:-1]
            continue
        yield joined, first
        joined = ""
    # A backslash at the end of the file makes a pair even of nothing.
    if joined or open_ended:
        yield joined, first


def _unescape(text: str, line: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        character = match[1]
        if character == "u":
            if match[2] is None:
                raise PropertiesSyntaxError("a \\u escape without four hex digits", line)
            return chr(int(match[2], 16))
        return _UNESCAPES.get(character, character)

    unescaped = _ESCAPE.sub(replacement, text)
    # Two halves of one character beyond 16 bits arrive as two escapes.
    units = unescaped.encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "surrogatepass")
