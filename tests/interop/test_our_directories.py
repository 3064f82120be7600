"""Directories of kafkalog, judged by Kafka: its dump tool, index checks, broker and consumer.

Directories of every codec, with many segments, rolls by time, headers, null and empty keys and
values. The tool must find no fault; the broker must serve them with our indexes as they are
(nothing rebuilt) and without; and what the broker then appends, kafkalog reads back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kafkalog
from kafkalog import LogConfig, Record
from tests.support.golden import canonical_hash, snapshot

from .clients import TopicPlan, consume, end_offset, offsets_for_times, produce
from .foreign import LOGS_ONLY, WITH_INDEXES, BrokerTemplates, forget_clean_shutdown, put_partition
from .kafka_maven import KafkaInstall
from .tools import dump, segment_files

BASE_TIME_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of one directory: settings, number of records."""

    topic: str
    config: LogConfig
    count: int = 1500
    records_per_append: int = 37


SMALL_SEGMENTS = LogConfig(segment_bytes=16_384, index_interval_bytes=512, retention_ms=-1)
RECIPES = [
    Recipe("ours-none", replace(SMALL_SEGMENTS, compression_type="uncompressed")),
    Recipe("ours-gzip", replace(SMALL_SEGMENTS, compression_type="gzip")),
    Recipe("ours-snappy", replace(SMALL_SEGMENTS, compression_type="snappy")),
    Recipe("ours-lz4", replace(SMALL_SEGMENTS, compression_type="lz4")),
    Recipe("ours-zstd", replace(SMALL_SEGMENTS, compression_type="zstd")),
    Recipe("ours-one-segment", LogConfig(retention_ms=-1), records_per_append=5),
    Recipe("ours-time-rolls", LogConfig(segment_ms=HOUR_MS, retention_ms=-1)),
    Recipe(
        "ours-index-full",
        LogConfig(segment_index_bytes=64, index_interval_bytes=256, retention_ms=-1),
    ),
    Recipe("ours-append-time", replace(SMALL_SEGMENTS, message_timestamp_type="LogAppendTime")),
]
BY_TOPIC = {recipe.topic: recipe for recipe in RECIPES}
PLANS = [
    TopicPlan(
        recipe.topic,
        settings={"message.timestamp.type": recipe.config.message_timestamp_type},
    )
    for recipe in RECIPES
]


