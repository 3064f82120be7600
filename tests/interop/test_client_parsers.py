"""Batches written here, read by the parsers of two Python clients, and the reverse."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AioKafkaRecords

from kafkalog import Record
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS

with warnings.catch_warnings():
    # Its loading of schemas is deprecated in Python, not in the tested code.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
RECORDS = [
    Record(timestamp_ms=START_MS),
    Record(key=b"", value=b"", timestamp_ms=START_MS + 1),
    Record(key=b"k", value=bytes(70_000), timestamp_ms=START_MS - 5),
    Record(value=b"h", headers=[("a", b"1"), ("a", None)], timestamp_ms=START_MS + 9),
    *(Record(key=b"%d" % n, value=b"v" * n, timestamp_ms=START_MS + n) for n in range(200)),
]


def fields(record: Any) -> tuple[Any, ...]:
    """Return the fields of a client's record."""
    headers = tuple((name, value) for name, value in record.headers)
    return record.offset, record.timestamp, record.key, record.value, headers


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"


# kafka-python takes its snappy from a package that nothing else here needs.
PARSINGS = [(AioKafkaRecords, codec) for codec in CODECS]
PARSINGS += [(KafkaPythonRecords, codec) for codec in CODECS if codec != "snappy"]


@pytest.mark.parametrize(("parser", "codec"), PARSINGS)
def test_client_parser_reads_our_batches(directory: Path, codec: str, parser: Any) -> None:
    """Every record of every batch, in each codec, with a good CRC."""
    with manual_log(directory, compression_type=codec, batch_bytes=100_000) as log:
        log.append(RECORDS)
        data = bytes(log.read(0, max_bytes=1 << 24).data)
    found = []
    records = parser(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [fields(record) for record in batch]
    assert [
        (offset, r.timestamp_ms, r.key, r.value, tuple(r.headers))
        for offset, r in enumerate(RECORDS)
    ] == found


@pytest.mark.parametrize("codec", range(len(CODECS)))
def test_append_batch_of_a_client_is_read_back_equal(directory: Path, codec: int) -> None:
    """Batch of aiokafka's producer: validated, offsets assigned, and every record unchanged."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for row, record in enumerate(RECORDS):
        headers = list(record.headers)
        assert builder.append(row, record.timestamp_ms, record.key, record.value, headers)
    with manual_log(directory) as log:
        log.append([Record(value=b"before")])
        info = log.append_batches(bytes(builder.build()))
        assert (1, len(RECORDS)) == (info.first_offset, info.record_count)
        assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in RECORDS] == [
            (r.timestamp_ms, r.key, r.value, r.headers) for r in log.records(1)
        ]
        assert codec == next(log.batches(1)).header.codec
