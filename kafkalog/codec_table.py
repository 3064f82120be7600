"""The table of codecs: id, name, formats, levels, package and extra of each.

Settings, options of the command line and of Spark, conversion and the docs take their names and
limits from here. Kernels have the ids in `_core/layout.pxd` and the limits in `_core/codec.pxd`; a
test compares both. `kafkalog.records.codecs` calls the libraries, and exports `CODECS`.

Constants only; this module imports nothing of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "CODECS",
    "CODECS_BY_NAME",
    "CODEC_CHOICES",
    "CODEC_NAMES",
    "CodecLevels",
    "CodecRow",
]


@dataclass(frozen=True, slots=True)
class CodecLevels:
    """
    Levels of a codec.

    Attributes:
        default: level used if none is set.
        lower, upper: limits, both inclusive.
        extra: one more value outside the limits, None for none.
    """

    default: int
    lower: int
    upper: int
    extra: int | None = None


@dataclass(frozen=True, slots=True)
class CodecRow:
    """
    One codec.

    Attributes:
        id: number in the attributes of a batch.
        name: Kafka's name in lower case.
        first_magic: oldest format of batches that can have it.
        levels: None for a codec without levels.
        package: Python package that compresses, None if Python's own library or none is needed.
        extra: extra of kafkalog that installs the package; None if it is always installed.
        framing: form of the compressed bytes, in words.
    """

    id: int
    name: str
    first_magic: int
    levels: CodecLevels | None
    package: str | None
    extra: str | None
    framing: str


CODECS: Final = (
    CodecRow(0, "none", 0, None, None, None, "none"),
    CodecRow(1, "gzip", 0, CodecLevels(-1, 1, 9, -1), None, None, "one member"),
    CodecRow(2, "snappy", 0, None, "cramjam", "snappy", "blocks after a 16-byte header"),
    CodecRow(3, "lz4", 0, CodecLevels(9, 1, 17), "lz4", None, "one frame, independent blocks"),
    CodecRow(4, "zstd", 2, CodecLevels(3, -131_072, 22), "zstandard", None, "frames"),
)
CODECS_BY_NAME: Final = {row.name: row for row in CODECS}
CODEC_NAMES: Final = tuple(CODECS_BY_NAME)
# The names in a sentence, for help and messages.
CODEC_CHOICES: Final = f"{', '.join(CODEC_NAMES[:-1])} or {CODEC_NAMES[-1]}"
