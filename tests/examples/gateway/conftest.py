"""Fixtures: each client against the gateway, and against a real broker where there is Java.

What a test expects of the gateway is so shown to be what a broker does. Tests of the broker are
marked `interop`; they run in one process, which starts one broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytest.importorskip("aiokafka", reason="aiokafka is not installed")
pytest.importorskip("kio", reason="kio is not installed")

from tests.interop.available import skip_without_kafka
from tests.interop.kafka_maven import TOOLS, KafkaInstall, fetch_kafka, fetch_tools

from .clients import CLIENTS, Client
from .servers import BrokerServer, GatewayServer, Server

BROKER = pytest.param(
    "broker", marks=[pytest.mark.interop, pytest.mark.xdist_group("gateway-broker")]
)
NAMES = itertools.count()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """One gateway for all tests of this process that do not stop it for good."""
    with GatewayServer(tmp_path_factory.mktemp("gateway") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    """One broker; skips where Java or Maven is absent (fails if the gate requires it)."""
    skip_without_kafka()
    with BrokerServer(fetch_kafka(), tmp_path_factory.mktemp("broker") / "data") as server:
        yield server


@pytest.fixture(params=["gateway", BROKER])
def server(request: pytest.FixtureRequest) -> Server:
    """The gateway, and a real broker."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn."""
    found: Client = request.param
    return found


@pytest.fixture(scope="session")
def kafka() -> KafkaInstall:
    """Kafka's programs for data directories; skips as `broker` does."""
    skip_without_kafka()
    return fetch_kafka()


@pytest.fixture(scope="session")
def tools() -> KafkaInstall:
    """Kafka's command line clients; skips as `broker` does."""
    skip_without_kafka(TOOLS)
    return fetch_tools()


@pytest.fixture
def topic(server: Server, client: Client) -> str:
    """A new topic with one partition, made by the client."""
    name = f"topic-{next(NAMES)}"
    client.create_topic(server.address, name)
    return name


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names of topics that no other test of this process has."""
    return lambda: f"topic-{next(NAMES)}"
