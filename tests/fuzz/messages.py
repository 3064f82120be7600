"""Contents of wrappers of the old formats: sets of messages of magic 0 and 1, unchanged."""

from __future__ import annotations

from kafkalog._core.message import decode_run_lists, decode_run_records, decode_run_tuples
from tests.fuzz.inputs import Choices, mended
from tests.support import message_cases, reference
from tests.support.buffers import exact

__all__ = ["decode_messages"]


def decode_messages(data: bytes) -> None:
    """Decode the bytes as the contents of a wrapper and as a run of plain messages."""
    choices = Choices(data)
    mends, strict, append_time = choices.flags(3)
    magic = choices.byte() & 1
    offset = choices.one_of([0, 5, choices.number(8) & 2**63 - 1])
    header = message_cases.wrapper_header(
        magic, min(offset, 2**63 - 2), attributes=1 | 8 * append_time * magic
    )
    payload = mended(choices.rest) if mends else choices.rest
    # The columns of the oracle have 64 rows, and each message takes at least 26 bytes.
    message_cases.assert_like_reference(payload[: 26 * 64], header, strict=strict)
    _assert_run(payload, strict=strict)


def _assert_run(data: bytes, *, strict: bool) -> None:
    """Compare the three decoders of plain messages with each other, and their end with the walk."""
    buffer = exact(data)
    records, position, status = decode_run_records(buffer, strict=strict)
    pairs = [(record.key, record.value) for record in records]
    assert (pairs, position, status) == decode_run_tuples(buffer, strict=strict)
    keys, values, *where = decode_run_lists(buffer, strict=strict)
    assert pairs == list(zip(keys, values, strict=True))
    assert [position, status] == where
    starts = [start for start, _ in reference.scan_batches(data, check_order=False).batches]
    assert len(records) == len([start for start in starts if start < position])
