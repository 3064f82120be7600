"""Random mutations of known inputs, for runs without the counters of a fuzzer.

Under AddressSanitizer the fuzzer has no counters: the library of the sanitizer replaces them.
There the inputs found before are replayed and changed at random.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

__all__ = ["mutated", "run_mutations"]

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
CHANGES_MAX = 5


def mutated(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """Return an input after a few changes: bytes set, ranges removed, inserted, or copied."""
    made = bytearray(data)
    for _ in range(source.randint(1, CHANGES_MAX)):
        place = source.randrange(len(made) + 1)
        kind = source.randrange(6)
        if kind == 0:
            made[place : place + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            width = source.choice([1, 2, 4, 8])
            made[place : place + width] = bytes([source.choice(INTERESTING)]) * width
        elif kind == 2:
            made[place : place + 1] = bytes([(made[place] if place < len(made) else 0) ^ 1])
        elif kind == 3:
            del made[place : place + source.randint(1, 16)]
        elif kind == 4:
            made[place:place] = source.randbytes(source.randint(1, 8))
        else:
            other = source.choice(others)
            start = source.randrange(len(other) + 1)
            made[place:place] = other[start : start + source.randint(1, 64)]
    return bytes(made)


def run_mutations(
    target: Callable[[bytes], None],
    inputs: Sequence[bytes],
    *,
    seconds: float,
    size_max: int,
    seed: int,
) -> int:
    """Run all inputs, then changed ones until the time is over; return the number of runs."""
    source = random.Random(seed)
    for data in inputs:
        target(data)
    count, end = len(inputs), time.monotonic() + seconds
    while inputs and time.monotonic() < end:
        data = mutated(source.choice(inputs), inputs, source)[:size_max]
        try:
            target(data)
        except BaseException as error:
            error.add_note(f"with bytes.fromhex({data.hex()!r})")
            raise
        count += 1
    return count
