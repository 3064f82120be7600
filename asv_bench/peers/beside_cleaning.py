"""Cost of a compaction for concurrent appends and reads of the same log.

    python -m asv_bench.peers.beside_cleaning

One thread appends a record and reads one from anywhere, twice a millisecond or less; another does
nothing, cleans the log, or cleans it at no more than RATE_BYTES a second. Printed are percentiles
of single calls by the wall clock.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kafkalog
from asv_bench.peers.cleaning import MEMORY_BYTES, VALUE_BYTES, config_of, make_log
from asv_bench.peers.stores import Workspace
from kafkalog import Log, Record

RECORDS = 1_000_000
RATE_BYTES = 32_000_000
PAUSE_SECONDS = 0.0005
IDLE_SECONDS = 3.0


def limited() -> Callable[[int], None]:
    """Return a throttle for one cleaning."""
    begun = time.monotonic()
    paid = 0

    def throttle(size: int) -> None:
        nonlocal paid
        paid += size
        time.sleep(max(0.0, paid / RATE_BYTES - (time.monotonic() - begun)))

    return throttle


def clean(log: Log) -> None:
    """Clean as fast as it goes."""
    kafkalog.compact_log(log, memory_bytes=MEMORY_BYTES)


def clean_slowly(log: Log) -> None:
    """Clean with a limit."""
    kafkalog.compact_log(log, memory_bytes=MEMORY_BYTES, throttle=limited())


def measure(directory: Path, action: Callable[[Log], None]) -> tuple[list[float], list[float]]:
    """Return the seconds of single appends and reads while `action` is at work in a thread."""
    record = [Record(key=b"k" * 16, value=bytes(VALUE_BYTES))]
    source = random.Random(1)
    appends, reads = [], []
    with kafkalog.open_log(directory, config=config_of("uncompressed")) as log:
        end = log.log_end_offset
        thread = threading.Thread(target=action, args=(log,))
        thread.start()
        while thread.is_alive():
            begun = time.perf_counter()
            log.append(record)
            appended = time.perf_counter()
            log.get(source.randrange(end))
            reads.append(time.perf_counter() - appended)
            appends.append(appended - begun)
            time.sleep(PAUSE_SECONDS)
        thread.join()
    return appends, reads


def percentiles(seconds: list[float]) -> str:
    """Return the median and the 99th percentile in microseconds."""
    ordered = sorted(seconds)
    median, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {median * 1e6:.0f}, p99 {high * 1e6:.0f}"


def main() -> None:
    """Print a line for each kind of company."""
    workspace = Workspace()
    try:
        source = workspace.fresh()
        make_log(source, "uncompressed", RECORDS)
        for name, action in (
            ("alone", lambda _log: time.sleep(IDLE_SECONDS)),
            ("beside a cleaning", clean),
            (f"beside one of {RATE_BYTES // 1_000_000} MB/s", clean_slowly),
        ):
            directory = workspace.fresh()
            shutil.copytree(source, directory)
            appends, reads = measure(directory, action)
            print(
                f"{name}: append {percentiles(appends)}; read {percentiles(reads)} us", flush=True
            )
            workspace.remove_store(directory)
    finally:
        workspace.remove()


if __name__ == "__main__":
    main()
