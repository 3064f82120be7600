"""Fixtures of the interop tests: one fetched Kafka, and templates of its data directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from .available import skip_without_kafka
from .foreign import BrokerTemplates
from .kafka_maven import KafkaInstall, fetch_kafka

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory: `-m "not interop"` leaves them all out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def kafka() -> KafkaInstall:
    """A real Apache Kafka; skips where Java or Maven is absent (fails if the gate requires it)."""
    skip_without_kafka()
    return fetch_kafka()


@pytest.fixture(scope="session")
def templates(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> BrokerTemplates:
    """Stopped data directories with topics in them, made once per session."""
    return BrokerTemplates(kafka, tmp_path_factory.mktemp("brokers"))
