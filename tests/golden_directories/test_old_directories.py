"""Directories of Kafka 0.8.2 to 2.8: their outer entries and positions, by one walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Log, open_log
from tests.golden_directories.old_facts import PARTITIONS, entries_of, manifest_of
from tests.support import golden

# segment, position, magic, codec, last offset, CRC, size
Entry = tuple[str, int, int, int, int, int, int]


def walked(log: Log) -> list[Entry]:
    """Return the outer entries that have records, by one walk over the log."""
    return [
        (
            Path(str(batch.path)).name,
            batch.position,
            batch.header.magic,
            batch.header.codec,
            batch.last_offset,
            batch.header.crc,
            batch.header.size_bytes,
        )
        for batch in log.batches()
        if batch.header.record_count != 0
    ]


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_batches_of_an_old_directory_equal_the_manifest(broker: str, partition: str) -> None:
    """All outer entries of all magics, positions, start and end; not a byte is written."""
    manifest = manifest_of(broker, partition)
    facts = [
        (e.segment, e.position, e.magic, e.codec, e.offset, e.crc, e.size_bytes)
        for e in entries_of(manifest)
    ]
    with golden.unchanged(manifest.directory), open_log(manifest.directory, read_only=True) as log:
        assert facts == walked(log)
        summary = manifest.summary
        assert (summary.log_start_offset, summary.log_end_offset) == (
            log.log_start_offset,
            log.log_end_offset,
        )
        assert () == log.corrupt_ranges()
