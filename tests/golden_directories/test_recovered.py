"""Brokers' partitions, opened for writing on a copy: recovery gives Kafka's result.

The clean set needs no recovery, and not a byte of its files may change. The crash set has segments
beyond the recovery point with preallocated indexes; the swap set a compaction to complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Log, LogConfig, Record, open_log
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog.files.names import FileKind, FileState, SegmentFiles, try_parse_segment_file
from tests.golden_directories.facts import (
    batch_facts,
    check_record,
    log_batches,
    manifest_batches,
    manifest_records,
    visible_records,
)
from tests.support import golden, reference
from tests.support.golden import Manifest

PARTITIONS = golden.all_partitions()
CLEAN_PARTITIONS = golden.partitions(golden.CLEAN)
CRASHED = [(golden.UNCLEAN, name) for name in golden.partitions(golden.UNCLEAN)]
CRASHED += [(golden.SWAP, name) for name in golden.partitions(golden.SWAP)]
# Without the metadata log, to which the broker went on writing, and the topic in deletion, which it
# does not recover.
SERVED = [
    case for case in CRASHED if case[1].startswith(("u-", "__transaction")) and len(case[1]) < 40
]

# `index.interval.bytes` of the crash set's topics, where it was not Kafka's default.
INTERVALS = {
    "u-compact-0": 512,
    "u-log-0": 512,
    "u-log-1": 512,
    "u-lz4-0": 1024,
    "u-txn-0": 512,
}


@pytest.fixture(name="manifest")
def fixture_manifest(data_set: str, partition: str) -> Manifest:
    """The manifest of the partition under test after recovery."""
    return Manifest(data_set, partition, recovered=data_set == golden.SWAP)


@pytest.fixture(name="config")
def fixture_config(partition: str) -> LogConfig:
    """The topic's index interval, so that rebuilt indexes can be compared."""
    return LogConfig(index_interval_bytes=INTERVALS.get(partition, 4096))


@pytest.fixture(name="copy")
def fixture_copy(tmp_path: Path, data_set: str, partition: str) -> Path:
    """A copy of the partition with its data directory's own files."""
    data = tmp_path / "data"
    data.mkdir()
    source = golden.data_directory(data_set)
    for path in source.iterdir():
        if path.is_file():
            (data / path.name).write_bytes(path.read_bytes())
    return golden.copy_partition(data_set, partition, data / partition)


@pytest.fixture(name="log")
def fixture_log(copy: Path, config: LogConfig) -> Iterator[Log]:
    """The copy, open for writing."""
    with open_log(copy, config=config) as log:
        yield log


def live_files(directory: Path) -> dict[str, bytes]:
    """Return name -> bytes of every live segment file but producer snapshots."""
    found = {}
    for path in sorted(directory.iterdir()):
        name = try_parse_segment_file(path.name)
        if name is not None and name.state is FileState.LIVE and name.kind is not FileKind.SNAPSHOT:
            found[path.name] = path.read_bytes()
    return found


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_recovered_batches_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """Every field of every batch in every segment: recovery loses and changes nothing."""
    assert list(manifest_batches(manifest)) == batch_facts(log_batches(log))
    assert not log.recovery_report.found_damage
    assert () == log.corrupt_ranges()


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_recovered_records_equal_the_manifest(log: Log, manifest: Manifest) -> None:
    """Every record that a consumer gets, field by field, and the hash over all of them."""
    summary = manifest.summary
    records = list(log.records())
    for fact, record in zip(visible_records(manifest, log.log_start_offset), records, strict=True):
        check_record(fact, record)
    assert summary.data == golden.canonical_hash(records)
    assert (summary.log_start_offset, summary.log_end_offset) == (
        log.log_start_offset,
        log.log_end_offset,
    )


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_recovered_time_lookups_equal_the_answers_of_a_broker(
    log: Log, manifest: Manifest, data_set: str, partition: str
) -> None:
    """The broker answered on a copy that it had recovered: offset, timestamp and leader epoch.

    With one exception: an empty segment has no timestamp, so the broker uses its file's time,
    finds that late enough, searches there alone and answers "none". kafkalog finds the record.
    """
    for answer in Manifest(data_set, partition).summary.offsets_for_times:
        found = log.offset_for_timestamp(answer.timestamp_ms)
        actual = (None, None, None) if found is None else (found.offset, *found[::2])
        expected = (answer.offset, answer.found_timestamp_ms, answer.leader_epoch)
        if data_set == golden.SWAP:
            expected = first_at(manifest, answer.timestamp_ms)
            assert answer.offset in (None, expected[0])
        assert expected == actual


def first_at(manifest: Manifest, timestamp_ms: int) -> tuple[int | None, int | None, int | None]:
    """Return offset, timestamp and leader epoch of the first record at or above a timestamp."""
    late = (fact for fact in manifest_records(manifest) if fact.timestamp_ms >= timestamp_ms)
    fact = min(late, key=lambda fact: fact.offset, default=None)
    return (
        (None, None, None) if fact is None else (fact.offset, fact.timestamp_ms, fact.leader_epoch)
    )


