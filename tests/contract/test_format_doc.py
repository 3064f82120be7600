"""Examples in docs/format/: their bytes have the values of the text."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog._core.batch import check_batch, parse_header
from kafkalog._core.crc32c import value
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.record import Record, decode_records
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.filesystem import FileFacts
from kafkalog.files.names import (
    DirectoryState,
    FileKind,
    FileState,
    PartitionDirectory,
    SegmentFileName,
    parse_partition_directory,
    parse_segment_file,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.records.codecs import Codec, decompress
from kafkalog.state import journal_records
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.commit_journal import (
    PartitionName,
    data_entries,
    read_entry,
    read_journal,
    records_entries,
)
from kafkalog.state.durable_offsets import partition_digest
from kafkalog.state.meta_properties import read_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata
from kafkalog.state.shutdown_marker import read_shutdown_marker
from tests.support import reference
from tests.support.reference_journal import BLOCK, PlainCommit, file_bytes, record_bytes
from tests.support.reference_messages import OldRecord, decode_entry

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "format"
GOLDEN = ROOT / "tests" / "golden"
HEX_LINE = re.compile(r"^(?:[0-9a-f]{2} ){0,7}[0-9a-f]{2}$")
PAGE_NAMES = sorted(path.stem for path in PAGES.glob("*.md"))

# The examples that real brokers wrote: page, number of the example, file, position.
FROM_BROKERS = [
    ("message-set", 0, "kafka-old/kafka-0.8.2/plain-0/00000000000000000000.log", 7227),
    ("message-set", 1, "kafka-old/kafka-0.10.2/plain-0/00000000000000000000.log", 6974),
    ("offset-index", 0, "kafka-4.1/data/gzip-0/00000000000000002239.index", 0),
    ("time-index", 0, "kafka-4.1/data/gzip-0/00000000000000002239.timeindex", 0),
    ("transaction-index", 0, "kafka-old/kafka-2.8/txn-0/00000000000000000138.txnindex", 0),
    ("producer-snapshot", 0, "kafka-4.1/data/gzip-0/00000000000000002239.snapshot", 0),
    ("checkpoints", 0, "kafka-4.1/data/log-start-offset-checkpoint", 0),
    ("checkpoints", 1, "kafka-4.1/data/gzip-0/leader-epoch-checkpoint", 0),
    ("partition-metadata", 0, "kafka-4.1/data/epochs-0/partition.metadata", 0),
    ("meta-properties", 0, "kafka-old/kafka-0.10.2/meta.properties", 0),
    ("markers", 0, "kafka-4.1/data/.kafka_cleanshutdown", 0),
]


def page(name: str) -> str:
    """Return the text of one page."""
    return (PAGES / f"{name}.md").read_text("ascii")


def examples(name: str) -> list[bytes]:
    """Return the blocks of a page that are marked as hexadecimal, as bytes."""
    found = []
    for block in re.findall(r"```hex\n(.*?)```", page(name), re.DOTALL):
        lines = block.strip().splitlines()
        assert all(HEX_LINE.match(line) for line in lines)
        found.append(bytes.fromhex("".join(lines)))
    return found


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_format_page_has_its_parts_and_is_linked(name: str) -> None:
    """Each has an example and the section on checksums, and the overview links to it."""
    text = page(name)
    assert "orked example" in text
    assert "hat no checksum covers\n" in text
    assert f"](format/{name}.md)" in (ROOT / "docs" / "format.md").read_text("ascii")


@pytest.mark.parametrize(("name", "number", "path", "position"), FROM_BROKERS)
def test_broker_example_equals_the_golden_bytes(
    name: str, number: int, path: str, position: int
) -> None:
    """For every example that a broker wrote."""
    example = examples(name)[number]
    assert example == (GOLDEN / path).read_bytes()[position : position + len(example)]


def test_record_batch_example_decodes_to_the_stated_values() -> None:
    """The batch is whole, and header and records have the values of the table."""
    (batch,) = examples("record-batch")
    header = parse_header(batch)
    assert STATUS_CODES["OK"] == check_batch(batch)
    assert (106, 1000, 94, 5, 2) == (
        len(batch),
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
    )
    assert header.crc == value(batch[21:]) == 0x2FE6134C
    assert (1_767_225_600_000, 1_767_225_600_250) == (header.base_timestamp, header.max_timestamp)
    first, second = decode_records(batch, header, 61, len(batch))
    assert first == Record(
        key=b"N14228",
        value=b"on time",
        headers=[("origin", b"EWR")],
        timestamp_ms=1_767_225_600_000,
        offset=1000,
    )
    assert second == Record(key=b"N24211", timestamp_ms=1_767_225_600_250, offset=1001)


def test_record_batch_header_table_is_without_gaps_and_ends_at_61() -> None:
    """The sizes of the header fields add up, and equal the layout that `struct` reads."""
    section = page("record-batch").split("\nAttributes,")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", section, re.MULTILINE)
    end = 0
    for position, size in rows:
        assert end == int(position)
        end += int(size)
    assert end == struct.calcsize(">qiibIhiqqqhii") == 61


def decoded(entry: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return (offset, timestamp, key, value) of the records of an old entry."""

    def row(record: OldRecord) -> tuple[int, int, bytes | None, bytes | None]:
        return record.offset, record.timestamp, record.key, record.value

    offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", entry)
    timestamp = struct.unpack_from(">q", entry, 18)[0] if magic else -1
    header = reference.Header(
        base_offset=offset,
        batch_length=size,
        magic=magic,
        crc=crc,
        attributes=attributes,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=-1 if attributes else 1,
    )
    assert (len(entry), zlib.crc32(entry[16:])) == (header.size_bytes, crc)
    return [row(record) for record in decode_entry(entry, header)]


