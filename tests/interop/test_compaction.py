"""The same logs cleaned by a real broker's cleaner and by ours, twice: the same records are left.

Repeated keys, tombstones, transactions committed and aborted, every codec. The first round sets the
delete horizon of tombstones, and of markers without data; the second removes them. Our cleaned
segments are dumped by Kafka's tool without a fault, and served by the broker with our indexes.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Codec, LogConfig, Record
from kafkalog.cleaner.compaction import compact_log
from tests.support.compacted_logs import fill
from tests.support.golden import canonical_hash

from .broker import Broker
from .clients import ConsumedRecord, TopicPlan, consume, end_offset, offsets_for_times
from .foreign import LOGS_ONLY, WITH_INDEXES, BrokerTemplates, put_partition, read_checkpoint
from .kafka_maven import KafkaInstall
from .tools import DumpedFile, dump, segment_files

# One worker: two would each start the brokers.
pytestmark = pytest.mark.xdist_group("compaction")

ROUNDS = 2
SEGMENT_BYTES, INTERVAL_BYTES = 8192, 512
WAIT_SECONDS = 60
# Not long ago: brokers forget producers that were idle for a day.
BEGUN_MS = time.time_ns() // 1_000_000
CODECS = {
    "mixed": (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY),
    "none": (Codec.NONE,),
    "lz4": (Codec.LZ4,),
}
CONFIG = LogConfig(
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=INTERVAL_BYTES,
    cleanup_policy=("compact",),
    delete_retention_ms=1,
    retention_ms=-1,
)
CLEANED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": str(INTERVAL_BYTES),
}
# A ratio that is never exceeded: the broker leaves what ours has cleaned as it is.
SERVED = {**CLEANED, "min.cleanable.dirty.ratio": "1"}
PLANS = [TopicPlan(f"theirs-{name}", settings=CLEANED) for name in CODECS]
PLANS += [TopicPlan(f"ours-{name}", settings=SERVED) for name in CODECS]


@dataclass
class Rounds:
    """
    Results of the rounds.

    Attributes:
        ours, theirs: name -> what each round left.
        directories: name -> our directory, after the first round, as it was given to the broker.
        served: name -> isolation -> what consumers got of it; `ends`: name -> log end.
        times: name -> questions and answers by time.
        log_text: what the broker logged.
    """

    ours: dict[str, list[Left]] = field(default_factory=dict)
    theirs: dict[str, list[Left]] = field(default_factory=dict)
    directories: dict[str, Path] = field(default_factory=dict)
    served: dict[str, dict[str, list[ConsumedRecord]]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    log_text: str = ""


@dataclass(frozen=True)
class Left:
    """Rest of a log: records, committed records, and batches without their bytes."""

    records: list[Record]
    committed: list[int]
    batches: list[dict[str, int | bool]]
    end_offset: int


def left_in(directory: Path) -> Left:
    """Read a directory."""
    with kafkalog.open_log(directory, read_only=True) as log:
        batches = [batch.header for batch in log.batches()]
        return Left(
            list(log.records()),
            [record.offset for record in log.records(isolation="read_committed")],
            [
                {
                    "base": header.base_offset,
                    "last": header.last_offset,
                    "count": header.record_count,
                    "codec": header.codec,
                    "producer": header.producer_id,
                    "epoch": header.producer_epoch,
                    "sequence": header.base_sequence,
                    "transactional": header.is_transactional,
                    "control": header.is_control,
                    "waits": header.delete_horizon_ms is not None,
                    "max_timestamp": header.max_timestamp,
                }
                for header in batches
            ],
            log.log_end_offset,
        )


def written(directory: Path, name: str, seed: int) -> Path:
    """Append to a log, and leave a few records in its active segment."""
    with kafkalog.open_log(directory, config=CONFIG) as log:
        for part, batch_count in enumerate((150, 3)):
            fill(
                log,
                functools.partial(next, itertools.count(BEGUN_MS + 1000 * seed)),
                batch_count=batch_count,
                seed=10 * seed + part,
                key_count=25,
                value_bytes=150,
                codecs=CODECS[name],
            )
            if part == 0:
                log.roll()
    return directory


def copied(source: Path, target: Path) -> Path:
    """Copy the segments of a log, without other files."""
    target.mkdir(parents=True)
    for path in segment_files(source, ".log"):
        shutil.copyfile(path, target / path.name)
    return target


def cleaned_here(directory: Path) -> Path:
    """Clean all that is sealed."""
    with kafkalog.open_log(directory, config=CONFIG) as log:
        cleaning = compact_log(log)
        assert cleaning.end_offset == log.segments()[-1].base_offset
    return directory


def wait_until_cleaned(broker: Broker, ends: dict[str, int]) -> None:
    """Wait until all of these logs are clean to their ends by the broker's checkpoint."""
    path = broker.directory / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + WAIT_SECONDS
    pause = threading.Event()
    found: dict[str, int] = {}
    while time.monotonic() < deadline:
        # While it is replaced, it may not be there.
        found = read_checkpoint(path)
        if ends.items() <= found.items():
            return
        pause.wait(0.1)
    raise AssertionError(f"{ends} expected, {found} after {WAIT_SECONDS} s")


