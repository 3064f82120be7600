"""Directories of Kafka 0.8.2 to 2.8: their outer entries, found by walks and by look-ups.

What is inside wrappers is the decoders' affair. Nothing in these directories is damage: missing
time indexes, index entries with the first or the last offset of an append, times of messages that
were converted to a format without any.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog import Log, open_log
from tests.support import golden, golden_old
from tests.support.golden_old import OldManifest
from tests.support.manifest_old import OldEntryFact

# segment, position, magic, codec, last offset, CRC, size
Entry = tuple[str, int, int, int, int, int, int]

PARTITIONS = golden_old.all_old_partitions()


def entries_of(log: Log) -> list[Entry]:
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


def expected_entries(manifest: OldManifest) -> list[OldEntryFact]:
    """Return the manifest's entries from the log start offset on."""
    start = manifest.summary.log_start_offset
    return [entry for entry in manifest.entries() if entry.offset >= start]


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_old_directory_read_only_has_the_manifests_entries(broker: str, partition: str) -> None:
    """All outer entries of all magics in their places, start and end; not a byte is written."""
    manifest = OldManifest(broker, partition)
    facts = [
        (e.segment, e.position, e.magic, e.codec, e.offset, e.crc, e.size_bytes)
        for e in expected_entries(manifest)
    ]
    with golden.unchanged(manifest.directory), open_log(manifest.directory, read_only=True) as log:
        assert facts == entries_of(log)
        summary = manifest.summary
        assert (summary.log_start_offset, summary.log_end_offset) == (
            log.log_start_offset,
            log.log_end_offset,
        )
        assert () == log.fences()


@pytest.mark.parametrize("indexes", ["brokers", "rebuilt"])
@pytest.mark.parametrize(("broker", "partition"), PARTITIONS[::3])
def test_old_directory_lookups_find_the_entry_that_holds_an_offset(
    broker: str, partition: str, indexes: str, tmp_path: Path
) -> None:
    """First and last record of entries, by the broker's indexes and by ours; the logs stay."""
    manifest = OldManifest(broker, partition)
    copy = tmp_path / partition
    shutil.copytree(manifest.directory, copy)
    logs = {path.name: path.read_bytes() for path in copy.glob("*.log")}
    if indexes == "rebuilt":
        for path in [*copy.glob("*.index"), *copy.glob("*.timeindex")]:
            path.unlink()
    with open_log(copy) as log:
        for entry in expected_entries(manifest)[::5]:
            for record in (entry.records[0], entry.records[-1]):
                if record.offset >= log.log_start_offset:
                    found = next(log.batches(record.offset, record.offset + 1))
                    assert (entry.segment, entry.position) == (
                        Path(str(found.path)).name,
                        found.position,
                    )
        assert () == log.fences()
        assert () == tuple(log.recovery_report.cut)
    assert logs == {path.name: path.read_bytes() for path in copy.glob("*.log")}
