"""A service with an event loop is killed: what it acknowledged is stored, and nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.loops import values_of

ROOT = Path(__file__).resolve().parents[2]
SERVICE = """
import asyncio, os, sys
from kafkalog import aio

async def client(producer, number):
    sent = 0
    while True:
        keys = [b"%s %d %d %d" % (sys.argv[2].encode(), number, sent, row) for row in range(10)]
        await producer.send_many("t", keys, keys)
        os.write(1, b"".join(key + b"\\n" for key in keys))
        sent += 1

async def main():
    async with aio.open_manager([sys.argv[1]]) as manager:
        await manager.create_topic("t", 8, exist_ok=True)
        producer = manager.producer(wait="durable")
        await asyncio.gather(*(client(producer, number) for number in range(16)))

asyncio.run(main())
"""


def acknowledged_by_service(path: Path, name: str, lines: int) -> set[bytes]:
    """Run the service until it has acknowledged so many records, and kill it; return all."""
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(path), name],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert service.stdout is not None
    found = [service.stdout.readline() for _ in range(lines)]
    service.send_signal(signal.SIGKILL)
    found += service.stdout.readlines()
    service.wait()
    service.stdout.close()
    return {line[:-1] for line in found if line.endswith(b"\n")}


def test_killed_service_stored_what_it_acknowledged(tmp_path: Path) -> None:
    """Three times in a row, at different times."""
    acknowledged: set[bytes] = set()
    for number, lines in enumerate((100, 500, 1500)):
        acknowledged |= acknowledged_by_service(tmp_path / "data", str(number), lines)
        stored = values_of(tmp_path / "data")
        assert len(stored) == len(set(stored))
        assert acknowledged <= set(stored)
    assert len(acknowledged) >= 2100
