"""One Apache Kafka broker process: format, start, wait until it answers, stop or kill.

KRaft, one node that is broker and controller, on loopback with free ports. The voters are static
(`controller.quorum.voters`), so a formatted data directory may be copied and started again on
other ports: nothing in it remembers them. Retention, cleaner and checkpoint tasks are kept away,
so a broker changes foreign data only where a test asks for it.

A broker never outlives its test: the context manager stops it, and where `setpriv` exists the
kernel kills it with the process that started it. Every wait has a limit.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .kafka_maven import KafkaInstall

__all__ = ["Broker", "BrokerError", "format_directory"]

READY_LINE = "Kafka Server started"
START_TIMEOUT_SECONDS = 90
STOP_TIMEOUT_SECONDS = 60
START_ATTEMPTS = 3
CLUSTER_ID = "kafkalogInteropTests00"

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.backoff.ms": "100000000",
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "100000000",
    # A broker killed by a test is forgotten sooner: a restart need not wait 9 s for the old one.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
}


class BrokerError(RuntimeError):
    """The broker did not do its task; the message ends with the last lines of its log."""


class Broker:
    """
    A broker on one data directory.

    >>> with Broker(install, directory) as broker:          # doctest: +SKIP
    ...     consume(broker.address, "orders", 0)

    Thread-safety: one thread starts and stops it; any may use `address`.
    """

    def __init__(
        self, install: KafkaInstall, directory: Path, *, settings: Mapping[str, str] | None = None
    ) -> None:
        self.install = install
        self.directory = directory
        self.settings = dict(settings or {})
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._watcher: LineWatcher | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """True if it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        """Process of the broker, which has to run."""
        return self._running()[0].pid

    @property
    def log_path(self) -> Path:
        """Standard output and error of the broker, over all its starts."""
        return self.directory.with_name(self.directory.name + ".broker.log")

    def start(self) -> None:
        """Start and wait until it serves; if its port is taken, start again with another."""
        if self._process is not None:
            raise BrokerError("the broker runs already")
        for attempt in range(1, START_ATTEMPTS + 1):
            if self._start_once():
                return
            lines = self._give_up()
            if attempt == START_ATTEMPTS or "Address already in use" not in lines:
                raise BrokerError(f"the broker on {self.directory} did not start:\n{lines}")

    def stop(self) -> None:
        """Request an orderly shutdown (SIGTERM) and wait for its end."""
        process, watcher = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            lines = self._give_up()
            raise BrokerError(f"no end {STOP_TIMEOUT_SECONDS} s after SIGTERM:\n{lines}") from error
        watcher.join()
        self._process = self._watcher = None
        self.install.keep_archive()

    def kill(self) -> None:
        """End it with SIGKILL: what a crash of the process leaves stays on the disk."""
        self._running()
        self._give_up()

    def log_text(self) -> str:
        """Return everything the broker has logged so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

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
            self._give_up()

    def _start_once(self) -> bool:
        ports = free_ports(2)
        self.port = ports[0]
        properties = write_properties(self.directory, ports, self.settings)
        command = self.install.command(
            "kafka.Kafka", str(properties), heap="512m", leaves_archive=True
        )
        self._process, self._watcher = start_watched(command, self.log_path, READY_LINE)
        return self._watcher.wait(START_TIMEOUT_SECONDS)

    def _running(self) -> tuple[subprocess.Popen[str], LineWatcher]:
        if self._process is None or self._watcher is None:
            raise BrokerError("the broker does not run")
        return self._process, self._watcher

    def _give_up(self) -> str:
        process, watcher = self._running()
        process.kill()
        process.wait(STOP_TIMEOUT_SECONDS)
        watcher.join()
        self._process = self._watcher = None
        return "\n".join(self.log_text().splitlines()[-30:])


class LineWatcher:
    """Copies the output of a process to a file in a thread, and signals one line in it."""

    def __init__(self, source: IO[str], target: Path, text: str) -> None:
        self._source = source
        self._target = target
        self._text = text
        self._seen = False
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="broker-log", daemon=True)
        self._thread.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Return True when the line came, False when the output ended or the time was over."""
        self._changed.wait(timeout_seconds)
        return self._seen

    def join(self) -> None:
        self._thread.join(STOP_TIMEOUT_SECONDS)

    def _copy(self) -> None:
        with self._source, self._target.open("a") as target:
            for line in self._source:
                target.write(line)
                target.flush()
                if self._text in line:
                    self._seen = True
                    self._changed.set()
        self._changed.set()


def start_watched(
    command: Sequence[str],
    log_path: Path,
    text: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[str], LineWatcher]:
    """
    Start a server, which the kernel kills with this process where `setpriv` exists.

    Args:
        command: its command line.
        log_path: gets its standard output and error.
        text: in the line by which it states that it serves.
        environment: its environment; that of this process if None.
    """
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "KILL", *command]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=None if environment is None else dict(environment),
    )
    assert process.stdout is not None
    return process, LineWatcher(process.stdout, log_path, text)


def format_directory(
    install: KafkaInstall, directory: Path, settings: Mapping[str, str] | None = None
) -> None:
    """Make `directory`, or those of the settings, a data directory of a fresh cluster (0.8 s)."""
    directory.mkdir(parents=True)
    properties = write_properties(directory, free_ports(2), settings or {})
    answer = install.run(
        "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)
    )
    if answer.returncode != 0:
        raise BrokerError(f"StorageTool format failed:\n{answer.stdout}{answer.stderr}")


def write_properties(directory: Path, ports: Sequence[int], settings: Mapping[str, str]) -> Path:
    """Write the broker's configuration next to its data directory; return the path."""
    port, controller_port = ports
    client = f"PLAINTEXT://127.0.0.1:{port}"
    chosen = {
        **SETTINGS,
        "listeners": f"{client},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": client,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(directory),
        **settings,
    }
    path = directory.with_name(directory.name + ".properties")
    path.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
    return path


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports that were free a moment ago; held together, so they differ."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(holder.getsockname()[1] for holder in holders)
    for holder in holders:
        holder.close()
    return ports
