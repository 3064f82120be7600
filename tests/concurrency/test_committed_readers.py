"""Readers of committed records with producers: never a record that was, or will be, aborted.

Readers take no lock, and transactions begin, roll over segments, and end while they look.
"""

from __future__ import annotations

import threading
from pathlib import Path

from kafkalog import AppendOrigin, Log, LogConfig, open_log
from kafkalog._core.builder import BatchBuilder
from kafkalog.records.control import encode_marker
from tests.support.manual_time import START_MS, ManualScheduler

TRANSACTIONS = 150
READERS = 3
WAIT_SECONDS = 60
CONFIG = LogConfig(segment_bytes=900, message_timestamp_before_max_ms=2**62)


def write(log: Log) -> None:
    """Append transactions of two producers, every second one aborted; values name the end."""
    sequences = {7: 0, 8: 0}
    for number in range(TRANSACTIONS):
        producer_id, is_abort = (7, 8)[number % 2], number % 4 < 2
        for _ in range(1 + number % 3):
            builder = BatchBuilder()
            builder.append(None, b"bad" if is_abort else b"good", START_MS)
            batch = builder.finish(
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=True,
            )
            sequences[producer_id] += 1
            log.append_batches(batch, origin=AppendOrigin.CLIENT)
        marker = encode_marker(producer_id, 0, 0, START_MS, is_abort=is_abort)
        log.append_batches(marker, origin=AppendOrigin.COORDINATOR)


def test_committed_readers_never_see_aborted_records(tmp_path: Path) -> None:
    """Iteration, and fetches from any offset; at the end all readers see the same records."""
    done = threading.Event()
    failures: list[BaseException] = []
    seen_counts: list[int] = []

    def read(log: Log, first: int) -> None:
        count = 0
        try:
            while True:
                is_last = done.is_set()
                start = 0 if is_last else first % (log.last_stable_offset + 1)
                first += 7
                values = {r.value for r in log.records(start, isolation="read_committed")}
                assert values <= {b"good"}
                fetched = log.read(start, isolation="read_committed")
                assert {record.value for record in fetched.records()} <= {b"good"}
                count += 1
                if is_last:
                    return
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            failures.append(error)
        finally:
            seen_counts.append(count)

    with open_log(tmp_path / "orders-0", config=CONFIG, scheduler=ManualScheduler()) as log:
        threads = [threading.Thread(target=read, args=(log, number)) for number in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            write(log)
        finally:
            done.set()
            for thread in threads:
                thread.join(WAIT_SECONDS)
        assert [] == failures
        assert min(seen_counts) >= 1
        good = [record.value for record in log.records(isolation="read_committed")]
        assert {b"good"} == set(good)
        assert log.log_end_offset == log.last_stable_offset
