"""The workload with a `LogManager`: topics, producers, transactions, groups, the cleaner, the sink.

Run in a separate process, which is killed or loses its disk. Two topics are there for good and
take part in transactions, one of them compacted; one is trimmed in the background; one is deleted
and created again under the same name, by turns.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from random import Random

from kafkalog import LogManager, ManagerConfig, TopicPartition
from kafkalog.clients.delivery import RecordMetadata
from kafkalog.clients.producer import Producer
from kafkalog.errors import (
    KafkaLogError,
    LogCleaningAbortedError,
    LogClosedError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalog.spark.txn.model import StagedFile, TransactionId
from kafkalog.spark.txn.transaction import SinkTransaction
from tests.proof.appending import Appending, SharedLock
from tests.proof.contents import Spec, content
from tests.proof.oracle import Oracle
from tests.proof.plain_log import encode_batch
from tests.proof.shared_events import SharedEvents
from tests.proof.single_logs import guarded

__all__ = [
    "GROUP", "SINK_TOPIC", "TRANSACTIONAL_IDS", "directories_of", "manager_config", "write_topics",
]  # fmt: skip

GROUP = "group"
SINK_TOPIC = "rows"
TRANSACTIONAL_IDS = ("tx-0", "tx-1")
FORMS = ("records", "lists", "columns", "batches", "raw")
LASTING = ("kept", "keyed", "trimmed", "sent")
VICTIM = "victim"
KINDS = (
    "flush", "flush", "flush", "flush", "roll", "roll", "compact", "compact", "delete_records",
    "delete_topic", "delete_topic",
)  # fmt: skip
KINDS_TEXT = {
    "flush": "flushes",
    "roll": "rolls",
    "compact": "compactions",
    "delete_records": "delete_records",
    "delete_topic": "topics deleted, or created again under the same name",
}
# By concurrent events: that the log was closed, or its topic deleted.
INTERRUPTIONS = (LogCleaningAbortedError, LogClosedError, UnknownTopicOrPartitionError)


def directories_of(root: Path, oracle: Oracle) -> list[Path]:
    """Return the data directories of a disk; one, where a sink writes to it as well."""
    count = 1 if oracle.seed % 3 else 2
    return [root / f"data-{number}" for number in range(count)]


def manager_config(random: Random, *, quiet: bool = False) -> ManagerConfig:
    """Draw a manager's settings; a quiet one does nothing by itself."""
    period = "86400000" if quiet else random.choice(("20", "50"))
    return ManagerConfig.from_properties(
        {
            "log.segment.bytes": random.choice(("20000", "60000")),
            # Fifty each, as a broker has them, take longer to recover than all else together.
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "log.index.size.max.bytes": random.choice(("240", "10000")),
            "log.segment.delete.delay.ms": random.choice(("0", "30", "60000")),
            "log.initial.task.delay.ms": "86400000" if quiet else "10",
            "log.retention.check.interval.ms": period,
            "log.retention.ms": "-1",
            "log.flush.offset.checkpoint.interval.ms": period,
            "log.flush.start.offset.checkpoint.interval.ms": period,
            "replica.high.watermark.checkpoint.interval.ms": period,
            "log.cleaner.enable": "false" if quiet else "true",
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.dedupe.buffer.size": str(3 << 20),
            "log.cleaner.min.cleanable.ratio": "0.05",
            "log.preallocate": random.choice(("true", "false")),
            "log.flush.scheduler.interval.ms": random.choice(("1000000", "5")),
            "kafkalog.journal.enable": random.choice(("true", "false")),
            "kafkalog.journal.bytes": random.choice((str(1 << 18), str(1 << 20))),
            "kafkalog.journal.log.max.bytes": random.choice(("3000", "1000000")),
            "kafkalog.journal.checkpoint.interval.ms": random.choice(("5", "50", "86400000")),
            "kafkalog.journal.linger.ms": random.choice(("0", "3", "40")),
        }
    )


def topic_settings(name: str, random: Random) -> dict[str, str]:
    """Draw the settings of a topic that are not the defaults."""
    if name == "keyed":
        delay = random.choice(("0", "86400000"))
        return {"cleanup.policy": "compact", "segment.bytes": "20000", "delete.retention.ms": delay}
    if name == "trimmed":
        return {"retention.bytes": "40000", "segment.bytes": "20000"}
    codec = random.choice(("producer", "lz4", "zstd", "gzip", "snappy", "uncompressed"))
    return {"compression.type": codec}


