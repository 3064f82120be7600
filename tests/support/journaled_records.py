"""Disks whose commit journal has records that the logs lack, and what a manager makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkalog import LogManager, ManagerConfig, Record
from kafkalog.files.filesystem import FileSystem
from kafkalog.state.commit_journal import (
    CommitBuilder,
    JournalFile,
    PartitionName,
    create_journal_file,
    journal_path,
)
from kafkalog.state.journal_records import JournalRecord, encode_records
from kafkalog.state.kafka_uuid import ZERO_ID
from kafkalog.state.partition_metadata import read_partition_metadata
from tests.support.managers import SMALL_LOG, manual_manager
from tests.support.simulated_disk import SimulatedDisk

__all__ = [
    "CONFIG",
    "Journal",
    "journal_names",
    "record",
    "rows",
    "rows_of",
    "texts_of",
    "unclean_disk",
]

A = Path("/disks/a")
JOURNAL = ".kafkalog_journal."
CONFIG = ManagerConfig(
    log=SMALL_LOG.replace(segment_bytes=4000, batch_bytes=300),
    num_recovery_threads_per_data_dir=1,
    journal_enable=True,
    journal_bytes=1 << 18,
)
# Offset, timestamp, key, value.
Row = tuple[int, int, bytes | None, bytes | None]


def unclean_disk(
    *unsynced: str, count: int = 1, synced: Sequence[str] = ("kept",)
) -> SimulatedDisk:
    """
    Return the disk of a manager that stopped, without a journal, with a topic `t`.

    Args:
        unsynced: texts of the records of each partition that are not on the disk yet, in a batch
            for each.
        count: number of partitions.
        synced: the same for records before them that are.
    """
    disk = SimulatedDisk()
    disk.make_durable(A)
    manager = manual_manager(A, config=CONFIG.replace(journal_enable=False), filesystem=disk)
    manager.create_topic("t", count)
    for texts in (synced, unsynced):
        for partition in range(count):
            for text in texts:
                offset = manager.log("t", partition).log_end_offset
                manager.log("t", partition).append([record(offset, text)])
        if texts is synced:
            manager.flush()
    return disk


def record(offset: int, text: str) -> Record:
    """Return the record of a text as the journal has it at an offset."""
    return Record(key=b"%d" % offset, value=text.encode(), timestamp_ms=1000 + offset)


class Journal:
    """
    A journal file with records entries, of the topic `t`; each call writes one commit.

    Args:
        disk: has the topic.
        number: number of the file.
        sequence: sequence of its first commit.
    """

    def __init__(self, disk: FileSystem, number: int = 1, sequence: int = 1) -> None:
        path = journal_path(A, number)
        self._disk = disk
        self._file: JournalFile = create_journal_file(disk, path, 1 << 17, takes_records=True)
        self._sequence = self._first = sequence

    def name(self, partition: int = 0) -> PartitionName:
        """Return a partition as the journal names it."""
        directory = A / f"t-{partition}"
        topic_id = read_partition_metadata(self._disk, directory)
        return PartitionName(directory.name, topic_id or ZERO_ID)

    def add(
        self,
        first_offset: int,
        *texts: str,
        partition: int = 0,
        name: PartitionName | None = None,
    ) -> None:
        """Commit records of a partition; each offset has the record of `record`."""
        records = [record(first_offset + row, text) for row, text in enumerate(texts)]
        fields = [(each.timestamp_ms, each.key, each.value) for each in records]
        self.add_rows(first_offset, fields, name=name or self.name(partition))

    def add_rows(
        self,
        first_offset: int,
        fields: Sequence[tuple[int, bytes | None, bytes | None]],
        *,
        name: PartitionName | None = None,
    ) -> None:
        """Commit records with these timestamps, keys and values."""
        builder = CommitBuilder(self._file.numbers)
        data = encode_records(JournalRecord(*each) for each in fields)
        end_offset = first_offset + len(fields)
        builder.add_records(name or self.name(), first_offset, end_offset, data)
        self._write(builder)

    def add_undecodable(self, first_offset: int, end_offset: int) -> None:
        """Commit an entry of partition 0 whose data is not that of its records."""
        builder = CommitBuilder(self._file.numbers)
        builder.add_records(self.name(), first_offset, end_offset, bytes(40))
        self._write(builder)

    def add_data(self, position: int, first_offset: int, anchor: bytes, data: bytes) -> None:
        """Commit bytes of the first segment of partition 0, with one record."""
        builder = CommitBuilder(self._file.numbers)
        offsets = first_offset, first_offset + 1
        builder.add_data(self.name(), 0, position, offsets, anchor, data)
        self._write(builder)

    def add_void(self, partition: int = 0) -> None:
        """Cancel the entries of a partition."""
        builder = CommitBuilder(self._file.numbers)
        builder.add_void(self.name(partition))
        self._write(builder)

    def _write(self, builder: CommitBuilder) -> None:
        self._file.append(builder, self._sequence, self._first)
        self._file.sync()
        self._file.accept(builder, self._sequence)
        self._sequence += 1


def journal_names(disk: SimulatedDisk) -> list[str]:
    """Return the names of journal files."""
    return [name for name in disk.list(A) if name.startswith(JOURNAL)]


def rows(manager: LogManager, partition: int = 0) -> list[Row]:
    """Return the records of a partition, but for those that a power cut has taken."""
    return [
        (each.offset, each.timestamp_ms, each.key, each.value)
        for each in manager.log("t", partition).records(on_corrupt="skip")
    ]


def rows_of(texts: Iterable[str], first_offset: int = 0) -> list[Row]:
    """Return the records that texts have from an offset on."""
    found = []
    for offset, text in enumerate(texts, first_offset):
        each = record(offset, text)
        found.append((offset, each.timestamp_ms, each.key, each.value))
    return found


def texts_of(disk: SimulatedDisk, partition: int = 0, config: ManagerConfig = CONFIG) -> list[str]:
    """Return the texts of a partition, after a start without a fault that leaves no journal."""
    with contextlib.closing(manual_manager(A, config=config, filesystem=disk)) as manager:
        assert not manager.health().faults
        found = rows(manager, partition)
        texts = [(value or b"").decode() for _offset, _time, _key, value in found]
        # Key and time of each are those that belong to the offset.
        expected = [rows_of([text], row[0])[0] for text, row in zip(texts, found, strict=True)]
        assert expected == found
        log = manager.log("t", partition)
        assert log.durable_offset == log.log_end_offset
    assert not journal_names(disk)
    return texts
