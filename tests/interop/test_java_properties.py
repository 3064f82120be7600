"""The parser of properties files, and Java's own, on thousands of nasty texts."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kafkalog.java_properties import ENCODING, PropertiesSyntaxError, parse_properties

SOURCE = Path(__file__).with_name("JavaProperties.java")
PIECES = [
    *"ab=: \t\f\\\r\n#!",
    "\r\n",
    "\\\n",
    "\\\r\n  ",
    "\\u0061",
    "\\u00e4",
    "\\uD83D\\uDE00",
    "\\u12",
    "\\n",
    "key",
    "\xe4",
    "\xa0",
]


def _hex(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def _described(text: str) -> str:
    try:
        pairs = {each.key: each.value for each in parse_properties(text)}
    except PropertiesSyntaxError:
        return "refused"
    # As Java's map sorts: by 16-bit units.
    keys = sorted(pairs, key=_hex)
    return " ".join(f"{_hex(key)}={_hex(pairs[key])}" for key in keys)


@pytest.mark.skipif(shutil.which("java") is None, reason="NOT TESTED against Java: no java here")
def test_properties_random_texts_are_parsed_as_java_does() -> None:
    """Pairs and refusals are the same on every one of them."""
    source = random.Random(20)
    texts = ["".join(source.choices(PIECES, k=source.randint(0, 14))) for _number in range(20_000)]
    encoded = [text.encode(ENCODING) for text in texts]
    done = subprocess.run(
        ["java", str(SOURCE)],
        input=b"".join(struct.pack(">i", len(data)) + data for data in encoded),
        capture_output=True,
        check=True,
        timeout=120,
    )
    expected = done.stdout.decode("ascii").split("\n")[:-1]
    assert len(texts) == len(expected)
    for text, line in zip(texts, expected, strict=True):
        assert line == _described(text), repr(text)
