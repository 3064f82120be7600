"""The slow, obvious murmur2: whole numbers, cut to 32 bits after each step."""

from __future__ import annotations

__all__ = ["murmur2", "partition_of"]

_MASK = 0xFFFF_FFFF
_FACTOR = 0x5BD1_E995
_SEED = 0x9747_B28C


def murmur2(key: bytes) -> int:
    """Return the hash as Java has it: an int, with a sign."""
    state = _SEED ^ len(key)
    words = len(key) // 4
    for number in range(words):
        word = int.from_bytes(key[4 * number : 4 * number + 4], "little")
        word = word * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        state = state * _FACTOR & _MASK ^ word
    tail = key[4 * words :]
    if tail:
        state = (state ^ int.from_bytes(tail, "little")) * _FACTOR & _MASK
    state = (state ^ state >> 13) * _FACTOR & _MASK
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key: the hash without its sign bit, modulo their number."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count
