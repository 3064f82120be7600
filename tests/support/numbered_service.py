"""A service that stores numbered requests of its clients, as a process that a test may kill.

    python -m tests.support.numbered_service DATA_DIRECTORY SOCKET

A request and its answer are lines of JSON over a Unix socket. A client that gets no answer connects
again and repeats its request with the same number.

Thread-safety: a client belongs to one thread.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kafkalog import LogManager, ManagerConfig, Producer, ProducerSequence

__all__ = ["ServiceClient", "start_service"]

PARTITIONS = 3
# Small segments and frequent removals: a kill meets rolls, retention and checkpoints.
SETTINGS = {"log.segment.bytes": "20000", "log.flush.offset.checkpoint.interval.ms": "50"}


class Server(socketserver.ThreadingUnixStreamServer):
    """The service: a thread for each client."""

    daemon_threads = True
    producer: Producer


class Handler(socketserver.StreamRequestHandler):
    """Answers the requests of one client."""

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        for line in self.rfile:
            request = json.loads(line)
            number = ProducerSequence.of_name(request["name"], sequence=request["sequence"])
            values = [each.encode() for each in request["values"]]
            sent = self.server.producer.send_many(
                "orders", None, values, partition=request["partition"], number=number
            )
            self.wfile.write(json.dumps(sent.result(60)[0]._asdict()).encode() + b"\n")


def serve(directory: Path, path: Path) -> None:
    """Serve until the process is killed."""
    manager = LogManager([directory], ManagerConfig.from_properties(SETTINGS))
    if "orders" not in manager.topics():
        manager.create_topic("orders", PARTITIONS)
    with Server(str(path), Handler) as server:
        server.producer = manager.producer(wait="durable", linger_ms=0)
        server.serve_forever()


def start_service(directory: Path, path: Path) -> subprocess.Popen[bytes]:
    """Start the service; clients connect to the path once it is there."""
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.support.numbered_service", str(directory), str(path)]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


class ServiceClient:
    """
    A client, which repeats a request until it has an answer.

    Args:
        path: the socket of the service.
        name: its name.

    Attributes:
        repeated: number of requests that were sent more than once.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.repeated = 0
        self._path = path
        self._name = name
        self._sequence = 0
        self._connection: socket.socket | None = None

    def send(self, partition: int, values: list[str]) -> dict[str, Any]:
        """Send a request; return where its records are."""
        request = {
            "name": self._name,
            "sequence": self._sequence,
            "partition": partition,
            "values": values,
        }
        line = json.dumps(request).encode() + b"\n"
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = self._exchange(line)
            except OSError:
                assert time.monotonic() < deadline, "the service does not answer"
                self.repeated += 1
                self.close()
                time.sleep(0.01)
                continue
            self._sequence += len(values)
            return answer

    def close(self) -> None:
        """Leave the service."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX)
            self._connection = connection
            connection.settimeout(60)
            connection.connect(str(self._path))
        self._connection.sendall(line)
        answer = b""
        while not answer.endswith(b"\n"):
            received = self._connection.recv(65536)
            if not received:
                raise ConnectionResetError
            answer += received
        found: dict[str, Any] = json.loads(answer)
        return found


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
