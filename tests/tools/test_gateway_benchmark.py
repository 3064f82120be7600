"""Tests of the comparison of a gateway with a broker: cores, work, CPU time, one side."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("kio", reason="kio is not installed")

from asv_bench.peers import gateway
from asv_bench.peers.common import Comparison, make_records
from asv_bench.peers.long_running import LongRunning
from asv_bench.peers.results import Result
from asv_bench.suite import needs
from tests.examples.gateway.servers import GatewayServer
from tests.interop import kafka_maven


@pytest.fixture
def side(tmp_path: Path) -> Iterator[gateway.Side]:
    """A gateway with its clients."""
    with GatewayServer(tmp_path / "data") as server:
        found = gateway.Side(server, {})
        yield found
        found.close()


@pytest.mark.parametrize(
    ("cores", "clients", "servers"),
    [([3], [3], [3]), ([0, 1], [0], [1]), ([0, 1, 2], [0], [1, 2]), ([0, 2, 4, 6], [0, 2], [4, 6])],
)
def test_cores_are_shared_by_halves(
    cores: list[int], clients: list[int], servers: list[int]
) -> None:
    """Both servers have the same cores, of an odd number one more than the client."""
    assert (clients, servers) == gateway.split_cores(cores)


def test_messages_are_spread_over_all_partitions() -> None:
    """Every record once, in chunks."""
    records = make_records(25_000, 10)
    chunks = gateway.messages_of(records)
    assert [10_000, 10_000, 5_000] == [len(chunk) for chunk in chunks]
    rows = [row for chunk in chunks for row in chunk]
    assert (records.keys, records.values) == (
        [row["key"] for row in rows],
        [row["value"] for row in rows],
    )
    assert set(range(gateway.PARTITIONS)) == {row["partition"] for row in rows}


def test_cpu_seconds_of_a_process_grow_with_its_work() -> None:
    """Of this process, which is busy until the counter has moved."""
    before = gateway.cpu_seconds(os.getpid())
    end = time.monotonic() + 60
    while gateway.cpu_seconds(os.getpid()) == before:
        assert time.monotonic() < end


def test_side_writes_and_reads_every_record(side: gateway.Side) -> None:
    """In each codec and acknowledgement that is measured, through a gateway that runs."""
    messages = gateway.messages_of(make_records(1000, 100))
    side.create("work")
    for codec in gateway.CODECS:
        for acks in (1, -1):
            side.timed(partial(side.produce, "work", messages, codec, acks))()
    assert 4000 == side.stored_count("work")
    side.consume("work", 4000)
    assert 4 == len(side.cpu_seconds)


def test_notes_have_both_rates_and_the_cpu_time_of_both(side: gateway.Side) -> None:
    """Runs that are not measured are left out; a round without a tick of the clock has no ratio."""
    names = (gateway.GATEWAY, gateway.BROKER)
    comparison = Comparison("100 B, none", 1024, {name: lambda: None for name in names}, [])
    for ours, expected in ((0.5, 1), (0.0, 0)):
        sides = dict.fromkeys(names, side)
        comparison.notes.clear()
        found = gateway.noted(comparison, sides, "consume")
        assert comparison is next(found)
        comparison.seconds = {gateway.GATEWAY: [0.5, 0.5], gateway.BROKER: [0.25, 0.25]}
        side.cpu_seconds.extend([9.0, ours, 0.5])
        assert [] == list(found)
        text, *results = comparison.notes
        assert "consume, 100 B, none, MiB/s: gateway 2, broker 4" == text
        assert expected == len(results)
        for result in results:
            assert isinstance(result, Result)
            assert ("", 2) == (result.goal, len(result.ours))


def test_broker_without_a_compiler_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kafka` needs `javac`, `broker` does not."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(kafka_maven, "missing_reason", lambda: None)
    install = kafka_maven.KafkaInstall(Path("jars"), "1")
    monkeypatch.setattr(kafka_maven, "fetch_kafka", lambda: install)
    assert ["--kafka", "jars"] == needs.fetch_all(["broker"])
    with pytest.raises(needs.MissingError, match="javac"):
        needs.fetch_all(["kafka"])


def test_long_running_program_has_no_switches_of_tests() -> None:
    """A JVM that is measured has its default collector and both compilers."""
    install = LongRunning(Path("jars"), "1")
    command = install.command("kafka.Kafka", "file", heap="512m", leaves_archive=True)
    assert {"-Xmx512m", "kafka.Kafka", "file"} <= set(command)
    assert not [word for word in command if word.startswith(("-XX", "-Xms"))]
    assert dataclasses.is_dataclass(install)
