"""Example that serves logs over loopback."""

from __future__ import annotations

import runpy
import socket
import struct
from pathlib import Path

import pytest

from tests.support.logs import manual_log, numbered

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "fetching.py")


def test_fetching_both_logs_are_read_completely(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain and compressed, with a buffer that is smaller than the first batch of each."""
    assert runpy.run_path(EXAMPLE)["main"]([]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("read {'plain-0': 1000, 'packed-0': 1000} with ")


def test_fetching_refused_partitions_leave_the_others_served(tmp_path: Path) -> None:
    """Errors have Kafka's numbers, and do not affect the connection or other partitions."""
    names = runpy.run_path(EXAMPLE)
    asyncio = names["asyncio"]

    async def session() -> list[tuple[int, int]]:
        with manual_log(tmp_path / "orders-0") as log:
            log.append(numbered(0, 3))
            size = log.segments()[0].size_bytes
            async with names["served"]({"orders-0": log}) as port:
                async with names["connected"](port) as client:
                    requests = [("no-0", 0, 99), ("orders-0", 9, 99), ("orders-0", 0, size)]
                    found = await client.fetch(requests)
                # A request that is none ends its connection, and no other.
                with socket.create_connection(("127.0.0.1", port)) as hostile:
                    hostile.setblocking(False)
                    loop = asyncio.get_running_loop()
                    await loop.sock_sendall(hostile, struct.pack(">ih", 2, 500))
                    assert await loop.sock_recv(hostile, 1) == b""
                async with names["connected"](port) as client:
                    found += await client.fetch([("orders-0", 3, 99)])
        assert size == len(found[2].message_set)
        return [(reply.error_code, bool(reply.message_set)) for reply in found]

    assert [(3, False), (1, False), (0, True), (0, False)] == asyncio.run(session())
