"""Tests of index views, checks and entry selection, compared with the reference and brokers."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.index import (
    IndexEntrySelector,
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)
from kafkalog.errors import CorruptRecordError, OffsetOverflowError
from tests.support import golden, reference
from tests.support.buffers import BUFFER_KINDS, exact
from tests.support.examples import examples
from tests.support.reference import Header

INT32_MAX = 2**31 - 1

# Partitions of the clean set with one batch per append and no compaction:
# the entries written by the broker while appending equal those of a recovery.
# Partition -> index.interval.bytes.
APPENDED = {
    "idempotent-0": 4096,
    "index-full-0": 128,
    "mixed-codec-0": 100,
    "odd-0": 4096,
    "plain-0": 4096,
    "plain-1": 4096,
    "plain-small-0": 512,
    "retention-bytes-0": 4096,
    "retention-time-0": 4096,
    "time-roll-0": 4096,
}

# Partitions of the crash set -> index.interval.bytes.
RECOVERED = {
    "__transaction_state-0": 4096,
    "__transaction_state-1": 4096,
    "u-append-time-0": 4096,
    "u-compact-0": 512,
    "u-log-0": 512,
    "u-log-1": 512,
    "u-lz4-0": 1024,
    "u-txn-0": 512,
}


def offset_entries(pairs: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", *pair) for pair in pairs)


def time_entries(pairs: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


def rising(step_min: int, step_max: int, size_max: int = 40) -> st.SearchStrategy[list[int]]:
    """Draw numbers that start at `step_min` or above and rise by steps from the range."""
    steps = st.lists(st.integers(step_min, step_max), max_size=size_max)
    return steps.map(lambda values: list(accumulate(values)))


def array(values: Sequence[int]) -> NDArray[numpy.int64]:
    return numpy.array(values, numpy.int64)


def select(
    selector: IndexEntrySelector,
    positions: Sequence[int],
    offsets: Sequence[int],
    times: Sequence[int],
) -> tuple[bytes, bytes]:
    return selector.select(array(positions), array(offsets), array(times))


# ---- views ----


@settings(max_examples=examples(150))
@given(
    offsets=rising(1, 9),
    positions=rising(1, 5000),
    base_offset=st.integers(0, 2**62),
    deltas=st.lists(st.integers(-3, 400), min_size=1, max_size=40),
)
def test_offset_lookup_equals_the_reference(
    offsets: list[int], positions: list[int], base_offset: int, deltas: list[int]
) -> None:
    """Floor by offset, single and in bulk; ceiling by position."""
    entries = list(zip(offsets, positions, strict=False))
    view = OffsetIndexView(exact(offset_entries(entries)), base_offset)
    keys = [base_offset + offset for offset, _ in entries]
    targets = [base_offset + delta for delta in deltas]
    found = []
    for target in targets:
        slot = reference.floor_slot(keys, target)
        expected = (keys[slot], entries[slot][1]) if slot >= 0 else (base_offset, 0)
        assert slot == view.lookup_slot(target)
        assert expected == view.lookup(target)
        found.append(expected[1])
        above = [
            (base_offset + offset, place)
            for offset, place in entries
            if place >= target - base_offset
        ]
        assert (above[0] if above else None) == view.ceiling_position(target - base_offset)
    queries, out = array(targets), array([0] * len(targets))
    view.lookup_many(queries, out)
    assert found == out.tolist()
    assert (keys[-1] if keys else base_offset) == view.last_offset
    assert [(base_offset + first, second) for first, second in entries] == [
        view.entry(slot) for slot in range(len(view))
    ]


@settings(max_examples=examples(150))
@given(
    timestamps=rising(1, 9),
    offsets=rising(0, 3),
    base_offset=st.integers(0, 2**62),
    targets=st.lists(st.integers(-3, 400) | st.integers(-(2**63), 2**63 - 1), min_size=1),
)
def test_time_lookup_equals_the_reference(
    timestamps: list[int], offsets: list[int], base_offset: int, targets: list[int]
) -> None:
    """Floor by timestamp, single and in bulk; last slot by offset, which may repeat."""
    entries = list(zip(timestamps, offsets, strict=False))
    view = TimeIndexView(exact(time_entries(entries)), base_offset)
    found = []
    for target in targets:
        slot = reference.floor_slot([time for time, _ in entries], target)
        expected = (-1, base_offset)
        if slot >= 0:
            expected = (entries[slot][0], base_offset + entries[slot][1])
        assert expected == view.lookup(target)
        found.append(expected[1])
        offset = base_offset + max(-3, min(target, 500))
        if offset >= 0:
            by_offset = reference.floor_slot([base_offset + o for _, o in entries], offset)
            assert by_offset == view.floor_slot_by_offset(offset)
    queries, out = array(targets), array([0] * len(targets))
    view.lookup_many(queries, out)
    assert found == out.tolist()
    assert [(first, base_offset + second) for first, second in entries] == [
        view.entry(slot) for slot in range(len(view))
    ]


def test_lookup_many_of_many_keys_equals_single_lookups() -> None:
    """The count is above the GIL limit, and the last group is not full."""
    entries = [(3 * slot, 100 * slot + 1) for slot in range(1, 2000)]
    view = OffsetIndexView(offset_entries(entries), 50)
    targets, out = array(range(40, 7042)), array([7] * 7002)
    view.lookup_many(targets, out)
    assert [view.lookup(target)[1] for target in targets.tolist()] == out.tolist()
    times = TimeIndexView(time_entries(entries), 50)
    times.lookup_many(targets, out)
    assert [times.lookup(target)[1] for target in targets.tolist()] == out.tolist()


@settings(max_examples=examples(100))
@given(data=st.binary(max_size=100), key=st.integers(-(2**63), 2**63 - 1))
def test_lookup_in_garbage_stays_inside_the_buffer(data: bytes, key: int) -> None:
    """Entries that do not rise have an arbitrary result; nothing outside the buffer is read."""
    offsets = OffsetIndexView(exact(data), 1000)
    times = TimeIndexView(exact(data), 1000)
    assert -1 <= offsets.lookup_slot(key) < max(1, len(offsets))
    assert -1 <= times.floor_slot_by_offset(key) < max(1, len(times))
    offsets.ceiling_position(key)
    times.lookup(key)
    queries, out = array([key] * 20), array([0] * 20)
    offsets.lookup_many(queries, out)
    times.lookup_many(queries, out)


@pytest.mark.parametrize("key", [-(2**63), -1, 0, INT32_MAX, INT32_MAX + 1, 2**62, 2**63 - 1])
def test_lookup_of_extreme_keys_equals_the_reference(key: int) -> None:
    """Keys outside 32 bits are compared, not truncated."""
    entries = [(0, 1), (INT32_MAX, INT32_MAX)]
    view = OffsetIndexView(exact(offset_entries(entries)), 5)
    times = TimeIndexView(exact(time_entries([(0, 0), (2**63 - 1, INT32_MAX)])), 5)
    slot = reference.floor_slot([5, 5 + INT32_MAX], key)
    time_slot = reference.floor_slot([0, 2**63 - 1], key)
    ceiling = [(5, 1), (5 + INT32_MAX, INT32_MAX)] if key <= 1 else [(5 + INT32_MAX, INT32_MAX)]
    assert slot == view.lookup_slot(key)
    assert [(5, 0), (5, 1), (5 + INT32_MAX, INT32_MAX)][slot + 1] == view.lookup(key)
    assert [(-1, 5), (0, 5), (2**63 - 1, 5 + INT32_MAX)][time_slot + 1] == times.lookup(key)
    assert (ceiling[0] if key <= INT32_MAX else None) == view.ceiling_position(key)
    queries, out = array([key]), array([0])
    view.lookup_many(queries, out)
    assert [view.lookup(key)[1]] == out.tolist()


@pytest.mark.parametrize("view_type", [OffsetIndexView, TimeIndexView])
def test_view_without_entries_returns_the_segment_start(
    view_type: type[OffsetIndexView | TimeIndexView],
) -> None:
    """Every look-up in an empty index returns the start of the segment."""
    for data in (b"", b"\0" * 5):
        view = view_type(exact(data), 70)
        assert 0 == len(view)
        with pytest.raises(IndexError, match="slot 0"):
            view.entry(0)
        queries, out = array([1, 100]), array([5, 5])
        view.lookup_many(queries, out)
        if isinstance(view, OffsetIndexView):
            assert ((70, 0), 70, None) == (
                view.lookup(100),
                view.last_offset,
                view.ceiling_position(0),
            )
            assert [0, 0] == out.tolist()
        else:
            assert ((-1, 70), -1) == (view.lookup(100), view.floor_slot_by_offset(100))
            assert [70, 70] == out.tolist()


@pytest.mark.parametrize("buffer", BUFFER_KINDS)
def test_view_of_any_buffer_uses_count_entries(buffer: str) -> None:
    """A preallocated file is larger than its entries: `count` is the number in use."""
    data = BUFFER_KINDS[buffer](offset_entries([(40, 4150), (99, 8300)]) + bytes(80))
    view = OffsetIndexView(data, 5000, 2)
    assert 2 == len(view)
    assert (5099, 8300) == view.lookup(2**40)
    assert 12 == len(OffsetIndexView(data, 5000))
    assert (5040, 4150) == OffsetIndexView(data, 5000, 1).lookup(2**40)


@pytest.mark.parametrize("view_type", [OffsetIndexView, TimeIndexView])
def test_view_with_impossible_arguments_raises(
    view_type: type[OffsetIndexView | TimeIndexView],
) -> None:
    """An impossible base offset, more entries than bytes, an output of another length."""
    for base_offset in (-1, 2**63 - 2**31 + 1):
        with pytest.raises(ValueError, match="base_offset must be in 0 to"):
            view_type(b"", base_offset)
    for count in (-1, 4):
        with pytest.raises(ValueError, match="count must be in 0 to"):
            view_type(bytes(31), 0, count)
    view = view_type(bytes(24), 0)
    for slot in (-1, len(view)):
        with pytest.raises(IndexError, match="is not in"):
            view.entry(slot)
    queries, out = array([1, 2]), array([0])
    with pytest.raises(ValueError, match="as many items"):
        view.lookup_many(queries, out)
    view.lookup_many(array([]), array([]))


def test_view_keeps_its_file_mapped(tmp_path: Path) -> None:
    """The file cannot be unmapped while a view exists."""
    path = tmp_path / "0.index"
    path.write_bytes(offset_entries([(7, 700)]))
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = OffsetIndexView(mapping, 0)
    with pytest.raises(BufferError):
        mapping.close()
    assert (7, 700) == view.lookup(8)
    del view
    mapping.close()


# ---- checks ----


@settings(max_examples=examples(200))
@given(
    offsets=rising(0, 3, 8),
    positions=rising(0, 50, 8),
    tail=st.sampled_from([b"", b"\0", bytes(8), bytes(20), b"\0\0\0\1", b"\xff" * 8]),
    segment_size=st.integers(0, 300),
)
def test_check_of_offset_index_equals_the_reference(
    offsets: list[int], positions: list[int], tail: bytes, segment_size: int
) -> None:
    """Sound, unsound, zero tails, tails of noise, sizes that are not whole entries."""
    data = offset_entries(zip(offsets, positions, strict=False)) + tail
    assert reference.check_offset_index(data, segment_size) == check_offset_index(
        exact(data), segment_size=segment_size
    )


@settings(max_examples=examples(200))
@given(
    timestamps=rising(0, 3, 8),
    offsets=rising(-1, 2, 8),
    tail=st.sampled_from([b"", b"\0", bytes(12), bytes(40), b"\0\0\0\1", b"\xff" * 12]),
)
def test_check_of_time_index_equals_the_reference(
    timestamps: list[int], offsets: list[int], tail: bytes
) -> None:
    """Sound, unsound, zero tails, tails of noise, sizes that are not whole entries."""
    data = time_entries(zip(timestamps, offsets, strict=False)) + tail
    assert reference.check_time_index(data) == check_time_index(exact(data))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], (0, True)),
        ([(0, 1)], (1, True)),
        ([(5, 10), (6, 99)], (2, True)),
        ([(5, 10), (6, 100)], (1, False)),
        ([(5, 10), (5, 20)], (1, False)),
        ([(5, 10), (6, 10)], (1, False)),
        ([(5, 0)], (0, False)),
        ([(-1, 10)], (0, False)),
        ([(5, -10)], (0, False)),
        ([(5, 10), (0, 0), (7, 30)], (1, False)),
        ([(5, 10), (0, 0), (0, 0)], (1, True)),
        ([(0, 0), (0, 0)], (0, True)),
    ],
)
def test_check_of_offset_index_counts_sound_entries(
    entries: list[tuple[int, int]], expected: tuple[int, bool]
) -> None:
    """Each rule alone, for a segment of 100 bytes."""
    assert expected == check_offset_index(exact(offset_entries(entries)), segment_size=100)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(10, 3), (11, 3), (12, 4)], (3, True)),
        ([(10, 3), (10, 4)], (1, False)),
        ([(10, 3), (11, 2)], (1, False)),
        ([(-1, 3)], (0, False)),
        ([(1, -1)], (0, False)),
        ([(0, 0), (7, 1)], (2, True)),
        ([(0, 0)], (0, True)),
        ([(10, 3), (0, 0)], (1, True)),
    ],
)
def test_check_of_time_index_counts_sound_entries(
    entries: list[tuple[int, int]], expected: tuple[int, bool]
) -> None:
    """Each rule alone; the first entry may have a timestamp of 1970."""
    assert expected == check_time_index(exact(time_entries(entries)))


@pytest.mark.parametrize(("data_set", "partition"), golden.all_partitions())
def test_index_files_of_brokers_read_as_their_manifest(data_set: str, partition: str) -> None:
    """Entries of every index file, trimmed or preallocated, equal those of Kafka's dump."""
    manifest = golden.Manifest(data_set, partition)
    for segment in manifest.summary.segments:
        path = manifest.directory / segment.segment
        offsets = path.with_suffix(".index").read_bytes()
        times = path.with_suffix(".timeindex").read_bytes()
        size = max(segment.valid_bytes, 1)
        count, sound = check_offset_index(offsets, segment_size=size)
        time_count, times_sound = check_time_index(times)
        assert (True, True) == (sound, times_sound)
        view = OffsetIndexView(offsets, segment.base_offset, count)
        time_view = TimeIndexView(times, segment.base_offset, time_count)
        assert list(segment.offset_index) == [view.entry(slot) for slot in range(count)]
        assert list(segment.time_index) == [time_view.entry(slot) for slot in range(time_count)]


