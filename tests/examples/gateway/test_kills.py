"""SIGKILL of the server under an idempotent producer, which continues on the same port."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kafkalog
from tests.interop.available import skip_without_kafka
from tests.interop.kafka_maven import fetch_kafka

from .clients import Librdkafka
from .servers import BrokerServer, GatewayServer, Server

TOPIC = "numbers"
PARTITIONS = 3
IN_FLIGHT_MAX = 2_000
BETWEEN_KILLS = 3_000
WAIT_SECONDS = 120.0
KILLS = int(os.environ.get("KAFKALOG_GATEWAY_KILLS", "6"))


class Load:
    """
    A thread that produces numbers until it is stopped, each partition has its share in order.

    Every record has to be acknowledged in the end: the producer sends it again until it is.
    """

    def __init__(self, address: str, codec: str) -> None:
        settings = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 2,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(settings)
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.sent_count = self.acknowledged_count = 0
        self.errors: list[str] = []
        self._thread.start()

    def wait_for_acknowledged(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        with self._changed:
            target = self.acknowledged_count + count
            came = self._changed.wait_for(
                lambda: self.errors or self.acknowledged_count >= target, WAIT_SECONDS
            )
        assert came, f"{self.acknowledged_count} of {target} records were acknowledged"
        assert [] == self.errors

    def stop(self) -> int:
        """Wait until all is acknowledged; return how many records were sent."""
        self._is_stopping = True
        self._thread.join(WAIT_SECONDS)
        assert 0 == self._producer.flush(WAIT_SECONDS)
        assert [] == self.errors
        assert self.sent_count == self.acknowledged_count
        return self.sent_count

    def _run(self) -> None:
        while not self._is_stopping and not self.errors:
            if len(self._producer) >= IN_FLIGHT_MAX:
                self._producer.poll(0.01)
                continue
            number = self.sent_count
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self.sent_count += 1
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        with self._changed:
            if error is not None:
                self.errors.append(f"{message.value()!r}: {error}")
            else:
                self.acknowledged_count += 1
            self._changed.notify_all()


def kill_under_load(server: Server, kills: int, codec: str) -> list[list[int]]:
    """Kill and restart the server; return the numbers in each partition, as a consumer sees."""
    Librdkafka().create_topic(server.address, TOPIC, PARTITIONS)
    load = Load(server.address, codec)
    for _ in range(kills):
        load.wait_for_acknowledged(BETWEEN_KILLS)
        server.restart_killed()
    load.wait_for_acknowledged(BETWEEN_KILLS)
    count = load.stop()
    found = []
    for partition in range(PARTITIONS):
        expected = list(range(partition, count, PARTITIONS))
        records = Librdkafka().consume(server.address, TOPIC, len(expected), partition=partition)
        assert expected == [int(each.value or b"") for each in records]
        assert list(range(len(expected))) == [each.offset for each in records]
        found.append(expected)
    return found


def ensure_stored(directory: Path, expected: list[list[int]]) -> None:
    """Check the records of a stopped server, without it."""
    with kafkalog.LogManager([directory]) as manager:
        for partition, numbers in enumerate(expected):
            log = manager.log(TOPIC, partition)
            assert numbers == [int(each.value or b"") for each in log.records()]


@pytest.mark.parametrize("options", [(), ("--journal",)], ids=["plain", "journal"])
def test_gateway_killed_under_load_loses_and_repeats_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Twice; every record is acknowledged in the end, is there once, and in order."""
    with GatewayServer(tmp_path / "data", *options) as server:
        found = kill_under_load(server, 2, "lz4")
    ensure_stored(tmp_path / "data", found)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_gateway_killed_often_under_load_loses_and_repeats_nothing(
    tmp_path: Path, codec: str
) -> None:
    """KAFKALOG_GATEWAY_KILLS times (6), with the journal where the codec is zstd."""
    options = ("--journal",) if codec == "zstd" else ()
    with GatewayServer(tmp_path / "data", *options) as server:
        found = kill_under_load(server, KILLS, codec)
    ensure_stored(tmp_path / "data", found)


@pytest.mark.interop
@pytest.mark.slow
def test_broker_killed_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The same of a real broker: the test expects no more of the gateway."""
    skip_without_kafka()
    settings = {"broker.session.timeout.ms": "1500"}
    with BrokerServer(fetch_kafka(), tmp_path / "data", settings) as server:
        kill_under_load(server, 2, "lz4")
