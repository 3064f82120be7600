"""Records of text, which compresses to a third to a seventh."""

from __future__ import annotations

import random

from asv_bench.peers.common import TIMESTAMP_MS, Records

CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "WN", "US")
AIRPORTS = ("EWR", "JFK", "LGA", "IAH", "MIA", "ATL", "ORD", "LAX", "BOS", "SFO", "MCO")


def make_texts(count: int, value_size: int, *, seed: int = 1) -> Records:
    """Return records whose values are flights as text, all of one size."""
    source = random.Random(seed)

    def value() -> bytes:
        text = ""
        while len(text) < value_size:
            text += (
                f'{{"carrier":"{source.choice(CARRIERS)}","flight":{source.randrange(1, 6000)},'
                f'"origin":"{source.choice(AIRPORTS)}","dest":"{source.choice(AIRPORTS)}",'
                f'"dep_delay":{source.randrange(-20, 200)},'
                f'"distance":{source.randrange(100, 2600)}}}'
            )
        return text[:value_size].encode()

    return Records(
        keys=[b"key-%012d" % number for number in range(count)],
        values=[value() for _ in range(count)],
        timestamps=[TIMESTAMP_MS + number for number in range(count)],
    )