def active_base(directory: Path) -> int:
    """Return the base offset of the active segment."""
    return int(max(segment_files(directory, ".log")).stem)


@pytest.fixture(scope="module", name="rounds")
def fixture_rounds(
    templates: BrokerTemplates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rounds]:
    """Two rounds of cleaning on both sides; in the second one the broker serves what is ours."""
    root = tmp_path_factory.mktemp("compaction")
    broker = templates.broker(root / "data", PLANS)
    broker.settings["log.cleaner.backoff.ms"] = "200"
    rounds = Rounds()
    theirs, ours = {}, {}
    for number, name in enumerate(CODECS):
        source = written(root / "input" / f"{name}-0", name, number)
        # The first round then finds markers whose data was removed before.
        written(cleaned_here(source), name, 10 + number)
        theirs[name] = put_partition(broker, f"theirs-{name}-0", source, suffixes=LOGS_ONLY)
        ours[name] = copied(source, root / "ours" / f"{name}-0")
    for turn in range(ROUNDS):
        if turn:
            for number, name in enumerate(CODECS):
                seed = 20 + number
                more = [written(side[name], name, seed) for side in (theirs, ours)]
                assert left_in(more[0]).end_offset == left_in(more[1]).end_offset
        with broker:
            wait_until_cleaned(
                broker, {f"theirs-{name}-0": active_base(theirs[name]) for name in CODECS}
            )
            if turn == 1:
                ask(broker, rounds)
        for name in CODECS:
            rounds.theirs.setdefault(name, []).append(left_in(theirs[name]))
            rounds.ours.setdefault(name, []).append(left_in(cleaned_here(ours[name])))
            if not turn:
                kept = root / "served" / f"{name}-0"
                rounds.directories[name] = Path(shutil.copytree(ours[name], kept))
                put_partition(broker, f"ours-{name}-0", ours[name], suffixes=WITH_INDEXES)
    rounds.log_text = broker.log_text()
    yield rounds


def ask(broker: Broker, rounds: Rounds) -> None:
    """Consume what we have cleaned."""
    for name, directory in rounds.directories.items():
        topic = f"ours-{name}"
        rounds.ends[name] = end_offset(broker.address, topic)
        rounds.served[name] = {
            isolation: consume(broker.address, topic, isolation_level=isolation)
            for isolation in ("read_committed", "read_uncommitted")
        }
        times = sorted({record.timestamp_ms for record in left_in(directory).records})[::7]
        answers = offsets_for_times(broker.address, topic, times)
        rounds.times[name] = list(zip(times, answers, strict=True))


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_cleaner_leaves_the_records_that_the_broker_leaves(
    rounds: Rounds, name: str, turn: int
) -> None:
    """Records, what is committed of them, and every batch: emptied ones, markers, horizons."""
    ours, theirs = rounds.ours[name][turn], rounds.theirs[name][turn]
    assert theirs.records == ours.records
    assert theirs.committed == ours.committed
    assert theirs.batches == ours.batches
    assert theirs.end_offset == ours.end_offset


@pytest.mark.parametrize("name", CODECS)
def test_cleaner_rounds_remove_and_keep_records(rounds: Rounds, name: str) -> None:
    """Most records are removed; tombstones of the first round are gone after the second."""
    first, second = rounds.ours[name]
    for is_control in (False, True):
        waiting, left = waiting_in(first, is_control), waiting_in(second, is_control)
        assert waiting
        assert left
        assert not waiting & left
    for each in (first, second):
        assert len(each.records) < 80
        assert any(not batch["count"] for batch in each.batches)


