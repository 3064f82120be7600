"""Keys as text: bytes from strangers, which may be anything.

What is shown is UTF-8 as far as it is printable, a backslash doubled; everything else is escaped,
so that no key can move a cursor or pass for markup once the view escapes it. Long ones are cut,
with their length and a hash behind them, so that they can be told apart. Hidden ones are their hash
alone.

Thread-safety: pure functions.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["key_text"]

# Characters, of which a byte that is no text takes four.
_SHOWN_MAX: Final = 48
_HASH_DIGITS: Final = 12


def key_text(key: bytes, *, hidden: bool = False) -> str:
    r"""
    Return a key as text.

    >>> key_text(b"customer-1"), key_text(b"\x00\x07<b>")
    ('customer-1', '\\x00\\x07<b>')

    Args:
        key: its bytes.
        hidden: whether only its hash is shown.
    """
    digest = hashlib.sha256(key).hexdigest()[:_HASH_DIGITS]
    if hidden:
        return f"sha256:{digest}"
    # Of the longest characters as many are shown; one that is cut through is not.
    start = key[: 4 * _SHOWN_MAX + 4]
    text = start.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    shown = ""
    for each in map(_shown, text):
        if len(shown) + len(each) > _SHOWN_MAX:
            return f"{shown}... ({len(key):,} bytes, sha256:{digest})"
        shown += each
    return shown or "(empty)"


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
