"""Goals P22 and P23: durable ingestion by HTTP, against RocksDB, LMDB and SQLite.

    python -m asv_bench.peers.ingest_http [--quick] [PARTITIONS ...]

64 connections, 10 records of 200 bytes a request, over 1, 10, 100 and 1,000 partitions. Each engine
has a service in a process (`ingest_http_service.py`); they take turns, round by round. The load
comes from this process. By the wall clock, on the disk that holds temporary files.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from asv_bench.peers.common import Options, add_options, options_of, report
from asv_bench.peers.ingest import BEST, JOURNAL, OURS, PARTITIONS, engine_of_goals, work_of
from asv_bench.peers.ingest_engines import LINGER, PEERS
from asv_bench.peers.results import Result
from asv_bench.peers.stores import Workspace

ENGINES: Final = (OURS, JOURNAL, LINGER, *PEERS)
CONNECTIONS, RECORDS, VALUE_BYTES = 64, 10, 200
ROUNDS, ROUNDS_QUICK = 7, 3
ROUND_SECONDS, ROUND_SECONDS_QUICK = 3.0, 1.0
# Different requests, enough for every partition.
REQUESTS: Final = 512
PRINTABLE: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"


class Round(NamedTuple):
    """Result of a round: requests, and times in nanoseconds."""

    requests: int
    elapsed_ns: int
    p50_ns: int
    p99_ns: int

    @property
    def request_ns(self) -> float:
        """Time of the round for each request."""
        return self.elapsed_ns / self.requests


Rounds: TypeAlias = Mapping[str, Sequence[Round]]


class Service:
    """The process of a service; a context manager, at whose end it ends."""

    def __init__(self, name: str, partition_count: int, path: Path) -> None:
        module = [sys.executable, "-m", "asv_bench.peers.ingest_http_service"]
        self._process = subprocess.Popen(
            [*module, name, str(partition_count), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._name = name
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def wait(self) -> None:
        """Return when it answers; RuntimeError if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service of {self._name} ended")
        self.port = int(line)


def make_requests() -> list[bytes]:
    """Return requests with random keys and values, the same for every engine."""
    chosen = random.Random(17)
    found = []
    for _ in range(REQUESTS):
        lines = [
            b"key-%012d %s"
            % (chosen.randrange(10**9), bytes(chosen.choices(PRINTABLE, k=VALUE_BYTES)))
            for _ in range(RECORDS)
        ]
        body = b"\n".join(lines)
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        found.append(head.encode() + body)
    return found


async def run_round(port: int, requests: Sequence[bytes], seconds: float) -> Round:
    """Let the connections send requests for a time, each its next one after the answer."""
    latencies: list[int] = []
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    begun = time.perf_counter_ns()
    end = begun + round(seconds * 1e9)

    async def client(number: int) -> None:
        reader, writer = streams[number]
        slot, sent = number * (REQUESTS // CONNECTIONS), time.perf_counter_ns()
        while True:
            writer.write(requests[slot % REQUESTS])
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 204"):
                raise RuntimeError(f"the answer must be 204, got {answer!r}")
            now = time.perf_counter_ns()
            latencies.append(now - sent)
            if now >= end:
                return
            slot, sent = slot + 1, now

    await asyncio.gather(*map(client, range(CONNECTIONS)))
    elapsed = time.perf_counter_ns() - begun
    for _reader, writer in streams:
        writer.close()
    latencies.sort()
    half, most = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    return Round(len(latencies), elapsed, half, most)


def measure(
    names: Sequence[str], partition_count: int, workspace: Workspace, options: Options
) -> Rounds:
    """Return the rounds of each engine, which took turns."""
    rounds = options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS)
    seconds = ROUND_SECONDS_QUICK if options.quick else ROUND_SECONDS
    requests = make_requests()
    found: dict[str, list[Round]] = {name: [] for name in names}
    with ExitStack() as stack:
        services = {
            name: stack.enter_context(Service(name, partition_count, workspace.fresh()))
            for name in names
        }
        for service in services.values():
            service.wait()
        # Of the first round nothing is kept.
        for number in range(rounds + 1):
            for name, service in services.items():
                result = asyncio.run(run_round(service.port, requests, seconds))
                if number:
                    found[name].append(result)
    return found


def results_of(found: Rounds, partition_count: int) -> Iterator[Result]:
    """Yield the results of ours against the best peer; the goals are for one of ours."""
    with_goals = engine_of_goals(found)
    work = work_of(partition_count)
    times = {name: tuple(each.request_ns for each in rounds) for name, rounds in found.items()}
    p99 = {name: tuple(float(each.p99_ns) for each in rounds) for name, rounds in found.items()}
    peers = [name for name in found if name in PEERS]
    best_times = min((times[name] for name in peers), key=statistics.median)
    best_p99 = min((p99[name] for name in peers), key=statistics.median)
    for name in found:
        if name in PEERS:
            continue
        first, second = ("P22", "P23") if name == with_goals else ("", "")
        wanted = 1.0 if first else 0.0
        what = f"{name}, HTTP"
        unit = "ns a request"
        yield Result(first, what, work, unit, BEST, wanted, times[name], best_times)
        yield Result(second, f"{what}: p99", work, unit, BEST, wanted, p99[name], best_p99)


def print_rounds(found: Rounds, partition_count: int) -> None:
    """Print the medians of each engine."""
    size = f"{RECORDS} x {VALUE_BYTES} B a request"
    print(f"\nHTTP, {work_of(partition_count)}, {CONNECTIONS} connections, {size}")
    print(f"{'':<28}{'requests/s':>11}{'p50 ms':>8}{'p99 ms':>8}")
    for name, rounds in found.items():
        rate = statistics.median(1e9 / each.request_ns for each in rounds)
        p50 = statistics.median(each.p50_ns for each in rounds) / 1e6
        p99 = statistics.median(each.p99_ns for each in rounds) / 1e6
        print(f"{name:<28}{rate:>11,.0f}{p50:>8.2f}{p99:>8.2f}")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Print a table for each number of partitions; exit code as `report`."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("partitions", nargs="*", type=int, help="all numbers where none is given")
    parsed = parser.parse_args(arguments)
    options = options_of(parsed)
    status = 0
    for partition_count in parsed.partitions or PARTITIONS:
        workspace = Workspace()
        try:
            found = measure(ENGINES, partition_count, workspace, options)
        finally:
            workspace.remove()
        print_rounds(found, partition_count)
        status |= report(results_of(found, partition_count), options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
