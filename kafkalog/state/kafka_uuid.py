"""Kafka's text form of a 16-byte id: URL-safe base64 without padding, 22 characters.

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
    """Return the id of its text form; ValueError for other text."""
    if _ID.fullmatch(text) is None:
        raise ValueError(f"an id must be 16 bytes in URL-safe base64, got {text[:40]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def new_id() -> uuid.UUID:
    """Return a random id whose text form does not begin with '-', for use on command lines."""
    while True:
        value = uuid.uuid4()
        if not format_id(value).startswith("-"):
            return value


def is_reserved_directory_id(value: uuid.UUID) -> bool:
    """Return whether a directory id is one of the hundred that Kafka reserves."""
    return value.int < 100
