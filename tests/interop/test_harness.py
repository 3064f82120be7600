"""The harness itself on golden data: a tool or broker that cannot find fault proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden import CLEAN, Manifest, canonical_hash, copy_partition, unchanged

from .broker import Broker
from .clients import TopicPlan, committed_end, consume, end_offset, offsets_for_times, produce
from .foreign import BrokerTemplates, put_partition
from .kafka_maven import KafkaInstall
from .tools import DumpError, dump, segment_files

SERVED = ("plain-small-0", "lz4-0", "transactions-0")
PLANS = [
    TopicPlan("plain-small"),
    TopicPlan("lz4"),
    TopicPlan("transactions", partitions=2),
]


@pytest.mark.parametrize("partition", SERVED)
def test_dump_golden_partition_equals_manifest(kafka: KafkaInstall, partition: str) -> None:
    """Batches, records and index entries that the tool prints are those of the manifest."""
    manifest = Manifest(CLEAN, partition)
    with unchanged(manifest.directory):
        dumped = dump(kafka, segment_files(manifest.directory), deep=True)

    dumped.ensure_clean()
    logs = [dumped.files[path] for path in segment_files(manifest.directory, ".log")]
    assert [(fact.base_offset, fact.position, fact.crc) for fact in manifest.batches()] == [
        (int(batch["baseOffset"]), int(batch["position"]), int(batch["crc"]))
        for log in logs
        for batch in log.batches
    ]
    assert [(fact.offset, fact.timestamp_ms) for fact in manifest.records()] == [
        (record.offset, record.timestamp_ms) for log in logs for record in log.records
    ]
    for segment in manifest.summary.segments:
        index = manifest.directory / f"{segment.base_offset:020}.index"
        assert list(segment.offset_index) == dumped.files[index].pairs()
        time_index = index.with_suffix(".timeindex")
        assert list(segment.time_index) == dumped.files[time_index].pairs()


def test_index_checks_golden_indexes_pass(kafka: KafkaInstall) -> None:
    """Both index checks of the tool are content with a broker's own indexes."""
    paths = segment_files(Manifest(CLEAN, "plain-small-0").directory, ".index", ".timeindex")

    dump(kafka, paths, index_sanity_check=True).ensure_clean()
    dump(kafka, paths, verify_index_only=True).ensure_clean()


def test_deep_dump_damaged_batch_is_reported(kafka: KafkaInstall, tmp_path: Path) -> None:
    """One flipped bit in a value is found, so a dump without a finding is evidence."""
    directory = copy_partition(CLEAN, "plain-small-0", tmp_path / "plain-small-0")
    log = segment_files(directory, ".log")[0]
    flip(log, 300)

    with pytest.raises(DumpError, match="batch at 0 is invalid"):
        dump(kafka, [log], deep=True).ensure_clean()


def test_verify_index_wrong_position_is_reported(kafka: KafkaInstall, tmp_path: Path) -> None:
    """An entry that names another batch's position is found by --verify-index-only."""
    directory = copy_partition(CLEAN, "plain-small-0", tmp_path / "plain-small-0")
    index = segment_files(directory, ".index")[0]
    patch(index, 8, (19).to_bytes(4) + (1846).to_bytes(4))

    with pytest.raises(DumpError, match="Mismatches in"):
        dump(kafka, [index], verify_index_only=True).ensure_clean()


def test_sanity_check_odd_size_is_reported(kafka: KafkaInstall, tmp_path: Path) -> None:
    """An index that is no whole number of entries fails the sanity check."""
    directory = copy_partition(CLEAN, "plain-small-0", tmp_path / "plain-small-0")
    index = segment_files(directory, ".index")[0]
    index.write_bytes(index.read_bytes()[:-5])

    with pytest.raises(DumpError):
        dump(kafka, [index], index_sanity_check=True).ensure_clean()


def test_broker_on_golden_directories_serves_their_manifests(
    templates: BrokerTemplates, tmp_path: Path
) -> None:
    """A fresh broker serves foreign logs: records, both isolation levels, times, log ends."""
    broker = templates.broker(tmp_path / "data", PLANS)
    for name in SERVED:
        put_partition(broker, name, Manifest(CLEAN, name).directory)

    with broker:
        for name in SERVED:
            check_served(broker, name)
        summary = Manifest(CLEAN, "plain-small-0").summary
        assert [summary.log_end_offset] == produce(broker.address, "plain-small", [(b"k", b"more")])


def check_served(broker: Broker, name: str) -> None:
    summary = Manifest(CLEAN, name).summary
    topic = name.rpartition("-")[0]
    facts = summary.read_committed
    assert facts is not None

    assert summary.log_end_offset == end_offset(broker.address, topic)
    assert summary.data == canonical_hash(consume(broker.address, topic))
    committed = consume(broker.address, topic, isolation_level="read_committed")
    assert facts.data == canonical_hash(committed)
    assert facts.end_offset == committed_end(broker.address, topic)
    times = [answer.timestamp_ms for answer in summary.offsets_for_times]
    assert [
        None if answer.offset is None else (answer.offset, answer.found_timestamp_ms)
        for answer in summary.offsets_for_times
    ] == offsets_for_times(broker.address, topic, times)


def test_broker_killed_and_restarted_serves_all_records(
    templates: BrokerTemplates, tmp_path: Path
) -> None:
    """SIGKILL ends a broker at once, and the same harness brings it back."""
    broker = templates.broker(tmp_path / "data", PLANS)
    broker.start()
    offsets = produce(broker.address, "lz4", [(b"a", b"1"), (None, b"2")], compression="lz4")
    broker.kill()

    assert not (broker.directory / ".kafka_cleanshutdown").exists()
    with broker:
        records = consume(broker.address, "lz4")

    assert offsets == [record.offset for record in records]
    assert [(b"a", b"1"), (None, b"2")] == [(record.key, record.value) for record in records]


def flip(path: Path, position: int) -> None:
    """Flip the lowest bit of one byte."""
    patch(path, position, bytes([path.read_bytes()[position] ^ 1]))


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes in place."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
