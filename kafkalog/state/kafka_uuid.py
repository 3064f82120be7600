"""Kafka's spelling of a 16-byte id: URL-safe base64 without padding, 22 characters.

Thread-safety: pure functions.
"""

from __future__ import annotations

import base64
import re
import uuid
from typing import Final

__all__ = ["ZERO_ID", "format_id", "is_reserved_directory_id", "new_id", "parse_id"]

ZERO_ID: Final = uuid.UUID(int=0)

# With padding an id has 24 characters; brokers accept both.
_ID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")


def format_id(value: uuid.UUID) -> str:
    """
    Return an id as Kafka writes it.

    >>> format_id(uuid.UUID(bytes=bytes(range(16))))
    'AAECAwQFBgcICQoLDA0ODw'
    """
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def parse_id(text: str) -> uuid.UUID:
    """Return the id that `text` spells; ValueError where it spells none."""
    if _ID.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a 16-byte id in URL-safe base64")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def new_id() -> uuid.UUID:
    """Return a random id whose spelling does not begin with '-': it may stand on command lines."""
    while True:
        value = uuid.uuid4()
        if not format_id(value).startswith("-"):
            return value


def is_reserved_directory_id(value: uuid.UUID) -> bool:
    """Return whether a directory id is one of the hundred with a meaning of their own."""
    return value.int < 100
