"""The stage of a soak: volumes, programs and clients, and how bad input reports its answers.

Two services work on a volume each, and each has a follower. `embedded` lives as long as the run;
`ingest`, the unchanged example, is ended and started again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkalog import LogManager
from tests.soak.numbered import missing_records
from tests.soak.programs import Program, free_port
from tests.soak.volume import Volume
from tests.soak.web import Answer, NumberedClient, exchange, metric

__all__ = ["Outcome", "Pace", "Service", "Stage"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ingest_http" / "service.py"
START_SECONDS = 60
DELIVERY_SECONDS = 60
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Pace:
    """
    Sizes and times of a run.

    Attributes:
        volume_bytes: size of each bounded file system.
        clients: numbered HTTP clients of each service.
        pause: mean seconds between two requests of a client.
        between: seconds between two faults.
        hold: seconds for which a disk stays full.
        sample: seconds between two samples.
        segment_bytes, retention_bytes, retention_ms: of the topics.
        buffer_bytes: `buffer.memory` of the embedded service.
    """

    volume_bytes: int = 256 << 20
    clients: int = 6
    pause: float = 0.25
    between: float = 25.0
    hold: float = 8.0
    sample: float = 10.0
    segment_bytes: int = 256 << 10
    retention_bytes: int = 2 << 20
    retention_ms: int = 240_000
    buffer_bytes: int = 2 << 20

    def settings(self) -> dict[str, Any]:
        """Return the settings of the embedded service."""
        manager = {
            "kafkalog.journal.enable": "true",
            "kafkalog.journal.bytes": 8 << 20,
            "kafkalog.health.free.bytes": 8 << 20,
            "log.initial.task.delay.ms": 2000,
            "log.retention.check.interval.ms": 3000,
            "log.segment.bytes": self.segment_bytes,
            "log.retention.bytes": self.retention_bytes,
            "log.retention.ms": self.retention_ms,
            "log.segment.delete.delay.ms": 3000,
            "log.cleaner.backoff.ms": 2000,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            "log.cleaner.min.cleanable.ratio": 0.3,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
        }
        return {
            "manager": {name: str(value) for name, value in manager.items()},
            "compacted_bytes": str(self.segment_bytes // 2),
            "buffer": self.buffer_bytes,
            "pace": self.pause / Pace.pause,
        }


@dataclass
class Outcome:
    """
    One piece of bad input.

    Attributes:
        fault: its kind.
        at: seconds since the start of the run.
        seconds: its duration.
        answers: what was answered, with numbers.
        longest: seconds of the longest wait for one answer.
        metrics: figures that showed it.
        problems: sentences; empty if everything was as it must be.
    """

    fault: str
    at: float
    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    metrics: dict[str, float | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def answer(self, text: str, seconds: float = 0.0) -> None:
        """Count an answer."""
        self.answers[text] += 1
        self.longest = max(self.longest, seconds)

    def expect(self, is_as_expected: bool, problem: str) -> None:
        """Record a problem unless something is as it must be."""
        if not is_as_expected:
            self.problems.append(problem)

    def show(self, name: str, value: float | None, *, is_shown: bool) -> None:
        """Record the figure of a metric, which must show the fault."""
        self.metrics[name] = value
        self.expect(is_shown, f"{name} is {value}: it does not show the fault")


class Service:
    """
    A service with its volume, its follower and its clients.

    Attributes:
        port: its port.
        program, follower: the processes.
        clients: numbered clients; `probe` is used by faults only.
    """

    def __init__(self, name: str, volume: Volume, folder: Path, pace: Pace, seed: int) -> None:
        self.name = name
        self.volume = volume
        self.port = free_port()
        self._settings = folder / f"{name}.json"
        self._settings.write_text(json.dumps(pace.settings()))
        words: list[str | Path] = [EXAMPLE, volume.data, str(self.port)]
        if name == "embedded":
            words = ["-m", "tests.soak.embedded", *words[1:], self._settings]
        self.program = Program(name, words, folder / f"{name}.log")
        self.follower = Program(
            f"follower of {name}",
            ["-m", "tests.soak.follower", volume.data, folder / f"{name}.state"],
            folder / f"follower-{name}.log",
        )
        names = [f"{name}-{number}" for number in range(pace.clients)]
        self.clients = [NumberedClient(each, self.port, seed) for each in names]
        self.probe = NumberedClient(f"{name}-probe", self.port, seed)
        self.others: list[NumberedClient] = []

    def acknowledged(self) -> dict[str, int]:
        """Return, by client, the number of records that were acknowledged."""
        found = dict(self.program.report.get("acknowledged", {}))
        return found | {
            each.name: each.acknowledged for each in (*self.clients, self.probe, *self.others)
        }

    async def start(self) -> float:
        """Start the service; return the seconds until it answered."""
        begun = time.monotonic()
        await self.program.start()
        while (await self.get("/health")).status not in (200, 503):
            if time.monotonic() - begun > START_SECONDS or self.program.pid is None:
                raise OSError(f"{self.name} does not answer after its start")
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - begun

    async def get(self, path: str) -> Answer:
        """Return the answer to a GET."""
        return await exchange(self.port, "GET", path)

    async def act(self, action: str, outcome: Outcome) -> str:
        """Let the embedded service perform an action; count and return its answer."""
        answer = await exchange(self.port, "POST", f"/soak/{action}", b"x")
        if answer.status != 200:
            outcome.answer(f"{action}: status {answer.status}", answer.seconds)
            return ""
        found = json.loads(answer.body)
        outcome.answer(f"{action}: {found['answer']}", found["seconds"])
        return str(found["answer"])

    async def metric(self, name: str, label: str = "") -> float | None:
        """Return the sum of a metric, now."""
        return metric((await self.get("/metrics")).body.decode(), name, label)

    async def wait_for(
        self, name: str, condition: Callable[[float], bool], seconds: float, label: str = ""
    ) -> tuple[float | None, bool]:
        """Scrape until a metric fulfils a condition; return its last value, and if it did."""
        end = time.monotonic() + seconds
        while True:
            value = await self.metric(name, label)
            if value is not None and condition(value):
                return value, True
            if time.monotonic() > end:
                return value, False
            await asyncio.sleep(POLL_SECONDS)

    async def undelivered(self, seconds: float = DELIVERY_SECONDS) -> list[str]:
        """Wait until the follower has seen all that is acknowledged now; return what is missing."""
        acknowledged, end = self.acknowledged(), time.monotonic() + seconds
        while True:
            missing = missing_records(acknowledged, self.follower.report.get("next_numbers", {}))
            if not missing or time.monotonic() > end:
                return missing
            await asyncio.sleep(POLL_SECONDS)


class Stage:
    """
    Everything of a run.

    Attributes:
        embedded, ingest: the services.
        random: source of all choices.
        is_bounded: True if the volumes are file systems that can be filled.
    """

    def __init__(self, folder: Path, pace: Pace, seed: int, *, is_bounded: bool) -> None:
        self.pace = pace
        self.is_bounded = is_bounded
        self.random = random.Random(seed)
        size = pace.volume_bytes if is_bounded else None
        self.embedded, self.ingest = (
            Service(name, Volume(folder, f"volume-{name}", size), folder, pace, seed)
            for name in ("embedded", "ingest")
        )
        self.services = (self.embedded, self.ingest)
        self.begun = time.monotonic()

    async def open(self) -> None:
        """Make the volumes, and start all programs."""
        for service in self.services:
            await asyncio.to_thread(service.volume.make)
            service.volume.data.mkdir()
        await asyncio.to_thread(self._prepare)
        for service in self.services:
            await service.start()
            await service.follower.start()

    async def close(self) -> None:
        """End everything that still runs, and unmount."""
        for service in self.services:
            for program in (service.follower, service.program):
                if program.pid is not None:
                    await program.end()
            service.volume.free()
            await asyncio.to_thread(service.volume.unmount)

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.monotonic() - self.begun

    def _prepare(self) -> None:
        """Give the topic of the example small segments and retention: it keeps the defaults."""
        pace = self.pace
        settings = {
            "segment.bytes": str(pace.segment_bytes),
            "retention.bytes": str(pace.retention_bytes),
            "retention.ms": str(pace.retention_ms),
            "file.delete.delay.ms": "3000",
        }
        with LogManager([self.ingest.volume.data]) as manager:
            manager.create_topic("events", 8, settings)
