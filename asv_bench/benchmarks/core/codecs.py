"""Codecs: decompression of the payload of one batch, by the path of every reader."""

from __future__ import annotations

from ..common import KAFKA_BATCH_SIZES, load, random_bytes

CODECS = ("GZIP", "SNAPPY", "LZ4", "ZSTD")
PIECE_BYTES = 24


class Decompress:
    """A payload of short repeated and short random pieces: it compresses to about a half."""

    params = (CODECS, KAFKA_BATCH_SIZES)
    param_names = ("codec", "batch_bytes")

    def setup(self, codec, batch_bytes):
        """Make the payload and compress it."""
        compress, self.decompress, codecs = load(
            "kafkalog.records.codecs", "compress", "decompress", "Codec"
        )
        noise = random_bytes(batch_bytes // 2)
        pieces = (noise[at : at + PIECE_BYTES] for at in range(0, len(noise), PIECE_BYTES))
        self.codec = codecs[codec]
        self.packed = compress(self.codec, b"a piece that comes again".join(pieces))

    def time_decompress(self, codec, batch_bytes):
        """The whole payload."""
        self.decompress(self.codec, self.packed)
