"""Which records are latest: found range by range, brought together, written as bits, read back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.spark.jobs import marks
from kafkalog.spark.jobs.marks import OffsetBits, RangeKeys, chunks_by_partition, load_marks

SECRET = bytes(range(16))
KEYS = st.sampled_from([None, b"", b"a", b"b", b"a longer key than others", b"\x00", b"c"])


def batches(records: list[tuple[int, bytes | None]], size: int) -> Iterator[pa.RecordBatch]:
    """Cut records into batches, the second of them a slice of a larger one."""
    for start in range(0, len(records), size):
        part = records[max(start - 1, 0) : start + size]
        batch = pa.record_batch(
            [
                pa.array([offset for offset, _ in part], pa.int64()),
                pa.array([key for _, key in part], pa.binary()),
            ],
            names=["offset", "key"],
        )
        yield batch.slice(1) if start else batch


def greatest(found: list[pa.RecordBatch]) -> set[tuple[int, int]]:
    """Do what the shuffle does."""
    latest: dict[tuple[int, int, int], int] = {}
    for batch in found:
        for row in batch.to_pylist():
            key = row["number"], row["high"], row["low"]
            latest[key] = max(latest.get(key, -1), row["offset"])
    return {(number, offset) for (number, _, _), offset in latest.items()}


@settings(max_examples=40)
@given(st.lists(KEYS, max_size=60), st.integers(0, 5), st.integers(1, 9), st.data())
def test_latest_of_ranges_are_those_of_a_dict(
    keys: list[bytes | None], gap: int, size: int, data: st.DataObject
) -> None:
    """However the records are cut into ranges and batches, with gaps between their offsets."""
    records = [(number * (gap + 1), key) for number, key in enumerate(keys)]
    cut = data.draw(st.integers(0, len(records)))
    found: list[pa.RecordBatch] = []
    for part in (records[:cut], records[cut:]):
        found += RangeKeys(SECRET).latest(3, batches(part, size))
    expected = {key: offset for offset, key in records if key is not None}

    assert {(3, offset) for offset in expected.values()} == greatest(found)


def test_more_keys_than_the_map_takes_come_in_several_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a full map held is given, and the next one begins empty: no latest record is lost."""
    monkeypatch.setattr(marks, "_MAP_BYTES", 24 * 16)
    monkeypatch.setattr(marks, "_ROWS", 5)
    records: list[tuple[int, bytes | None]] = [
        (number * 40, b"key %d" % (number % 30)) for number in range(90)
    ]
    found = list(RangeKeys(SECRET).latest(0, batches(records, 37)))

    assert {(0, number * 40) for number in range(60, 90)} == greatest(found)
    assert 90 == sum(map(len, found))
    assert 5 == max(map(len, found))


def test_ranges_of_one_task_do_not_meet() -> None:
    """The second range knows nothing of the first one's keys."""
    keys = RangeKeys(SECRET)
    first = list(keys.latest(0, batches([(7, b"a"), (9, b"b")], 2)))
    second = list(keys.latest(1, batches([(3, b"a")], 2)))

    assert {(0, 7), (0, 9), (1, 3)} == greatest([*first, *second])
    assert 3 == sum(map(len, [*first, *second]))


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, 5 << 20), max_size=30), max_size=4),
    st.integers(0, 3 << 20),
    st.integers(1, 3 << 20),
)
def test_bits_say_of_every_offset_what_was_given(
    tmp_path_factory: pytest.TempPathFactory,
    given_offsets: dict[int, set[int]],
    start: int,
    length: int,
) -> None:
    """Through the files of two writers, for any range of a partition."""
    folder = tmp_path_factory.mktemp("bits")
    chunks = []
    # All offsets of a chunk come to one writer.
    for writer in (0, 1):
        bits = OffsetBits()
        pairs = [
            (number, offset)
            for number, offsets in given_offsets.items()
            for offset in offsets
            if (offset >> marks.CHUNK_BITS) % 2 == writer
        ]
        bits.add(
            np.array([number for number, _ in pairs], np.int32),
            np.array([offset for _, offset in pairs], np.int64),
        )
        chunks += bits.write(folder)
    by_partition = chunks_by_partition(chunks)
    for number, offsets in given_offsets.items():
        end = start + length
        loaded = load_marks(folder, by_partition.get(number, []), start, end)
        asked = np.array(sorted({*offsets, start, end - 1}), np.int64)
        asked = asked[(asked >= start) & (asked < end)]

        assert [offset in offsets for offset in asked.tolist()] == loaded.takes(asked).tolist()
