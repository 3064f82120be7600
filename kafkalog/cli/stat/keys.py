"""Keys as text. Keys are foreign bytes, and may contain anything.

Printable UTF-8 is shown, with backslashes doubled; everything else is escaped, so that no key can
move a cursor or act as markup once the view escapes it. Long keys are cut, with their length and a
hash after them, so that they can be distinguished. Hidden keys are their hash alone.

Thread-safety: pure functions.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["key_text"]

# In characters; a byte that is not text needs four.
_SHOWN_MAX: Final = 48
_HASH_DIGITS: Final = 12


def key_text(key: bytes, *, hidden: bool = False) -> str:
    r"""
    Return a key as text.

    >>> key_text(b"customer-1"), key_text(b"\x00\x07<b>")
    ('customer-1', '\\x00\\x07<b>')

    Args:
        key: its bytes.
        hidden: True to show only its hash.
    """
    digest = hashlib.sha256(key).hexdigest()[:_HASH_DIGITS]
    if hidden:
        return f"sha256:{digest}"
    # Enough bytes for the longest characters; a character that the limit cuts is not shown.
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