class TopicWriter:
    """Works on the topics of one manager until the process ends."""

    def __init__(
        self, shared: SharedEvents, root: Path, oracle: Oracle, seed: int, numbers: Iterator[int]
    ) -> None:
        self.shared = shared
        self.oracle = oracle
        self.numbers = numbers
        self.random = Random(seed)
        self.directories = directories_of(root, oracle)
        self.incoming = root
        self.victims = SharedLock()
        self.streams: dict[str, list[tuple[int, Spec]]] = {}
        self.is_closing = False

    # --------------------------------------------------------------------------------- beginning

    def run(self) -> None:
        """Let the sink write, perhaps; then open the manager, and let threads work on it."""
        if len(self.directories) == 1 and self.random.random() < 0.4:
            self.write_rows()
        self.shared.add("begin", "opening")
        config = manager_config(self.random)
        self.manager = LogManager(self.directories, config)
        self.shared.add("end", "opening")
        journal = "with a commit journal" if config.journal_enable else "without one"
        self.shared.add("kind", f"openings of a manager {journal}")
        producers = [
            self.manager.producer(
                transactional_id=name,
                linger_ms=self.random.choice((0, 2)),
                transaction_timeout_ms=60_000,
            )
            for name in TRANSACTIONAL_IDS
        ]
        for name in LASTING:
            self.make(name)
        self.find_victim()
        work: list[Callable[[Random], None]] = [
            self.produce,
            self.produce_together,
            self.append,
            self.commit_positions,
        ]
        work += [
            _transactions_of(self, number, producer) for number, producer in enumerate(producers)
        ]
        threads = [
            threading.Thread(target=guarded, args=(self.shared, self.until_closed, each, drawn))
            for each, drawn in [(each, self.drawn()) for each in work]
        ]
        for thread in threads:
            thread.start()
        self.administer(self.drawn())

    def drawn(self) -> Random:
        """Return a source of chances for one thread."""
        return Random(self.random.getrandbits(32))

    def until_closed(self, work: Callable[[Random], None], random: Random) -> None:
        """Work; that the manager is closed meanwhile is no error."""
        try:
            work(random)
        except KafkaLogError:
            if not self.is_closing:
                raise

    def close(self) -> None:
        """Close the manager while the threads work on; a cut or a kill may come at any moment."""
        self.is_closing = True
        self.shared.add("begin", "closing")
        self.manager.close()
        self.shared.add("end", "closing")
        self.shared.add("kind", "managers closed")

    def spec(self, name: str, partition: int, count: int) -> Spec:
        """Return what the records of a partition have in common."""
        keys = {"keyed": 12, "trimmed": 9, "sent": 1000}.get(name, 0)
        return Spec(
            f"{name}-{partition}",
            keys,
            tombstones=name == "keyed",
            compact=name == "keyed",
            trims=name == "trimmed",
            topic=name,
            partition=partition,
            partition_count=count if name == "sent" else 0,
        )

    def make(self, name: str) -> None:
        """Create a topic, unless it is there."""
        draw = Random(f"{self.oracle.seed}{name}")
        count = draw.choice((1, 2, 2, 3, 4, 8)) if name == "kept" else draw.randint(1, 3)
        topic = self.oracle.topics.get(name)
        if name in self.manager.topics() and topic is not None:
            self.shared.add("topic", name, "there", [])
            if topic.state == "gone":
                self.shared.add("wrong", "a deleted topic is back", name)
            count = len(topic.streams)
            listed = [(each, self.spec(name, at, count)) for at, each in enumerate(topic.streams)]
            self.streams[name] = listed
            return
        listed = [(next(self.numbers), self.spec(name, each, count)) for each in range(count)]
        for number, spec in listed:
            self.shared.add("stream", number, asdict(spec))
        self.shared.add("topic", name, "asked", [number for number, _ in listed])
        try:
            self.manager.create_topic(name, count, topic_settings(name, self.random))
        except TopicExistsError:
            self.shared.add("wrong", "a topic exists that was not seen", name)
            return
        self.shared.add("topic", name, "there", [])
        self.streams[name] = listed

    def find_victim(self) -> None:
        """Take over the topic that comes and goes."""
        if VICTIM in self.manager.topics() or self.random.random() < 0.7:
            self.make(VICTIM)

    # ----------------------------------------------------------------------------------- threads

    def produce(self, random: Random) -> None:
        """Send single records by an idempotent producer."""
        wait = random.choice(("written", "durable"))
        compression = random.choice(("none", "gzip", "snappy", "lz4", "zstd"))
        producer = self.manager.producer(
            wait=wait,  # type: ignore[arg-type]
            linger_ms=random.choice((0, 2)),
            batch_size=random.choice((500, 16384)),
            compression_type=compression,
        )
        for turn in range(600):
            name = random.choice(LASTING)
            stream, spec = random.choice(self.streams[name])
            number = next(self.numbers)
            self.shared.add("ask", stream, number, 1)
            self.send(producer, stream, spec, number).add_done_callback(
                self.answered(stream, number, compression, durable=wait == "durable")
            )
            if turn % 16 == 0:
                if random.random() < 0.4:
                    producer.flush()
                time.sleep(random.random() * 0.004)

    def produce_together(self, random: Random) -> None:
        """Send records to several partitions by one call, as a service does."""
        producer = self.manager.producer(wait="durable", linger_ms=random.choice((0, 2)))
        for _ in range(250):
            sent, keys, values = [], [], []
            for stream, spec in random.choices(self.streams["sent"], k=random.choice((1, 3, 9))):
                number = next(self.numbers)
                self.shared.add("ask", stream, number, 1)
                each = content(spec, stream, number, 0)
                sent.append((spec.partition, stream, number))
                keys.append(each.key)
                values.append(each.value)
            with producer.group():
                future = producer.send_many("sent", keys, values)
            offsets: defaultdict[int, list[int]] = defaultdict(list)
            for found in future.result():
                first = found.first_offset
                offsets[found.partition] += range(first, first + found.record_count)
            for partition, stream, number in sent:
                self.shared.add("ack", stream, number, offsets[partition].pop(0), True)
            self.shared.add("kind", "calls of records that several partitions got together")
            if random.random() < 0.3:
                time.sleep(random.random() * 0.004)

    def send(
        self, producer: Producer, stream: int, spec: Spec, number: int
    ) -> Future[RecordMetadata]:
        """Send the record of an operation."""
        each = content(spec, stream, number, 0)
        return producer.send(
            spec.topic, each.value, key=each.key, headers=each.headers, partition=spec.partition
        )

    def answered(
        self, stream: int, number: int, compression: str, *, durable: bool
    ) -> Callable[[Future[RecordMetadata]], None]:
        """Return what notes the answer to a record."""

        def note(future: Future[RecordMetadata]) -> None:
            if future.exception() is None:
                self.shared.add("ack", stream, number, future.result().offset, durable)
                self.shared.add("form", "producer", 2, compression)

        return note

    def append(self, random: Random) -> None:
        """Append to logs themselves, in several forms."""
        for _ in range(250):
            with self.victims.shared():
                names = [name for name in (*LASTING, VICTIM, VICTIM) if name in self.streams]
                name = random.choice(names)
                stream, spec = random.choice(self.streams[name])
                log = self.manager.log(name, spec.partition)
                appending = Appending(self.shared, self.numbers, stream, spec, self.incoming)
                appending.append(log, random.choice(FORMS), random)
            if random.random() < 0.3:
                time.sleep(random.random() * 0.004)

    def commit_positions(self, random: Random) -> None:
        """Put positions of a group."""
        consumer = self.manager.consumer(GROUP)
        for _ in range(100):
            _stream, spec = random.choice(self.streams["kept"])
            position = next(self.numbers)
            wait = random.choice(("written", "durable"))
            self.shared.add("position", GROUP, spec.directory, position)
            where = TopicPartition(spec.topic, spec.partition)
            consumer.commit({where: position}, wait=wait)  # type: ignore[arg-type]
            self.shared.add("positioned", GROUP, spec.directory, position, wait == "durable")
            time.sleep(random.random() * 0.01)

    def transact(self, index: int, producer: Producer, random: Random) -> None:
        """Run transactions of one transactional id, one after the other."""
        group = f"{GROUP}-{index}"
        places = self.streams["kept"] + self.streams["keyed"]
        for _ in range(150):
            transaction = next(self.numbers)
            self.shared.add("transaction", transaction)
            producer.begin_transaction()
            sent = []
            chosen = random.sample(places, min(len(places), random.choice((1, 2, 2, 4))))
            for stream, spec in chosen * random.choice((1, 1, 3)):
                number = next(self.numbers)
                self.shared.add("ask", stream, number, 1, transaction)
                sent.append((stream, number, self.send(producer, stream, spec, number)))
            if random.random() < 0.3:
                where = f"kept-{index % len(self.streams['kept'])}"
                self.shared.add("position", group, where, transaction, transaction)
                partition = TopicPartition("kept", index % len(self.streams["kept"]))
                producer.send_offsets_to_transaction({partition: transaction}, group)
            if random.random() < 0.7:
                producer.flush()
                self.note_sent(sent)
            if random.random() < 0.5:
                time.sleep(random.random() * random.choice((0.003, 0.03)))
            if random.random() < 0.75:
                self.shared.add("commit", transaction, False)
                producer.commit_transaction()
                self.note_sent(sent)
                self.shared.add("commit", transaction, True)
                self.shared.add("kind", f"transactions committed over {len(chosen)} partitions")
            else:
                self.shared.add("abort", transaction, False)
                producer.abort_transaction()
                self.shared.add("abort", transaction, True)

    def note_sent(self, sent: list[tuple[int, int, Future[RecordMetadata]]]) -> None:
        """Note where the records of a transaction lie."""
        for stream, number, future in sent:
            self.shared.add("ack", stream, number, future.result().offset, False)

    # ----------------------------------------------------------------------------- administration

    def administer(self, random: Random) -> None:
        """Flush, roll, compact, delete and make topics, a number of times."""
        for _ in range(random.choice((5, 20, 200))):
            kind = random.choice(KINDS)
            self.shared.add("begin", kind)
            done = False
            with contextlib.suppress(*INTERRUPTIONS):
                getattr(self, f"_{kind}")(random)
                done = True
            self.shared.add("end", kind)
            if done:
                self.shared.add("kind", KINDS_TEXT[kind])
            time.sleep(random.random() * 0.01)

    def _flush(self, random: Random) -> None:
        if random.random() < 0.5:
            # The names before the call: a topic may come again under its name.
            listed = [each for name in LASTING for each in self.streams[name]]
            durable = self.manager.flush([(spec.topic, spec.partition) for _, spec in listed])
            for stream, spec in listed:
                where = TopicPartition(spec.topic, spec.partition)
                if where in durable:
                    self.shared.add("flush", stream, durable[where])
            return
        stream, spec = random.choice(self.streams[random.choice(LASTING)])
        offset = self.manager.log(spec.topic, spec.partition).flush()
        self.shared.add("flush", stream, offset)

    def _roll(self, random: Random) -> None:
        _stream, spec = random.choice(self.streams[random.choice(LASTING)])
        self.manager.log(spec.topic, spec.partition).roll()

    def _compact(self, random: Random) -> None:
        _stream, spec = random.choice(self.streams["keyed"])
        active = random.random() < 0.7
        self.manager.compact(spec.topic, spec.partition, include_active=active)

    def _delete_records(self, random: Random) -> None:
        stream, spec = random.choice(self.streams["kept"])
        log = self.manager.log(spec.topic, spec.partition)
        offset = random.randint(log.log_start_offset, log.high_watermark)
        self.shared.add("delete", stream, offset)
        log.delete_records(offset)
        self.shared.add("deleted", stream, offset)

    def _delete_topic(self, random: Random) -> None:
        with self.victims.alone():
            if VICTIM not in self.streams:
                self.make(VICTIM)
                return
            self.shared.add("topic", VICTIM, "deleting", [])
            del self.streams[VICTIM]
            self.manager.delete_topic(VICTIM)
            self.shared.add("topic", VICTIM, "gone", [])

    # ------------------------------------------------------------------------------------ the sink

    def write_rows(self) -> None:
        """Commit one or two transactions of the Spark sink, which opens the directory itself."""
        for _ in range(self.random.choice((1, 2))):
            version = next(self.numbers)
            parts = [(number, self.random.randrange(1, 9)) for number in range(2)]
            sink = SinkTransaction(self.directories[0], TransactionId.of_query("query", version))
            self.shared.add("sink", version, parts, False)
            sink.commit([self._staged(sink, version, *part) for part in parts])
            self.shared.add("sink", version, parts, True)

    def _staged(
        self, sink: SinkTransaction, version: int, partition: int, count: int
    ) -> StagedFile:
        """Stage rows as a task does."""
        now_ms = int(time.time() * 1000)
        rows = [(b"k", b"sink.%d.%d.%d" % (version, partition, row), ()) for row in range(count)]
        data = encode_batch(rows, timestamp=now_ms)
        handle = sink.staging.create(sink.transaction, f"{partition}-0")
        handle.pwrite(data, 0)
        handle.sync()
        handle.close()
        sink.staging.sync_directory_names(sink.transaction)
        return StagedFile(
            str(handle.path), SINK_TOPIC, partition, 2, count, len(data), 1, len(data), now_ms,
            now_ms, task=partition,
        )  # fmt: skip


def _transactions_of(
    writer: TopicWriter, index: int, producer: Producer
) -> Callable[[Random], None]:
    return lambda random: writer.transact(index, producer, random)


def write_topics(shared: SharedEvents, root: Path, oracle: Oracle, seed: int, first: int) -> None:
    """Work on the topics of a disk until something ends this process."""
    logging.disable(logging.CRITICAL)
    writer = TopicWriter(shared, root, oracle, seed, itertools.count(first))
    guarded(shared, writer.run)
    if Random(seed).random() < 0.7:
        guarded(shared, writer.close)
    time.sleep(60)
