"""Load for the service: clients that number their requests, and send them again until answered.

    python examples/ingest_http/load.py [PORT [SECONDS [CLIENTS]]]

Prints the requests a second, and the times of half and of 99 in 100 of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

EVENTS, EVENT_BYTES = 10, 200


class Client:
    """
    One client with a separate connection.

    Attributes:
        answered: the events that the service has acknowledged.
        seconds: time of each answered request, with those that were sent again.
    """

    def __init__(self, port: int, number: int) -> None:
        self.name = f"client-{number}-{os.getpid()}-{time.time_ns()}"
        self.answered: list[bytes] = []
        self.seconds: list[float] = []
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until: float) -> None:
        """Send requests up to a time of the monotonic clock; then close the connection."""
        while time.monotonic() < until:
            first = len(self.answered)
            events = [b"%s %d " % (self.name.encode(), first + each) for each in range(EVENTS)]
            events = [each.ljust(EVENT_BYTES, b".") for each in events]
            begun = time.perf_counter()
            while (status := await self._post(first, b"\n".join(events))) != 200:
                if 400 <= status < 500 and status != 429:
                    raise RuntimeError(f"status must be 200, got {status}")
                await asyncio.sleep(0.05)
            self.seconds.append(time.perf_counter() - begun)
            self.answered += events
        self._close()

    async def _post(self, first: int, body: bytes) -> int:
        """Send one request; return its status, or 0 if the service is gone."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            head = (
                "POST /topics/events HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Length: {len(body)}\r\nProducer: {self.name}\r\nSequence: {first}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            fields = answer.lower().split(b"content-length:")
            await reader.readexactly(int(fields[1].split(b"\r\n")[0]))
            return int(answer.split(b" ")[1])
        except (OSError, EOFError, IndexError, ValueError):
            self._close()
            return 0

    def _close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


async def load(port: int, seconds: float, client_count: int) -> list[Client]:
    """Run clients at the same time; return them."""
    clients = [Client(port, number) for number in range(client_count)]
    until = time.monotonic() + seconds
    await asyncio.gather(*(each.run(until) for each in clients))
    return clients


def main(arguments: list[str]) -> int:
    """Put load on a service, and print what it did."""
    port, seconds, count = (*map(int, arguments), *(8080, 5, 64)[len(arguments) :])
    clients = asyncio.run(load(port, seconds, count))
    times = sorted(second for each in clients for second in each.seconds)
    half, most = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"{len(times) / seconds:,.0f} requests a second of {EVENTS} events", end="; ")
    print(f"half within {half * 1000:.1f} ms, 99 % within {most * 1000:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
