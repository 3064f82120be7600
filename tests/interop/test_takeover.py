"""A data directory of ours with its identity, opened by a real broker and then by kafkalog.

The controller keeps its metadata in a separate directory; `log.dirs` of the broker is a directory
that a `LogManager` has written: `meta.properties`, checkpoints, the marker of a clean shutdown, and
partitions with segments, indexes, `.txnindex`, snapshots and leader epochs. Only the topic ids are
the controller's. The broker takes all of it as it is: its consumers must see what our readers see,
its checks of producers must continue after ours; and what it appended, with its own
producers and transactions, must be read here, with all of what it knew.

One broker makes the topics, one takes over: each test asks for another side of that one handover.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

import kafkalog
from kafkalog import (
    AppendOrigin,
    Log,
    LogManager,
    ManagerConfig,
    OutOfOrderSequenceError,
    Record,
)
from kafkalog.clock import SystemClock
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.isolation import Isolation
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.meta_properties import MetaProperties, read_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata, write_partition_metadata
from tests.support.doctor_fixtures import examined
from tests.support.producing import Client

from .broker import CLUSTER_ID, Broker, format_directory
from .clients import (
    ConsumedRecord,
    TopicPlan,
    committed_end,
    consume,
    create_topics,
    end_offset,
    produce_encoded,
    produce_transaction,
)
from .kafka_maven import KafkaInstall

# One worker: two would each start the brokers.
pytestmark = pytest.mark.xdist_group("takeover")

DISK: Final = PosixFileSystem()
SMALL_SEGMENTS: Final = {
    "segment.bytes": "4096",
    "index.interval.bytes": "256",
    "retention.ms": "-1",
}
WITH_JOURNAL: Final = ManagerConfig(journal_enable=True, journal_bytes=1 << 20)
ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_committed", "read_uncommitted")
READ_COMMITTED, READ_UNCOMMITTED = ISOLATIONS

IDEMPOTENT, TRANSACTIONS, OPEN, TRIMMED = "idempotent", "transactions", "left-open", "trimmed"
TOPICS: Final = (IDEMPOTENT, TRANSACTIONS, OPEN, TRIMMED)
OUT_OF_ORDER_SEQUENCE: Final = 45
# Messages of a broker about a log that it does not accept unchanged.
REPAIRS: Final = ("Recovering", "rebuilding index", "orrupt", "stray")


@dataclass
class Handover:
    """
    Observations of the test.

    Attributes:
        directory: the data directory, as the stopped broker left it.
        identity: what its `meta.properties` had at first.
        client: our idempotent producer.
        ours: topic and isolation -> what our readers saw before.
        theirs: topic and isolation -> what consumers of the broker saw before it appended.
        our_ends, ends: topic -> log end and last stable offset, as we and the broker report them.
        batches: what our producer sent: the last to us, and all to the broker.
        answers: error code and offset of each that it sent to the broker.
        committed, aborted: offsets that the broker gave to its transactions.
        served_at_last: as `theirs`, afterwards.
        log_text: what the broker logged.
    """

    directory: Path
    identity: MetaProperties
    client: Client
    ours: dict[tuple[str, str], list[ConsumedRecord]] = field(default_factory=dict)
    our_ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    theirs: dict[tuple[str, str], list[ConsumedRecord]] = field(default_factory=dict)
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    batches: list[bytes] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    served_at_last: dict[tuple[str, str], list[ConsumedRecord]] = field(default_factory=dict)
    log_text: str = ""


def write_partitions(
    directory: Path, topic_ids: dict[str, uuid.UUID], client: Client
) -> list[bytes]:
    """Fill the directory, close it in order, and give the topics the ids of the controller."""
    with LogManager([directory], WITH_JOURNAL) as manager:
        for topic in topic_ids:
            manager.create_topic(topic, 1, SMALL_SEGMENTS)
            manager.flush()
            log = manager.log(topic)
            fill(log, topic, client)
            manager.flush()
            assert len(log.segments()) > 1
        assert list(directory.glob(".kafkalog_journal*"))
    assert not list(directory.glob(".kafkalog_journal*"))
    for topic, topic_id in topic_ids.items():
        write_partition_metadata(DISK, directory / f"{topic}-0", topic_id)
    return [replace(client, sequence=client.sequence - 10).batch(10)]


def fill(log: Log, topic: str, client: Client) -> None:
    """Append what the topic is about."""
    if topic == IDEMPOTENT:
        for _ in range(60):
            client.send(log, 10)
    elif topic == TRANSACTIONS:
        interleave(log)
    elif topic == OPEN:
        interleave(log)
        Client(7001).send(log, 3, transactional=True)
        log.append([Record(value=b"behind it %d" % number) for number in range(20)])
    else:
        for number in range(500):
            log.append([Record(key=b"k", value=b"%d" % number * 40)])
        log.delete_records(123)


def interleave(log: Log) -> None:
    """Append transactions of three producers across segments, every third one aborted."""
    clients = [Client(5000 + number) for number in range(3)]
    for turn in range(60):
        sender = clients[turn % 3]
        sender.send(log, 1 + turn % 7, transactional=True)
        log.append([Record(key=b"plain", value=b"outside %d" % turn)])
        if turn % 5 == turn % 3:
            sender.end(log, "abort" if turn % 9 == 0 else "commit")
    for sender in clients:
        sender.send(log, 2, transactional=True)
        sender.end(log, "commit")


def as_consumed(record: Record) -> ConsumedRecord:
    return ConsumedRecord(
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        tuple(record.headers),
    )


def our_view(directory: Path, topic: str, isolation: Isolation) -> list[ConsumedRecord]:
    """Return the records of a read-only reader of this library."""
    with kafkalog.open_log(directory / f"{topic}-0", read_only=True) as log:
        return [as_consumed(record) for record in log.records(isolation=isolation)]


@pytest.fixture(scope="module")
def handover(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handover]:
    """Write a directory, let a broker have it, and stop that broker."""
    root = tmp_path_factory.mktemp("takeover")
    plans = [TopicPlan(topic) for topic in TOPICS]
    metadata, directory, topic_ids = prepare(kafka, root, plans)
    meta = read_meta_properties(DISK, directory)
    assert meta is not None
    # A producer that was silent for a day is forgotten, by the broker too.
    now_ms = SystemClock().now_ms()
    found = Handover(directory, meta, Client(4001, timestamp_ms=now_ms))
    found.batches = write_partitions(directory, topic_ids, found.client)
    for topic in TOPICS:
        for isolation in ISOLATIONS:
            found.ours[topic, isolation] = our_view(directory, topic, isolation)
        with kafkalog.open_log(directory / f"{topic}-0", read_only=True) as log:
            found.our_ends[topic] = (log.log_end_offset, log.last_stable_offset)
    with broker_on(kafka, metadata, directory) as broker:
        serve(broker, found)
    found.log_text = broker.log_text()
    yield found
    shutil.rmtree(root)


def broker_on(
    kafka: KafkaInstall, metadata: Path, directory: Path, more: Mapping[str, str] | None = None
) -> Broker:
    """A broker whose controller has its metadata in one directory, and the logs in another."""
    settings = {"metadata.log.dir": str(metadata), "log.dirs": str(directory), **(more or {})}
    return Broker(kafka, metadata, settings=settings)


def make_topics(
    kafka: KafkaInstall,
    metadata: Path,
    directory: Path,
    plans: Sequence[TopicPlan],
    more: Mapping[str, str] | None = None,
) -> dict[str, uuid.UUID]:
    """Let the controller know the topics; return the ids that it gave them."""
    with broker_on(kafka, metadata, directory, more) as broker:
        create_topics(broker.address, plans)
        for plan in plans:
            assert 0 == end_offset(broker.address, plan.name)
    names = [plan.name for plan in plans]
    found = {topic: read_partition_metadata(DISK, directory / f"{topic}-0") for topic in names}
    return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}


def prepare(
    kafka: KafkaInstall,
    root: Path,
    plans: Sequence[TopicPlan],
    more: Mapping[str, str] | None = None,
) -> tuple[Path, Path, dict[str, uuid.UUID]]:
    """Return directories for metadata and data, and the ids of topics that a controller knows."""
    metadata, first, directory = root / "metadata", root / "first", root / "data"
    format_directory(kafka, metadata)
    with LogManager([first], cluster_id=CLUSTER_ID, node_id=1):
        pass  # only to write what the directory is
    topic_ids = make_topics(kafka, metadata, first, plans, more)
    directory.mkdir()
    shutil.copyfile(first / META_PROPERTIES, directory / META_PROPERTIES)
    return metadata, directory, topic_ids


def serve(broker: Broker, found: Handover) -> None:
    """Ask the broker for everything, then let it append."""
    address = broker.address
    for topic in TOPICS:
        found.ends[topic] = (end_offset(address, topic), committed_end(address, topic))
        for isolation in ISOLATIONS:
            found.theirs[topic, isolation] = consume(address, topic, isolation_level=isolation)
    client = found.client
    gap = replace(client, sequence=client.sequence + 1).batch(1)
    following = client.batch(3)
    found.batches += [gap, found.batches[-1], following, following, client.batch(2)]
    found.answers = produce_encoded(address, IDEMPOTENT, found.batches[1:])
    rows = [(b"broker's", b"%d" % number) for number in range(25)]
    found.committed = produce_transaction(address, TRANSACTIONS, "of-the-broker", rows)
    found.aborted = produce_transaction(address, TRANSACTIONS, "of-the-broker", rows, abort=True)
    for topic in TOPICS:
        for isolation in ISOLATIONS:
            found.served_at_last[topic, isolation] = consume(
                address, topic, isolation_level=isolation
            )


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
def test_broker_serves_our_directory_as_we_read_it(
    handover: Handover, topic: str, isolation: Isolation
) -> None:
    """Every record under both isolation levels: aborted ones left out, open ones held back."""
    expected = handover.ours[topic, isolation]
    assert 50 < len(expected)
    assert expected == handover.theirs[topic, isolation]


@pytest.mark.parametrize("topic", TOPICS)
def test_broker_reports_our_log_end_and_last_stable_offset(handover: Handover, topic: str) -> None:
    """They differ only where a transaction is open."""
    assert handover.our_ends[topic] == handover.ends[topic]
    end, stable = handover.ends[topic]
    assert (topic == OPEN) == (stable < end)


def test_broker_on_our_directory_starts_without_recovery(handover: Handover) -> None:
    """Nothing is recovered, rebuilt or called stray; the topic ids are kept."""
    for topic in TOPICS:
        assert (handover.directory / f"{topic}-0").is_dir()
    rebuilt = [
        line
        for line in handover.log_text.splitlines()
        if any(f"{topic}-0" in line for topic in TOPICS) and any(map(line.__contains__, REPAIRS))
    ]
    assert [] == rebuilt
    assert handover.identity == read_meta_properties(DISK, handover.directory)


def test_broker_continues_the_sequence_of_our_producer(handover: Handover) -> None:
    """
    From our snapshot it knows what came last: a gap is refused, which it would not be of a producer
    that is new; what we had stored is answered with the offset that we gave it.
    """
    end, _stable = handover.our_ends[IDEMPOTENT]
    assert [
        (OUT_OF_ORDER_SEQUENCE, -1),
        (0, end - 10),
        (0, end),
        (0, end),
        (0, end + 3),
    ] == handover.answers


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
def test_read_after_the_broker_equals_what_it_served(
    handover: Handover, topic: str, isolation: Isolation
) -> None:
    """Our appends and its own, its transactions among them."""
    expected = handover.served_at_last[topic, isolation]
    assert expected == our_view(handover.directory, topic, isolation)
    offsets = {record.offset for record in expected}
    if topic == TRANSACTIONS:
        assert set(handover.committed) <= offsets
        assert (isolation == READ_UNCOMMITTED) == (set(handover.aborted) <= offsets)


def test_open_after_the_broker_needs_no_recovery(handover: Handover, tmp_path: Path) -> None:
    """With the broker's checkpoints; its leader epoch begins where it began to append."""
    directory = copied(handover, tmp_path)
    name = f"{IDEMPOTENT}-0"
    end, _stable = handover.our_ends[IDEMPOTENT]
    epochs = LeaderEpochCheckpoint(DISK, directory / name / LEADER_EPOCH_CHECKPOINT).read()
    assert (0, 0) == epochs[0]
    assert end == epochs[-1].start_offset
    marks = OffsetCheckpoint(DISK, directory / HIGH_WATERMARK_CHECKPOINT).read()
    assert end + 5 == marks[TopicPartition(IDEMPOTENT, 0)]
    with LogManager([directory]) as manager:
        log = manager.log(IDEMPOTENT)
        assert log.recovery_report.clean
        assert end + 5 == log.log_end_offset
        assert epochs[-1].epoch == log.leader_epoch


