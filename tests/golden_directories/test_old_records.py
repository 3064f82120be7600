"""Directories of Kafka 0.8.2 to 2.8 as logs: every record is the broker's, by every read.

Opened read-only, for writing after an orderly stop, and recovered after a crash. Numbers in
brackets are the points of `tests/golden/kafka-old/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kafkalog import BatchView, Log, Record, open_log
from tests.golden_directories.facts import check_record
from tests.golden_directories.old_facts import PARTITIONS, entries_of, manifest_of, visible_of
from tests.support import golden, golden_old
from tests.support.golden_old import OldManifest, rendered
from tests.support.manifest_old import OldEntryFact

# Each after an orderly stop, and half of them after each of the two losses of state.
STOPPED = [
    (broker, partition, stopped)
    for number, (broker, partition) in enumerate(PARTITIONS)
    for stopped in ("clean", ("crashed", "bare")[number % 2])
]
STATE_FILES = (
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


@pytest.fixture(name="copies", scope="module")
def fixture_copies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """
    Return a function that copies a broker's data directory, once for each kind of stop.

    "crashed" has only the log start checkpoint and no marker, "bare" has no index either.
    """
    root = tmp_path_factory.mktemp("old")

    @cache
    def copied(broker: str, stopped: str) -> Path:
        copy = golden_old.copy_old_data_directory(broker, root / f"{broker}-{stopped}")
        if stopped != "clean":
            for name in STATE_FILES:
                (copy / name).unlink(missing_ok=True)
        if stopped == "bare":
            for path in [*copy.glob("*/*.index"), *copy.glob("*/*.timeindex")]:
                path.unlink()
        return copy

    return copied


def ensure_served(log: Log, manifest: OldManifest) -> None:
    """Assert that the log has the manifest's range and records, and no damage."""
    summary = manifest.summary
    assert (summary.log_start_offset, summary.log_end_offset) == (
        log.log_start_offset,
        log.log_end_offset,
    )
    records = list(log.records())
    assert summary.all == rendered(records)
    assert summary.bare == rendered(records, bare=True)
    assert summary.no_headers == rendered(records, headers=False)
    assert () == log.corrupt_ranges()


def fetched(log: Log, max_bytes: int) -> Iterator[Record]:
    """Read the log as a consumer does, slice by slice."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes=max_bytes)
        if data.size_bytes == 0:
            return  # only control batches or removed records up to the end
        yield from data.records()
        assert data.next_offset > offset
        offset = data.next_offset


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_records_of_an_old_directory_equal_the_manifest(broker: str, partition: str) -> None:
    """Key, value, headers, offset, time and its type; not a byte is written [1 to 7]."""
    manifest = manifest_of(broker, partition)
    with golden.unchanged(manifest.directory), open_log(manifest.directory, read_only=True) as log:
        ensure_served(log, manifest)
        for fact, record in zip(visible_of(manifest), log.records(), strict=True):
            check_record(fact, record)


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_batches_and_slices_of_an_old_directory_equal_the_manifest(
    broker: str, partition: str
) -> None:
    """Batch by batch with the facts of the entries [5, 6], and slice by slice as in a consumer."""
    manifest = manifest_of(broker, partition)
    with open_log(manifest.directory, read_only=True) as log:
        batches = [batch for batch in log.batches() if len(batch)]
        for entry, batch in zip(entries_of(manifest), batches, strict=True):
            check_entry(entry, batch)
        offsets = [record.offset for record in visible_of(manifest)]
        assert offsets == [record.offset for record in fetched(log, 700)]
        assert offsets == [record.offset for record in fetched(log, 1 << 20)]


def check_entry(entry: OldEntryFact, batch: BatchView) -> None:
    """Assert that an outer entry is the manifest's: from its header, and from its records."""
    header, first = batch.header, entry.records[0]
    assert (entry.is_wrapper, len(entry.records), first.timestamp_type) == (
        header.is_wrapper,
        len(batch),
        header.timestamp_type,
    )
    assert [record.offset for record in entry.records] == [
        record.offset for record in batch.records()
    ]
    if entry.magic < 2:
        assert first.offset == batch.base_offset
    if first.wrapper_timestamp is not None:
        assert first.wrapper_timestamp == header.max_timestamp


