"""Look-ups in directories of Kafka 0.8.2 to 2.8: every offset, every time, any index.

Old brokers wrote other index entries than today's Kafka: the first offset of an append, or the
last; the offset of the record or of its batch; timestamps of messages that were stored without any.
All of them must lead to the right position, by the brokers' indexes and by rebuilt indexes.

Numbers in brackets are the points of `tests/golden/kafka-old/README.md`.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog import Log, open_log
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER
from kafkalog.log.lookup import MAX_TIMESTAMP
from tests.golden_directories.old_facts import PARTITIONS, entries_of, manifest_of, visible_of
from tests.support.golden_old import OldManifest
from tests.support.manifest_old import OldRecordFact

# All with their broker's indexes, every third with ours.
WITH_INDEXES = [
    *((broker, partition, "brokers") for broker, partition in PARTITIONS),
    *((broker, partition, "rebuilt") for broker, partition in PARTITIONS[::3]),
]
# Time indexes with timestamps that no message has: they were written before the conversion [10].
TIMES_OF_NO_MESSAGE = {
    ("kafka-0.10.2", "compact-v0-plain-0"),
    ("kafka-0.10.2", "mixed-back-0"),
    ("kafka-0.10.2", "v0-plain-0"),
}
# That broker answers "none" for times that later records have [12].
BROKER_MISSES = {
    ("kafka-2.8", "deleted-records-0"),
    ("kafka-2.8", "mixed-back-0"),
    ("kafka-2.8", "mixed-small-0"),
    ("kafka-2.8", "v1-from-old-0"),
    ("kafka-2.8", "v2-from-old-0"),
}


@contextmanager
def opened(manifest: OldManifest, target: Path, indexes: str) -> Iterator[Log]:
    """Open the broker's directory read-only, or a copy of it without its indexes."""
    directory = manifest.directory
    if indexes == "rebuilt":
        directory = target / manifest.partition
        shutil.copytree(manifest.directory, directory)
        for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
            path.unlink()
        (directory / CLEAN_SHUTDOWN_MARKER).touch()
    with open_log(directory, read_only=True) as log:
        assert log.recovery_report.clean
        yield log


@pytest.mark.parametrize(("broker", "partition", "indexes"), WITH_INDEXES)
def test_offset_lookup_in_an_old_directory_finds_the_record_or_the_next(
    broker: str, partition: str, indexes: str, tmp_path: Path
) -> None:
    """Every eleventh offset, inside wrappers and in gaps of compaction; no index is rebuilt [8]."""
    manifest = manifest_of(broker, partition)
    records = {record.offset: record for record in visible_of(manifest)}
    offsets = sorted(records)
    with opened(manifest, tmp_path, indexes) as log:
        for offset in range(manifest.summary.log_start_offset, log.log_end_offset, 11):
            check_offset(log, offset, records, offsets)
        for entry in entries_of(manifest)[::5]:
            [found] = list(log.batches(entry.offset, entry.offset + 1))
            assert (entry.segment, entry.position) == (Path(str(found.path)).name, found.position)
        assert () == log.corrupt_ranges()
        if indexes == "brokers":
            assert not any(segment.offset_index.was_rebuilt for segment in log.segments())


def check_offset(
    log: Log, offset: int, records: dict[int, OldRecordFact], offsets: list[int]
) -> None:
    """Assert the results of `get`, `records` and `read` at an offset; `offsets` are sorted."""
    record, fact = log.get(offset), records.get(offset)
    assert (fact is None) == (record is None)
    if fact is not None and record is not None:
        assert (fact.offset, fact.key) == (record.offset, record.key)
        assert fact.has_value(record.value)
    slot = bisect_left(offsets, offset)
    following = offsets[slot] if slot < len(offsets) else None
    found = next(log.records(offset), None)
    assert following == (None if found is None else found.offset)
    fetched = log.read(offset, max_bytes=1)
    first = next(fetched.records(), None)
    if first is not None:
        assert following == first.offset
        assert fetched.first_offset is not None
        assert fetched.first_offset <= first.offset < fetched.next_offset


def answer_of(records: list[OldRecordFact], timestamp_ms: int) -> tuple[int, int] | None:
    """Return (offset, time) of the first record at or above a time, in log order."""
    return next(
        (
            (record.offset, record.timestamp_ms)
            for record in records
            if record.timestamp_ms >= timestamp_ms
        ),
        None,
    )


@pytest.mark.parametrize(("broker", "partition", "indexes"), WITH_INDEXES)
def test_time_lookup_in_an_old_directory_finds_the_first_late_record(
    broker: str, partition: str, indexes: str, tmp_path: Path
) -> None:
    """At and above times of records, which go back and forth [15]; true times stay indexed [9]."""
    manifest = manifest_of(broker, partition)
    with opened(manifest, tmp_path, indexes) as log:
        # The copy has no log start checkpoint. Markers of transactions have timestamps too.
        records = [record for record in manifest.records() if record.offset >= log.log_start_offset]
        times = sorted({record.timestamp_ms for record in records if record.timestamp_ms >= 0})
        sample = times[:: max(len(times) // 12, 1)] + times[-1:]
        for timestamp in [0, 2**50, *sample, *(each + 1 for each in sample)]:
            found = log.offset_for_timestamp(timestamp)
            assert answer_of(records, timestamp) == (
                None if found is None else (found.offset, found.timestamp_ms)
            ), timestamp
        latest = log.offset_for_timestamp(MAX_TIMESTAMP)
        assert (answer_of(records, times[-1]) if times else None) == (
            None if latest is None else (latest.offset, latest.timestamp_ms)
        )
        present = {
            segment.base_offset
            for segment in manifest.summary.segments
            if segment.log_name.replace(".log", ".timeindex") in segment.files
        }
        is_rebuilt = any(
            segment.time_index.was_rebuilt
            for segment in log.segments()
            if segment.base_offset in present
        )
    if indexes == "brokers":
        assert ((broker, partition) in TIMES_OF_NO_MESSAGE) == is_rebuilt


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_time_lookup_in_an_old_directory_equals_the_brokers_answer(
    broker: str, partition: str
) -> None:
    """The broker's `offsetsForTimes` misses some records, and is never earlier [10, 12]."""
    manifest = manifest_of(broker, partition)
    consumer = manifest.summary.consumer
    misses = 0
    with open_log(manifest.directory, read_only=True) as log:
        for answer in () if consumer is None else consumer.offsets_for_times:
            found = log.offset_for_timestamp(answer.timestamp_ms)
            ours = None if found is None else (found.offset, found.timestamp_ms)
            if answer.offset is None:
                misses += ours is not None
            else:
                assert (answer.offset, answer.found_timestamp_ms) == ours
    assert ((broker, partition) in BROKER_MISSES) == (misses > 0)


def test_time_lookup_in_a_directory_of_v0_finds_none() -> None:
    """The timestamps of the broker's time index are ignored [10, 11]."""
    alone = 0
    for broker, partition in PARTITIONS:
        manifest = manifest_of(broker, partition)
        if {entry.magic for entry in entries_of(manifest)} == {0}:
            alone += 1
            with open_log(manifest.directory, read_only=True) as log:
                assert log.offset_for_timestamp(0) is None
                assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert alone > 40