@pytest.mark.parametrize(("data_set", "partition"), SERVED)
def test_recovered_segments_equal_those_of_a_broker(
    log: Log, data_set: str, partition: str
) -> None:
    """Sizes and numbers of index entries equal those of a recovered broker."""
    fact = Manifest(data_set, partition).summary.recovered
    assert fact is not None
    assert [
        (segment.segment, segment.log_bytes, segment.offset_index_entries)
        for segment in fact.segments
    ] == [
        (segment.path.name, segment.size_bytes, len(segment.offset_index.view))
        for segment in log.segments()
    ]
    assert [segment.time_index_entries for segment in fact.segments] == [
        len(segment.time_index.view) for segment in log.segments()
    ]


@pytest.mark.parametrize(("data_set", "partition"), CRASHED)
def test_recovered_index_files_equal_the_reference(
    copy: Path, data_set: str, partition: str, config: LogConfig
) -> None:
    """Above the recovery point the files follow Kafka's recovery rule, to the byte."""
    with open_log(copy, config=config) as log:
        scanned = log.segments()[-log.recovery_report.scanned_segments or None :]
        interval = config.index_interval_bytes
        expected = {}
        for segment in scanned:
            files = SegmentFiles(copy, segment.base_offset)
            batches = reference.scan_batches(files.log.read_bytes()).batches
            offsets, times = reference.select_entries(batches, segment.base_offset, interval)
            expected[files.offset_index.name] = offsets
            expected[files.time_index.name] = times
    actual = live_files(copy)
    assert expected == {name: actual[name] for name in expected}


@pytest.mark.parametrize(("data_set", "partition"), CRASHED)
def test_recovery_keeps_log_files_and_finishes_swaps(
    copy: Path, data_set: str, partition: str, config: LogConfig
) -> None:
    """Whole logs stay unchanged; `.cleaned`, `.swap` and `.deleted` files are gone."""
    before = {name: data for name, data in live_files(copy).items() if name.endswith(".log")}
    with open_log(copy, config=config) as log:
        swapped = {path.name for path in log.recovery_report.completed_swaps}
    after = {name: data for name, data in live_files(copy).items() if name.endswith(".log")}
    if data_set == golden.SWAP:
        assert {"00000000000000000631.log"} == swapped
        source = golden.data_directory(data_set) / partition / "00000000000000000631.log.swap"
        before["00000000000000000631.log"] = source.read_bytes()
    assert before == after
    states = {name.state for name in map(try_parse_segment_file, sorted(names(copy))) if name}
    assert {FileState.LIVE} == states


def names(directory: Path) -> list[str]:
    """Return the file names in a directory."""
    return [path.name for path in directory.iterdir()]


@pytest.mark.parametrize(
    ("data_set", "partition"), [(golden.CLEAN, name) for name in CLEAN_PARTITIONS]
)
def test_cleanly_closed_partition_is_unchanged_by_a_writer(
    copy: Path, data_set: str, partition: str
) -> None:
    """Opened for writing and closed: logs and indexes are the broker's, to the last byte."""
    before = live_files(copy)
    with open_log(copy) as log:
        assert log.recovery_report.clean
        assert 0 == log.recovery_report.scanned_segments
    assert before == live_files(copy)


@pytest.mark.parametrize(("data_set", "partition"), PARTITIONS)
def test_append_to_a_broker_log_continues_at_its_end(
    copy: Path, data_set: str, partition: str, manifest: Manifest, config: LogConfig
) -> None:
    """The offset is the broker's log end; the epoch its latest or, after a crash, the next."""
    summary = manifest.summary
    record = Record(key=b"new", value=b"x" * 5000, timestamp_ms=1_900_000_000_000)
    config = config.replace(message_timestamp_after_max_ms=2**63 - 1)
    with open_log(copy, config=config) as log:
        info = log.append([record, record])
        assert summary.log_end_offset == info.first_offset
        epochs = [epoch for epoch, _start in Manifest(data_set, partition).summary.leader_epochs]
        batch = next(log.batches(info.first_offset))
        rise = 1 if epochs and log.recovery_report.scanned_segments else 0
        assert max(epochs, default=0) + rise == batch.header.partition_leader_epoch
    with open_log(copy, config=config, read_only=True) as log:
        assert log.recovery_report.clean
        assert summary.record_count - summary.control_record_count + 2 >= len(list(log.records()))
        assert [(info.first_offset, b"new"), (info.last_offset, b"new")] == [
            (record.offset, record.key) for record in log.records(info.first_offset)
        ]
        check_indexes_point_at_batches(log)


def check_indexes_point_at_batches(log: Log) -> None:
    """Assert that every index entry points at the start of a batch."""
    for segment in log.segments():
        data = bytes(segment.file.whole())
        batches = dict(reference.scan_batches(data).batches)
        offsets: OffsetIndexView = segment.offset_index.view
        for slot in range(len(offsets)):
            offset, position = offsets.entry(slot)
            assert offset == batches[position].last_offset
        times: TimeIndexView = segment.time_index.view
        stamps = {(header.max_timestamp, header.last_offset) for header in batches.values()}
        for slot in range(len(times)):
            assert times.entry(slot) in stamps
