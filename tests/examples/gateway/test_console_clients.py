"""Kafka's own Java console clients against the gateway, and the same against a real broker."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.kafka_maven import KafkaInstall

from .clients import CLIENTS, CODECS, Librdkafka, sent
from .console import console_consume, console_produce
from .servers import Server

ROWS = [(f"key-{number}", f"value-{number} ".ljust(60, ".")) for number in range(40)]


def test_console_clients_write_and_read_each_codec(
    tools: KafkaInstall, server: Server, new_name: Callable[[], str]
) -> None:
    """Java's producer is idempotent by default; what it wrote every client reads."""
    topic = new_name()
    Librdkafka().create_topic(server.address, topic)
    for number, codec in enumerate(CODECS):
        rows = ROWS[8 * number :][:8]
        console_produce(tools, server.address, topic, rows, f"--compression-codec={codec}")
    assert ROWS == console_consume(tools, server.address, topic, len(ROWS))
    for client in CLIENTS:
        found = client.consume(server.address, topic, len(ROWS))
        read = [((each.key or b"").decode(), (each.value or b"").decode()) for each in found]
        assert ROWS == read


def test_console_consumer_reads_what_the_other_clients_wrote(
    tools: KafkaInstall, server: Server, new_name: Callable[[], str]
) -> None:
    """Every codec of every client, in one partition."""
    topic = new_name()
    Librdkafka().create_topic(server.address, topic)
    expected = []
    for number, (client, codec) in enumerate((c, k) for c in CLIENTS for k in CODECS):
        records = sent(12, 12 * number)
        client.produce(server.address, topic, records, codec=codec)
        expected += [
            tuple("null" if part is None else part.decode() for part in (each.key, each.value))
            for each in records
        ]
    assert expected == console_consume(tools, server.address, topic, len(expected))
