"""Sending records one at a time, each with a future, against aiokafka's accumulator.

    python -m asv_bench.peers.producers [--quick]

The peer's batches are filled, encoded and their futures completed as by its sender, without a
network and without the coroutine around each record; ours are written to a file as well. Both get
the partition. In addition the time of `Log.append` for the same records, a thousand at a time and
without futures.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.structs import TopicPartition

from asv_bench.peers.common import (
    BATCH_SIZES,
    TIMESTAMP_MS,
    VALUE_SIZES,
    Comparison,
    Goal,
    Records,
    make_records,
    run_table,
)
from kafkalog import LogConfig, LogManager, ManagerConfig, Record

CHUNK = 1000
WHERE = TopicPartition("records", 0)
CONFIG = ManagerConfig(log=LogConfig(message_timestamp_before_max_ms=2**63 - 1))


def peer_send(records: Records, batch_size: int) -> None:
    """Fill, encode and acknowledge batches of aiokafka."""

    async def run() -> None:
        accumulator = MessageAccumulator(None, batch_size, 0, 60)

        def drain() -> None:
            batch = accumulator._pop_batch(WHERE)
            batch.get_data_buffer()
            batch.done(0, TIMESTAMP_MS)

        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            future = None
            while future is None:
                pending = accumulator._batches.get(WHERE)
                if pending:
                    batch = pending[-1]
                else:
                    batch = accumulator._append_batch(accumulator.create_builder(), WHERE)
                future = batch.append(key, value, timestamp)
                if future is None:
                    drain()
        drain()
        await asyncio.sleep(0)

    asyncio.run(run())


class Ours:
    """A manager with one topic."""

    def __init__(self, records: Records, batch_size: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-peers-"))
        self.manager = LogManager([self.directory], CONFIG)
        self.manager.create_topic("records", 1)
        self.producer = self.manager.producer(batch_size=batch_size, buffer_memory=64 << 20)
        self.log = self.manager.log("records", 0)
        self.records = records

    def send(self) -> None:
        """A future for each."""
        send, records = self.producer.send, self.records
        for key, value, timestamp in zip(
            records.keys, records.values, records.timestamps, strict=True
        ):
            send("records", value, key=key, timestamp_ms=timestamp, partition=0)
        self.producer.flush()

    def append(self) -> None:
        """A thousand at a time."""
        records = self.records
        for start in range(0, len(records.keys), CHUNK):
            rows = zip(
                records.keys[start : start + CHUNK],
                records.values[start : start + CHUNK],
                records.timestamps[start : start + CHUNK],
                strict=True,
            )
            self.log.append([Record(key=k, value=v, timestamp_ms=t) for k, v, t in rows])

    def close(self) -> None:
        """Remove what was written."""
        self.manager.close()
        shutil.rmtree(self.directory)


def comparison(records: Records, value_size: int, batch_size: int, ours: Ours) -> Comparison:
    """Return the cases of one size."""
    return Comparison(
        title=f"{value_size} B, {batch_size // 1024} KiB",
        items=len(records.keys),
        cases={
            "send": ours.send,
            "aiokafka": lambda: peer_send(records, batch_size),
            "append": ours.append,
        },
        goals=[
            Goal("Producer.send / aiokafka's accumulator", "send", "aiokafka", 0),
            Goal("Producer.send / Log.append of a thousand", "send", "append", 0),
        ],
    )


def comparisons(*, quick: bool) -> Iterator[Comparison]:
    """Yield one comparison for each size; what it wrote goes when the next one begins."""
    for value_size in VALUE_SIZES[:1] if quick else VALUE_SIZES:
        for batch_size in BATCH_SIZES:
            records = make_records(20_000, value_size)
            with contextlib.closing(Ours(records, batch_size)) as ours:
                yield comparison(records, value_size, batch_size, ours)


if __name__ == "__main__":
    sys.exit(run_table(sys.argv[1:], comparisons, peer="peer"))
