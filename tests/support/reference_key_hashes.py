"""SipHash-2-4 with a 128-bit result, slow and by the book (Aumasson and Bernstein): the oracle."""

from __future__ import annotations

__all__ = ["siphash_128"]

MASK = 2**64 - 1


def rotate(word: int, count: int) -> int:
    """Rotate 64 bits to the left."""
    return (word << count | word >> (64 - count)) & MASK


def sip_round(v: list[int]) -> None:
    """One round over the four words of the state."""
    v[0] = (v[0] + v[1]) & MASK
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] = (v[2] + v[3]) & MASK
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = (v[0] + v[3]) & MASK
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = (v[2] + v[1]) & MASK
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


def siphash_128(secret: bytes, data: bytes) -> bytes:
    """Return the 16 bytes of SipHash-2-4-128 under a secret of 16 bytes."""
    k0, k1 = int.from_bytes(secret[:8], "little"), int.from_bytes(secret[8:], "little")
    constants = b"somepseudorandomlygeneratedbytes"
    v = [
        int.from_bytes(constants[8 * i : 8 * i + 8], "big") ^ key
        for i, key in enumerate((k0, k1, k0, k1))
    ]
    v[1] ^= 0xEE
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    halves = []
    for index, mark in ((2, 0xEE), (1, 0xDD)):
        v[index] ^= mark
        for _ in range(4):
            sip_round(v)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return b"".join(half.to_bytes(8, "little") for half in halves)
