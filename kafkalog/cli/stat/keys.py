"""Keys as text: bytes from strangers, which may be anything.

What is shown is printable ASCII without a backslash of its own; everything else is escaped, so that
two keys that differ look different, and no key can move a cursor or pass for markup once the view
escapes it. Long ones are cut, with their length and a hash behind them, so that they can be told
apart. Hidden ones are their hash alone.

Thread-safety: pure functions.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["key_text"]

_SHOWN_MAX: Final = 48
_HASH_DIGITS: Final = 12
_PRINTABLE: Final = range(0x20, 0x7F)


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
    shown = "".join(map(_shown, key[:_SHOWN_MAX]))
    if len(key) > _SHOWN_MAX:
        return f"{shown}... ({len(key):,} bytes, sha256:{digest})"
    return shown or "(empty)"


def _shown(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if byte in _PRINTABLE else f"\\x{byte:02x}"
