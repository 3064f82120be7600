"""Check of all topics by the oracle, in a manager that is opened after a cut or a kill."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from random import Random

from kafkalog import LogManager, TopicPartition
from kafkalog.spark.txn.model import TransactionId
from kafkalog.spark.txn.transaction import SinkTransaction
from tests.proof.checking import observe
from tests.proof.contents import identity
from tests.proof.managers import (
    SINK_TOPIC,
    TRANSACTIONAL_IDS,
    directories_of,
    manager_config,
)
from tests.proof.oracle import Oracle, Problem, View
from tests.proof.plain_log import read_log

__all__ = ["check_topics"]


def check_topics(root: Path, oracle: Oracle, seed: int) -> list[Problem]:
    """Recover the sink and the manager, finish what was decided, and judge."""
    logging.disable(logging.CRITICAL)
    random = Random(seed)
    directories = directories_of(root, oracle)
    if len(directories) == 1 and oracle.sinks:
        SinkTransaction(directories[0], TransactionId.of_query("query", 1 << 40)).recover()
    manager = LogManager(directories, manager_config(random, quiet=True))
    health = manager.health()
    problems = [
        Problem("a directory is offline after a start", f"{each}")
        for each in health.directories
        if not each.is_online
    ]
    for name in TRANSACTIONAL_IDS:
        manager.producer(transactional_id=name)
    topics = {name: len(numbers) for name, numbers in manager.topics().items()}
    for name in oracle.undecided_topics():
        oracle.decide_topic(name, _streams_in(manager, name))
    # An operation that no process continues is undone by the next reader.
    with manager.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([each for each in manager.partitions() if each.topic in ("kept", "keyed")])
    view = View({}, topics)
    for stream in list(oracle.streams.values()):
        spec = stream.spec
        if topics.get(spec.topic, 0) <= spec.partition:
            continue
        directory = manager.directory_of(spec.topic, spec.partition) / spec.directory
        log = manager.log(spec.topic, spec.partition)
        view.partitions[spec.directory] = observe(
            log, directory, stream.number, spec, problems, random, recovered=False
        )
    for group, where in oracle.positions:
        topic, _, number = where.rpartition("-")
        with manager.consumer(group) as consumer:
            committed = consumer.committed(TopicPartition(topic, int(number)))
        if committed is not None:
            view.positions[group, where] = committed.offset
    if len(directories) == 1:
        rows = Counter(
            (record.value or b"").decode()
            for number in manager.topics().get(SINK_TOPIC, ())
            for record in manager.log(SINK_TOPIC, number).records(0)
        )
        view.rows = dict(rows)
    problems += oracle.check(view)
    if random.random() < 0.5:
        manager.close()
    return problems


def _streams_in(manager: LogManager, topic: str) -> set[int]:
    """Return which streams the records of a topic are of."""
    found = set()
    for partition in manager.topics().get(topic, ()):
        plain = read_log(manager.directory_of(topic, partition) / f"{topic}-{partition}")
        for _batch, record in plain.data():
            name = identity(record.value, record.headers)
            if name is not None:
                found.add(name[0])
    return found
