"""Directories of old brokers, judged by today's Kafka: as they are, recovered, cut, appended to.

Its dump tool decodes messages of v0 and v1 and compares indexes with them; its broker recovers
them, and the indexes that it rebuilds must equal ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import Log, LogConfig, Record
from tests.support.damage import forget_shutdown
from tests.support.golden_old import copy_old_partition
from tests.support.old_logs import LOG_KINDS, chapters_of, facts_of, write_chapters

from .clients import TopicPlan, end_offset
from .foreign import LOGS_ONLY, BrokerTemplates, forget_clean_shutdown, put_partition
from .kafka_maven import KafkaInstall
from .tools import Dump, dump, segment_files

# Every magic and codec, mixed, compacted, with times of the broker, deleted up to inside a segment.
CHOSEN = [
    ("kafka-0.8.2", "codecs-0"),
    ("kafka-0.9.0", "compact-lz4-0"),
    ("kafka-0.10.2", "mixed-0"),
    ("kafka-0.10.2", "compact-mixed-0"),
    ("kafka-0.10.2", "lat-snappy-0"),
    ("kafka-0.10.2", "recode-none-0"),
    ("kafka-2.8", "mixed-small-0"),
    ("kafka-2.8", "mixed-back-0"),
    ("kafka-2.8", "compact-v1-snappy-0"),
    ("kafka-2.8", "deleted-records-v1-0"),
]
CONFIG = LogConfig(retention_ms=-1)


def sizes_of(log: Log) -> list[tuple[int, int, int, int]]:
    """Return offset, time and the sizes of key and value of every record."""
    return [
        (
            record.offset,
            record.timestamp_ms,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
        )
        for record in log.records()
    ]


def dumped_sizes(found: Dump, logs: list[Path]) -> list[tuple[int, int, int, int]]:
    """Return the same of what Kafka's tool printed."""
    return [
        (record.offset, record.timestamp_ms, record.key_size, record.value_size)
        for path in logs
        for record in found.files[path].records
    ]


def ensure_judged_equal(kafka: KafkaInstall, directory: Path) -> None:
    """Assert that the tool finds no fault, and reads the records that we read."""
    logs = segment_files(directory, ".log")
    found = dump(kafka, [*logs, *segment_files(directory, ".index", ".timeindex")], deep=True)
    found.ensure_clean(with_gaps=True)
    with kafkalog.open_log(directory, config=CONFIG, read_only=True) as log:
        assert sizes_of(log) == dumped_sizes(found, logs)


@pytest.mark.parametrize(("broker", "partition"), CHOSEN)
def test_dump_of_old_format_recovered_and_appended_to_is_clean(
    kafka: KafkaInstall, tmp_path: Path, broker: str, partition: str
) -> None:
    """Our indexes next to its logs, cut in the middle, then batches of v2 and a torn tail."""
    directory = copy_old_partition(broker, partition, tmp_path / partition)
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()
    with kafkalog.open_log(directory, config=CONFIG) as log:
        assert log.recovery_report.rebuilt
    ensure_judged_equal(kafka, directory)

    with kafkalog.open_log(directory, config=CONFIG) as log:
        middle = (log.log_start_offset + log.log_end_offset) // 2
        log.truncate_to(middle)
        log.append([Record(key=b"k%d" % number, value=b"v") for number in range(20)])
    ensure_judged_equal(kafka, directory)

    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    forget_shutdown(directory)
    with kafkalog.open_log(directory, config=CONFIG) as log:
        assert 1 == len(log.recovery_report.cut)
    ensure_judged_equal(kafka, directory)


@pytest.mark.parametrize("kind", LOG_KINDS)
def test_dump_of_old_format_segments_equals_manifest(
    kafka: KafkaInstall, tmp_path: Path, kind: str
) -> None:
    """The segments of the tests of damage are as named."""
    directory = tmp_path / "orders-0"
    chapters = chapters_of(LOG_KINDS[kind])
    path = write_chapters(directory, chapters)
    found = dump(kafka, [path], deep=True)
    found.ensure_clean()
    assert [fact[:2] for fact in facts_of(chapters)] == [
        (record.offset, record.timestamp_ms) for record in found.files[path].records
    ]


def test_broker_rebuilt_indexes_of_old_formats_equal_ours(
    templates: BrokerTemplates, tmp_path: Path
) -> None:
    """Logs alone after a crash: both read every entry, and write the same index files."""
    topics = {partition: f"old-{number}" for number, (_, partition) in enumerate(CHOSEN)}
    broker = templates.broker(tmp_path / "data", [TopicPlan(topic) for topic in topics.values()])
    served: dict[str, Path] = {}
    ours: dict[str, Path] = {}
    ends: dict[str, int] = {}
    for version, partition in CHOSEN:
        copy = copy_old_partition(version, partition, tmp_path / partition)
        topic = topics[partition]
        served[topic] = put_partition(broker, f"{topic}-0", copy, suffixes=LOGS_ONLY)
        for path in copy.iterdir():
            if path.suffix != ".log":
                path.unlink()
        with kafkalog.open_log(copy, config=CONFIG) as log:
            ends[topic] = log.log_end_offset
        ours[topic] = copy
    forget_clean_shutdown(broker)
    with broker:
        for topic, end in ends.items():
            assert end == end_offset(broker.address, topic)
    for topic, directory in ours.items():
        assert sealed_indexes(served[topic]) == sealed_indexes(directory), topic


def sealed_indexes(directory: Path) -> dict[str, bytes]:
    """Return the indexes of all segments but the last, which a broker opens for appends."""
    names = sorted(path.name for path in segment_files(directory, ".index", ".timeindex"))
    last = max(names)[:20]
    return {name: (directory / name).read_bytes() for name in names if not name.startswith(last)}
