"""Process of one engine in the comparison of ingestion: 64 clients of asyncio, and a pump.

    python -m asv_bench.peers.ingest_process ENGINE PARTITIONS DIRECTORY

Each line on the standard input is a time in milliseconds: the clients send requests for as long,
and the answer is a line of numbers, in the order of `Round`. A client sends its next request when
it has the answer to the one before. The pump is a thread: it takes all requests that are there,
stores them as a group, and passes all results to the event loop by one call.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from asv_bench.peers.ingest_engines import ENGINES, Engine, Request
from asv_bench.peers.sync_calls import sync_calls

__all__ = ["CLIENTS", "RECORDS", "VALUE_BYTES", "Round"]

CLIENTS: Final = 64
RECORDS: Final = 10
VALUE_BYTES: Final = 200
# Keys of all requests: enough for every partition, and few enough to be made at once.
REQUESTS: Final = 2048

Waiting = tuple[Request, "asyncio.Future[Any]"]


class Round(NamedTuple):
    """Result of a round: amounts, and times in microseconds."""

    requests: int
    elapsed_us: int
    p50_us: int
    p99_us: int
    groups: int
    syncs: int

    @property
    def request_ns(self) -> float:
        """Time of the round for each request, in nanoseconds."""
        return 1e3 * self.elapsed_us / self.requests


class Pump:
    """
    Stores the requests that are there as one group, in a separate thread.

    Args:
        engine: the store.
        loop: where the clients wait.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.group_count = 0
        self._engine = engine
        self._loop = loop
        # The item None ends the thread.
        self._requests: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pump")
        self._thread.start()

    def put(self, request: Request) -> asyncio.Future[Any]:
        """Return the future of a request."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._requests.put((request, future))
        return future

    def close(self) -> None:
        """End the thread."""
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._requests.get()) is not None:
            group = [first]
            try:
                while (more := self._requests.get_nowait()) is not None:
                    group.append(more)
            except Empty:
                pass
            results = self._engine.store([request for request, _future in group])
            self.group_count += 1
            self._loop.call_soon_threadsafe(_resolve, group, results)


def _resolve(group: Sequence[Waiting], results: Sequence[Any]) -> None:
    for (_request, future), result in zip(group, results, strict=True):
        future.set_result(result)


def make_requests() -> list[Request]:
    """Return requests with random keys and values, the same in every process."""
    chosen = random.Random(17)
    pool = chosen.randbytes(1 << 20)

    def value() -> bytes:
        start = chosen.randrange(len(pool) - VALUE_BYTES)
        return pool[start : start + VALUE_BYTES]

    return [
        (
            [b"key-%012d" % chosen.randrange(10**9) for _ in range(RECORDS)],
            [value() for _ in range(RECORDS)],
        )
        for _ in range(REQUESTS)
    ]


async def run_round(
    engine: Engine,
    requests: Sequence[Request],
    seconds: float,
    count_syncs: Callable[[], int] = sync_calls,
) -> Round:
    """Let the clients send requests for a time."""
    pump = Pump(engine, asyncio.get_running_loop())
    latencies: list[float] = []
    syncs = count_syncs()
    begun = time.perf_counter()
    end = begun + seconds

    async def client(number: int) -> None:
        slot = number * (REQUESTS // CLIENTS)
        sent = time.perf_counter()
        while True:
            await pump.put(requests[slot % REQUESTS])
            now = time.perf_counter()
            latencies.append(now - sent)
            if now >= end:
                return
            slot, sent = slot + 1, now

    await asyncio.gather(*map(client, range(CLIENTS)))
    elapsed = time.perf_counter() - begun
    pump.close()
    latencies.sort()

    def percentile(share: float) -> int:
        return round(latencies[min(int(share * len(latencies)), len(latencies) - 1)] * 1e6)

    return Round(
        len(latencies),
        round(elapsed * 1e6),
        percentile(0.5),
        percentile(0.99),
        pump.group_count,
        count_syncs() - syncs,
    )


def main(name: str, partition_count: int, directory: Path) -> None:
    """Answer each line with a round."""
    engine = ENGINES[name](directory, partition_count)
    requests = make_requests()
    # Present objects are the benchmark's own data, and open logs: no round pays for them.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        found = asyncio.run(run_round(engine, requests, int(line) / 1000))
        print(*found, flush=True)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
