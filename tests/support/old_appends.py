"""Appends of old messages: settings of logs of each format, and sets as producers send them."""

from __future__ import annotations

from typing import Any

from typing_extensions import Buffer

from kafkalog._core.header import parse_header
from kafkalog.config import LogConfig
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import NOW_MS
from tests.support.reference_messages import Message, encode_message

__all__ = ["LONG", "RELEASES", "config", "messages", "positions", "wrapper"]

RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "4.1"}
WORDS = {None: "producer", 0: "uncompressed", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
# Compresses well: an incompressible one stays plain, which has a separate test.
LONG = b"value of the record " * 20


def config(magic: int, codec: int | None = None, **changes: Any) -> LogConfig:
    """Settings of a log of this format."""
    return LogConfig(
        message_format_version=RELEASES[magic], compression_type=WORDS[codec], **changes
    )


def messages(magic: int, count: int = 3, *, timestamp: int = NOW_MS) -> list[Message]:
    """Messages as a producer counts them."""
    return [
        Message(number, magic, 0, timestamp + number if magic else -1, b"key%d" % number, LONG)
        for number in range(count)
    ]


def wrapper(inner: bytes, *, magic: int = 1, offset: int = 0, **fields: Any) -> bytes:
    """A gzip wrapper around bytes, whatever they are."""
    value = codecs.compress(codecs.GZIP, inner, magic)
    arguments = {"timestamp": NOW_MS if magic else -1, "attributes": codecs.GZIP} | fields
    return encode_message(Message(offset, magic, value=value, **arguments))


def positions(data: Buffer) -> list[int]:
    """Return the positions of the entries of a run."""
    found, position = [], 0
    while position < len(memoryview(data)):
        found.append(position)
        position = parse_header(data, position).end_position
    return found
