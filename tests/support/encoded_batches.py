"""Encoded batches as a producer sends them, and with one field overwritten."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from typing_extensions import Buffer

from kafkalog._core import append_fast_path as fast_path
from kafkalog._core import crc32c
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.memory_records import MemoryRecords
from kafkalog.config import LogConfig
from kafkalog.model import AppendOrigin, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.validation import follower, leader

__all__ = [
    "NOW_MS",
    "BatchSpec",
    "batch",
    "edited",
    "follower_fast_path",
    "validate_as_follower",
    "validate_as_leader",
]

NOW_MS = 1_761_000_000_000


@dataclass(frozen=True)
class BatchSpec:
    """The parameters of `batch`."""

    codec: Codec = Codec.NONE
    timestamps: tuple[int, ...] = (NOW_MS, NOW_MS + 5, NOW_MS + 2)
    keys: tuple[bytes | None, ...] = (b"a", b"b", b"c")


def batch(made: BatchSpec | None = None, **header: Any) -> bytes:
    """A batch of three records as a producer sends it."""
    made = BatchSpec() if made is None else made
    builder = BatchBuilder()
    for key, timestamp_ms in zip(made.keys, made.timestamps, strict=True):
        builder.append(key, b"value of the record", timestamp_ms)
    payload = None
    if made.codec != Codec.NONE:
        payload = compress(made.codec, builder.payload())
    return bytes(builder.finish(codec=int(made.codec), payload=payload, **header))


def edited(data: bytes, position: int, layout: str, value: int) -> bytes:
    """A batch with one header field overwritten and its CRC made right again."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c.value(changed[21:]))
    return bytes(changed)


def follower_fast_path(data: bytes | bytearray, size_limit: int) -> MemoryRecords | None:
    """The fast validation of a follower's append, which names the codecs as the slow one does."""
    unchanged = tuple(Rewriting(codec, codec) for codec in Codec)
    return fast_path.follower_fast_path(data, size_limit, unchanged)


def validate_as_leader(
    data: Buffer, config: LogConfig, now_ms: int, origin: AppendOrigin = AppendOrigin.EMBEDDED
) -> MemoryRecords:
    """The leader's validation for a log with these settings."""
    return leader.validate_as_leader(data, AppendRules.of(config), now_ms, origin)


def validate_as_follower(data: Buffer, config: LogConfig) -> MemoryRecords:
    """The follower's validation for a log with these settings."""
    return follower.validate_as_follower(data, AppendRules.of(config))
