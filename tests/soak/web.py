"""HTTP of a soak: one request with every kind of bad behaviour, a numbered client, metrics.

Thread-safety: none; all belong to one event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tests.soak.numbered import record_values

__all__ = ["GONE", "Answer", "NumberedClient", "exchange", "head_of", "metric"]

HOST = "127.0.0.1"
# Longest time that a service may take for any answer.
ANSWER_SECONDS = 20.0
RETRY_SECONDS = 0.2
EVENTS_MAX = 12
# Status of a request whose service is not there, or ended before its answer.
GONE = 0
# Status of a request without an answer in time.
LATE = -1


class Answer(NamedTuple):
    """Status and body of an answer, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float


def head_of(method: str, path: str, length: int | None, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request; without a length if that is None."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def exchange(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    headers: Mapping[str, str] | None = None,
    length: int | None = -1,
    pause: float = 0,
) -> Answer:
    """
    Send a request over a separate connection, and return its answer.

    Args:
        port, method, path, body, headers: the request.
        length: the length that the head names; that of the body if -1, no length if None.
        pause: seconds between pieces of body and answer, for slow clients.
    """
    begun = time.monotonic()
    head = head_of(method, path, len(body) if length == -1 else length, headers or {})
    try:
        async with asyncio.timeout(ANSWER_SECONDS + 100 * pause):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(head)
                await _send(writer, body, pause)
                answer = await _receive(reader, pause)
            finally:
                writer.transport.abort()
    except TimeoutError:
        return Answer(LATE, b"", time.monotonic() - begun)
    except (OSError, EOFError):
        return Answer(GONE, b"", time.monotonic() - begun)
    top, _, rest = answer.partition(b"\r\n\r\n")
    status = int(top.split(b" ")[1]) if top.startswith(b"HTTP/") else GONE
    return Answer(status, rest, time.monotonic() - begun)


async def _send(writer: asyncio.StreamWriter, body: bytes, pause: float) -> None:
    size = max(len(body) // 10, 1) if pause else len(body) or 1
    for at in range(0, len(body), size):
        writer.write(body[at : at + size])
        await asyncio.sleep(pause)
    try:
        await writer.drain()
    except OSError:
        # The service has answered before it read everything: the answer is there.
        return


async def _receive(reader: asyncio.StreamReader, pause: float) -> bytes:
    found = b""
    while True:
        try:
            piece = await reader.read(4096 if pause else 1 << 20)
        except OSError:
            return found
        if not piece:
            return found
        found += piece
        await asyncio.sleep(pause)


class NumberedClient:
    """
    Client that numbers its records, and sends a request until it is acknowledged.

    Attributes:
        name: of its records.
        acknowledged: number of records that are acknowledged.
        statuses: by status, the number of answers.
        longest: seconds of the longest wait for an answer.
    """

    def __init__(self, name: str, port: int, seed: int) -> None:
        self.name = name
        self.acknowledged = 0
        self.statuses: Counter[int] = Counter()
        self.longest = 0.0
        self._port = port
        self._random = random.Random(f"{seed} {name}")

    def request(self, count: int) -> tuple[bytes, dict[str, str]]:
        """Return body and headers of the next records."""
        headers = {"Producer": self.name, "Sequence": str(self.acknowledged)}
        return b"\n".join(record_values(self.name, self.acknowledged, count)), headers

    async def post(self, count: int, *, pause: float = 0) -> int:
        """Send the next records once; return the status."""
        body, headers = self.request(count)
        answer = await exchange(
            self._port, "POST", "/topics/events", body, headers=headers, pause=pause
        )
        self.statuses[answer.status] += 1
        if answer.status not in (GONE, LATE) and not pause:
            self.longest = max(self.longest, answer.seconds)
        if answer.status == 200:
            self.acknowledged += count
        return answer.status

    async def vanish(self, count: int, share: float) -> None:
        """Send a share of the next request, and end the connection without an answer."""
        body, headers = self.request(count)
        sent = head_of("POST", "/topics/events", len(body), headers) + body
        try:
            _, writer = await asyncio.open_connection(HOST, self._port)
            writer.write(sent[: int(len(sent) * share)])
            await asyncio.sleep(self._random.uniform(0, 0.02))
            writer.transport.abort()
        except OSError:
            return

    async def deliver(self, count: int, seconds: float) -> bool:
        """Send the next records until they are acknowledged; return False after so long."""
        end = time.monotonic() + seconds
        while await self.post(count) != 200:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(RETRY_SECONDS)
        return True

    async def run(self, pause: float, stop: asyncio.Event) -> None:
        """Send until the end; one request in a hundred vanishes once before it is repeated."""
        while not stop.is_set():
            count = self._random.randrange(1, EVENTS_MAX)
            if self._random.random() < 0.01:
                await self.vanish(count, self._random.choice((0.6, 1.0)))
            while await self.post(count) != 200 and not stop.is_set():
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))


def metric(text: str, name: str, label: str = "") -> float | None:
    """Return the sum of the samples of a metric whose labels have a text; None without one."""
    found = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name} ", f"{name}{{")) and label in line
    ]
    return sum(found) if found else None
