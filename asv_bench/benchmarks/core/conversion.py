"""Conversion of batches between formats: a megabyte up from v1 and v0, and down to them."""

from __future__ import annotations

from ..common import batch, load, messages, record_count_of

TOTAL_BYTES = 1024 * 1024
BATCH_BYTES = 16 * 1024
VALUE_BYTES = 100


class ConvertUp:
    """Plain messages, merged into batches of v2."""

    params = (0, 1)
    param_names = ("magic",)

    def setup(self, magic):
        """Make the messages."""
        (self.convert,) = load("kafkalog", "convert_batches")
        self.data = messages(magic, record_count_of(TOTAL_BYTES, VALUE_BYTES), VALUE_BYTES)

    def time_convert(self, magic):
        """All of them, every checksum checked and computed again."""
        self.convert(self.data, 2)


class ConvertDown:
    """Uncompressed batches of v2 to a message for each record."""

    params = (0, 1)
    param_names = ("magic",)

    def setup(self, magic):
        """Make the batches."""
        (self.convert,) = load("kafkalog", "convert_batches")
        count = record_count_of(BATCH_BYTES, VALUE_BYTES)
        self.data = b"".join(
            batch(number * count, count, VALUE_BYTES)
            for number in range(TOTAL_BYTES // BATCH_BYTES)
        )

    def time_convert(self, magic):
        """All of them."""
        self.convert(self.data, magic)