def waiting_in(left: Left, is_control: bool) -> set[int]:
    """Return the offsets of tombstones, or of markers, that wait for their time."""
    tombstones = {record.offset for record in left.records if record.value is None}
    found = set()
    for each in left.batches:
        if each["waits"] and each["control"] == is_control:
            offsets = set(range(each["base"], each["last"] + 1))
            found |= offsets if is_control else offsets & tombstones
    return found


def test_dump_of_our_compacted_directories_is_clean(kafka: KafkaInstall, rounds: Rounds) -> None:
    """Every record is decoded, every CRC checked, both indexes compared with them."""

    def files(*suffixes: str) -> list[Path]:
        found = (segment_files(each, *suffixes) for each in rounds.directories.values())
        return [path for paths in found for path in paths]

    indexes = files(".index", ".timeindex")
    dumped = dump(kafka, [*files(".log", ".txnindex"), *indexes], deep=True)
    verified = dump(kafka, indexes, verify_index_only=True)
    # As of a broker's: the time of a batch that is empty now, in which the tool finds no record.
    excused = {
        f"Found timestamp mismatch in :{index}"
        for index in files(".timeindex")
        if emptied_in(dumped.files[index.with_suffix(".log")])
        & {offset for _, offset in dumped.files[index].pairs()}
    }
    for each in (dumped, verified):
        each.complaints = [line for line in each.complaints if line not in excused]
        each.ensure_clean(with_gaps=True)
    dump(kafka, indexes, index_sanity_check=True).ensure_clean()
    for directory in rounds.directories.values():
        expected = [(record.offset, record.timestamp_ms) for record in left_in(directory).records]
        found = {
            each.offset: each.timestamp_ms
            for log in segment_files(directory, ".log")
            for each in dumped.files[log].records
        }
        assert expected == [(offset, found[offset]) for offset, _ in expected]


def emptied_in(log: DumpedFile) -> set[int]:
    """Return the last offsets of batches without records."""
    return {int(batch["lastOffset"]) for batch in log.batches if batch["count"] == "0"}


@pytest.mark.parametrize("name", CODECS)
def test_broker_serves_our_compacted_directory_with_our_indexes(rounds: Rounds, name: str) -> None:
    """Both isolation levels, look-ups by time, the log end; nothing is rebuilt."""
    with kafkalog.open_log(rounds.directories[name], read_only=True) as log:
        for isolation, served in rounds.served[name].items():
            expected = list(log.records(isolation=isolation))  # type: ignore[arg-type]
            assert [each.offset for each in expected] == [each.offset for each in served]
            assert canonical_hash(expected) == canonical_hash(served)
        assert log.log_end_offset == rounds.ends[name]
        for timestamp_ms, answer in rounds.times[name]:
            found = log.offset_for_timestamp(timestamp_ms)
            assert answer == (None if found is None else (found.offset, found.timestamp_ms))
    repairs = [
        line
        for line in rounds.log_text.splitlines()
        if f"ours-{name}-0" in line
        and ("rebuilding index" in line or "Recovering unflushed" in line)
    ]
    assert [] == repairs


def test_broker_time_lookup_after_an_empty_segment_succeeds(
    templates: BrokerTemplates, tmp_path: Path
) -> None:
    """INT-5: of an empty segment it takes the time of the file, which is before all records."""
    source, topic = tmp_path / "emptied-0", "emptied"
    with kafkalog.open_log(source, config=CONFIG) as log:
        for number, kind in enumerate((b"kept", b"replaced", b"replaced")):
            for key in range(4):
                value, time_ms = bytes(1500), BEGUN_MS - 10_000 + 1000 * number + key
                record = Record(key=b"%s %d" % (kind, key), value=value, timestamp_ms=time_ms)
                log.append([record])
            log.roll()
        compact_log(log)
        records = list(log.records())
    (empty,) = [path for path in segment_files(source, ".log")[:-1] if not path.stat().st_size]
    broker = templates.broker(tmp_path / "data", [TopicPlan(topic, settings=SERVED)])
    target = put_partition(broker, f"{topic}-0", source, suffixes=WITH_INDEXES)
    for path in segment_files(source, ".log"):
        # Unchanged without a copy.
        shutil.copystat(path, target / path.name)
    assert 0 == (target / empty.name).stat().st_mtime_ns
    with broker:
        answers = offsets_for_times(broker.address, topic, [each.timestamp_ms for each in records])
    assert [(each.offset, each.timestamp_ms) for each in records] == answers
