"""Latest records by key hash: found per range, merged, written, and read as bitmaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import LogStorageError
from kafkalog.spark.jobs import key_hashes
from kafkalog.spark.jobs.key_hashes import ENTRY, PACKED_SCHEMA, RangeKeyHashes, slice_count
from kafkalog.spark.jobs.latest_offsets import LatestOffsets, load_live_records, slices_by_partition

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


def entries_of(found: list[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes, int]]:
    """Yield number, slice, hash and offset of packed entries, one by one."""
    for batch in found:
        for row in batch.to_pylist():
            for entry in np.frombuffer(row["entries"], ENTRY):
                offset = row["base"] + int(entry["offset"])
                yield row["number"], row["slice"], entry.tobytes()[:16], offset


def greatest(found: list[pa.RecordBatch]) -> set[tuple[int, int]]:
    """Merge the entries as the shuffle and the task after it do."""
    latest: dict[tuple[int, bytes], int] = {}
    slices: dict[tuple[int, bytes], int] = {}
    for number, slice_number, key, offset in entries_of(found):
        latest[number, key] = max(latest.get((number, key), -1), offset)
        assert slice_number == slices.setdefault((number, key), slice_number)
    return {(number, offset) for (number, _), offset in latest.items()}


def shuffled(found: list[pa.RecordBatch], size: int) -> list[pa.RecordBatch]:
    """Return the rows sorted by partition and slice, in other batches."""
    if not found:
        return []
    table = pa.Table.from_batches(found, PACKED_SCHEMA)
    table = table.sort_by([("number", "ascending"), ("slice", "ascending")])
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=size)
    return batches


@settings(max_examples=40)
@given(
    st.lists(KEYS, max_size=60),
    st.sampled_from([0, 5, 1 << 31]),
    st.integers(1, 9),
    st.integers(1, 5),
    st.data(),
)
def test_latest_records_of_ranges_equal_a_dict(
    keys: list[bytes | None], gap: int, size: int, slices: int, data: st.DataObject
) -> None:
    """For any ranges, batches and gaps between offsets."""
    records = [(number * (gap + 1), key) for number, key in enumerate(keys)]
    cut = data.draw(st.integers(0, len(records)))
    found: list[pa.RecordBatch] = []
    for part in (records[:cut], records[cut:]):
        found += RangeKeyHashes(SECRET).latest(3, slices, batches(part, size))
    expected = {key: offset for offset, key in records if key is not None}

    assert {(3, offset) for offset in expected.values()} == greatest(found)


def test_full_key_map_is_yielded_and_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No latest record is lost."""
    monkeypatch.setattr(key_hashes, "MAP_BYTES", 24 * 16)
    monkeypatch.setattr(key_hashes, "BLOCK_ENTRIES", 5)
    monkeypatch.setattr(key_hashes, "ROW_ENTRIES", 3)
    records: list[tuple[int, bytes | None]] = [
        (number * 40, b"key %d" % (number % 30)) for number in range(90)
    ]
    found = list(RangeKeyHashes(SECRET).latest(0, 1, batches(records, 37)))
    sizes = [len(row["entries"]) // ENTRY.itemsize for each in found for row in each.to_pylist()]

    assert {(0, number * 40) for number in range(60, 90)} == greatest(found)
    assert 90 == sum(sizes)
    assert {2, 3} == set(sizes[:2])


def test_ranges_of_one_task_are_independent() -> None:
    """The second range does not use the keys of the first."""
    keys = RangeKeyHashes(SECRET)
    first = list(keys.latest(0, 1, batches([(7, b"a"), (9, b"b")], 2)))
    second = list(keys.latest(1, 1, batches([(3, b"a")], 2)))
    found = [*first, *second]

    assert {(0, 7), (0, 9), (1, 3)} == greatest(found)
    assert 3 == len(list(entries_of(found)))


@pytest.mark.parametrize(
    ("offsets", "size_bytes", "expected"),
    [
        (0, 0, 1),
        (100, 1 << 40, 1),
        (1 << 18, 1 << 40, 4),
        (4 << 20, 1 << 40, 8),
        (100 << 20, 1 << 40, 100),
        # Few bytes for many offsets: the log has gaps.
        (100 << 20, 1 << 20, 1),
    ],
)
def test_slice_count_follows_the_possible_records(
    offsets: int, size_bytes: int, expected: int
) -> None:
    """Enough slices for all cores, and none larger than the chunk of a task."""
    assert expected == slice_count(offsets, size_bytes)


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5 << 17)), max_size=30)),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3 << 17),
    st.integers(1, 3 << 17),
)
def test_latest_offsets_of_all_tasks_are_read_back_as_bitmaps(
    tmp_path_factory: pytest.TempPathFactory,
    tasks: list[list[tuple[int, int]]],
    slices: int,
    size: int,
    start: int,
    length: int,
) -> None:
    """The greatest offset of each key in any task, for any range of the partition."""
    folder = tmp_path_factory.mktemp("latest")
    found: list[pa.RecordBatch] = []
    expected: dict[int, dict[bytes, int]] = {0: {}, 1: {}}
    for number, task in enumerate(tasks):
        records = [(offset, b"%d" % key) for key, offset in sorted(task, key=lambda each: each[1])]
        found += RangeKeyHashes(SECRET).latest(number % 2, slices, batches([*records], 7))
        for offset, key in records:
            of_partition = expected[number % 2]
            of_partition[key] = max(of_partition.get(key, -1), offset)
    latest = LatestOffsets(folder)
    for rows in shuffled(found, size):
        latest.add(*rows.columns)
    written = slices_by_partition(latest.finish())
    for number, by_key in expected.items():
        offsets, end = set(by_key.values()), start + length
        loaded = load_live_records(folder, written.get(number, []), start, end)
        candidates = np.array(sorted({*offsets, start, end - 1}), np.int64)
        within = (candidates >= start) & (candidates < end)

        assert [offset in offsets for offset in candidates[within].tolist()] == loaded.takes(
            candidates[within]
        ).tolist()
        assert not loaded.takes(candidates[~within]).any()