# ---- entry selection ----


def selected(
    data: bytes, base_offset: int, interval_bytes: int, *, chunk: int = 1000
) -> tuple[bytes, bytes]:
    """Scan a segment in steps of `chunk` batches and return the selected index files."""
    selector = IndexEntrySelector(base_offset, interval_bytes)
    columns = BatchColumns(chunk)
    offset_index = time_index = b""
    position, next_offset = 0, base_offset
    while True:
        result = scan_batches(data, position, columns=columns, next_offset=next_offset)
        offsets, times = selector.select(
            columns.position, columns.last_offset, columns.max_timestamp, len(columns)
        )
        offset_index += offsets
        time_index += times
        if result.count == 0 or result.position == len(data):
            return offset_index, time_index + selector.final_time_entry()
        columns.clear()
        position, next_offset = result.position, result.next_offset


@pytest.mark.parametrize("partition", APPENDED)
def test_selection_from_brokers_segments_equals_their_index_files(partition: str) -> None:
    """The bytes equal those of the broker, for any size of the scan's chunks."""
    manifest = golden.Manifest(golden.CLEAN, partition)
    for segment in manifest.summary.segments:
        path = manifest.directory / segment.segment
        expected = tuple(
            path.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")
        )
        for chunk in (1000, 7):
            assert expected == selected(
                path.read_bytes(), segment.base_offset, APPENDED[partition], chunk=chunk
            )


