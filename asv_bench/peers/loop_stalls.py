"""Stalls of an event loop that uses `kafkalog.aio`.

    python -m asv_bench.peers.loop_stalls [SCENARIO ...] [--seconds N] [--partitions N]
        [--journal off|on|both] [--uvloop] [--realtime] [--commit-threads N]

A task sleeps a millisecond at a time, and measures how much later than that it runs. The same task
runs in an idle process at the same time, and is shown on the right: what is late there is late by
the machine, whose processors and disk are the same. With `--realtime` the system runs both before
all other programs, where the user may ask for that: on a machine with other work, nothing else is
comparable. Each scenario runs without and with the commit journal of the data directory.

Clients send requests of ten records of 200 bytes, durable, to random keys. The time of their own
code on the loop is part of a stall. But for the first line of `load`, and `opening`, the garbage
collector is set as `docs/asyncio.md` advises. The longest garbage collection is shown as well: it
stops all threads. The full disk is a file system in memory of 24 MiB, where the user may mount one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import importlib.util
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from kafkalog import KafkaLogError, LogConfig, ManagerConfig, aio

MODULE = "asv_bench.peers.loop_stalls"
CLIENTS = 64
REQUEST_RECORDS = 10
VALUE = b"v" * 200
BEAT_SECONDS = 0.001
# Objects between two garbage collections, of a service that was started.
COLLECTION_OBJECTS = 50_000
IDLE_SECONDS = 1.5

Scenario = Callable[[Path, "Options"], Awaitable[None]]


class Options(argparse.Namespace):
    """Arguments of the command."""

    seconds: float
    partitions: int
    scenarios: list[str]
    journal: str
    uvloop: bool
    realtime: bool
    commit_threads: int | None
    is_idle: bool
    idle: IdleProcess

    def config(self, **log: int) -> ManagerConfig:
        """Return settings of a manager."""
        config = ManagerConfig(log=LogConfig(**log), journal_enable=self.journal == "on")
        if self.commit_threads is not None:
            config = dataclasses.replace(config, commit_threads=self.commit_threads)
        return config

    def shared_arguments(self) -> list[str]:
        """Return the arguments for another process, without the scenario and the journal."""
        found = [f"--seconds={self.seconds}", f"--partitions={self.partitions}"]
        if self.commit_threads is not None:
            found.append(f"--commit-threads={self.commit_threads}")
        flags = {"--uvloop": self.uvloop, "--realtime": self.realtime}
        return [*found, *(flag for flag, is_set in flags.items() if is_set)]


class Heartbeat:
    """Lateness of a task that sleeps a millisecond at a time."""

    def __init__(self) -> None:
        self._late: list[float] = []

    async def beat(self) -> None:
        """Measure until the task is cancelled."""
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(BEAT_SECONDS)
            self._late.append(time.perf_counter() - begun - BEAT_SECONDS)

    def take(self) -> str:
        """Return percentiles in milliseconds since the last call."""
        late, self._late = sorted(self._late) or [0.0], []
        found = [late[min(int(len(late) * share), len(late) - 1)] for share in (0.5, 0.99, 0.999)]
        return "".join(f"{each * 1e3:8.2f}" for each in [*found, late[-1]])


class IdleProcess:
    """
    Another process with an idle loop.

    Args:
        options: those of this process.
    """

    def __init__(self, options: Options) -> None:
        command = [sys.executable, "-m", MODULE, "--idle", *options.shared_arguments()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def take(self) -> str:
        """Return the percentiles of its loop since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return self._process.stdout.readline().rstrip()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


async def be_idle() -> None:
    """Answer each line of the standard input with percentiles."""
    heart, reader = Heartbeat(), asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = asyncio.create_task(heart.beat())
    while await reader.readline():
        print(heart.take(), flush=True)
    task.cancel()


@contextlib.asynccontextmanager
async def measured(name: str, idle: IdleProcess) -> AsyncIterator[list[str]]:
    """Print the stalls of a block, and what it adds to the list."""
    heart, notes, begun, longest = Heartbeat(), list[str](), 0.0, 0.0

    def on_collection(phase: str, _facts: dict[str, int]) -> None:
        nonlocal begun, longest
        now = time.perf_counter()
        if phase == "start":
            begun = now
        else:
            longest = max(longest, now - begun)

    idle.take()
    gc.callbacks.append(on_collection)
    task = asyncio.create_task(heart.beat())
    try:
        yield notes
    finally:
        task.cancel()
        gc.callbacks.remove(on_collection)
        note = f"{longest * 1e3:5.0f} ms gc; {' '.join(notes)}"
        print(f"{name:18}{heart.take()} |{idle.take()}  {note}", flush=True)


