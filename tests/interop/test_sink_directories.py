"""Tests of a broker's data directory that the sink writes to, and the broker uses again.

A stopped broker's directory gets transactions of every kind: files that become segments, and files
that are appended, after the batches of the broker. Kafka's tool finds no fault, the broker starts
on it as after any clean stop, serves every row at its offset, and appends; then the sink continues.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kafkalog.clock import SystemClock
from kafkalog.files.posix import PosixFileSystem
from kafkalog.records.codecs import Codec
from kafkalog.spark.encoding import EncodingRules, TaskAttempt, TaskWriter
from kafkalog.spark.txn.model import TransactionId
from kafkalog.spark.txn.transaction import CommitReport, SinkOptions, SinkTransaction

from .clients import TopicPlan, consume, produce
from .foreign import BrokerTemplates
from .kafka_maven import KafkaInstall
from .tools import dump, segment_files

TOPIC = "sink-rows"
PLAN = TopicPlan(TOPIC, partitions=2)
SEGMENT_BYTES = 65_536
# Messages of a broker about a log that it does not accept unchanged.
REPAIRS = ("Recovering", "rebuilding index", "orrupt", "stray", "not in the form")


def write(directory: Path, version: int, start: int, count: int, codec: Codec) -> CommitReport:
    """Write numbered rows as two tasks of a micro-batch would."""
    rules = EncodingRules(TOPIC, 2, "murmur2", codec, 4096, SEGMENT_BYTES, None)
    sink = SinkTransaction(
        directory,
        TransactionId.of_query("interop", version),
        SinkOptions(segment_bytes=SEGMENT_BYTES),
    )
    files = []
    for task in (0, 1):
        writer = TaskWriter(
            directory,
            sink.staging,
            sink.transaction,
            rules,
            filesystem=PosixFileSystem(),
            clock=SystemClock(),
            attempt=TaskAttempt(task),
        )
        numbers = range(start + task, start + count, 2)
        keys = pa.array([b"%d" % number for number in numbers], pa.binary())
        rows = pa.array([b"row %d " % number + b"x" * 40 for number in numbers], pa.binary())
        writer.write(pa.record_batch({"key": keys, "value": rows}))
        files += writer.finish()
    return sink.commit(files)


def test_broker_continues_a_log_of_the_spark_sink(
    kafka: KafkaInstall, templates: BrokerTemplates, tmp_path: Path
) -> None:
    """Broker, sink, broker, sink, and Kafka's tool: every record once, nothing rebuilt."""
    broker = templates.broker(tmp_path / "data", [PLAN])
    with broker:
        for partition in (0, 1):
            produce(broker.address, TOPIC, [(b"first", b"broker")], partition)
    large = write(broker.directory, 0, 0, 3_000, Codec.NONE)
    small = write(broker.directory, 1, 3_000, 40, Codec.ZSTD)
    assert (3_000, 40) == (large.record_count, small.record_count)
    directories = [broker.directory / f"{TOPIC}-{partition}" for partition in (0, 1)]
    files = [path for each in directories for path in segment_files(each, ".log")]
    assert len(files) >= 5, "files became segments"
    indexes = [path for each in directories for path in segment_files(each, ".index", ".timeindex")]
    dump(kafka, [*files, *indexes], deep=True).ensure_clean()
    dump(kafka, indexes, index_sanity_check=True).ensure_clean()

    before = len(broker.log_text())
    with broker:
        served = [consume(broker.address, TOPIC, partition) for partition in (0, 1)]
        for partition in (0, 1):
            produce(broker.address, TOPIC, [(b"last", b"broker")], partition)
    said = [line for line in broker.log_text()[before:].splitlines() if TOPIC in line]
    assert [] == [line for line in said if any(word in line for word in REPAIRS)]
    for records in served:
        assert list(range(len(records))) == [record.offset for record in records]
        assert b"broker" == records[0].value
    found = sorted(int(record.key or b"") for records in served for record in records[1:])
    assert list(range(3_040)) == found

    again = write(broker.directory, 2, 3_040, 3_000, Codec.LZ4)
    assert {len(served[0]) + 1, len(served[1]) + 1} == {each["start"] for each in again.ranges}
    with broker:
        ends = [consume(broker.address, TOPIC, partition) for partition in (0, 1)]
    keys = [record.key for records in ends for record in records]
    assert 2 == keys.count(b"last")
    assert 6_040 + 4 == len(keys) == len(set(keys)) + 2
