"""Records of a commit journal: their codec, against a reference, cut short, with other bytes."""

from __future__ import annotations

from random import Random

import pytest

from kafkalog.state.journal_records import JournalRecord, decode_records, encode_records
from tests.support.reference_journal import record_bytes, records_of

EXAMPLE = [
    JournalRecord(1_700_000_000_000, b"k", b"value"),
    JournalRecord(-1, None, None),
    JournalRecord(0, b"", b""),
    JournalRecord(2**63 - 1, b"key", None),
]


def random_field(random: Random) -> bytes | None:
    """Return a key or value."""
    return None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 9, 300)))


@pytest.mark.parametrize("seed", range(30))
def test_records_are_those_of_the_reference(seed: int) -> None:
    """Written and read."""
    random = Random(seed)
    records = [
        JournalRecord(random.randrange(-(2**63), 2**63), random_field(random), random_field(random))
        for _ in range(random.randrange(6))
    ]
    data = encode_records(records)
    assert data == record_bytes([(*each,) for each in records])
    assert records_of(data) == records
    assert decode_records(data, len(records)) == records


def test_every_truncation_is_refused() -> None:
    """Also between two records: the number of records is known."""
    data = encode_records(EXAMPLE)
    assert decode_records(data, len(EXAMPLE)) == EXAMPLE
    for size in range(len(data)):
        with pytest.raises(ValueError, match="must"):
            decode_records(data[:size], len(EXAMPLE))
    with pytest.raises(ValueError, match="must end after 4 records"):
        decode_records(data + b"\0", len(EXAMPLE))


@pytest.mark.parametrize("count", [0, 3, 5, 2**63 - 1])
def test_another_number_of_records_is_refused(count: int) -> None:
    """A large one as well, at once."""
    with pytest.raises(ValueError, match=rf"data must (have|end after) {count} records"):
        decode_records(encode_records(EXAMPLE), count)


def test_every_other_byte_is_refused_or_is_another_record() -> None:
    """No other exception, whatever a byte is."""
    data = encode_records(EXAMPLE)
    refused = 0
    for at in range(len(data)):
        for mask in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= mask
            try:
                found = decode_records(bytes(changed), len(EXAMPLE))
            except ValueError:
                refused += 1
                continue
            assert found != EXAMPLE
            assert encode_records(found) == changed
    # Most bytes of a size, and no byte of a timestamp, key or value.
    assert 50 < refused <= 3 * 8 * len(EXAMPLE)


@pytest.mark.parametrize("size", [-2, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("at", [8, 12])
def test_impossible_size_is_refused(at: int, size: int) -> None:
    """The message has it."""
    data = bytearray(encode_records(EXAMPLE))
    data[at : at + 4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError, match=f"size of a field must fit, got {size}"):
        decode_records(bytes(data), len(EXAMPLE))
