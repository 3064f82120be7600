"""Brokers' partitions, opened read-only: every batch, record and answer equals Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from kafkalog import MAX_TIMESTAMP, Log, OffsetOutOfRangeError, open_log
from tests.golden_directories.facts import (
    batch_facts,
    check_record,
    log_batches,
    manifest_batches,
    visible_records,
)
from tests.support import golden
from tests.support.golden import Manifest

PARTITIONS = golden.all_partitions()
# Partitions with a broker's answers for offsets by time. In the swap set the broker answered from
# the log after the swap, see test_recovered.py.
TIME_CASES = [
    case
    for case in PARTITIONS
    if case[0] != golden.SWAP and Manifest(*case).summary.max_timestamp is not None
]
CLEAN_PARTITIONS = [(golden.CLEAN, name) for name in golden.partitions(golden.CLEAN)]


@cache
def manifest_of(data_set: str, partition: str) -> Manifest:
    """Return one manifest object a partition, so that its lines are parsed once."""
    return Manifest(data_set, partition)


@pytest.fixture(name="manifest")
def fixture_manifest(data_set: str, partition: str) -> Manifest:
    """The manifest of the partition under test."""
    return manifest_of(data_set, partition)


@pytest.fixture(name="log")
def fixture_log(manifest: Manifest) -> Iterator[Log]:
    """The broker's partition, open read-only; no byte and no name may change."""
    with golden.unchanged(manifest.directory), open_log(manifest.directory, read_only=True) as log:
        yield log


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_batches_of_a_broker_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """Every field of every batch, emptied and control batches too, in every segment."""
    assert list(manifest_batches(manifest)) == batch_facts(log_batches(log))


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_batches_from_the_log_start_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """`batches()` begins with the batch of the log start offset and yields every later batch."""
    start = manifest.summary.log_start_offset
    expected = [fact for fact in manifest_batches(manifest) if fact.last_offset >= start]
    assert expected == batch_facts(log.batches())


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_records_of_a_broker_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """Every record that a consumer gets, field by field, and the hash over all of them."""
    records = list(log.records())
    facts = visible_records(manifest, manifest.summary.log_start_offset)
    for fact, record in zip(facts, records, strict=True):
        check_record(fact, record)
    assert manifest.summary.data == golden.canonical_hash(records)


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_control_batches_of_a_broker_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """Control records are read from their batches, with the types of the manifest."""
    expected = [
        fact.control_type
        for fact in manifest.records()
        if fact.is_control and fact.offset >= manifest.summary.log_start_offset
    ]
    actual = [
        control.type.name.lower()
        for batch in log.batches()
        if batch.header.is_control
        for control in batch.control_records()
    ]
    assert expected == actual


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_ends_of_a_broker_log_equal_the_summary(log: Log, manifest: Manifest) -> None:
    """Log start from the checkpoint or the first segment, log end after the last batch."""
    summary = manifest.summary
    assert (summary.log_start_offset, summary.log_end_offset) == (
        log.log_start_offset,
        log.log_end_offset,
    )
    assert [fact.base_offset for fact in summary.segments] == [
        segment.base_offset for segment in log.segments()
    ]
    assert [fact.valid_bytes for fact in summary.segments] == [
        segment.size_bytes for segment in log.segments()
    ]


@pytest.mark.parametrize(("data_set", "partition"), TIME_CASES)
def test_time_lookups_equal_the_answers_of_a_broker(log: Log, manifest: Manifest) -> None:
    """`offsetsForTimes`: offset, timestamp and leader epoch of the broker's answer."""
    for answer in manifest.summary.offsets_for_times:
        found = log.offset_for_timestamp(answer.timestamp_ms)
        actual = (None, None, None) if found is None else (found.offset, *found[::2])
        assert (answer.offset, answer.found_timestamp_ms, answer.leader_epoch) == actual


@pytest.mark.parametrize(("data_set", "partition"), TIME_CASES)
def test_max_timestamp_equals_the_answer_of_a_broker(log: Log, manifest: Manifest) -> None:
    """ListOffsets(-3): the first record with the largest timestamp; -1 for a log without."""
    answer = manifest.summary.max_timestamp
    assert answer is not None
    found = log.offset_for_timestamp(MAX_TIMESTAMP)
    assert (answer.offset, answer.found_timestamp_ms) == (
        (-1, -1) if found is None else (found.offset, found.timestamp_ms)
    )


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_index_entries_below_the_recovery_point_equal_the_summary(
    log: Log, manifest: Manifest
) -> None:
    """Segments that were not scanned use the broker's entries: no index was rebuilt."""
    facts, segments = manifest.summary.segments, log.segments()
    trusted = len(facts) - log.recovery_report.scanned_segments
    assert trusted > 0 or not log.recovery_report.clean
    for fact, segment in list(zip(facts, segments, strict=True))[:trusted]:
        offsets, times = segment.offset_index.view, segment.time_index.view
        assert list(fact.offset_index) == [offsets.entry(slot) for slot in range(len(offsets))]
        assert list(fact.time_index) == [times.entry(slot) for slot in range(len(times))]
        assert not segment.offset_index.was_rebuilt
        assert not segment.time_index.was_rebuilt


@pytest.mark.parametrize(("data_set", "partition"), CLEAN_PARTITIONS)
def test_read_from_each_offset_begins_with_its_batch(log: Log, manifest: Manifest) -> None:
    """A read from any offset starts with the first batch that reaches it, holes included."""
    facts = manifest_batches(manifest)
    start, end = manifest.summary.log_start_offset, manifest.summary.log_end_offset
    step = max((end - start) // 40, 1)
    for offset in range(start, end, step):
        expected = next((f.base_offset for f in facts if f.last_offset >= offset), None)
        assert expected == log.read(offset, max_bytes=1).first_offset


@pytest.mark.parametrize(("data_set", "partition"), CLEAN_PARTITIONS)
def test_read_outside_of_a_broker_log_raises_with_its_range(log: Log, manifest: Manifest) -> None:
    """One below the start and one above the end raise; a read at the end is empty."""
    summary = manifest.summary
    for offset in (summary.log_start_offset - 1, summary.log_end_offset + 1):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset)
        assert (summary.log_start_offset, summary.log_end_offset) == (
            caught.value.log_start_offset,
            caught.value.log_end_offset,
        )
    assert b"" == bytes(log.read(summary.log_end_offset).data)


@pytest.mark.parametrize("data_set", golden.DATA_SETS)
def test_whole_data_directory_is_unchanged_by_readers(data_set: str) -> None:
    """The data directory gets no lock and no checkpoint, and its marker stays."""
    data = golden.data_directory(data_set)
    with golden.unchanged(data):
        for partition in golden.partitions(data_set):
            with open_log(data / partition, read_only=True) as log:
                for _batch in log.batches():
                    pass