@pytest.mark.parametrize("partition", RECOVERED)
def test_selection_has_as_many_entries_as_a_brokers_recovery(partition: str) -> None:
    """After a kill, a broker rebuilt all indexes after the recovery point."""
    manifest = golden.Manifest(golden.UNCLEAN, partition)
    recovered = manifest.summary.recovered
    recovery_point = manifest.summary.checkpoint_recovery_point
    assert recovered is not None
    assert recovery_point is not None
    bases = [int(segment.segment[:20]) for segment in recovered.segments]
    ends = [*bases[1:], recovered.log_end_offset]
    rebuilt = 0
    for segment, base, end in zip(recovered.segments, bases, ends, strict=True):
        if end > recovery_point:
            data = (manifest.directory / segment.segment).read_bytes()[: segment.log_bytes]
            offset_index, time_index = selected(data, base, RECOVERED[partition])
            assert segment.offset_index_entries == len(offset_index) // 8
            assert segment.time_index_entries == len(time_index) // 12
            rebuilt += 1
    assert rebuilt > 0


@settings(max_examples=examples(150))
@given(
    steps=st.lists(
        st.tuples(st.integers(61, 300), st.integers(1, 5), st.integers(-2, 50)), max_size=30
    ),
    base_offset=st.integers(0, 2**50),
    interval_bytes=st.sampled_from([0, 1, 60, 61, 100, 300, 1000]),
    cut=st.integers(0, 30),
)
def test_selection_equals_the_reference(
    steps: list[tuple[int, int, int]], base_offset: int, interval_bytes: int, cut: int
) -> None:
    """Any sizes, offsets and timestamps (also falling), in one chunk or two."""
    position, offset = 0, base_offset - 1
    batches = []
    for size, offset_step, timestamp in steps:
        offset += offset_step
        batches.append((position, Header(base_offset=offset, max_timestamp=timestamp)))
        position += size
    positions = [start for start, _ in batches]
    offsets = [header.last_offset for _, header in batches]
    times = [header.max_timestamp for _, header in batches]
    selector = IndexEntrySelector(base_offset, interval_bytes)
    first = select(selector, positions[:cut], offsets[:cut], times[:cut])
    second = select(selector, positions[cut:], offsets[cut:], times[cut:])
    actual = (first[0] + second[0], first[1] + second[1] + selector.final_time_entry())
    assert reference.select_entries(batches, base_offset, interval_bytes) == actual
    assert b"" == selector.final_time_entry()


