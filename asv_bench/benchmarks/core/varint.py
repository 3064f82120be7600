"""Varints through their entry points: mostly the cost of a call; kernels have them inline."""

from __future__ import annotations

from ..common import load, varint

CALLS = 1000
LARGEST = {1: 63, 2: 8191, 5: (1 << 34) - 1, 10: (1 << 63) - 1}


class DecodeVarlongs:
    """A thousand varlongs, one call each."""

    params = (1, 2, 5, 10)
    param_names = ("encoded_bytes",)

    def setup(self, encoded_bytes):
        """Encode a thousand numbers of the size, one after another."""
        (self.decode,) = load("kafkalog._core.varint", "decode_varlong")
        one = varint(LARGEST[encoded_bytes])
        assert encoded_bytes == len(one)
        self.data = one * CALLS
        self.positions = range(0, len(self.data), encoded_bytes)

    def time_decode(self, encoded_bytes):
        """Decode each at its position."""
        decode, data = self.decode, self.data
        for position in self.positions:
            decode(data, position)


class EncodeVarlongs:
    """A thousand varlongs, one call each."""

    params = (1, 2, 5, 10)
    param_names = ("encoded_bytes",)

    def setup(self, encoded_bytes):
        """Choose the number."""
        (self.encode,) = load("kafkalog._core.varint", "encode_varlong")
        self.value = LARGEST[encoded_bytes]

    def time_encode(self, encoded_bytes):
        """Encode the same number again and again."""
        encode, value = self.encode, self.value
        for _ in range(CALLS):
            encode(value)
