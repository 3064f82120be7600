"""Large values as text, piece by piece, so that a value of 100 MB is not in memory many times.

Thread-safety: pure functions; an iterator belongs to one thread at a time.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator
from typing import Final

from kafkalog.cli.streams import escape

__all__ = ["LARGE_BYTES", "json_pieces", "text_pieces"]

# Larger values are written in pieces.
LARGE_BYTES: Final = 1 << 20
# A multiple of 3: then base64 of pieces is that of the whole.
_PIECE_BYTES: Final = 3 << 16
_new_decoder: Final = codecs.getincrementaldecoder("utf-8")
# Decoding with "backslashreplace" calls a handler for each byte: ten times as slow.
_ESCAPES: Final = {ord("\n"): "\\n", ord("\t"): "\\t"}
_BYTE_TEXTS: Final = [
    chr(byte) if 32 <= byte < 127 else _ESCAPES.get(byte, f"\\x{byte:02x}") for byte in range(256)
]


def text_pieces(data: bytes, form: str) -> Iterator[str]:
    """Yield pieces of a value as escaped text of one line; a piece that is not UTF-8 by bytes."""
    if form in ("hex", "base64"):
        yield from _encoded(data, form)
        return
    decoder, pending = _new_decoder(), b""
    for piece in _pieces(data):
        try:
            text = decoder.decode(piece)
            yield escape(text).replace("\n", "\\n").replace("\t", "\\t")
            pending = decoder.getstate()[0]
        except UnicodeDecodeError:
            decoder.reset()
            yield _as_bytes(pending + piece)
            pending = b""
    yield _as_bytes(pending)


def json_pieces(data: bytes, form: str) -> Iterator[str]:
    """Yield pieces of a value as JSON: a string, or an object with base64 if it is not UTF-8."""
    if form in ("hex", "base64"):
        yield '"'
        yield from _encoded(data, form)
        yield '"'
    elif _is_utf8(data):
        decoder = _new_decoder()
        yield '"'
        for piece in _pieces(data):
            yield json.dumps(decoder.decode(piece))[1:-1]
        yield '"'
    else:
        yield '{"base64":"'
        yield from _encoded(data, "base64")
        yield '"}'


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES))


def _encoded(data: bytes, form: str) -> Iterator[str]:
    for piece in _pieces(data):
        yield piece.hex() if form == "hex" else base64.b64encode(piece).decode()


def _as_bytes(data: bytes) -> str:
    return "".join(map(_BYTE_TEXTS.__getitem__, data))


def _is_utf8(data: bytes) -> bool:
    decoder = _new_decoder()
    try:
        for piece in _pieces(data):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
