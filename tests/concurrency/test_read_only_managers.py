"""Read-only managers next to a process that writes: every record, and topics come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, LogManager, Record, TopicPartition, UnknownTopicOrPartitionError

SECONDS = 6.0
FOLLOWERS = 3

# Each record has its topic's generation and its own offset, so that readers can judge it alone.
WRITER = """
import random, sys, time
from kafkalog import LogManager, ManagerConfig, Record

directory, seconds = sys.argv[1], float(sys.argv[2])
config = ManagerConfig.from_properties({
    "log.segment.bytes": "4096", "log.index.interval.bytes": "256",
    "log.segment.delete.delay.ms": "50", "log.cleaner.enable": "false",
})
random = random.Random(7)
generations = {}

def append(log, topic, count):
    start = log.log_end_offset
    log.append([
        Record(key=b"%d" % (offset % 17), value=b"%d:%d" % (generations[topic], offset))
        for offset in range(start, start + count)
    ])

def make(manager, topic):
    generations[topic] = generations.get(topic, 0) + 1
    compacted = {"cleanup.policy": "compact"} if topic == "compacted" else None
    manager.create_topic(topic, 2, compacted)

with LogManager(directory, config) as manager:
    for topic in ("plain", "compacted", "brief"):
        make(manager, topic)
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for topic in manager.topics():
            append(manager.log(topic, random.randrange(2)), topic, random.randrange(1, 12))
        action = random.randrange(20)
        if action == 0:
            manager.delete_topic("brief")
            make(manager, "brief")
        elif action == 1:
            manager.compact("compacted", random.randrange(2), include_active=True)
        elif action == 2:
            log = manager.log("plain", random.randrange(2))
            log.truncate_to(max(log.log_end_offset - random.randrange(30), log.log_start_offset))
        elif action == 3:
            log = manager.log("plain", random.randrange(2))
            log.delete_records(max(log.log_end_offset - 40, log.log_start_offset))
        elif action == 4:
            generations["passing"] = generations.get("passing", 0) + 1
            manager.create_topic("passing", 1)
            append(manager.log("passing"), "passing", 5)
            manager.delete_topic("passing")
        time.sleep(0.002)
    for topic, numbers in manager.topics().items():
        for number in numbers:
            for record in manager.log(topic, number).records():
                print(topic, number, record.offset, record.value.decode())
    print("end", flush=True)
    sys.stdin.read()
"""


def follow(directory: Path, is_over: Callable[[], bool]) -> tuple[int, int]:
    """Consume all topics until the end; return how many records and made topics were seen."""
    record_count = 0
    generations: dict[str, int] = {}
    with (
        LogManager(directory, read_only=True) as manager,
        manager.consumer(auto_offset_reset="earliest", poll_interval_ms=2) as consumer,
    ):
        consumer.subscribe("plain", "compacted", "brief", "passing")
        while not is_over():
            try:
                found = consumer.poll(5)
            except UnknownTopicOrPartitionError:
                # Deleted, and perhaps made again by now.
                continue
            for where, records in found.items():
                record_count += len(records)
                judge(where, records, generations)
    return record_count, sum(generations.values())


def judge(where: TopicPartition, records: list[Record], generations: dict[str, int]) -> None:
    """Check records of one poll: each is whole, in order, and of the present topic or a later."""
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    for record in records:
        generation, offset = map(int, (record.value or b"").split(b":"))
        assert offset == record.offset
        assert generation >= generations.get(f"{where}", 1)
        generations[f"{where}"] = generation


def test_followers_of_a_process_that_does_everything(tmp_path: Path) -> None:
    """Appends, rolls, compaction, truncation, deletion of records and of topics."""
    directory = tmp_path / "data"
    stop = threading.Event()
    results: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(follow(directory, stop.is_set))
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        threads = [threading.Thread(target=run) for _number in range(FOLLOWERS)]
        with LogManager(directory, read_only=True) as manager:
            for thread in threads:
                thread.start()
            look_at_everything(manager, SECONDS)
            written = []
            while (line := process.stdout.readline()) != "end\n":
                assert line
                written.append(line.split())
            seen = [
                [topic, str(number), str(record.offset), (record.value or b"").decode()]
                for topic, numbers in manager.topics().items()
                for number in numbers
                for record in manager.log(topic, number).records()
            ]
            assert seen == written
            # A truncation within a batch leaves a hole, which is reported.
            assert manager.health().faults == ()
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
        process.stdin.close()
    if failures:
        raise failures[0]
    assert len(results) == FOLLOWERS
    assert all(record_count > 100 for record_count, _made in results)


def look_at_everything(manager: LogManager, seconds: float) -> None:
    """Read every log again and again, while topics come and go."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for topic, number in manager.partitions():
            try:
                log = manager.log(topic, number)
                records = list(log.records())
            except UnknownTopicOrPartitionError:
                continue
            except KafkaLogError:
                # Deleted between the look and the reading, or records before the start.
                if TopicPartition(topic, number) in manager.partitions() and not log.is_closed:
                    assert log.log_end_offset >= log.log_start_offset
                continue
            judge(TopicPartition(topic, number), records, {})


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_topic_is_made_again_while_it_is_read(tmp_path: Path, delay_ms: int) -> None:
    """With a delay of zero, the directory's inode may be the same as before."""
    directory = tmp_path / "data"
    with (
        LogManager(directory) as writer,
        LogManager(directory, read_only=True) as reader,
        reader.consumer(auto_offset_reset="earliest", poll_interval_ms=1) as consumer,
    ):
        settings = {"file.delete.delay.ms": str(delay_ms)}
        writer.create_topic("orders", 1, settings)
        consumer.subscribe("orders")
        for generation in range(30):
            writer.log("orders").append([Record(value=b"%d" % generation)])
            end = time.monotonic() + 30
            found: list[Record] = []
            while not found and time.monotonic() < end:
                try:
                    found = consumer.poll(1).get(TopicPartition("orders", 0), [])
                except UnknownTopicOrPartitionError:
                    continue
            assert [b"%d" % generation] == [record.value for record in found]
            writer.delete_topic("orders")
            writer.create_topic("orders", 1, settings)
        assert len(consumer.lost) == 29