def freeze() -> None:
    """Let collections be rare, and exempt all present objects, as a service does at its start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTION_OBJECTS)


async def run_clients(
    producer: aio.AsyncProducer, seconds: float, *, clients: int = CLIENTS
) -> str:
    """Let clients send for a time; return a line of the results."""
    done = failed = 0
    end = time.perf_counter() + seconds
    latencies: list[float] = []

    async def client(number: int) -> None:
        nonlocal done, failed
        source = random.Random(number)
        while (begun := time.perf_counter()) < end:
            keys = [b"%d" % source.randrange(1 << 30) for _ in range(REQUEST_RECORDS)]
            try:
                await producer.send_many("records", keys, [VALUE] * REQUEST_RECORDS)
                done += 1
            except KafkaLogError:
                failed += 1
                await asyncio.sleep(0.01)
            latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*map(client, range(clients)))
    latencies.sort()
    p99 = latencies[int(len(latencies) * 0.99)] * 1e3
    return f"{done / seconds:.0f} requests/s, {failed} failed, p99 {p99:.0f} ms"


async def load(root: Path, options: Options) -> None:
    """Clients on logs that are open already."""
    async with aio.open_manager([root], options.config()) as manager:
        await manager.create_topic("records", options.partitions)
        async with manager.producer(wait="durable") as producer:
            await run_clients(producer, 6)
            for name in ("load", "load, frozen"):
                async with measured(name, options.idle) as notes:
                    notes.append(await run_clients(producer, options.seconds))
                freeze()


async def opening(root: Path, options: Options) -> None:
    """A topic is created, and its logs are opened by the first requests."""
    async with aio.open_manager([root], options.config()) as manager:
        async with measured("create topic", options.idle) as notes:
            begun = time.perf_counter()
            await manager.create_topic("records", options.partitions)
            notes.append(f"{time.perf_counter() - begun:.1f} s")
        producer = manager.producer(wait="durable")
        async with measured("logs opened", options.idle) as notes:
            notes.append(await run_clients(producer, options.seconds))
        async with measured("close", options.idle):
            await manager.aclose()
    async with measured("open manager", options.idle):
        manager = await aio.open_manager([root], options.config())
    await manager.aclose()


async def full_buffer(root: Path, options: Options) -> None:
    """Clients that wait for space in the buffer."""
    async with aio.open_manager([root], options.config()) as manager:
        await manager.create_topic("records", options.partitions)
        async with manager.producer(wait="durable", buffer_memory=64 << 10) as producer:
            await run_clients(producer, 6)
            freeze()
            async with measured("full buffer", options.idle) as notes:
                notes.append(await run_clients(producer, options.seconds, clients=512))


async def rolls(root: Path, options: Options) -> None:
    """Segments of 64 KiB that roll, over few partitions."""
    async with aio.open_manager([root], options.config(segment_bytes=64 << 10)) as manager:
        await manager.create_topic("records", 20)
        producer = manager.producer(wait="durable")
        await run_clients(producer, 1)
        freeze()
        async with measured("rolls", options.idle) as notes:
            notes.append(await run_clients(producer, options.seconds))


async def large_requests(root: Path, options: Options) -> None:
    """Requests of 100,000 records, in lists and in columns of Arrow."""
    keys, values = [b"%d" % each for each in range(100_000)], [VALUE] * 100_000
    await send_large(root / "lists", options, "large requests", keys, values)
    try:
        import pyarrow as pa
    except ImportError:
        print("columns: SKIPPED, pyarrow is not installed")
        return
    await send_large(root / "columns", options, "columns", pa.array(keys), pa.array(values))


async def send_large(root: Path, options: Options, name: str, keys: Any, values: Any) -> None:
    """Send the same records again and again."""
    async with aio.open_manager([root], options.config()) as manager:
        await manager.create_topic("records", 100)
        producer = manager.producer(wait="durable", buffer_memory=128 << 20)
        await producer.send_many("records", keys, values)
        freeze()
        async with measured(name, options.idle) as notes:
            end, count = time.perf_counter() + options.seconds, 0
            while time.perf_counter() < end:
                await producer.send_many("records", keys, values)
                count += 1
            notes.append(f"{count / options.seconds:.1f} requests/s")


async def consumers(root: Path, options: Options) -> None:
    """Clients, and four consumers of all partitions."""
    async with aio.open_manager([root], options.config()) as manager:
        await manager.create_topic("records", 100)
        counts = [0] * 4

        async def consume(number: int) -> None:
            async with manager.consumer(f"group {number}", auto_offset_reset="earliest") as reader:
                await reader.subscribe("records")
                async for _partition, records in reader.batches():
                    counts[number] += len(records)

        async with manager.producer(wait="durable") as producer:
            tasks = [asyncio.create_task(consume(number)) for number in range(4)]
            await run_clients(producer, 1, clients=16)
            freeze()
            async with measured("consumers", options.idle) as notes:
                notes.append(await run_clients(producer, options.seconds, clients=16))
                notes.append(f"{sum(counts) / options.seconds:.0f} records/s read")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def small_disk(root: Path) -> Iterator[bool]:
    """Mount a file system in memory of 24 MiB, if the user may."""
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(root)]
    is_mounted = os.geteuid() == 0 and not subprocess.run(command, check=False).returncode
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(root)], check=True)


async def full_disk(root: Path, options: Options) -> None:
    """A disk that is full, with records that wait, and with records that fail at once."""
    for on_full in ("wait", "raise"):
        folder = root / on_full
        folder.mkdir()
        with small_disk(folder) as is_mounted:
            if not is_mounted:
                print("full disk: needs a user that may mount")
                return
            async with aio.open_manager(
                [folder / "data"],
                options.config(),
            ) as manager:
                await manager.create_topic("records", 100)
                (folder / "filler").touch()
                producer = manager.producer(
                    wait="durable",
                    on_full=on_full,
                    delivery_timeout_ms=3000,
                    max_block_ms=2000,
                    buffer_memory=1 << 20,
                )
                await run_clients(producer, 1)
                free = shutil.disk_usage(folder).free
                (folder / "filler").write_bytes(bytes(free))
                freeze()
                async with measured(f"full disk, {on_full}", options.idle) as notes:
                    notes.append(await run_clients(producer, options.seconds))
                (folder / "filler").unlink()
                async with measured("space again", options.idle) as notes:
                    notes.append(await run_clients(producer, 1))
                await producer.aclose(5)


SCENARIOS: dict[str, Scenario] = {
    "load": load,
    "opening": opening,
    "full_buffer": full_buffer,
    "rolls": rolls,
    "large_requests": large_requests,
    "consumers": consumers,
    "full_disk": full_disk,
}


async def run_scenario(name: str, options: Options) -> None:
    """Run one scenario after an idle loop."""
    async with measured("idle", options.idle):
        await asyncio.sleep(IDLE_SECONDS)
    with tempfile.TemporaryDirectory(prefix="kafkalog-stalls-") as root:
        await SCENARIOS[name](Path(root), options)


def try_realtime() -> None:
    """Let this process run before all others; report if the user may not."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        print(f"--realtime: SKIPPED, the user may not: {error}")


