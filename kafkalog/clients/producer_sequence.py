"""Producer ids, and the numbers of batches that a caller gives.

Producer ids have 63 bits. Each source has a range, so that no two sources give the same id:

    0 to 2^60 - 1       callers: ids that they choose or compute from a name; brokers count from 0
    2^61 to 2^62 - 1    kafkalog: ids of its producers, and `LogManager.new_producer_id`

kafkalog draws its ids at random and stores no counter: a counter could be lost with its directory,
or be copied with it. No draw repeats an earlier one, not after a crash either: two of a million ids
are equal with a probability of 2e-7.

Thread-safety: immutable values and pure functions.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Final, Self

from kafkalog.state.producer_entry import sequence_after

__all__ = ["ProducerSequence", "draw_producer_id"]

NAMED_ID_BITS: Final = 60
DRAWN_ID_BITS: Final = 61


def draw_producer_id(random: Random) -> int:
    """Return an unused producer id, of the range of kafkalog."""
    return random.getrandbits(DRAWN_ID_BITS) + (1 << DRAWN_ID_BITS)


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """
    Number of a batch: its producer, and the sequence of its first record.

    A producer counts its records of each partition from 0. A batch that is sent again with its
    number is not stored again, as long as the partition has the state of the producer.

    >>> ProducerSequence(4711, 0, 0).after(10)
    ProducerSequence(producer_id=4711, producer_epoch=0, sequence=10)

    Attributes:
        producer_id: id of the producer, from 0 to 2^63 - 1; ids of callers are below 2^60, or from
            `LogManager.new_producer_id`.
        producer_epoch: from 0 to 32,767; after a larger epoch the smaller ones are refused.
        sequence: number of records of this epoch that were sent to the partition before, modulo
            2^31.

    Raises:
        TypeError: a field is not an integer.
        ValueError: a field is out of range.
    """

    producer_id: int
    producer_epoch: int
    sequence: int

    def __post_init__(self) -> None:
        for name, bits in (("producer_id", 63), ("producer_epoch", 15), ("sequence", 31)):
            field = operator.index(getattr(self, name))
            if not 0 <= field < 2**bits:
                raise ValueError(f"{name} must be between 0 and {2**bits - 1}, got {field}")

    @classmethod
    def of_name(cls, name: str, *, producer_epoch: int = 0, sequence: int = 0) -> Self:
        """
        Return a number of the producer with a name: its id is a hash of the name.

        The same name has the same id in every process. Ids of two names are equal with a
        probability of 2^-60.
        """
        digest = blake2b(name.encode(), digest_size=8).digest()
        producer_id = int.from_bytes(digest) >> (64 - NAMED_ID_BITS)
        return cls(producer_id, producer_epoch, sequence)

    def after(self, record_count: int) -> Self:
        """Return the number of the next batch, after one with so many records."""
        following = sequence_after(self.sequence, record_count)
        return type(self)(self.producer_id, self.producer_epoch, following)
