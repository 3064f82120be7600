"""Live tails in other processes: cost while idle, and time from an append to its sight.

    python -m asv_bench.peers.following [--quick]

The peer is a bare loop of inotify and reads of the new bytes, which decodes and checks nothing.
Each tail is a process. Both kinds run in turn, with the same appends: the value of a record is the
time of its append, by the clock that all processes share.

Goals: an idle tail of 1,000 partitions takes less than 0.5 % of a core; from the append to its
sight p50 below 1 ms with one tail, and p99 below 10 ms with 20; an idle look at a log of 400
segments takes less than 10 us.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import kafkalog
from kafkalog import Record

PARTITIONS = 1_000
TAILS = (1, 20)
APPENDS, APPENDS_QUICK = 2_000, 300
IDLE_SECONDS, IDLE_SECONDS_QUICK = 20, 5
PAUSE_SECONDS = 0.004
LOOKS = 20_000
# Values begin with it, so that the bare tail finds the times in the bytes of a batch.
MARK = b"@time@"
TIME = struct.Struct("<q")


def shown(nanoseconds: list[int]) -> str:
    """Return p50 and p99 of times, in ms."""
    ordered = sorted(nanoseconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {p50 / 1e6:7.3f} ms   p99 {p99 / 1e6:7.3f} ms   max {ordered[-1] / 1e6:7.3f} ms"


def follow_times(directory: str, durable: bool, count: int, connection: Connection) -> None:
    """Tail by `kafkalog.follow`: send the time from append to sight of each record."""
    found: list[int] = []
    with kafkalog.follow(directory, "orders", durable=durable) as follower:
        connection.send("ready")
        for _partition, records, _next in follower:
            now = time.monotonic_ns()
            found += [now - TIME.unpack(record.value[len(MARK) :])[0] for record in records]
            if len(found) >= count:
                break
        cpu = time.process_time()
    connection.send((found, cpu))


def bare_times(directory: str, durable: bool, count: int, connection: Connection) -> None:
    """Tail by bare inotify and reads: the same times, without decoding or checks."""
    library = ctypes.CDLL(None, use_errno=True)
    events = library.inotify_init1(0)
    path = Path(directory) / "orders-0" / f"{0:020d}.log"
    library.inotify_add_watch(events, os.fsencode(path), 2)
    file = os.open(path, os.O_RDONLY)
    position = os.fstat(file).st_size
    found: list[int] = []
    connection.send("ready")
    while len(found) < count:
        os.read(events, 65536)
        data = os.pread(file, 1 << 20, position)
        now = time.monotonic_ns()
        position += len(data)
        at = data.find(MARK)
        while at >= 0:
            found.append(now - TIME.unpack_from(data, at + len(MARK))[0])
            at = data.find(MARK, at + 1)
    connection.send((found, time.process_time()))


def latencies(kind: str, tails: int, count: int, *, durable: bool = False) -> None:
    """Run one writer and some tails; print the times."""
    directory = tempfile.mkdtemp(prefix="following-")
    context = multiprocessing.get_context("spawn")
    target = bare_times if kind == "inotify and read" else follow_times
    try:
        with kafkalog.LogManager([directory]) as manager:
            manager.create_topic("orders")
            log = manager.log("orders")
            log.append([Record(value=b"before")], wait="durable")
            processes, connections = [], []
            for _tail in range(tails):
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=target, args=(directory, durable, count, sender))
                process.start()
                processes.append(process)
                connections.append(receiver)
            for each in connections:
                each.recv()
            for _append in range(count):
                time.sleep(PAUSE_SECONDS)
                value = MARK + TIME.pack(time.monotonic_ns())
                log.append([Record(value=value)])
                if durable:
                    log.flush()
            results = [each.recv() for each in connections]
            for process in processes:
                process.join()
    finally:
        shutil.rmtree(directory)
    times = [each for found, _cpu in results for each in found]
    assert len(times) == count * tails, (len(times), count * tails)
    what = f"append{' and sync' * durable} to sight, {tails} tails"
    print(f"{what:36} {kind:18} {shown(times)}", flush=True)


def idle(durable: bool, seconds: float) -> None:
    """Print the share of a core that an idle tail of many partitions takes."""
    directory = tempfile.mkdtemp(prefix="following-")
    try:
        with kafkalog.LogManager([directory]) as manager:
            manager.create_topic("orders", PARTITIONS)
            for number in range(PARTITIONS):
                manager.log("orders", number).append([Record(value=b"before")])
            manager.flush()
            context = multiprocessing.get_context("spawn")
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=idle_tail, args=(directory, durable, seconds, sender))
            process.start()
            opened, share = receiver.recv()
            process.join()
    finally:
        shutil.rmtree(directory)
    print(
        f"idle tail of {PARTITIONS} partitions, durable={durable!s:5}  {share:6.3%} of a core"
        f"   (opened in {opened:.2f} s)",
        flush=True,
    )


def idle_tail(directory: str, durable: bool, seconds: float, connection: Connection) -> None:
    """Follow without anything to see."""
    begun = time.perf_counter()
    with kafkalog.follow(directory, durable=durable) as follower:
        opened = time.perf_counter() - begun
        # The first sweeps learn the marks of all partitions, and list the directory once more.
        follower.poll(12_000)
        cpu, wall = time.process_time(), time.perf_counter()
        follower.poll(int(seconds * 1000))
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    connection.send((opened, share))


def idle_looks() -> None:
    """Print the time of a look at a log of 400 segments where nothing has changed."""
    directory = tempfile.mkdtemp(prefix="following-")
    try:
        with kafkalog.LogManager([directory]) as manager:
            manager.create_topic("orders")
            log = manager.log("orders")
            while len(log.segments()) < 400:
                log.append([Record(value=b"x")])
                log.roll()
            with kafkalog.follow(directory, start="end") as follower:
                follower.poll(3_500)
                times = []
                for _round in range(5):
                    begun = time.thread_time()
                    for _turn in range(LOOKS // 5):
                        follower.poll(0)
                    times.append((time.thread_time() - begun) / (LOOKS // 5))
    finally:
        shutil.rmtree(directory)
    print(f"idle look at 400 segments              {statistics.median(times) * 1e6:6.2f} us")


def publication() -> None:
    """Print what the publication adds to a sync."""
    directory = tempfile.mkdtemp(prefix="following-")
    try:
        with kafkalog.LogManager([directory]) as manager:
            manager.create_topic("orders")
            log = manager.log("orders")
            syncs = []
            for _sync in range(100):
                log.append([Record(value=b"x" * 1_000)])
                begun = time.perf_counter()
                log.flush()
                syncs.append(time.perf_counter() - begun)
            # The same slot again: what each sync writes.
            content, times = (Path(directory) / ".kafkalog_live").read_bytes(), []
            file = os.open(Path(directory) / ".kafkalog_live", os.O_WRONLY)
            for _write in range(2_000):
                begun = time.perf_counter()
                os.pwrite(file, content[64:128], 64)
                times.append(time.perf_counter() - begun)
            os.close(file)
    finally:
        shutil.rmtree(directory)
    print(
        f"sync of a log, published               {statistics.median(syncs) * 1e6:8.1f} us"
        f"   (its write: {statistics.median(times) * 1e6:.2f} us)"
    )


def main() -> int:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer appends and seconds")
    is_quick = parser.parse_args().quick
    count = APPENDS_QUICK if is_quick else APPENDS
    idle_looks()
    publication()
    for tails in TAILS:
        for kind in ("inotify and read", "kafkalog.follow"):
            latencies(kind, tails, count)
        latencies("kafkalog.follow", tails, count, durable=True)
    for durable in (False, True):
        idle(durable, IDLE_SECONDS_QUICK if is_quick else IDLE_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
