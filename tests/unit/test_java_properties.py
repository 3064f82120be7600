"""Tests of Java's properties syntax: separators, comments, joined lines, escapes, line numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.java_properties import PropertiesSyntaxError, Property, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b", 1)]),
        ("a = b ", [("a", "b ", 1)]),
        ("a:b\nc d\ne", [("a", "b", 1), ("c", "d", 2), ("e", "", 3)]),
        ("  a\t=\t=b", [("a", "=b", 1)]),
        ("a = : b", [("a", ": b", 1)]),
        ("a\fb", [("a", "b", 1)]),
        ("#a=1\n!b=2\n\n   # c\n d=3", [("d", "3", 5)]),
        ("#a=1\\\nb=2", [("b", "2", 2)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("a=b\\\n   c\\\r\n\td\ne=f", [("a", "bcd", 1), ("e", "f", 4)]),
        ("a=b\\\n#c", [("a", "b#c", 1)]),
        ("a=b\\\n\nc=d", [("a", "b", 1), ("c", "d", 3)]),
        ("\\\n#c\nd=e", [("d", "e", 3)]),
        ("\\\n\n  d=e", [("d", "e", 3)]),
        ("a\\\n  =b", [("a", "b", 1)]),
        ("a=b\\\\\nc=d", [("a", "b\\", 1), ("c", "d", 2)]),
        ("a=b\rc=d\r\ne=f", [("a", "b", 1), ("c", "d", 2), ("e", "f", 3)]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e", 1)]),
        ("a=\\t\\n\\r\\f\\q\\\\", [("a", "\t\n\r\fq\\", 1)]),
        ("a=\\u00e4\\uD83D\\uDE00", [("a", "\u00e4\U0001f600", 1)]),
        ("a=\\uD83D", [("a", "\ud83d", 1)]),
        ("\\u0061=\\u003d", [("a", "=", 1)]),
        ("=v", [("", "v", 1)]),
        ("a=b\\", [("a", "b", 1)]),
        ("\\", [("", "", 1)]),
        ("\\\n", [("", "", 1)]),
        ("\\\r\n", []),
        ("\\\n ", []),
        ("", []),
    ],
)
def test_properties_are_parsed_as_in_java(text: str, expected: list[tuple[str, str, int]]) -> None:
    """Separators, comments, joined lines, escapes, and one key twice."""
    assert expected == parse_properties(text)


@pytest.mark.parametrize("escape", ["\\u", "\\u12", "\\u12g4", "\\u 123", "\\uu0061"])
def test_properties_bad_unicode_escape_names_its_line(escape: str) -> None:
    """The line of the pair's first character, in a key as in a value."""
    for pair in (f"a=x\\\n  y{escape}", f"a{escape}=b"):
        with pytest.raises(PropertiesSyntaxError, match="four hex digits") as caught:
            parse_properties(f"# comment\n\nfirst=1\n{pair}\nlast=2\n")
        assert 4 == caught.value.line


@given(st.text(alphabet="ab=: \t\f\\\r\n#!u0", max_size=30))
def test_properties_any_text_gives_pairs_or_a_line(text: str) -> None:
    """Nothing else is raised, and lines rise within the text."""
    try:
        pairs = parse_properties(text)
    except PropertiesSyntaxError as error:
        assert 1 <= error.line <= 1 + len(text)
        return
    lines = [each.line for each in pairs]
    assert sorted(set(lines)) == lines
    assert all(isinstance(each, Property) for each in pairs)