def test_message_set_examples_decode_to_the_stated_values() -> None:
    """A plain message of each format, and a wrapper with two messages."""
    oldest, plain, wrapper = examples("message-set")
    assert [(54, -1, b"k32", b"basal")] == decoded(oldest)
    assert [(53, 1_480_151_287_435, b"k11", b"meadow orbit935 or")] == decoded(plain)
    assert [
        (10, 1_700_000_000_000, b"a", b"1"),
        (11, 1_700_000_000_003, None, b"2"),
    ] == decoded(wrapper)


def test_compression_examples_decompress_to_the_same_bytes() -> None:
    """One text in four codecs, in the order of the page."""
    order = (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, Codec.GZIP)
    for codec, example in zip(order, examples("compression"), strict=True):
        assert b"hello hello hello hello" == decompress(codec, example)


def test_index_examples_decode_to_the_stated_values() -> None:
    """Both entries of the offset index and both of the time index are found."""
    (offset_index,), (time_index,) = examples("offset-index"), examples("time-index")
    offsets = OffsetIndexView(offset_index, 2239)
    assert [(2249, 73_967), (2250, 125_037)] == [offsets.entry(0), offsets.entry(1)]
    assert (2239, 0) == offsets.lookup(2248)
    times = TimeIndexView(time_index, 2239)
    expected = [(1_700_086_403_026, 2249), (1_700_086_403_027, 2250)]
    assert expected == [times.entry(0), times.entry(1)]


def test_transaction_index_example_decodes_to_the_stated_values() -> None:
    """Five fields, and the layout of the table."""
    (entry,) = examples("transaction-index")
    assert (0, 6, 148, 149, 150) == struct.unpack(">hqqqq", entry)


def test_producer_snapshot_example_decodes_to_the_stated_values() -> None:
    """The checksum and the one entry are correct."""
    (snapshot,) = examples("producer-snapshot")
    version, crc, count = struct.unpack_from(">hIi", snapshot)
    assert (1, value(snapshot[6:]), 1) == (version, crc, count)
    entry = (0, 0, 838, 2237, 7, 1_700_086_416_473, -1, -1)
    assert entry == struct.unpack(">qhiqiqiq", snapshot[10:])


def test_text_file_examples_parse_to_the_stated_values(tmp_path: Path) -> None:
    """Each with the code that reads it in a directory."""
    filesystem = PosixFileSystem()
    offsets, epochs = examples("checkpoints")
    (tmp_path / "offsets").write_bytes(offsets)
    found = OffsetCheckpoint(filesystem, tmp_path / "offsets").read()
    assert {TopicPartition("deleted-records", 0): 1224} == found
    (tmp_path / "epochs").write_bytes(epochs)
    entries = LeaderEpochCheckpoint(filesystem, tmp_path / "epochs").read()
    assert [(0, 0), (8, 3757)] == [tuple(entry) for entry in entries]
    (tmp_path / "partition.metadata").write_bytes(examples("partition-metadata")[0])
    topic_id = UUID("9d354a1e-842b-49ba-a634-136c93c2deea")
    assert topic_id == read_partition_metadata(filesystem, tmp_path)
    (tmp_path / "meta.properties").write_bytes(examples("meta-properties")[0])
    owner = read_meta_properties(filesystem, tmp_path)
    assert owner is not None
    assert (0, 0, None) == (owner.version, owner.node_id, owner.cluster_id)
    (tmp_path / ".kafka_cleanshutdown").write_bytes(examples("markers")[0])
    marker = read_shutdown_marker(filesystem, tmp_path)
    assert marker is not None
    assert 436 == marker.broker_epoch


