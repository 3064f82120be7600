"""The record iterator: what the lists give, one at a time, and what is before damage."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import weakref

import pytest

from kafkalog._core.record import Record, decode_records, decode_tuples
from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog._engine.iteration import ClosableRecords, CloseSignal, RecordIterator
from kafkalog.errors import CorruptRecordError
from tests.support import reference_records as reference
from tests.support.buffers import exact
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, as_batch_header, header_for
from tests.support.reference import Header
from tests.support.reference_records import Refused

HEADER = as_batch_header(header_for(MIXED))
SIZE = len(MIXED_PAYLOAD)


def drain(payload: bytes, header: Header, *, strict: bool) -> tuple[list[Record], str, int]:
    """Return the records that an iterator yields, and how it ends."""
    records: list[Record] = []
    data = exact(payload)
    try:
        for record in RecordIterator(data, as_batch_header(header), 0, len(payload), strict=strict):
            records.append(record)  # noqa: PERF402 - an error must not lose them
    except CorruptRecordError as error:
        assert header.base_offset == error.base_offset
        for name, code in STATUS_CODES.items():
            if str(error).startswith(f"{status_meaning(code)} at position {error.position} "):
                return records, name, error.position or 0
        raise
    return records, "OK", 0


def assert_like_reference(payload: bytes, header: Header, *, strict: bool) -> None:
    """Hold the end of an iteration, and what came before it, against the reference."""
    records, verdict, position = drain(payload, header, strict=strict)
    try:
        expected = reference.decode(payload, header, strict=strict)
    except Refused as refused:
        assert (refused.verdict, refused.position) == (verdict, position)
    else:
        assert "OK" == verdict
        assert len(expected) == len(records)
    whole = as_batch_header(header_for(MIXED[: len(records)], last_offset_delta=2**31 - 1))
    if verdict != "OFFSET_DELTA" and payload.startswith(MIXED_PAYLOAD[:60]):
        end = len(reference.encode(MIXED[: len(records)]))
        if payload[:end] == MIXED_PAYLOAD[:end]:
            assert decode_records(payload, whole, 0, end) == records


def test_record_iterator_yields_items_of_the_list() -> None:
    """Both as records and as tuples."""
    assert decode_records(MIXED_PAYLOAD, HEADER, 0, SIZE) == list(
        RecordIterator(MIXED_PAYLOAD, HEADER, 0, SIZE)
    )
    assert decode_tuples(MIXED_PAYLOAD, HEADER, 0, SIZE) == list(
        RecordIterator(MIXED_PAYLOAD, HEADER, 0, SIZE, pairs=True)
    )


@pytest.mark.parametrize("strict", [True, False])
def test_record_iterator_truncated_payload_yields_whole_records(strict: bool) -> None:
    """Every proper prefix."""
    for size in range(SIZE):
        assert_like_reference(MIXED_PAYLOAD[:size], header_for(MIXED), strict=strict)


def test_record_iterator_flipped_bit_agrees_with_the_reference() -> None:
    """Every bit."""
    for bit in range(8 * SIZE):
        damaged = bytearray(MIXED_PAYLOAD)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_like_reference(bytes(damaged), header_for(MIXED), strict=True)


@pytest.mark.parametrize("count", [-1, 0, 1, len(MIXED) - 1, len(MIXED) + 1, 2**31 - 1])
def test_record_iterator_wrong_count_agrees_with_the_reference(count: int) -> None:
    """A low count leaves bytes after the last record; a count of 0 reads no bytes."""
    header = header_for(MIXED, record_count=count, last_offset_delta=2**31 - 1)
    assert_like_reference(MIXED_PAYLOAD, header, strict=True)


def test_record_iterator_after_error_or_end_is_exhausted() -> None:
    """It does not continue after damage, and does not raise twice."""
    damaged = RecordIterator(MIXED_PAYLOAD[:-1], HEADER, 0, SIZE - 1)
    with pytest.raises(CorruptRecordError):
        list(damaged)
    assert [] == list(damaged)
    good = RecordIterator(MIXED_PAYLOAD, HEADER, 0, SIZE)
    assert len(MIXED) == operator.length_hint(good)
    assert len(MIXED) == len(list(good))
    assert [] == list(good)
    assert 0 == operator.length_hint(good)


class Owner(bytearray):
    """A buffer that can be watched."""


def test_record_iterator_and_records_keep_the_buffer_alive() -> None:
    """The buffer is freed with the last of them."""
    owner = Owner(MIXED_PAYLOAD)
    watch = weakref.ref(owner)
    iterator = RecordIterator(owner, HEADER, 0, SIZE)
    del owner
    record = next(iterator)
    gc.collect()
    assert watch() is not None
    del iterator
    gc.collect()
    assert watch() is not None
    assert b"key-1" == record.key
    del record
    gc.collect()
    assert watch() is None


def test_record_iterator_pickle_or_copy_raises() -> None:
    """An iterator has a pointer into its buffer."""
    iterator = RecordIterator(MIXED_PAYLOAD, HEADER, 0, SIZE)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(iterator)


def test_record_iterator_bounds_outside_the_buffer_raise() -> None:
    """When the iterator is made, not at its first step."""
    with pytest.raises(IndexError, match="outside"):
        RecordIterator(MIXED_PAYLOAD, HEADER, 0, SIZE + 1)


# -- closable records ----------------------------------------------------------------------------


def some_records(count: int) -> list[Record]:
    """Return records with rising offsets."""
    return [Record(offset=number) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_closable_records_yield_objects_of_the_list(count: int) -> None:
    """The same objects; an exhausted iterator stays exhausted."""
    records = some_records(count)
    iterator = ClosableRecords(records, CloseSignal())
    assert iterator is iter(iterator)
    assert [id(record) for record in records] == [id(record) for record in iterator]
    assert None is next(iterator, None)


@pytest.mark.parametrize("taken", [0, 2, 3])
def test_closable_records_end_once_the_signal_is_closed(taken: int) -> None:
    """All iterators of the signal end, with records left too."""
    gate = CloseSignal()
    iterators = [ClosableRecords(some_records(3), gate) for _ in range(2)]
    assert gate.is_open
    for iterator in iterators:
        assert taken == len([next(iterator) for _ in range(taken)])
    gate.close()
    gate.close()
    assert not gate.is_open
    assert [[], []] == [list(iterator) for iterator in iterators]


def test_closable_records_copy_or_other_type_raises() -> None:
    """A copy of the signal would not be closed with it."""
    gate = CloseSignal()
    for made in (gate, ClosableRecords(some_records(1), gate)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.copy(made)
    with pytest.raises(TypeError):
        ClosableRecords((), gate)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ClosableRecords([], None)  # type: ignore[arg-type]
