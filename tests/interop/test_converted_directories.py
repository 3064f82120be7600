"""Directories that were converted, judged by Kafka's own tool: old formats to v2, other codecs."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import Codec
from kafkalog.log.conversion.single_log import convert_log
from tests.support.golden import CLEAN, data_directory
from tests.support.golden_old import old_data_directory

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
def test_dump_of_converted_directories_is_clean_and_equal(
    kafka: KafkaInstall, tmp_path: Path, codec: Codec | None
) -> None:
    """Kafka's tool decodes every record, checks every CRC, and holds both indexes against them."""
    logs: list[Path] = []
    indexes: list[Path] = []
    expected: list[tuple[int, int]] = []
    for number, source in enumerate(SOURCES):
        target = tmp_path / f"topic-{number}"
        convert_log(source, target, codec=codec)
        logs += segment_files(target, ".log")
        indexes += segment_files(target, ".index", ".timeindex")
        with kafkalog.open_log(target, read_only=True) as log:
            for batch in log.batches():
                expected += [(record.offset, record.timestamp_ms) for record in batch.records()]

    dumped = dump(kafka, [*logs, *indexes], deep=True)
    # A compacted log has holes, which the tool tells of every log.
    holes = "Non-consecutive offsets"
    assert [] == [line for line in dumped.complaints if not line.startswith(holes)]
    dump(kafka, indexes, index_sanity_check=True).ensure_clean()
    found = [
        (record.offset, record.timestamp_ms)
        for path in logs
        for record in dumped.files[path].records
    ]
    assert expected == found
