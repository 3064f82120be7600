"""Tests of the directories of old brokers: they are whole, and their manifests agree."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tests.support import golden, golden_old
from tests.support.golden_old import BROKERS, OldManifest, all_old_partitions

# A broker's directory has these files besides its partitions, in each version.
EVERY_BROKER_HAS = {".lock", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"}


def test_old_partitions_are_123_of_four_brokers() -> None:
    """A partition that is missing here would silently shrink every test that goes over all."""
    counts = Counter(broker for broker, _ in all_old_partitions())
    expected = {"kafka-0.8.2": 14, "kafka-0.9.0": 20, "kafka-0.10.2": 44, "kafka-2.8": 45}
    assert expected == dict(counts)
    for broker in BROKERS:
        files = {path.name for path in golden_old.old_data_directory(broker).iterdir()}
        assert files >= EVERY_BROKER_HAS


@pytest.mark.parametrize(("broker", "partition"), all_old_partitions())
def test_old_manifest_counts_equal_its_summary(broker: str, partition: str) -> None:
    """Records, control records and kinds of outer entries are counted in the summary."""
    manifest = OldManifest(broker, partition)
    summary = manifest.summary
    records = list(manifest.records())
    entries = list(manifest.entries())
    assert (broker, partition) == (summary.broker, summary.partition)
    assert summary.record_count == len(records)
    assert summary.control_record_count == sum(record.is_control for record in records)
    assert summary.record_count == sum(len(entry.records) for entry in entries)
    kinds = Counter(f"v{entry.magic}/{golden.CODECS[entry.codec]}" for entry in entries)
    emptied = summary.batch_count - len(entries)
    assert emptied == sum((Counter(summary.batch_kinds) - kinds).values())
    assert not kinds - Counter(summary.batch_kinds)


@pytest.mark.parametrize(("broker", "partition"), all_old_partitions())
def test_old_manifest_files_equal_the_directory(broker: str, partition: str) -> None:
    """The summary names every other file, with its size and hash."""
    manifest = OldManifest(broker, partition)
    summary = manifest.summary
    facts = dict(summary.other_files)
    for segment in summary.segments:
        facts.update(segment.files)
    found = {}
    for path in manifest.directory.iterdir():
        data = path.read_bytes()
        found[path.name] = (len(data), hashlib.sha256(data).hexdigest())
    assert facts == found


@pytest.mark.parametrize(("broker", "partition"), all_old_partitions())
def test_rendering_of_old_manifest_equals_summary(broker: str, partition: str) -> None:
    """Our renderings are those the summaries were made with (where no value is left out)."""
    manifest = OldManifest(broker, partition)
    summary = manifest.summary
    start = summary.log_start_offset
    records = [r for r in manifest.records() if not r.is_control and r.offset >= start]
    if any(record.value_sha256 is not None for record in records):
        assert summary.all.count == len(records)
        return
    assert summary.all == golden_old.rendered(records)
    assert summary.bare == golden_old.rendered(records, bare=True)
    assert summary.no_headers == golden_old.rendered(records, headers=False)


@pytest.mark.parametrize(("broker", "partition"), all_old_partitions())
def test_old_consumer_returned_the_records_of_the_manifest(broker: str, partition: str) -> None:
    """The consumer of the broker's age read the same: bare below 0.10, whole from then on."""
    summary = OldManifest(broker, partition).summary
    if summary.consumer is None:
        assert partition == "__consumer_offsets-0"
        return
    expected = summary.bare if broker in ("kafka-0.8.2", "kafka-0.9.0") else summary.all
    assert expected == summary.consumer.rendered
    if summary.consumer_committed is not None:
        assert summary.committed == summary.consumer_committed.rendered


def test_copy_old_partition_is_equal_and_writable(tmp_path: Path) -> None:
    """A copy has the same names and bytes, and writing to it leaves the fixture alone."""
    source = golden_old.old_data_directory("kafka-0.8.2")
    with golden.unchanged(source):
        whole = golden_old.copy_old_data_directory("kafka-0.8.2", tmp_path / "whole")
        assert golden.snapshot(source) == golden.snapshot(whole)
        one = golden_old.copy_old_partition("kafka-0.8.2", "gzip-0", tmp_path / "one")
        assert golden.snapshot(source / "gzip-0") == golden.snapshot(one)
        (one / "00000000000000000000.log").write_bytes(b"changed")
