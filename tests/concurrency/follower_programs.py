"""Programs of the tests of followers, each in a process: writers of all kinds, and followers.

    python -m tests.concurrency.follower_programs NAME DIRECTORY [ARGUMENT ...]

A writer reports what it has done on its standard output, line by line; a follower reports each
piece of records, and each event, as one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog import CommittedOffset, LogConfig, LogManager, LostRecords, ManagerConfig, Record
from kafkalog.followers.options import PartitionChange

END = b"end"


def small(**settings: Any) -> ManagerConfig:
    """Return settings of logs that roll every 64 KB and delete at once."""
    log = LogConfig(segment_bytes=64 * 1024, file_delete_delay_ms=0, **settings)
    return ManagerConfig(log=log)


def say(*words: object) -> None:
    """Write a line of the protocol."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def follow(directory: str, arguments: str) -> None:
    """Follow until each partition has had a record with the value `end`; write what is seen."""
    options = json.loads(arguments)
    ends = options.pop("ends")
    start = options.pop("start", "start")
    if isinstance(start, dict):
        options["start"] = {
            _partition(name): CommittedOffset(offset, "", epoch)
            for name, (offset, epoch) in start.items()
        }
    else:
        options["start"] = start

    def on_lost(lost: LostRecords) -> None:
        say(json.dumps(["lost", str(lost.partition), lost.requested_offset, lost.resumed_offset]))

    def on_partition(change: PartitionChange) -> None:
        say(json.dumps([change.kind, str(change.partition)]))

    with kafkalog.follow(
        directory, on_lost=on_lost, on_partition=on_partition, **options
    ) as follower:
        say(json.dumps(["ready"]))
        # A parent that ends, or wants the end, closes the standard input.
        threading.Thread(target=_close_at_end, args=(follower,), daemon=True).start()
        for partition, records, _next_offset in follower:
            values = [(record.offset, (record.value or b"").decode()) for record in records]
            say(json.dumps(["records", str(partition), values]))
            ends -= sum(record.value == END for record in records)
            if not ends:
                break
        positions = follower.positions()
        say(
            json.dumps(
                ["positions", {str(w): [p.offset, p.leader_epoch] for w, p in positions.items()}]
            )
        )


def _close_at_end(follower: kafkalog.Follower) -> None:
    sys.stdin.read()
    follower.close()


def _partition(name: str) -> kafkalog.TopicPartition:
    topic, _dash, number = name.rpartition("-")
    return kafkalog.TopicPartition(topic, int(number))


def roll(directory: str, count: str) -> None:
    """Append records over many segments to two partitions; begin when a line comes."""
    with LogManager([directory], small()) as manager:
        manager.create_topic("t", 2)
        say("ready")
        sys.stdin.readline()
        for number in range(int(count)):
            log = manager.log("t", number % 2)
            log.append([Record(value=b"%d " % number + bytes(number % 700))])
        for partition in range(2):
            manager.log("t", partition).append([Record(value=END)])
        manager.flush()
        say("segments", len(manager.log("t", 0).segments()))
        sys.stdin.read()


def truncate(directory: str, seed: str) -> None:
    """Append and truncate; write the content of the log after each step that is waited for."""
    chooser = random.Random(int(seed))
    with LogManager([directory], small()) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        say("ready")
        sys.stdin.readline()
        serial = 0
        for _step in range(150):
            chance = chooser.random()
            if chance < 0.8:
                count = chooser.randint(1, 30)
                records = [
                    Record(value=b"%d " % number + bytes(chooser.randint(0, 300)))
                    for number in range(serial, serial + count)
                ]
                serial += count
                log.append(records)
            elif chance < 0.97:
                end = log.log_end_offset
                log.truncate_to(chooser.randint(max(end - 100, log.log_start_offset), end))
            else:
                log.truncate_fully_and_start_at(log.log_end_offset + chooser.randint(-50, 5) % 60)
            if chooser.random() < 0.2:
                log.flush()
        log.append([Record(value=END)])
        log.flush()
        say(json.dumps([(r.offset, (r.value or b"").decode()) for r in log.records()]))
        sys.stdin.read()


def compact(directory: str) -> None:
    """Append many values of few keys, and compact again and again; each value is the last once."""
    config = small(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    with LogManager([directory], config) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        say("ready")
        sys.stdin.readline()
        for number in range(3_000):
            log.append([Record(key=b"%d" % (number % 50), value=b"%d " % number + bytes(200))])
            if number % 500 == 499:
                log.roll()
                manager.compact("t")
        log.append([Record(key=END, value=END)])
        say(json.dumps([(r.offset, (r.value or b"").decode()) for r in log.records()]))
        sys.stdin.read()


def retain(directory: str) -> None:
    """Append with a retention of a few segments."""
    with LogManager([directory], small(retention_bytes=200_000)) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        say("ready")
        sys.stdin.readline()
        for number in range(6_000):
            log.append([Record(value=b"%d " % number + bytes(200))])
            if number % 300 == 299:
                log.apply_retention()
        log.append([Record(value=END)])
        say("start", log.log_start_offset)
        sys.stdin.read()


def recreate(directory: str) -> None:
    """Delete a topic and make it again, some times; each incarnation has other values."""
    with LogManager([directory], small()) as manager:
        say("ready")
        sys.stdin.readline()
        for turn in range(8):
            manager.create_topic("t")
            for number in range(20):
                manager.log("t").append([Record(value=b"%d %d" % (turn, number))])
            manager.log("t").flush()
            say("made", turn)
            sys.stdin.readline()
            manager.delete_topic("t")
        manager.create_topic("t")
        manager.log("t").append([Record(value=END)])
        sys.stdin.read()


def kill(directory: str, first: str, syncs: str) -> None:
    """Append from a number on until the process is killed; write each durable offset after it."""
    with LogManager([directory], small()) as manager:
        if "t" not in manager.topics():
            manager.create_topic("t")
        log = manager.log("t")
        say("ready", log.log_end_offset)
        number = int(first)
        while True:
            # Not faster than followers on a busy machine.
            time.sleep(0.001)
            number = log.append([Record(value=b"%d" % number)]).last_offset + 1
            if syncs == "yes" and not number % 7:
                say("durable", log.flush())
            elif syncs == "end":
                log.append([Record(value=END)], wait="durable")
                sys.stdin.read()
                return


PROGRAMS = {
    program.__name__: program
    for program in (follow, roll, truncate, compact, retain, recreate, kill)
}

if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(exist_ok=True)
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
