"""A service is killed while clients send numbered requests: each request is stored once."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogManager
from tests.support.numbered_service import PARTITIONS, ServiceClient, start_service

CLIENTS = 6
REQUESTS = 120
KILLS = 4


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """A short path: that of a socket has at most 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="kl") as directory:
        yield Path(directory) / "service"


def test_requests_of_a_killed_service_are_stored_once(tmp_path: Path, socket_path: Path) -> None:
    """Clients repeat what has no answer; the answers are the offsets of the one time."""
    answered = threading.Semaphore(0)

    def work(number: int) -> tuple[int, list[tuple[list[str], dict[str, Any]]]]:
        client, found = ServiceClient(socket_path, f"client {number}"), []
        for request in range(REQUESTS):
            values = [f"{number} {request} {record}" for record in range(1 + request % 4)]
            found.append((values, client.send(number % PARTITIONS, values)))
            answered.release()
        client.close()
        return client.repeated, found

    service = start_service(tmp_path, socket_path)
    try:
        with ThreadPoolExecutor(CLIENTS) as threads:
            results = [threads.submit(work, number) for number in range(CLIENTS)]
            for _ in range(KILLS):
                for _ in range(CLIENTS * REQUESTS // (KILLS + 1)):
                    assert answered.acquire(timeout=200)
                service.kill()
                service.wait()
                service = start_service(tmp_path, socket_path)
            outcomes = [each.result() for each in results]
    finally:
        service.kill()
        service.wait()
    assert sum(repeated for repeated, _found in outcomes) >= KILLS
    with LogManager([tmp_path]) as manager:
        logs = [manager.log("orders", each) for each in range(PARTITIONS)]
        stored = [[(each.value or b"").decode() for each in log.records()] for log in logs]
        assert len(logs[0].segments()) > 1
    sent = [value for _repeated, found in outcomes for values, _answer in found for value in values]
    assert Counter(sent) == Counter(value for values in stored for value in values)
    for _repeated, found in outcomes:
        for values, answer in found:
            first = answer["first_offset"]
            assert values == stored[answer["partition"]][first : first + len(values)]
