"""Spark's own Kafka connector: an older Spark in a separate environment, and its jars.

The connector's releases for Spark 4.1 to 4.3 are not on Maven Central, so that the newest pair is
Spark 4.0.0 with the connector of that name. It must not meet the Spark that kafkalog runs on, and
lives in `spark-connector-4.0.0` of the cache directory of `tests.interop.kafka_maven`: a virtual
environment made by this Python, and jars from Maven. Both come whole or not at all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.kafka_maven import (
    Project,
    cache_directory,
    cached,
    fetch_jars,
    run_fetcher,
)

__all__ = ["SPARK_VERSION", "fetch", "jars_of", "missing_reason", "python_of"]

SPARK_VERSION = "4.0.0"
SCALA_VERSION = "2.13"
INSTALL_TIMEOUT_SECONDS = 900
ENVIRONMENT = f"spark-connector-{SPARK_VERSION}"
CONNECTOR = f"spark-sql-kafka-0-10_{SCALA_VERSION}"
TOKENS = f"spark-token-provider-kafka-0-10_{SCALA_VERSION}"
JARS = Project(
    f"spark-connector-jars-{SPARK_VERSION}",
    (("org.apache.spark", CONNECTOR, SPARK_VERSION),),
    only=(CONNECTOR, TOKENS, "kafka-clients", "commons-pool2"),
)
# The first Python that this Spark does not know.
PYTHON_END = (3, 14)


def missing_reason() -> str | None:
    """Return why this Spark cannot run here; None if no reason is known."""
    if sys.version_info >= PYTHON_END and not (cache_directory() / ENVIRONMENT).is_dir():
        return f"Spark {SPARK_VERSION} does not run with Python {sys.version.split()[0]}"
    return None


def fetch() -> Path:
    """
    Return the directory of the environment, making it first if this is the first time.

    Raises:
        KafkaUnavailableError: a registry does not answer.
    """
    fetch_jars(JARS)
    return cached(ENVIRONMENT, make_environment)


def python_of(environment: Path) -> Path:
    """Return the interpreter of the environment."""
    return environment / "bin" / "python"


def jars_of(environment: Path) -> list[Path]:
    """Return the jars that a session of this Spark has to be given."""
    return sorted((environment.parent / JARS.name).glob("*.jar"))


def make_environment(scratch: Path) -> Path:
    """Make a virtual environment with this Spark; it is called by its interpreter, so may move."""
    environment = scratch / "environment"
    pip = [str(python_of(environment)), "-m", "pip", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [*pip, "install", "--quiet", f"pyspark=={SPARK_VERSION}"],
    ):
        run_fetcher(f"pip, for Spark {SPARK_VERSION},", command, INSTALL_TIMEOUT_SECONDS)
    return environment
