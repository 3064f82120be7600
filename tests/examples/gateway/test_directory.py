"""The data directory that the gateway leaves: this library's own, and readable by Kafka's tools."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kafkalog
from tests.interop.clients import ConsumedRecord
from tests.interop.kafka_maven import KafkaInstall
from tests.interop.tools import dump, segment_files

from .clients import CLIENTS, CODECS, as_consumed, sent
from .console import console_produce
from .servers import GatewayServer

NAMES = [f"{client.name}-{codec}" for client in CLIENTS for codec in CODECS]


def fill(server: GatewayServer) -> None:
    """Write a topic for each client and codec, in batches of several sizes."""
    for client in CLIENTS:
        for codec in CODECS:
            topic = f"{client.name}-{codec}"
            client.create_topic(server.address, topic)
            for first, count in ((0, 1), (1, 40), (41, 200)):
                records = sent(count, first)
                is_idempotent = first == 41
                client.produce(
                    server.address, topic, records, codec=codec, is_idempotent=is_idempotent
                )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a gateway that was stopped; not to be changed."""
    directory = tmp_path_factory.mktemp("stopped") / "data"
    with GatewayServer(directory, "--journal") as server:
        fill(server)
    return directory


def test_stopped_directory_has_every_record_and_its_codec(stopped: Path) -> None:
    """Without the gateway: each record as the client sent it, each batch in its codec."""
    assert (stopped / ".kafka_cleanshutdown").exists()
    with kafkalog.LogManager([stopped], read_only=True) as manager:
        assert set(NAMES) <= set(manager.topics())
        for name in NAMES:
            log = manager.log(name, 0)
            found = [
                ConsumedRecord(
                    each.offset,
                    each.timestamp_ms,
                    0,
                    each.key,
                    each.value,
                    each.headers,
                )
                for each in log.records()
            ]
            assert as_consumed(sent(241)) == found
            codecs = {batch.codec.name.lower() for batch in log.batches()}
            assert {name.partition("-")[2]} == codecs


@pytest.mark.interop
def test_stopped_directory_satisfies_dump_log_segments(
    kafka: KafkaInstall, tools: KafkaInstall, stopped: Path, tmp_path: Path
) -> None:
    """Kafka's own tool reads every segment, index and snapshot, and has no complaints."""
    shutil.copytree(stopped, tmp_path / "data")
    with GatewayServer(tmp_path / "data") as server:
        rows = [(f"key-{number}", "value") for number in range(100)]
        console_produce(tools, server.address, NAMES[0], rows, "--compression-codec=zstd")
    directories = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert {f"{name}-0" for name in NAMES} <= {path.name for path in directories}
    paths = [path for directory in directories for path in segment_files(directory)]
    found = dump(kafka, paths, deep=True)
    found.ensure_clean()
    for name in NAMES:
        [log] = segment_files(tmp_path / "data" / f"{name}-0", ".log")
        assert 241 + 100 * (name == NAMES[0]) == len(found.files[log].records)