def test_keys_with_half_a_hash_in_common_are_different(tmp_path: Path) -> None:
    """The other half differs, in any order."""
    halves = [(7, 1), (7, 2), (7, 1), (8, 1), (7, 2)]
    entries = np.array([(*half, 10 * row) for row, half in enumerate(halves)], ENTRY)
    latest = LatestOffsets(tmp_path)
    latest.add(
        pa.array([0], pa.int32()),
        pa.array([0], pa.int32()),
        pa.array([1 << 40], pa.int64()),
        pa.array([entries.tobytes()], pa.binary()),
    )
    written = slices_by_partition(latest.finish())
    base = 1 << 40
    loaded = load_live_records(tmp_path, written[0], base, base + 50)

    assert [False, False, True, True, True] == loaded.takes(np.arange(base, base + 50, 10)).tolist()


def test_load_live_records_reads_only_the_requested_range(tmp_path: Path) -> None:
    """The bitmaps cover the whole partition."""
    found = list(RangeKeyHashes(SECRET).latest(0, 1, batches([(1, b"a"), (70_000, b"b")], 2)))
    latest = LatestOffsets(tmp_path)
    for rows in found:
        latest.add(*rows.columns)
    written = slices_by_partition(latest.finish())
    loaded = load_live_records(tmp_path, written[0], 0, 100_000, 2)

    assert [True, False] == loaded.takes(np.array([1, 70_000])).tolist()
    assert 99_999 == loaded.latest_offset


def test_truncated_bitmap_file_raises(tmp_path: Path) -> None:
    """With missing bits, live records would count as superseded."""
    found = list(RangeKeyHashes(SECRET).latest(0, 1, batches([(1, b"a"), (70_000, b"b")], 2)))
    latest = LatestOffsets(tmp_path)
    latest.add(*found[0].columns)
    written = slices_by_partition(latest.finish())
    path = tmp_path / written[0][0][0]
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(LogStorageError, match="where 4 were written"):
        load_live_records(tmp_path, written[0], 0, 100_000)