def test_selection_state_has_the_largest_timestamp() -> None:
    """A segment needs these facts of its recovery besides the entries."""
    selector = IndexEntrySelector(100, 50)
    state = (selector.last_indexed_position, selector.max_timestamp)
    assert (0, -1, -1) == (*state, selector.offset_of_max_timestamp)
    select(selector, [0, 61, 122], [101, 103, 105], [7, 9, 9])
    state = (selector.last_indexed_position, selector.max_timestamp)
    assert (122, 9, 103) == (*state, selector.offset_of_max_timestamp)


@pytest.mark.parametrize(
    ("positions", "offsets", "error"),
    [
        ([0, 100], [5, 100 + INT32_MAX + 1], OffsetOverflowError),
        ([0, 100], [100, 99], OffsetOverflowError),
        ([0, INT32_MAX + 1], [100, 101], OffsetOverflowError),
        ([-1, 100], [100, 101], OffsetOverflowError),
        ([0, 100, 200], [100, 102, 102], CorruptRecordError),
    ],
)
def test_selection_of_invalid_batches_raises_and_selects_nothing(
    positions: list[int], offsets: list[int], error: type[Exception]
) -> None:
    """Offset or position is beyond 32 bits or does not rise; the selector stays usable."""
    selector = IndexEntrySelector(100, 10)
    select(selector, [0], [100], [1])
    with pytest.raises(error):
        select(selector, positions, offsets, [50] * len(positions))
    assert 1 == selector.max_timestamp
    assert (offset_entries([(9, 70)]), time_entries([(8, 9)])) == select(selector, [70], [109], [8])


def test_selection_with_impossible_arguments_raises() -> None:
    """An impossible base offset, a negative interval, columns shorter than the count."""
    with pytest.raises(ValueError, match="base_offset must be in 0 to"):
        IndexEntrySelector(-1, 0)
    with pytest.raises(ValueError, match="interval_bytes"):
        IndexEntrySelector(0, -1)
    with pytest.raises(ValueError, match="count must be at most the rows of each column, got 2"):
        select(IndexEntrySelector(0, 0), [0, 61], [1, 2], [1])
    none = IndexEntrySelector(0, 0).select(array([0, 61]), array([1, 2]), array([1]), 0)
    assert (b"", b"") == none