def test_doctor_on_a_directory_from_a_broker_finds_nothing(handover: Handover) -> None:
    """A directory that two programs have written, and a real broker has closed."""
    now_ms = SystemClock().now_ms()
    diagnosis = examined(handover.directory, age_files=False, now_ms=now_ms)
    assert len(TOPICS) < diagnosis.partition_count  # the broker's own topics are there, too
    assert diagnosis.is_well, diagnosis.findings


def test_log_start_after_broker_and_back_is_kept(handover: Handover, tmp_path: Path) -> None:
    """Deleted records stay deleted for all three."""
    directory = copied(handover, tmp_path)
    for isolation in ISOLATIONS:
        assert 123 == handover.theirs[TRIMMED, isolation][0].offset
    with LogManager([directory]) as manager:
        log = manager.log(TRIMMED)
        assert 123 == log.log_start_offset


def test_append_continues_a_producer_of_the_broker(handover: Handover, tmp_path: Path) -> None:
    """From its snapshot: a repetition has the broker's offset, a gap is refused, the next goes."""
    directory = copied(handover, tmp_path)
    end, _stable = handover.our_ends[IDEMPOTENT]
    with LogManager([directory]) as manager:
        log = manager.log(IDEMPOTENT)
        gap = replace(handover.client, sequence=handover.client.sequence + 1)
        with pytest.raises(OutOfOrderSequenceError):
            gap.send(log)
        # A snapshot has the last batch of each producer, as Kafka's format wants it.
        repeated = log.append_batches(handover.batches[-1], origin=AppendOrigin.CLIENT)
        assert repeated.is_duplicate
        assert end + 3 == repeated.first_offset
        assert end + 5 == replace(handover.client).send(log).first_offset


def test_open_transaction_after_broker_and_back_can_be_aborted(
    handover: Handover, tmp_path: Path
) -> None:
    """The broker kept it open, since its coordinators do not have it."""
    directory = copied(handover, tmp_path)
    with LogManager([directory]) as manager:
        log = manager.log(OPEN)
        assert [7001] == [each.producer_id for each in log.list_transactions()]
        log.abort_transaction(7001)
        assert log.log_end_offset == log.last_stable_offset
        last = list(log.records(isolation=READ_COMMITTED))[-1]
        assert b"behind it 19" == last.value


def copied(handover: Handover, target: Path) -> Path:
    """Return a copy of the directory as the broker left it, for a test that writes to it."""
    assert (handover.directory / CLEAN_SHUTDOWN_MARKER).exists()
    directory = target / "data"
    shutil.copytree(handover.directory, directory)
    return directory
