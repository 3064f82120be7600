"""Messages of magic 0 and 1: ours, the reference codec's and two Python clients' read each other's.

Kafka's bytes are one judge of the reference; these are two more, for what it writes too. What a
client writes has no offset of a broker on its wrapper; here it gets that of the last message, as a
log has it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioKafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AioKafkaRecords

from kafkalog import AppendOrigin, Record
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress
from tests.support import reference_codecs as codecs
from tests.support.logs import manual_log
from tests.support.reference import Header, batch_crc, parse_message_header
from tests.support.reference_messages import Message, decode_entry, encode_set

with warnings.catch_warnings():
    # Its loading of schemas is deprecated in Python, not in the tested code.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

T = 1_700_000_000_000
ROWS = [
    (T, None, None),
    (T + 1, b"", b""),
    (T - 5, b"k", bytes(70_000)),
    *((T + n, b"%d" % n, b"v" * n) for n in range(100)),
]
# aiokafka has no lz4 of magic 0.
CASES = [
    (magic, codec, client)
    for magic in (0, 1)
    for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4)
    for client in ("aiokafka", "kafka-python")
    if (magic, codec, client) != (0, codecs.LZ4, "aiokafka")
]
BUILDERS = {"aiokafka": AioKafkaBuilder, "kafka-python": KafkaPythonBuilder}
PARSERS = {"aiokafka": AioKafkaRecords, "kafka-python": KafkaPythonRecords}


@pytest.fixture(autouse=True)
def packages_of_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Give kafka-python what it takes from two packages that nothing else here needs.

    Raw blocks of snappy, and the hash in the header of lz4: the framings around them, in which
    writers differ, and the wrong checksum of magic 0 are its own.
    """
    blocks = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )

    def xxh32(data: bytes) -> Any:
        return SimpleNamespace(digest=lambda: codecs.xxh32(bytes(data)).to_bytes(4, "big"))

    monkeypatch.setattr("kafka.codec.snappy", blocks)
    monkeypatch.setattr("kafka.codec.xxhash", SimpleNamespace(xxh32=xxh32))


def expected(magic: int) -> list[tuple[Any, ...]]:
    """Return the rows as (offset, timestamp, key, value): those of magic 0 have no time."""
    return [
        (offset, timestamp if magic else -1, key, value)
        for offset, (timestamp, key, value) in enumerate(ROWS)
    ]


def entries_of_client(magic: int, codec: int, client: str) -> list[bytes]:
    """Return the outer entries that a client's producer would send, at offsets of a log."""
    builder = BUILDERS[client](magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, (timestamp, key, value) in enumerate(ROWS):
        assert builder.append(offset, timestamp, key, value, []) is not None
    data = bytes(builder.build())
    entries = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        entries.append(data[:size])
        data = data[size:]
    if codec != codecs.NONE:
        assert 1 == len(entries)
        entries[0] = (len(ROWS) - 1).to_bytes(8, "big") + entries[0][8:]
    return entries


@pytest.mark.parametrize(("magic", "codec", "client"), CASES)
def test_reader_decodes_messages_of_a_client(magic: int, codec: int, client: str) -> None:
    """Every record of every message, by the reader of batches, with a good CRC."""
    found = []
    for entry in entries_of_client(magic, codec, client):
        view = BatchView(entry)
        view.check()
        found += [(r.offset, r.timestamp_ms, r.key, r.value) for r in view.records()]
    assert expected(magic) == found


@pytest.mark.parametrize(("magic", "codec", "client"), CASES)
def test_reference_decodes_messages_of_a_client(magic: int, codec: int, client: str) -> None:
    """The reference is not judged by Kafka's bytes alone."""
    found = []
    for entry in entries_of_client(magic, codec, client):
        header = header_of(entry)
        assert header.crc == batch_crc(entry)
        found += [(r.offset, r.timestamp, r.key, r.value) for r in decode_entry(entry, header)]
    assert expected(magic) == found


def header_of(entry: bytes) -> Header:
    """Return the header of a whole message."""
    verdict, header = parse_message_header(entry)
    assert verdict == "OK"
    assert header is not None
    return header


def read_by_client(client: str, data: bytes) -> list[tuple[Any, ...]]:
    """Return (offset, timestamp, key, value) of what a client finds, with a good CRC each."""
    records = PARSERS[client](data)
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            (r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in batch
        ]
    return found


@pytest.mark.parametrize(("magic", "codec", "client"), CASES)
def test_client_parser_reads_messages_of_the_reference(magic: int, codec: int, client: str) -> None:
    """Each client finds every record, with a good CRC, in plain sets and wrappers."""
    messages = [
        Message(offset, magic, 0, timestamp, key, value)
        for offset, timestamp, key, value in expected(magic)
    ]
    assert expected(magic) == read_by_client(client, encode_set(messages, codec=codec))


@pytest.mark.parametrize("append_time", [None, T + 9])
@pytest.mark.parametrize("base_offset", [0, 1 << 40])
@pytest.mark.parametrize(("magic", "codec", "client"), CASES)
def test_client_parser_reads_our_messages(
    magic: int, codec: int, client: str, base_offset: int, append_time: int | None
) -> None:
    """Messages of the builder, in our codecs, at any offset, with both timestamp types."""
    builder = MessageSetBuilder(magic)
    builder.reset(append_time=append_time)
    for timestamp, key, value in ROWS:
        builder.append(key, value, timestamp)
    if codec == codecs.NONE:
        data = bytes(builder.finish_plain(base_offset))
    else:
        inner = compress(Codec(codec), builder.payload(base_offset), magic=magic)
        data = bytes(builder.wrap(codec, inner, base_offset=base_offset))
    assert [
        (
            base_offset + offset,
            append_time if magic and append_time is not None else timestamp,
            key,
            value,
        )
        for offset, timestamp, key, value in expected(magic)
    ] == read_by_client(client, data)


RELEASES = {0: "0.9.0", 1: "0.10.2"}
WORDS = {
    codecs.NONE: "uncompressed",
    codecs.GZIP: "gzip",
    codecs.SNAPPY: "snappy",
    codecs.LZ4: "lz4",
}


@pytest.mark.parametrize(("magic", "codec", "client"), CASES)
def test_append_old_format_of_a_client_is_served_to_clients(
    tmp_path: Path, magic: int, codec: int, client: str
) -> None:
    """Its own messages, and a stored set of a producer, in each codec."""
    sent = b"".join(entries_of_client(magic, codec, client))
    rows = expected(magic)
    release, word = RELEASES[magic], WORDS[codec]
    with manual_log(
        tmp_path / "old-0", message_format_version=release, compression_type=word
    ) as log:
        log.append([Record(key=key, value=value, timestamp_ms=t) for t, key, value in ROWS])
        log.append_batches(sent, origin=AppendOrigin.CLIENT)
        data = b"".join(bytes(each.data) for each in log.batches(0))
    found = read_by_client(client, data)
    count = len(ROWS)
    assert rows == found[:count]
    assert [(offset + count, *rest) for offset, *rest in rows] == found[count:]
