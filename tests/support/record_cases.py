"""Records for tests of decoders and builder: one payload with every kind, and strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import BatchHeader
from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog.errors import CorruptRecordError
from tests.support import reference_records as reference
from tests.support.reference import Header
from tests.support.reference_records import Entry

__all__ = [
    "MIXED",
    "MIXED_PAYLOAD",
    "as_batch_header",
    "columns_of",
    "entries",
    "header_for",
    "headers",
    "refusal",
]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

# Every kind of record with a separate path in the decoder, and a gap in the offsets.
MIXED = (
    Entry(0, 0, b"key-1", b"value-1"),
    Entry(1, 5, None, b"v" * 40),
    Entry(2, -70, b"k" * 70, None),
    Entry(3, 2**40, b"", b""),
    Entry(4, 1, None, None),
    Entry(9, 1, b"key", b"value", ((b"h", b"x"), (b"", None), (b"h", b"")), attributes=0x55),
    Entry(70, -1, b"key", b"w" * 150, ((b"name", b"y" * 66),)),
    Entry(8200, 1, b"last", b"a tail that is long enough for the fast path"),
    Entry(8201, 1, b"end", None),
)
MIXED_PAYLOAD = reference.encode(MIXED)


def header_for(records: Sequence[Entry], **fields: Any) -> Header:
    """Return a header that fits these records, with other fields as given."""
    values: dict[str, Any] = {
        "base_offset": 1000,
        "base_timestamp": 1_700_000_000_000,
        "max_timestamp": 1_700_000_000_999,
        "record_count": len(records),
        "last_offset_delta": records[-1].offset_delta if records else 0,
    }
    return Header(**{**values, **fields})


def as_batch_header(header: Header) -> BatchHeader:
    """Return the native object with the same fields, sane or not."""
    return BatchHeader(position=0, **vars(header))


def columns_of(
    payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool = True
) -> RecordColumns:
    """Return fresh columns with the records of a payload."""
    columns = RecordColumns(max(1, end - start))
    count = decode_columns(payload, header, start, end, columns, strict=strict)
    assert count == len(columns)
    return columns


def case_columns(payload: Buffer, case: Sequence[Entry]) -> RecordColumns:
    """Return fresh columns with the records of a payload that `case` was encoded to."""
    header = as_batch_header(header_for(case))
    return columns_of(payload, header, 0, memoryview(payload).nbytes)


def refusal(error: CorruptRecordError) -> tuple[str, int]:
    """Return (status name, position) of an error."""
    for name, code in STATUS_CODES.items():
        if str(error).startswith(f"{status_meaning(code)} at position {error.position} "):
            assert error.position is not None
            return name, error.position
    raise AssertionError(f"no status for {error}")


@st.composite
def entries(draw: st.DrawFn, *, size_max: int = 12) -> list[Entry]:
    """Draw records at strictly rising offset deltas."""
    count = draw(st.integers(0, size_max))
    deltas = draw(
        st.lists(
            st.one_of(st.integers(0, 300), st.integers(0, 2**31 - 1)),
            min_size=count,
            max_size=count,
            unique=True,
        )
    )
    field = st.one_of(
        st.none(),
        st.binary(max_size=10),
        st.builds(bytes, st.sampled_from([62, 63, 64, 127, 128, 8191, 8192, 20_000])),
    )
    timestamps = st.one_of(st.integers(-100, 300), st.integers(INT64_MIN, INT64_MAX))
    # A small alphabet: the whole of Unicode costs hypothesis seconds to load.
    text = st.text("az-\xe9\u20ac\U0001f600", max_size=8).map(str.encode)
    names = st.one_of(text, st.binary(max_size=8))
    pairs = st.lists(st.tuples(names, field), max_size=4).map(tuple)
    return [
        Entry(delta, draw(timestamps), draw(field), draw(field), draw(pairs))
        for delta in sorted(deltas)
    ]


def headers(records: Sequence[Entry]) -> st.SearchStrategy[Header]:
    """Draw headers of batches that may hold these records."""
    last = records[-1].offset_delta if records else 0
    timestamps = st.one_of(st.integers(-1, 2**41), st.integers(INT64_MIN, INT64_MAX))
    return st.builds(
        Header,
        base_offset=st.one_of(st.integers(0, 1000), st.integers(0, INT64_MAX - 2**31)),
        attributes=st.sampled_from([0, 8, 0x10, 0x48]),
        last_offset_delta=st.one_of(st.just(last), st.integers(last, 2**31 - 1)),
        base_timestamp=timestamps,
        max_timestamp=timestamps,
        record_count=st.just(len(records)),
    )