@pytest.mark.parametrize(("broker", "partition", "stopped"), STOPPED)
def test_open_for_writing_of_an_old_directory_keeps_its_records(
    copies: Callable[[str, str], Path], broker: str, partition: str, stopped: str
) -> None:
    """Nothing is truncated or moved [13, 14, 16, 18]; batches of v2 are appended after it."""
    manifest = manifest_of(broker, partition)
    directory = copies(broker, stopped) / partition
    logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    # `test_snapshot_files` covers the snapshots that open removes; epochs may end at the log end.
    others = {
        name: (directory / name).read_bytes()
        for name in manifest.summary.other_files
        if not name.endswith((".deleted", ".snapshot", "leader-epoch-checkpoint"))
    }
    with open_log(directory) as log:
        report = log.recovery_report
        assert ((stopped == "clean"), (), ()) == (report.clean, report.cut, report.corrupt_ranges)
        ensure_served(log, manifest)
        assert logs == {path.name: path.read_bytes() for path in directory.glob("*.log")}
        info = log.append([Record(key=b"new", value=b"behind")])
        assert manifest.summary.log_end_offset == info.first_offset
    assert [] == list(directory.glob("*.deleted"))
    for name, data in others.items():
        assert data == (directory / name).read_bytes()
    with open_log(directory, read_only=True) as log:
        records = list(log.records())
        assert manifest.summary.all == rendered(records[:-1])
        assert (info.first_offset, b"behind") == (records[-1].offset, records[-1].value)


def wrappers_of(magic: int, codec: int) -> Iterator[tuple[str, BatchView]]:
    """Yield the broker and every wrapper of a kind in all directories."""
    for broker, partition in PARTITIONS:
        manifest = manifest_of(broker, partition)
        kinds = {(entry.magic, entry.codec) for entry in entries_of(manifest)}
        if (magic, codec) in kinds:
            with open_log(manifest.directory, read_only=True) as log:
                for batch in log.batches():
                    if (batch.header.magic, batch.header.codec) == (magic, codec):
                        yield broker, batch


def compressed(batch: BatchView) -> bytes:
    """Return the value of a wrapper, found without the library."""
    data = bytes(batch.data)
    key_position = 18 if batch.header.magic == 0 else 26
    assert b"\xff\xff\xff\xff" == data[key_position : key_position + 4]
    size = int.from_bytes(data[key_position + 4 : key_position + 8])
    assert len(data) == key_position + 8 + size
    return data[key_position + 8 :]


@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82)])
def test_lz4_wrappers_of_old_brokers_have_the_checksum_of_their_magic(
    magic: int, checksum: int
) -> None:
    """Magic 0 has the faulty checksum [1]; a wrapper has no key and ends with its value [7]."""
    heads = {compressed(batch)[:7] for _, batch in wrappers_of(magic, 3)}
    assert {bytes.fromhex("04224d186040") + bytes([checksum])} == heads


def test_snappy_wrappers_have_small_blocks_since_0_10() -> None:
    """Blocks of 1 KiB, over a hundred in one wrapper; of 32 KiB before: both are read [2]."""
    most: dict[str, int] = {}
    for magic in (0, 1):
        for broker, batch in wrappers_of(magic, 2):
            data, position, blocks = compressed(batch), 16, 0
            assert bytes.fromhex("82534e41505059000000000100000001") == data[:16]
            while position < len(data):
                position += 4 + int.from_bytes(data[position : position + 4])
                blocks += 1
            most[broker] = max(most.get(broker, 0), blocks)
            assert position == len(data)
            assert len(batch) == len(batch.records())
    assert most["kafka-0.10.2"] > 100
    assert most["kafka-0.8.2"] < 10


def test_compacted_wrappers_of_old_brokers_end_with_their_last_record() -> None:
    """In v0 and v1, with any records removed [3, 4]; a v2 batch may end without a record."""
    emptied = {0: 0, 1: 0, 2: 0}
    holes = {0: 0, 1: 0, 2: 0}
    for broker, partition in PARTITIONS:
        manifest = manifest_of(broker, partition)
        with open_log(manifest.directory, read_only=True) as log:
            for batch in log.batches():
                offsets = [record.offset for record in batch.records()]
                if offsets:
                    magic = batch.header.magic
                    emptied[magic] += offsets[-1] < batch.last_offset
                    holes[magic] += offsets[-1] - offsets[0] >= len(offsets)
    assert (0, 0) == (emptied[0], emptied[1])
    assert min(emptied[2], *holes.values()) > 0