JOURNALED = PartitionName("orders-0", UUID("00010203-0405-0607-0809-0a0b0c0d0e0f"))


def test_commit_journal_example_has_the_stated_values(tmp_path: Path) -> None:
    """By the reference reader, and by the library."""
    example, _records = examples("commit-journal")
    orders = JOURNALED
    anchor = 4, reference.crc32c(b"tail")
    commit = PlainCommit(
        7,
        5,
        {0: (orders.directory, orders.topic_id.bytes)},
        [("data", 0, 1000, 4096, 1016, 1017, *anchor, b"a batch")],
    )
    content = file_bytes(b"ABCDEFGH", [commit])
    assert example == content[2 * BLOCK :][: len(example)]
    path = tmp_path / ".kafkalog_journal.1"
    path.write_bytes(content)
    (entry,) = data_entries(read_journal(PosixFileSystem(), [path]).entries[orders])
    assert (7, 7, 1000, 4096, 1016, 1017, *anchor) == (
        entry.sequence,
        entry.size,
        entry.base_offset,
        entry.position,
        entry.first_offset,
        entry.end_offset,
        entry.anchor_size,
        entry.anchor_checksum,
    )


def test_commit_journal_example_of_records_has_the_stated_values(tmp_path: Path) -> None:
    """By the reference reader, and by the library; the file has version 2."""
    _bytes, example = examples("commit-journal")
    record = journal_records.JournalRecord(1_700_000_000_000, b"k", b"value")
    commit = PlainCommit(
        8,
        5,
        {0: (JOURNALED.directory, JOURNALED.topic_id.bytes)},
        [("records", 0, 1017, 1018, record_bytes([(*record,)]))],
    )
    content = file_bytes(b"ABCDEFGH", [commit], version=2)
    assert example == content[2 * BLOCK :][: len(example)]
    path = tmp_path / ".kafkalog_journal.1"
    path.write_bytes(content)
    filesystem = PosixFileSystem()
    (entry,) = records_entries(read_journal(filesystem, [path]).entries[JOURNALED])
    assert (8, 22, 1017, 1018) == (
        entry.sequence,
        entry.size,
        entry.first_offset,
        entry.end_offset,
    )
    handle = filesystem.open(path)
    data = read_entry(handle, entry)
    handle.close()
    assert data is not None
    assert [record] == journal_records.decode_records(data, 1)


def test_name_examples_parse_to_the_stated_values() -> None:
    """In the order of the table."""
    names = re.findall(r"^\| `([^`]+)` \| ", page("names").split("Worked examples")[1], re.M)
    log, index, broken, live, deleted = names
    assert SegmentFileName(5000, FileKind.LOG) == parse_segment_file(log)
    parsed = parse_segment_file(index)
    assert SegmentFileName(5000, FileKind.OFFSET_INDEX, FileState.DELETED) == parsed
    parsed = parse_segment_file(broken)
    assert SegmentFileName(5000, FileKind.LOG, FileState.BROKEN, 817) == parsed
    partition = TopicPartition("orders-eu", 0)
    assert PartitionDirectory(partition) == parse_partition_directory(live)
    parsed_directory = parse_partition_directory(deleted)
    assert (partition, DirectoryState.DELETE) == parsed_directory[:2]


def test_durable_offsets_example_decodes_to_the_stated_values() -> None:
    """Header and slot are whole, and of the partition directory that the text names."""
    (example,) = examples("durable-offsets")
    header, slot = example[:64], example[64:]
    for part in (header, slot):
        assert value(part[:60]) == int.from_bytes(part[60:], "big")
    magic, version, zeros, cache, started, rest = struct.unpack(">8sB7s8sQ28s", header[:60])
    assert (b"kafkalog", 1, 128_846) == (magic, version, started)
    assert not any(zeros + rest)
    assert any(cache)
    digest, offset, generation, zeros = struct.unpack(">16sqq28s", slot[:60])
    facts = FileFacts(0, 0, is_directory=True, file_id=4242)
    assert digest == partition_digest(Path("/data/orders-0"), facts)
    assert (1000, 3) == (offset, generation)
    assert not any(zeros)
