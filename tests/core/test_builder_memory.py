"""Tests of the builders' memory: immutable views, growth, and reentrant calls."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.record import Record, decode_records
from kafkalog._core.records_builder import RecordsBuilder
from tests.support.builder_cases import Row, column, messages_of, reference_batch
from tests.support.reference_messages import encode_messages

AnyBuilder: TypeAlias = BatchBuilder | MessageSetBuilder


# Each makes an empty builder.
BUILDERS: dict[str, Callable[[], AnyBuilder]] = {
    "v0": lambda: MessageSetBuilder(0),
    "v1": lambda: MessageSetBuilder(1),
    "v2": BatchBuilder,
}


def build(builder: AnyBuilder, fill: bytes, *, reset: bool = False) -> int:
    """Add ten records; return the number of records."""
    if reset:
        builder.reset()
    for _ in range(10):
        builder.append(fill, fill * 20, 5)
    return builder.count


def finish(builder: AnyBuilder, base_offset: int = 0) -> memoryview:
    """Return the whole batch, or the messages."""
    if isinstance(builder, BatchBuilder):
        return builder.finish(base_offset=base_offset)
    return builder.finish_plain(base_offset)


def finish_compressed(builder: AnyBuilder, codec: int, payload: bytes) -> memoryview:
    """Return the compressed batch, or the wrapper."""
    if isinstance(builder, BatchBuilder):
        return builder.finish(codec=codec, payload=payload)
    return builder.wrap(codec, payload)


CHANGES: dict[str, Callable[[AnyBuilder], object]] = {
    "append": lambda b: b.append(b"new", b"new"),
    "append until it grows": lambda b: b.append(b"new", bytes(100_000)),
    "extend_lists": lambda b: b.extend_lists(None, [b"n"] * 5000),
    "extend_columns": lambda b: b.extend_columns(None, column([b"n"] * 5000, "int32")),
    "extend_records": lambda b: b.extend_records([Record(value=b"n")] * 5000),
    "append_record": lambda b: b.append_record(Record()),
    "finish otherwise": lambda b: finish(b, 99),
    "reset and build": lambda b: build(b, b"other", reset=True),
    "drop": lambda b: None,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["payload", "finish", "compressed"])
@pytest.mark.parametrize("made", BUILDERS)
def test_view_bytes_never_change(made: str, kind: str, change: str) -> None:
    """The builder never writes to memory of a view in use."""
    builder = BUILDERS[made]()
    build(builder, b"first")
    if kind == "payload":
        view = builder.payload()
    elif kind == "finish":
        view = finish(builder)
    else:
        view = finish_compressed(builder, 2, b"compressed")
    before = bytes(view)
    part = view[3:20]
    CHANGES[change](builder)
    if kind == "compressed":
        builder.append(b"k", b"v", 5)
        finish_compressed(builder, 3, b"other bytes")
    del builder
    assert before == bytes(view)
    assert before[3:20] == bytes(part)
    assert view.readonly


@pytest.mark.parametrize("magic", [0, 1])
def test_message_builder_continues_correctly_while_views_exist(magic: int) -> None:
    """The offsets follow the base offset of the last view."""
    builder = MessageSetBuilder(magic)
    views = []
    rows: list[Row] = []
    for slot in range(20):
        rows.append((b"k%d" % slot, bytes(slot), 5))
        builder.append(*rows[-1])
        views.append((builder.finish_plain(slot), encode_messages(messages_of(rows, magic, slot))))
        inner = encode_messages(messages_of(rows, magic, 0 if magic else 7))
        views.append((builder.payload(7), inner))
    for view, expected in views:
        assert expected == bytes(view)


def test_builder_continues_correctly_while_views_exist() -> None:
    """The records before the view are also in the batch after it."""
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
    """The second batch has none of the fields of the first call."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", 5)
    first = bytes(builder.finish(base_offset=3, producer_id=1, producer_epoch=1, base_sequence=1))
    assert reference_batch([(b"k", b"v", 5)]) == bytes(builder.finish())
    assert first[61:] == bytes(builder.payload())


@pytest.mark.parametrize("made", BUILDERS)
def test_memory_is_kept_between_batches_unless_far_too_large(made: str) -> None:
    """Memory of one huge batch is freed; consecutive large batches do not reallocate."""
    builder = BUILDERS[made]()
    builder.append(None, bytes(9_000_000))
    large = builder.capacity
    assert large >= 9_000_000
    builder.reset()
    assert large == builder.capacity
    builder.append(None, bytes(100))
    builder.reset()
    assert 16 * 1024 == builder.capacity
    builder.append(None, b"v", 5)
    fresh = BUILDERS[made]()
    fresh.append(None, b"v", 5)
    assert bytes(finish(fresh)) == bytes(finish(builder))


def test_headers_iterator_that_appends_to_the_builder_adds_both_records() -> None:
    """The iterator runs before the record is measured."""
    builder = BatchBuilder()

    def pairs() -> Any:
        builder.append(b"inner", b"inner", 5, [("x", b"y" * 5000)])
        yield "h", b"v"

    builder.append(b"outer", b"outer", 5, pairs())
    batch = bytes(builder.finish())
    decoded = decode_records(batch, parse_header(batch), 61, len(batch))
    assert [(0, b"inner"), (1, b"outer")] == [(r.offset, r.key) for r in decoded]
    assert (("h", b"v"),) == decoded[1].headers


@pytest.mark.parametrize("made", BUILDERS)
def test_builder_is_neither_pickled_nor_copied(made: str) -> None:
    """It owns memory; pickle the finished batch instead."""
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(BUILDERS[made]())


def test_records_builder_base_class_raises() -> None:
    """The base class has no format; methods of a subclass without memory raise."""
    with pytest.raises(TypeError, match="BatchBuilder or a MessageSetBuilder"):
        RecordsBuilder()
    without_memory = type("WithoutMemory", (RecordsBuilder,), {})()
    with pytest.raises(AttributeError):
        without_memory.append(b"k", b"v")
    with pytest.raises(AttributeError):
        without_memory.extend_lists(None, [b"v"])


def test_builder_attributes_describe_its_records() -> None:
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
def test_capacity_beyond_the_format_raises(capacity: int) -> None:
    """The capacity is above the largest batch."""
    with pytest.raises(ValueError, match="capacity"):
        BatchBuilder(capacity=capacity)
    with pytest.raises(ValueError, match="capacity"):
        MessageSetBuilder(1, capacity=capacity)
