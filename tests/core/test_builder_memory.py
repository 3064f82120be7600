"""Memory of the batch builder: views that never change, growth, and code that runs in between."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.record import Record, decode_records
from tests.support.builder_cases import Row, column, reference_batch


def build(builder: BatchBuilder, fill: bytes, *, reset: bool = False) -> int:
    """Add ten records, and return how many there are."""
    if reset:
        builder.reset()
    for _ in range(10):
        builder.append(fill, fill * 20, 5)
    return builder.count


CHANGES: dict[str, Callable[[BatchBuilder], object]] = {
    "append": lambda b: b.append(b"new", b"new"),
    "append until it grows": lambda b: b.append(b"new", bytes(100_000)),
    "extend_lists": lambda b: b.extend_lists(None, [b"n"] * 5000),
    "extend_columns": lambda b: b.extend_columns(None, column([b"n"] * 5000, "int32")),
    "extend_records": lambda b: b.extend_records([Record(value=b"n")] * 5000),
    "append_record": lambda b: b.append_record(Record()),
    "finish otherwise": lambda b: b.finish(base_offset=99),
    "reset and build": lambda b: build(b, b"other", reset=True),
    "drop": lambda b: None,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["payload", "finish", "compressed"])
def test_view_shows_the_same_bytes_whatever_the_builder_does(kind: str, change: str) -> None:
    """A living view is never written under."""
    builder = BatchBuilder()
    build(builder, b"first")
    if kind == "payload":
        view = builder.payload()
    elif kind == "finish":
        view = builder.finish()
    else:
        view = builder.finish(codec=4, payload=b"compressed")
    before = bytes(view)
    part = view[3:20]
    CHANGES[change](builder)
    if kind == "compressed":
        builder.append(b"k", b"v", 5)
        builder.finish(codec=3, payload=b"other bytes")
    del builder
    assert before == bytes(view)
    assert before[3:20] == bytes(part)
    assert view.readonly


def test_builder_goes_on_correctly_while_views_live() -> None:
    """The records before the view are in the batch after it, too."""
    builder = BatchBuilder()
    views = []
    rows: list[Row] = []
    for slot in range(20):
        rows.append((b"k%d" % slot, bytes(slot), 5))
        builder.append(*rows[-1])
        views.append((builder.payload(), builder.finish(), reference_batch(rows)))
    for payload, batch, expected in views:
        assert expected == bytes(batch)
        assert expected[61:] == bytes(payload)


def test_finish_may_be_called_again_with_other_fields() -> None:
    """Nothing of the first call stays."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", 5)
    first = bytes(builder.finish(base_offset=3, producer_id=1, producer_epoch=1, base_sequence=1))
    assert reference_batch([(b"k", b"v", 5)]) == bytes(builder.finish())
    assert first[61:] == bytes(builder.payload())


def test_memory_is_kept_between_batches_unless_it_is_far_too_much() -> None:
    """One huge batch does not stay for ever; a steady stream of large ones does not reallocate."""
    builder = BatchBuilder()
    builder.append(None, bytes(9_000_000))
    large = builder.capacity
    assert large >= 9_000_000
    builder.reset()
    assert large == builder.capacity
    builder.append(None, bytes(100))
    builder.reset()
    assert 16 * 1024 == builder.capacity
    builder.append(None, b"v", 5)
    assert reference_batch([(None, b"v", 5)]) == bytes(builder.finish())


def test_headers_iterator_that_appends_itself_breaks_nothing() -> None:
    """Code of the caller's runs before anything is measured."""
    builder = BatchBuilder()

    def pairs() -> Any:
        builder.append(b"inner", b"inner", 5, [("x", b"y" * 5000)])
        yield "h", b"v"

    builder.append(b"outer", b"outer", 5, pairs())
    batch = bytes(builder.finish())
    decoded = decode_records(batch, parse_header(batch), 61, len(batch))
    assert [(0, b"inner"), (1, b"outer")] == [(r.offset, r.key) for r in decoded]
    assert (("h", b"v"),) == decoded[1].headers


def test_builder_is_neither_pickled_nor_copied() -> None:
    """It owns memory; the batch is what travels."""
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(BatchBuilder())


def test_builder_says_what_it_holds() -> None:
    """Attributes are read-only."""
    builder = BatchBuilder()
    assert (0, 61, -1, -1, -1) == (
        builder.count,
        builder.size_bytes,
        builder.base_timestamp,
        builder.max_timestamp,
        builder.last_offset_delta,
    )
    assert builder.append(b"k", b"v", 9) == builder.size_bytes
    assert (9, 9, 0) == (builder.base_timestamp, builder.max_timestamp, builder.last_offset_delta)
    assert f"BatchBuilder(1 records, {builder.size_bytes} bytes)" == repr(builder)
    with pytest.raises(AttributeError):
        builder.count = 5  # type: ignore[misc]


@pytest.mark.parametrize("capacity", [2**31, 2**62])
def test_capacity_beyond_the_format_is_refused(capacity: int) -> None:
    """No batch can be that large."""
    with pytest.raises(ValueError, match="capacity"):
        BatchBuilder(capacity=capacity)
