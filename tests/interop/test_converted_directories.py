"""Directories that were converted, judged by Kafka: its dump tool, its broker, its consumer."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import Codec, LogConfig, Record
from kafkalog.errors import LogStorageError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.single_log import convert_log
from tests.support.golden import CLEAN, canonical_hash, copy_tree, data_directory
from tests.support.golden_old import old_data_directory

from .clients import TopicPlan, consume, end_offset
from .foreign import WITH_INDEXES, BrokerTemplates, forget_clean_shutdown, put_partition
from .kafka_maven import KafkaInstall
from .tools import dump, segment_files

SOURCES = [
    *(old_data_directory("kafka-2.8") / f"{name}-0" for name in ("mixed", "compact-mixed", "txn")),
    *(old_data_directory("kafka-0.10.2") / f"{name}-0" for name in ("ts-switch", "wide")),
    old_data_directory("kafka-0.8.2") / "codecs-0",
    data_directory(CLEAN) / "compact-txn-0",
    data_directory(CLEAN) / "transactions-1",
]


@pytest.mark.parametrize("codec", [None, *Codec], ids=lambda codec: codec.name if codec else "keep")
@pytest.mark.parametrize("in_place", [False, True], ids=["target", "in-place"])
def test_dump_of_converted_directories_is_clean_and_equal(
    kafka: KafkaInstall, tmp_path: Path, codec: Codec | None, in_place: bool
) -> None:
    """Kafka's tool decodes every record, checks every CRC, and holds both indexes against them."""
    logs: list[Path] = []
    indexes: list[Path] = []
    expected: list[tuple[int, int]] = []
    for number, source in enumerate(SOURCES):
        target = tmp_path / f"topic-{number}"
        if in_place:
            copy_tree(source, target)
            convert_log(target, in_place=True, codec=codec)
        else:
            convert_log(source, target, codec=codec)
        logs += segment_files(target, ".log")
        indexes += segment_files(target, ".index", ".timeindex")
        with kafkalog.open_log(target, read_only=True) as log:
            for batch in log.batches():
                expected += [(record.offset, record.timestamp_ms) for record in batch.records()]

    dumped = dump(kafka, [*logs, *indexes], deep=True)
    # A compacted log has holes, which the tool reports for every log.
    holes = "Non-consecutive offsets"
    assert [] == [line for line in dumped.complaints if not line.startswith(holes)]
    dump(kafka, indexes, index_sanity_check=True).ensure_clean()
    found = [
        (record.offset, record.timestamp_ms)
        for path in logs
        for record in dumped.files[path].records
    ]
    assert expected == found


OLD = {
    "converted-wide": old_data_directory("kafka-0.10.2") / "wide-0",
    "converted-mixed": old_data_directory("kafka-2.8") / "mixed-0",
}
PLANS = [TopicPlan(name, settings={"retention.ms": "-1"}) for name in (*OLD, "interrupted")]


class StoppingDisk(PosixFileSystem):
    """A disk that takes no `.swap` file to its final name."""

    def rename(self, source: Path, target: Path) -> None:
        if source.suffix == ".swap":
            raise OSError(5, "stopped here", str(target))
        super().rename(source, target)


def write_interrupted(directory: Path) -> list[Record]:
    """Stop a conversion in the middle of an exchange; return the records that must be there."""
    config = LogConfig(compression_type="gzip", retention_ms=-1)
    with kafkalog.open_log(directory, config=config) as log:
        for number in range(40):
            log.append(
                Record(key=b"%d" % (number * 50 + at), value=b"value " * 20, timestamp_ms=10**12)
                for at in range(50)
            )
        expected = list(log.records())
    small = LogConfig(segment_bytes=16_384)
    with pytest.raises(LogStorageError, match="stopped here"):
        convert_log(
            directory, in_place=True, codec=Codec.NONE, config=small, filesystem=StoppingDisk()
        )
    assert 2 <= len(list(directory.glob("*.log.swap")))
    return expected


def test_broker_serves_converted_logs_and_finishes_an_exchange(
    templates: BrokerTemplates, tmp_path: Path
) -> None:
    """An exchange that a crash interrupted is complete after a start of either kind."""
    broker = templates.broker(tmp_path / "data", PLANS)
    expected: dict[str, list[Record]] = {}
    for topic, source in OLD.items():
        made = convert_log(source, tmp_path / f"{topic}-0", codec=Codec.ZSTD).target
        put_partition(broker, f"{topic}-0", made, suffixes=WITH_INDEXES)
        with kafkalog.open_log(made, read_only=True) as log:
            expected[topic] = list(log.records())
    interrupted = tmp_path / "interrupted-0"
    expected["interrupted"] = write_interrupted(interrupted)
    put_partition(broker, "interrupted-0", interrupted, suffixes=(*WITH_INDEXES, ".swap"))
    forget_clean_shutdown(broker)
    with broker:
        for topic, records in expected.items():
            assert records[-1].offset + 1 == end_offset(broker.address, topic)
            assert canonical_hash(records) == canonical_hash(consume(broker.address, topic))
    with kafkalog.open_log(interrupted) as log:
        assert 2 <= len(log.recovery_report.completed_swaps)
        assert expected["interrupted"] == list(log.records())
