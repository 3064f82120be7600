"""Options of a conversion of batches.

Thread-safety: immutable values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkalog.errors import ConfigError, UnsupportedCodecError
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, Codec, codec_names, is_codec_of

__all__ = ["DEFAULT_BATCH_BYTES", "ConversionOptions"]

DEFAULT_BATCH_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """
    Options of a conversion.

    Attributes:
        magic: the format of the result, 0 to 2.
        codec: its codec, None to keep what each batch has.
        level: of the codec; None for its default. A level is for a codec that is named.
        first_offset: uncompressed batches that are converted downwards lose the records below it.
        batch_bytes: size, uncompressed, up to which plain messages are merged into one v2 batch.
        limit_bytes: largest size of one batch uncompressed.
    """

    magic: int
    codec: Codec | None = None
    level: int | None = None
    first_offset: int = 0
    batch_bytes: int = DEFAULT_BATCH_BYTES
    limit_bytes: int = DEFAULT_LIMIT_BYTES

    def __post_init__(self) -> None:
        if self.magic not in (0, 1, 2):
            raise ValueError(f"magic must be 0, 1 or 2, got {self.magic}")
        if self.codec is not None and not is_codec_of(self.magic, self.codec):
            raise UnsupportedCodecError(
                f"codec must be {codec_names(self.magic)} for v{self.magic},"
                f" got {self.codec.kafka_name}"
            )
        if self.level is not None and self.codec is None:
            raise ConfigError(f"level must be None without a codec, got {self.level}")

    def level_of(self, codec: Codec) -> int | None:
        """Return the level for a codec, which a batch may have kept."""
        return self.level if codec is self.codec else None
