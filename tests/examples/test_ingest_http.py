"""The ingestion service of `examples/ingest_http`: answers, kills under load, a stop in order."""

from __future__ import annotations

import ast
import asyncio
import http.client
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog

pytest.importorskip("uvicorn", reason="uvicorn and starlette are not installed")

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "examples" / "ingest_http" / "service.py"
START_SECONDS = 60


class Service:
    """
    The service in a process, which is started on the same port again after a kill.

    Attributes:
        port: its port.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; return when it answers."""
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVICE), str(self.directory), str(self.port)], env=environment
        )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.request("GET", "/health")
            except OSError:
                assert time.monotonic() < end, "the service does not answer"
                time.sleep(0.05)
            else:
                return

    def end(self, number: int) -> int:
        """End the process by a signal; return its status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(START_SECONDS)

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def running(directory: Path) -> Iterator[Service]:
    """Run a service; kill it at the end, unless it was ended."""
    service = Service(directory)
    service.start()
    try:
        yield service
    finally:
        service.end(signal.SIGKILL)


def stored(directory: Path) -> Counter[bytes]:
    """Return how often each event is in the log."""
    with kafkalog.LogManager([directory]) as manager:
        return Counter(
            record.value or b""
            for partition in range(8)
            for record in manager.log("events", partition).records()
        )


def test_answers_of_the_service(tmp_path: Path) -> None:
    """Both kinds of bodies, repeated requests, refusals, metrics, and a stop in order."""
    with running(tmp_path / "data") as service:
        status, body = service.request("POST", "/topics/events", b"one\ntwo\n")
        assert (200, 2) == (status, sum(each["record_count"] for each in json.loads(body)))
        frames = b"".join(struct.pack(">I", len(each)) + each for each in (b"a\nb", b""))
        kind = {"Content_Type": "application/octet-stream"}
        assert 200 == service.request("POST", "/topics/events", frames, **kind)[0]
        numbered = {"Producer": "me", "Sequence": "0"}
        first = json.loads(service.request("POST", "/topics/events", b"x\ny", **numbered)[1])
        again = json.loads(service.request("POST", "/topics/events", b"x\ny", **numbered)[1])
        assert [{**each, "is_duplicate": True} for each in first] == again
        for expected, path, data, headers in (
            (404, "none", b"x", {}),
            (400, "events", frames[:-1], kind),
            (400, "events", frames + b"1", kind),
            (400, "events", b"x", {"Producer": "me", "Sequence": "many"}),
            (413, "events", b"x" * (1 << 20) + b"x", {}),
        ):
            assert expected == service.request("POST", f"/topics/{path}", data, **headers)[0]
        # A gap in the numbers of a client is not stored.
        numbered["Sequence"] = "7"
        assert 503 == service.request("POST", "/topics/events", b"z", **numbered)[0]
        text = service.request("GET", "/metrics")[1].decode()
        assert 'kafkalog_log_appended_records_total{topic="events"' in text
        assert (200, b"[]") == service.request("GET", "/health")
        service.end(signal.SIGTERM)
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    found = stored(tmp_path / "data")
    assert Counter([b"one", b"two", b"a\nb", b"", b"x", b"y"]) == found


def kill_under_load(directory: Path, seconds: float, kills: int, clients: int) -> int:
    """Kill and restart the service under load; check what it has; return the number of events."""
    load: Any = runpy.run_path(str(SERVICE.with_name("load.py")))["load"]
    service = Service(directory)
    service.start()

    async def run() -> list[Any]:
        loading = asyncio.create_task(load(service.port, seconds, clients))
        for _ in range(kills):
            await asyncio.sleep(seconds / (kills + 1))
            await asyncio.to_thread(service.end, signal.SIGKILL)
            await asyncio.to_thread(service.start)
        found: list[Any] = await loading
        return found

    try:
        found = asyncio.run(run())
    finally:
        service.end(signal.SIGKILL)
    answered = [event for each in found for event in each.answered]
    events = stored(directory)
    assert len(set(answered)) == len(answered)
    assert not set(answered) - set(events)
    assert set(events.values()) == {1}
    return len(answered)


def test_killed_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Twice; the clients send unanswered requests again."""
    assert kill_under_load(tmp_path / "data", 3.0, 2, 8) > 100


@pytest.mark.slow
def test_killed_often_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The same for longer, with more clients."""
    assert kill_under_load(tmp_path / "data", 40.0, 12, 64) > 1_000


def test_application_code_is_short() -> None:
    """At most 60 lines, without blank lines, imports and the docstring of the module."""
    text = SERVICE.read_text()
    tree = ast.parse(text)
    skipped = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    left = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    for each in (tree.body[0], *skipped):
        left -= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    assert len(left) <= 60
