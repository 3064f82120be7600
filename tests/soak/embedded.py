"""The long-lived service of a soak: HTTP, asyncio clients, transactions and compaction in one.

    python -m tests.soak.embedded DIRECTORY PORT SETTINGS.json

It serves the routes of `examples/ingest_http/service.py`, and writes and reads with `kafkalog.aio`
at the same time. `POST /soak/ACTION` makes it do one of the unusual things of `misuse`. Every
second a line of JSON on the standard output reports what was acknowledged, read and refused.
"""

from __future__ import annotations

import asyncio
import json
import random
import runpy
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from kafkalog import (
    KafkaLogError,
    LogManager,
    LostRecords,
    ManagerConfig,
    ProducerSequence,
    aio,
)
from tests.soak.misuse import Misuse
from tests.soak.numbered import ABORTED, OrderJudge, record_value, record_values

SERVICE = Path(__file__).resolve().parents[2] / "examples" / "ingest_http" / "service.py"
TOPICS = {"events": 8, "orders": 4, "transfers": 2}
ACCOUNTS = 200
REPORT_SECONDS = COMMIT_SECONDS = 1.0
RETRY_SECONDS = 0.25


class Work:
    """
    Clients within the service, and what they report.

    Attributes:
        acknowledged: by client, the number of records that are durable.
        accounts: by account, the version that is durable.
        errors: by type, the errors that clients got; they repeat their requests.
    """

    def __init__(self, manager: aio.AsyncLogManager, producer: aio.AsyncProducer) -> None:
        self.acknowledged: dict[str, int] = {}
        self.accounts = [0] * ACCOUNTS
        self.errors: Counter[str] = Counter()
        self._manager = manager
        self._producer = producer
        self._judge = OrderJudge()
        self._counts: Counter[str] = Counter()
        self._generation = 0

    def report(self) -> dict[str, Any]:
        """Return everything as a value of JSON."""
        return {
            "acknowledged": self.acknowledged,
            "accounts": self.accounts,
            "errors": self.errors,
            "counts": self._counts | Counter(read=self._judge.record_count),
            "violations": self._judge.violations,
        }

    async def write(self, number: int, pause: float) -> None:
        """Send numbered records to one partition of `orders`, each until it is acknowledged."""
        name, generator = f"orders-{number}", random.Random(number)
        self.acknowledged[name] = 0
        while True:
            count = generator.randrange(1, 20)
            values = record_values(name, self.acknowledged[name], count)
            await self._deliver(name, number, values)
            await asyncio.sleep(pause * generator.uniform(0.5, 1.5))

    async def _deliver(self, name: str, partition: int, values: list[bytes]) -> None:
        sequence = ProducerSequence.of_name(name, sequence=self.acknowledged[name])
        while True:
            try:
                await self._producer.send_many(
                    "orders", None, values, partition=partition, number=sequence
                )
            except KafkaLogError as error:
                await self._record(error)
            else:
                self.acknowledged[name] += len(values)
                return

    async def _record(self, error: KafkaLogError) -> None:
        self.errors[type(error).__name__] += 1
        await asyncio.sleep(RETRY_SECONDS)

    async def update(self, pause: float) -> None:
        """Write new versions of accounts to a compacted topic."""
        generator = random.Random("accounts")
        while True:
            chosen = generator.sample(range(ACCOUNTS), 25)
            keys = [b"%d" % each for each in chosen]
            values = [record_value(f"account-{each}", self.accounts[each] + 1) for each in chosen]
            try:
                await self._producer.send_many("accounts", keys, values)
            except KafkaLogError as error:
                await self._record(error)
            else:
                for each in chosen:
                    self.accounts[each] += 1
            await asyncio.sleep(pause * generator.uniform(0.5, 1.5))

    async def transfer(self, pause: float) -> None:
        """Commit transactions over two partitions, and abort each fourth one."""
        while True:
            with suppress(KafkaLogError):
                await self._transfer(pause)
            await asyncio.sleep(RETRY_SECONDS)

    async def _transfer(self, pause: float) -> None:
        """Use one producer until a call fails; its names end there, as the result is unknown."""
        self._generation += 1
        names = [f"transfer-{self._generation}-{partition}" for partition in (0, 1)]
        generator, done = random.Random(self._generation), 0
        settings = {"wait": "durable", "on_full": "raise", "transactional_id": "transfer"}
        producer = self._manager.producer(**settings)  # type: ignore[arg-type]
        try:
            async with producer:
                while True:
                    is_abort = generator.random() < 0.25
                    used = [ABORTED] * 2 if is_abort else names
                    with suppress(_AbortError):
                        async with producer.transaction():
                            for partition, name in enumerate(used):
                                values = record_values(name, done, 3)
                                await producer.send_many(
                                    "transfers", None, values, partition=partition
                                )
                            if is_abort:
                                raise _AbortError
                        done += 3
                        self.acknowledged |= dict.fromkeys(names, done)
                    self._counts["aborted" if is_abort else "committed"] += 1
                    await asyncio.sleep(pause * generator.uniform(0.5, 1.5))
        except KafkaLogError as error:
            self.errors[type(error).__name__] += 1
            raise

    async def consume(self) -> None:
        """Read `orders` and `events` as a group, judge their order, and commit positions."""

        def on_lost(lost: LostRecords) -> None:
            self._judge.allow_gap(lost.partition)
            self._counts["ranges lost to the fast group"] += 1

        async with self._manager.consumer(
            "billing",
            on_lost=on_lost,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            await consumer.subscribe(*TOPICS)
            due = 0.0
            while True:
                for partition, records in (await consumer.poll(0.5)).items():
                    self._judge.read(partition, [record.value for record in records])
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + COMMIT_SECONDS
                try:
                    await consumer.commit()
                except KafkaLogError as error:
                    await self._record(error)

    async def fall_back(self) -> None:
        """Read `events` more slowly than it grows, so that retention overtakes the group."""

        def on_lost(lost: object) -> None:
            self._counts["ranges lost to the slow group"] += 1

        async with self._manager.consumer(
            "audit", on_lost=on_lost, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([("events", 0)])
            while True:
                polled = await consumer.poll(1, max_records=20)
                self._counts["read slowly"] += sum(map(len, polled.values()))
                with suppress(KafkaLogError):
                    await consumer.commit()
                await asyncio.sleep(2)


class _AbortError(Exception):
    """Ends a transaction that is to be aborted."""


async def shrink_internal_topics(manager: aio.AsyncLogManager, segment_bytes: str) -> None:
    """Let the cleaner clean Kafka's own topics within minutes: their segments have 100 MiB."""
    changes = {"segment.bytes": segment_bytes}
    for topic in ("__consumer_offsets", "__transaction_state"):
        while topic not in await manager.topics():
            await asyncio.sleep(RETRY_SECONDS)
        await manager.run(partial(_reconfigure, topic, changes))


def _reconfigure(topic: str, changes: dict[str, str], manager: LogManager) -> None:
    manager.reconfigure(topic, changes)


def line_of(work: Work, misuse: Misuse) -> str:
    """Return what both report as a line of JSON."""
    found = work.report()
    return json.dumps(found | {"acknowledged": found["acknowledged"] | misuse.acknowledged})


async def report(work: Work, misuse: Misuse) -> None:
    """Print a line each second."""
    while True:
        print(line_of(work, misuse), flush=True)
        await asyncio.sleep(REPORT_SECONDS)


async def act(request: Request) -> JSONResponse:
    """Perform an action of `Misuse`; answer with its result."""
    action = getattr(request.app.state.misuse, request.path_params["action"])
    return JSONResponse(await action())


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Open the manager, start the clients, and close both in order."""
    settings = json.loads(Path(sys.argv[3]).read_text())
    config = ManagerConfig.from_properties(settings["manager"])
    async with aio.open_manager([sys.argv[1]], config) as manager:
        for topic, count in TOPICS.items():
            await manager.create_topic(topic, count, exist_ok=True)
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": settings["compacted_bytes"],
        }
        await manager.create_topic("accounts", 1, compacted, exist_ok=True)
        async with manager.producer(
            wait="durable", on_full="raise", buffer_memory=settings["buffer"]
        ) as producer:
            app.state.manager, app.state.producer = manager, producer
            app.state.misuse = Misuse(manager, producer)
            pace, work = settings["pace"], Work(manager, producer)
            running = [
                *(work.write(number, 0.4 * pace) for number in range(TOPICS["orders"] - 1)),
                work.update(0.3 * pace),
                work.transfer(0.5 * pace),
                work.consume(),
                work.fall_back(),
                shrink_internal_topics(manager, settings["compacted_bytes"]),
                report(work, app.state.misuse),
            ]
            tasks = [asyncio.create_task(each) for each in running]
            for task in tasks:
                task.add_done_callback(_end_by_error)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                print(line_of(work, app.state.misuse), flush=True)


def _end_by_error(task: asyncio.Task[None]) -> None:
    """Print the error that ends a client: it must not end before the service."""
    if not task.cancelled() and (error := task.exception()) is not None:
        violation = f"a client of the service ended: {type(error).__name__}: {error}"
        print(json.dumps({"violations": [violation]}), flush=True)


def main() -> None:
    """Serve until a signal ends the process."""
    routes = runpy.run_path(str(SERVICE))["ROUTES"]
    app = Starlette(
        routes=[*routes, Route("/soak/{action}", act, methods=["POST"])], lifespan=lifespan
    )
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")


if __name__ == "__main__":
    main()
