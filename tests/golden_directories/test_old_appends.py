"""Appends of batches that brokers from 0.8.2 to 2.8 stored, as a follower and as a leader.

A follower's log holds the same bytes. A leader's holds the same records, at new offsets, in the
log's own format. Batches of v2 with producers are not appended here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogConfig, Record, open_log
from kafkalog.records.entry_columns import scan_entries
from tests.golden_directories.old_facts import PARTITIONS, manifest_of
from tests.support.golden_old import OldManifest

RELEASES = {0: "0.8.2", 1: "0.10.2", 2: "2.8"}
NO_BOUNDS: dict[str, Any] = {"message_timestamp_after_max_ms": 2**63 - 1}


def segments_of(manifest: OldManifest) -> list[bytes]:
    """The bytes of every segment that has any."""
    files = sorted(manifest.directory.glob("*.log"))
    return [data for file in files if (data := file.read_bytes())]


def magics_of(segments: list[bytes]) -> set[int]:
    """The formats of the batches."""
    return {int(magic) for data in segments for magic in scan_entries(data).magic}


OLD_ALONE = [
    (broker, partition)
    for broker, partition in PARTITIONS
    if magics_of(segments_of(manifest_of(broker, partition))) in ({0}, {1})
]


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_append_as_follower_old_partition_keeps_its_bytes(
    broker: str, partition: str, tmp_path: Path
) -> None:
    """All formats, mixed too, with what compaction left: offsets, number, largest timestamp."""
    manifest = manifest_of(broker, partition)
    records = list(manifest.records())
    with open_log(tmp_path / partition, config=LogConfig()) as log:
        for data in segments_of(manifest):
            size_bytes = sum(segment.size_bytes for segment in log.segments())
            info = log.append_batches(data, assign_offsets=False)
            assert len(data) == info.size_bytes
            assert size_bytes + len(data) == sum(each.size_bytes for each in log.segments())
        stored = b"".join(segment.path.read_bytes() for segment in log.segments())
        assert b"".join(segments_of(manifest)) == stored
        offsets = [record.offset for record in records if not record.is_control]
        assert offsets == [record.offset for record in log.records()]


# Each partition by a log of one format, which differs from one to the next.
@pytest.mark.parametrize(
    ("broker", "partition", "magic"),
    [(*partition, number % 3) for number, partition in enumerate(OLD_ALONE)],
)
def test_append_as_leader_old_partition_converts_to_its_format(
    broker: str, partition: str, magic: int, tmp_path: Path
) -> None:
    """Keys and values stay, and times if both formats have them; the codec stays."""
    segments = segments_of(manifest_of(broker, partition))
    with open_log(tmp_path / "source-0") as log:
        for data in segments:
            log.append_batches(data, assign_offsets=False)
        source = list(log.records())
    config = LogConfig(message_format_version=RELEASES[magic], **NO_BOUNDS)
    with open_log(tmp_path / "target-0", config=config) as log:
        infos = [log.append_batches(data) for data in segments]
        target = list(log.records())
        assert {magic} == {batch.header.magic for batch in log.batches(0)}
    assert len(source) == sum(info.record_count for info in infos)
    assert [(record.key, record.value) for record in source] == [
        (record.key, record.value) for record in target
    ]
    assert list(range(len(source))) == [record.offset for record in target]
    # A leader uses the timestamps of the records, not the append time of the broker.
    if {record.timestamp_type for record in source} == {0}:
        assert times(source, magic) == [record.timestamp_ms for record in target]
    elif magic_of(source) == 0:
        assert {-1} == {record.timestamp_ms for record in target}


def magic_of(records: list[Record]) -> int:
    """Format of records that have one."""
    return 0 if records[0].timestamp_type == -1 else 1


def times(records: list[Record], magic: int) -> list[int]:
    """The timestamps in a format; -1 in v0."""
    return [record.timestamp_ms if magic else -1 for record in records]
