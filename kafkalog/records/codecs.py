"""The five codecs of Kafka, each in the framing that brokers and clients agree on.

Only the records of a batch are compressed, never its header. The framings are described in
`gzip_members`, `snappy`, `lz4_frame` and `zstd_frames`. Messages of the old formats have no zstd,
and those of magic 0 have a different lz4 header.

Invariants: the limit bounds the output and the memory taken for it, whatever the input declares; a
stream that ends early is refused; every error is one of kafkalog's. Safe in any thread; libraries
release the GIL while they work. A codec whose package is not installed fails at its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.mapping import check_bytes
from kafkalog.codec_table import CODECS, CodecRow
from kafkalog.config import LogConfig
from kafkalog.errors import (
    BatchTooLargeError,
    ConfigError,
    UnsupportedCodecError,
)
from kafkalog.records import gzip_members, lz4_frame, snappy, zstd_frames
from kafkalog.settings import settings_of

__all__ = [
    "CODECS",
    "DEFAULT_LIMIT_BYTES",
    "Codec",
    "codec_names",
    "compress",
    "compress_if_smaller",
    "decompress",
    "is_codec_of",
]

DEFAULT_LIMIT_BYTES: Final[int] = settings_of(LogConfig)["decompressed_max_bytes"].default


class Codec(IntEnum):
    """Codec, by its number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> str:
        """Kafka's name in lower case."""
        return self.name.lower()

    @property
    def row(self) -> CodecRow:
        """Row of the codec in the table."""
        return CODECS[self]

    @classmethod
    def of(cls, number: int) -> Codec:
        """
        Return the codec with a number.

        Raises:
            UnsupportedCodecError: the number is unknown; the bits of a batch allow 5 to 7.
        """
        try:
            return cls(number)
        except ValueError as error:
            raise UnsupportedCodecError(
                f"codec must be 0 to {len(CODECS) - 1}, got {number}"
            ) from error

    @classmethod
    def of_config(cls, compression_type: str) -> Codec | None:
        """
        Return the codec of a value of `compression.type`; None for `producer`.

        Raises:
            UnsupportedCodecError: no codec has that name.
        """
        if compression_type == "producer":
            return None
        if compression_type == "uncompressed":
            return cls.NONE
        try:
            return cls[compression_type.upper()]
        except KeyError as error:
            raise UnsupportedCodecError(
                f"codec must be {codec_names(2)}, got {compression_type!r}"
            ) from error


# To ask an enumeration for its member takes three times as long, for each batch.
_BY_NUMBER: Final = {int(codec): codec for codec in Codec}


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """
    Return `data` compressed in the codec's framing.

    Args:
        codec: a `Codec` or its number.
        data: what to compress, any contiguous buffer.
        level: in the codec's own range, None for its default; none and snappy have no levels.
        magic: of the batch.

    Raises:
        UnsupportedCodecError: the codec is unknown, also to this magic, or its library is not
            installed.
        ConfigError: the level is out of range.
    """
    kind = _codec_of(codec, magic)
    level = _checked_level(kind, level)
    octets = _octets(data)
    if kind is Codec.GZIP:
        return gzip_members.compress(octets, level)
    if kind is Codec.SNAPPY:
        return snappy.compress(octets)
    if kind is Codec.LZ4:
        return lz4_frame.compress(octets, level, faulty_header=magic == 0)
    if kind is Codec.ZSTD:
        return zstd_frames.compress(octets, level)
    return bytes(octets)


def compress_if_smaller(
    codec: Codec, data: memoryview, level: int | None = None
) -> tuple[Codec, bytes | None]:
    """
    Return codec and compressed records of a v2 batch; NONE and None where they would not shrink.

    What does not compress must not grow by it. Raises as `compress`.
    """
    if codec is Codec.NONE:
        return codec, None
    payload = compress(codec, data, level)
    return (codec, payload) if len(payload) < len(data) else (Codec.NONE, None)


def decompress(
    codec: int,
    data: Buffer,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    magic: int = 2,
    exact: bool = False,
) -> bytes:
    """
    Return what `data` holds.

    Args:
        codec: a `Codec` or its number.
        data: the compressed records of one batch, any contiguous buffer.
        limit_bytes: most that may come out; more is an error before it is memory.
        magic: of the batch.
        exact: refuse all that other clients refuse, for data that is about to be stored.

    Raises:
        CorruptRecordError: the data is damaged, cut short, or larger than the limit.
        UnsupportedCodecError: the codec is unknown, also to this magic, or its library is not
            installed.
        LogStorageError: the data is mapped, and the disk could not give it.
    """
    kind = _codec_of(codec, magic)
    octets = _octets(data)
    try:
        if kind is Codec.GZIP:
            return gzip_members.decompress(octets, limit_bytes, exact=exact)
        if magic == 0 and kind is Codec.LZ4:
            return lz4_frame.decompress(octets, limit_bytes, check_header=False)
        return _DECOMPRESS[kind](octets, limit_bytes)
    finally:
        # Whatever a library makes of bytes that could not be read: it does not count.
        check_bytes(octets)


def is_codec_of(magic: int, number: int) -> bool:
    """Return whether batches of a magic can have the codec with a number, installed or not."""
    return number in _BY_NUMBER and magic >= CODECS[number].first_magic


def codec_names(magic: int) -> str:
    """Return the names of the codecs that batches of a magic can have, for an error."""
    *names, last = [codec.kafka_name for codec in Codec if is_codec_of(magic, codec)]
    return f"{', '.join(names)} or {last}"


def _codec_of(number: int, magic: int) -> Codec:
    """Return the codec with a number, if batches of this magic can have it."""
    codec = _BY_NUMBER.get(number)
    if codec is None:
        return Codec.of(number)  # raises UnsupportedCodecError
    if magic < 2 and magic < CODECS[number].first_magic:
        raise UnsupportedCodecError(
            f"{codec.kafka_name} does not exist in messages of magic {magic}"
        )
    return codec


def _octets(data: Buffer) -> memoryview:
    """Return a view of single bytes."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _copy(data: memoryview, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise BatchTooLargeError(f"{len(data)} bytes, {limit_bytes} are allowed")
    return bytes(data)


_DECOMPRESS: Final[dict[Codec, Callable[[memoryview, int], bytes]]] = {
    Codec.NONE: _copy,
    Codec.SNAPPY: snappy.decompress,
    Codec.LZ4: lz4_frame.decompress,
    Codec.ZSTD: zstd_frames.decompress,
}


def _checked_level(codec: Codec, level: int | None) -> int:
    """Return the level to use, 0 for a codec without levels."""
    setting = _LEVELS.get(codec)
    if setting is None:
        if level is not None:
            raise ConfigError(f"level must be None for {codec.kafka_name}, got {level!r}")
        return 0
    if level is None:
        level = setting.default
    elif (codec, level) not in _ALLOWED_LEVELS:
        level = setting.check(level)
        _ALLOWED_LEVELS.add((codec, level))
    return level


_LEVELS: Final = {
    codec: setting
    for codec in Codec
    if CODECS[codec].levels is not None
    and (setting := settings_of(LogConfig)[f"compression_{codec.kafka_name}_level"])
}
# Levels that were checked before: one batch after the other has the same.
_ALLOWED_LEVELS: Final[set[tuple[Codec, int]]] = set()