def make_record(number: int) -> Record:
    """Return a record in which null, empty, long, repeated and non-ASCII parts take turns."""
    keys = (b"key-%d" % number, None, b"", "schl\u00fcssel".encode())
    values = (b"value %d " % number * (1 + number % 23), None, b"", bytes([number % 256]) * 700)
    headers: tuple[tuple[str, bytes | None], ...] = (
        (),
        (("step", b"%d" % number),),
        (("", b""), ("same", b"1"), ("same", None)),
    )[number % 3]
    return Record(
        key=keys[number % 4],
        value=values[number // 4 % 4],
        headers=headers,
        # Forward by ten seconds, every seventh one back by half an hour.
        timestamp_ms=BASE_TIME_MS + number * 10_000 - (number % 7 == 0) * HOUR_MS // 2,
    )


def write_directory(recipe: Recipe, directory: Path) -> Path:
    """Append the recipe's records to a new log, and close it in order."""
    with kafkalog.open_log(directory, config=recipe.config) as log:
        for start in range(0, recipe.count, recipe.records_per_append):
            stop = min(start + recipe.records_per_append, recipe.count)
            log.append(map(make_record, range(start, stop)))
        log.flush()
    return directory


def read_directory(directory: Path) -> list[Record]:
    with kafkalog.open_log(directory, read_only=True) as log:
        return list(log.records())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory for each recipe, written once for all tests here; not to be changed."""
    root = tmp_path_factory.mktemp("ours")
    return {recipe.topic: write_directory(recipe, root / f"{recipe.topic}-0") for recipe in RECIPES}


@pytest.mark.parametrize("topic", list(BY_TOPIC))
def test_dump_of_our_directory_is_clean_and_equal(
    kafka: KafkaInstall, ours: dict[str, Path], topic: str
) -> None:
    """Kafka's tool decodes every record, checks every CRC, and holds both indexes against them."""
    directory = ours[topic]
    logs = segment_files(directory, ".log")
    indexes = segment_files(directory, ".index", ".timeindex")

    dumped = dump(kafka, [*logs, *indexes], deep=True)
    dumped.ensure_clean()
    dump(kafka, indexes, index_sanity_check=True).ensure_clean()
    dump(kafka, indexes, verify_index_only=True).ensure_clean()

    expected = read_directory(directory)
    assert BY_TOPIC[topic].count == len(expected)
    assert [
        (
            record.offset,
            record.timestamp_ms,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
            tuple(name for name, _ in record.headers),
        )
        for record in expected
    ] == [
        (each.offset, each.timestamp_ms, each.key_size, each.value_size, each.header_keys)
        for log in logs
        for each in dumped.files[log].records
    ]


def test_directories_written_for_brokers_have_their_contents(ours: dict[str, Path]) -> None:
    """Many segments where segments are small, by time, by a full index; one where they are not."""
    counts = {topic: len(segment_files(path, ".log")) for topic, path in ours.items()}

    assert 1 == counts["ours-one-segment"]
    # 1,500 records, ten seconds apart: 4.2 hours, each segment a little over one.
    assert 4 == counts["ours-time-rolls"]
    assert 20 <= counts["ours-none"]
    assert all(
        counts[topic] >= 2 for topic in ("ours-gzip", "ours-snappy", "ours-lz4", "ours-zstd")
    ), counts
    assert 8 <= counts["ours-index-full"]


def test_broker_serves_our_directories_with_our_indexes(
    templates: BrokerTemplates, ours: dict[str, Path], tmp_path: Path
) -> None:
    """A start after a clean stop believes the indexes: nothing is rebuilt, every answer is right.

    A broker with a wrong index leaves records out silently, so reads from many offsets and many
    look-ups by time show that ours are good.
    """
    broker = templates.broker(tmp_path / "data", PLANS)
    served = {
        topic: put_partition(broker, f"{topic}-0", directory, suffixes=WITH_INDEXES)
        for topic, directory in ours.items()
    }
    before = {topic: index_bytes(directory) for topic, directory in served.items()}
    with broker:
        for topic, directory in ours.items():
            check_served(broker.address, topic, directory, look_up=True)
        assert before == {topic: index_bytes(directory) for topic, directory in served.items()}
    rebuilt = [
        line
        for line in broker.log_text().splitlines()
        if "ours-" in line and ("rebuilding" in line or "Recovering" in line)
    ]
    assert [] == [line for line in rebuilt if "segment" in line]


def index_bytes(directory: Path) -> dict[str, bytes]:
    """Contents of all sealed indexes; those of the last segment grow when a broker opens it."""
    names = sorted(path.name for path in segment_files(directory, ".index", ".timeindex"))
    last = max(names)[:20]
    return {name: (directory / name).read_bytes() for name in names if not name.startswith(last)}


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
def test_broker_on_bare_log_files_serves_them(
    templates: BrokerTemplates, ours: dict[str, Path], tmp_path: Path, clean: bool
) -> None:
    """Given the `.log` files only, the broker reads every batch and makes the rest itself."""
    broker = templates.broker(tmp_path / "data", PLANS)
    for topic, directory in ours.items():
        put_partition(broker, f"{topic}-0", directory, suffixes=LOGS_ONLY)
    if not clean:
        forget_clean_shutdown(broker)
    with broker:
        for topic, directory in ours.items():
            check_served(broker.address, topic, directory)


def test_broker_rebuilt_indexes_equal_ours(
    templates: BrokerTemplates, ours: dict[str, Path], tmp_path: Path
) -> None:
    """Deleted and rebuilt by both, the indexes of a sealed segment are the same bytes."""
    topic = "ours-none"
    broker = templates.broker(tmp_path / "data", PLANS)
    theirs = put_partition(broker, f"{topic}-0", ours[topic], suffixes=LOGS_ONLY)
    mine = tmp_path / f"{topic}-0"
    mine.mkdir()
    for path in segment_files(ours[topic], ".log"):
        (mine / path.name).write_bytes(path.read_bytes())
    forget_clean_shutdown(broker)
    with broker:
        assert BY_TOPIC[topic].count == end_offset(broker.address, topic)
    with kafkalog.open_log(mine, config=LogConfig(retention_ms=-1)) as log:
        assert log.recovery_report.rebuilt

    # The broker's topic has the default interval, as has the log just opened.
    assert index_bytes(theirs) == index_bytes(mine)


def check_served(address: str, topic: str, directory: Path, *, look_up: bool = False) -> None:
    """Assert that a consumer of the broker gets what kafkalog reads from the same files."""
    with kafkalog.open_log(directory, read_only=True) as log:
        expected = list(log.records())
        assert log.log_end_offset == end_offset(address, topic)
        assert canonical_hash(expected) == canonical_hash(consume(address, topic))
        if not look_up:
            return
        for offset in range(1, len(expected), 401):
            assert expected[offset].offset == consume(address, topic, start_offset=offset)[0].offset
        times = look_up_times(expected)
        answers = [log.offset_for_timestamp(timestamp_ms) for timestamp_ms in times]
        assert offsets_for_times(address, topic, times) == [
            None if answer is None else (answer.offset, answer.timestamp_ms) for answer in answers
        ]


def look_up_times(records: Sequence[Record]) -> list[int]:
    """Return times at, just before and just after records, and beyond both ends."""
    chosen = [record.timestamp_ms for record in records[::101]]
    largest = max(record.timestamp_ms for record in records)
    return [0, *chosen, *(each + 1 for each in chosen[::3]), largest, largest + 1]


def test_broker_appends_after_our_records_and_we_read_all(
    templates: BrokerTemplates, ours: dict[str, Path], tmp_path: Path
) -> None:
    """The same files in turn: ours, the broker's, ours, the broker's again."""
    topic = "ours-zstd"
    count = BY_TOPIC[topic].count
    broker = templates.broker(tmp_path / "data", PLANS)
    directory = put_partition(broker, f"{topic}-0", ours[topic], suffixes=WITH_INDEXES)
    more = [(b"b-%d" % number, b"from the broker " * (number + 1)) for number in range(40)]
    with broker:
        assert list(range(count, count + 40)) == produce(
            broker.address, topic, more, compression="lz4"
        )

    # In its data directory, with the broker's checkpoints and shutdown marker.
    with kafkalog.open_log(directory, config=BY_TOPIC[topic].config) as log:
        assert log.recovery_report.clean
        assert more == [(record.key, record.value) for record in log.records(count)]
        info = log.append([Record(key=b"ours again", value=b"x" * 100)])
        assert count + 40 == info.first_offset
        log.flush()

    with broker:
        records = consume(broker.address, topic)
        assert count + 41 == len(records)
        assert (b"ours again", b"x" * 100) == (records[-1].key, records[-1].value)
        assert [count + 41] == produce(broker.address, topic, [(b"last", b"word")])
    with kafkalog.open_log(directory, read_only=True) as log:
        before = snapshot(directory)
        assert count + 42 == sum(1 for _ in log.records())
        assert before == snapshot(directory)


def test_broker_on_a_killed_writers_directory_recovers_it(
    templates: BrokerTemplates, ours: dict[str, Path], tmp_path: Path
) -> None:
    """A torn batch at the end and preallocated indexes: the broker cuts what we would cut."""
    topic = "ours-one-segment"
    broker = templates.broker(tmp_path / "data", PLANS)
    directory = put_partition(broker, f"{topic}-0", ours[topic], suffixes=WITH_INDEXES)
    [log_path] = segment_files(directory, ".log")
    head = log_path.read_bytes()[:60]
    with log_path.open("ab") as log_file:
        log_file.write(head)
    for path in segment_files(directory, ".index", ".timeindex"):
        with path.open("r+b") as index:
            index.truncate(65_536 if path.suffix == ".index" else 65_532)
    forget_clean_shutdown(broker)

    with broker:
        check_served(broker.address, topic, ours[topic])
