"""The two servers that clients are tried with: the gateway of the examples, and a real broker.

Both have an address, which stays over a restart, and a data directory. Each ends with its test: a
context manager stops it, and where `setpriv` exists the kernel kills it with the process that
started it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka.admin import AdminClient

from tests.interop.broker import (
    Broker,
    LineWatcher,
    format_directory,
    free_ports,
    start_watched,
)
from tests.interop.kafka_maven import KafkaInstall

__all__ = ["BrokerServer", "GatewayServer", "Server"]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "examples" / "kafka_gateway" / "gateway.py"
READY = "listening on 127.0.0.1:"
WAIT_SECONDS = 30


class Server(Protocol):
    """Interface of both servers."""

    name: str
    directory: Path

    @property
    def address(self) -> str:
        """`host:port` for clients."""

    @property
    def process_id(self) -> int:
        """Process of the server, which has to run."""

    def stop(self) -> None:
        """Stop it in order."""

    def restart(self) -> None:
        """Stop it in order, and start it again on the same directory."""

    def restart_killed(self) -> None:
        """Kill it, and start it again on the same directory."""


class GatewayServer:
    """
    A process of the gateway; a restart is on the same port.

    Attributes:
        directory: its data directory.
        port: 0 until it has started for the first time.
    """

    name = "gateway"

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._watcher: LineWatcher | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """Output of the process, over all its starts."""
        return self.directory.with_name(self.directory.name + ".gateway.log")

    @property
    def process_id(self) -> int:
        """Process of the gateway, which has to run."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and wait until it serves."""
        command = [sys.executable, "-u", str(PROGRAM), str(self.directory), str(self.port)]
        command += self._options
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process, self._watcher = start_watched(command, self.log_path, READY, environment)
        if not self._watcher.wait(WAIT_SECONDS):
            self.kill()
            raise AssertionError(f"the gateway did not start:\n{self.log_path.read_text()[-3000:]}")
        self.port = int(re.findall(READY + r"(\d+)", self.log_path.read_text())[-1])

    def stop(self) -> None:
        """Request an orderly end (SIGTERM); its exit status must be 0."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"exit status {status}:\n{self.log_path.read_text()[-3000:]}"

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it in order, and start it again on the same port."""
        self.stop()
        self.start()

    def restart_killed(self) -> None:
        """Kill it, and start it again on the same port."""
        self.kill()
        self.start()

    def memory_bytes(self) -> int:
        """Return the memory that is resident (VmRSS)."""
        status = Path(f"/proc/{self.process_id}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def socket_count(self) -> int:
        """Return how many sockets it has open: connections and a few others."""
        count = 0
        for path in Path(f"/proc/{self.process_id}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += str(path.readlink()).startswith("socket:")
        return count

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _end(self, number: int) -> int:
        assert self._process is not None
        assert self._watcher is not None
        self._process.send_signal(number)
        try:
            status = self._process.wait(WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait(WAIT_SECONDS)
            self._watcher.join()
            self._process = self._watcher = None
        return status


class BrokerServer:
    """
    A real broker, with the same means; a restart is on the same ports.

    Args:
        install: the broker's jars.
        directory: becomes its data directory.
        settings: of the broker, in addition.
    """

    name = "broker"

    def __init__(
        self, install: KafkaInstall, directory: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._port, controller_port = free_ports(2)
        client = f"PLAINTEXT://{self.address}"
        every = {
            # On a busy machine a short session ends, and the broker answers with errors for a time.
            "broker.session.timeout.ms": "20000",
            **(settings or {}),
            "listeners": f"{client},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": client,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        }
        format_directory(install, directory, every)
        self._broker = Broker(install, directory, settings=every)

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int:
        """Process of the broker, which has to run."""
        return self._broker.process_id

    def stop(self) -> None:
        """Stop it in order."""
        self._broker.stop()

    def restart(self) -> None:
        """Stop it in order, and start it again."""
        self._broker.stop()
        self._start()

    def restart_killed(self) -> None:
        """Kill it, and start it again."""
        self._broker.kill()
        self._start()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.__exit__(kind, error, trace)

    def _start(self) -> None:
        self._broker.start()
        admin = AdminClient({"bootstrap.servers": self.address})
        end = time.monotonic() + WAIT_SECONDS
        # A broker that has just started is in no metadata yet.
        while not admin.list_topics(timeout=WAIT_SECONDS).brokers:
            assert time.monotonic() < end, "the broker is in no metadata"
            time.sleep(0.1)