def run(main: Coroutine[Any, Any, None], *, is_uvloop: bool) -> None:
    """Run a coroutine in a new loop."""
    if not is_uvloop:
        asyncio.run(main)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def run_processes(options: Options) -> None:
    """Run each scenario in a new process: the objects of one would be collected in the next."""
    for name in options.scenarios or SCENARIOS:
        for journal in ("off", "on") if options.journal == "both" else (options.journal,):
            command = [sys.executable, "-m", MODULE, name, f"--journal={journal}"]
            subprocess.run([*command, *options.shared_arguments()], check=True)


def run_here(options: Options) -> None:
    """Run one scenario in this process."""
    options.idle = IdleProcess(options)
    columns = "".join(f"{each:>8}" for each in ("p50", "p99", "p99.9", "max"))
    print(
        f"{'lateness, ms':18}{columns} |{columns}  (right: idle process; journal "
        f"{options.journal}{', uvloop' if options.uvloop else ''})",
        flush=True,
    )
    try:
        run(run_scenario(options.scenarios[0], options), is_uvloop=options.uvloop)
    finally:
        options.idle.close()


def parsed_options() -> Options:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--journal", choices=("off", "on", "both"), default="both")
    parser.add_argument("--uvloop", action="store_true", help="the loop of uvloop, if installed")
    parser.add_argument("--realtime", action="store_true", help="run before all other programs")
    parser.add_argument("--commit-threads", type=int, help="kafkalog.commit.threads")
    parser.add_argument("--idle", dest="is_idle", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(namespace=Options())


def main() -> None:
    """Measure the scenarios."""
    options = parsed_options()
    if options.uvloop and importlib.util.find_spec("uvloop") is None:
        print("--uvloop: SKIPPED, uvloop is not installed")
        return
    if options.realtime:
        try_realtime()
    logging.getLogger("kafkalog").setLevel(logging.CRITICAL)
    if options.is_idle:
        run(be_idle(), is_uvloop=options.uvloop)
    elif len(options.scenarios) == 1 and options.journal != "both":
        run_here(options)
    else:
        run_processes(options)


if __name__ == "__main__":
    main()
