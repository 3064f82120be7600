"""Needs of groups besides Python packages: Kafka's jars, a Spark, an older Spark with a connector.

Absent needs are reported before anything is fetched, and what cannot be fetched before anything is
started. Jars and environments are kept in the cache directory of `tests.interop.kafka_maven`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from asv_bench.peers import connector
from tests.interop import kafka_maven
from tests.support import spark_session

__all__ = ["NEEDS", "MissingError", "fetch_all"]

# `broker` runs Kafka's own programs, `kafka` also a Java source of ours, which needs a compiler.
NEEDS = ("kafka", "broker", "spark", "connector")


class MissingError(Exception):
    """This machine lacks something, or cannot fetch it; the message is for a reader of the page."""


def fetch_all(needed: Sequence[str]) -> list[str]:
    """
    Fetch what is needed; return the arguments that locate it for a module.

    Raises:
        MissingError: something is absent.
    """
    for need in needed:
        reason = _why_missing(need)
        if reason is not None:
            raise MissingError(reason)
    try:
        return [argument for need in needed for argument in _fetched(need)]
    except kafka_maven.KafkaUnavailableError as error:
        raise MissingError(str(error).splitlines()[0]) from error


def _why_missing(need: str) -> str | None:
    if need == "spark":
        return spark_session.why_not()
    if need == "connector":
        return kafka_maven.missing_reason() or connector.missing_reason()
    if need == "kafka" and shutil.which("javac") is None:
        return "no `javac` on the path: install a JDK (Debian: openjdk-17-jdk-headless)"
    return kafka_maven.missing_reason()


def _fetched(need: str) -> list[str]:
    if need in ("kafka", "broker"):
        return ["--kafka", str(kafka_maven.fetch_kafka().libraries)]
    if need == "connector":
        jars = str(kafka_maven.fetch_kafka().libraries)
        return ["--connector", str(connector.fetch()), "--kafka", jars]
    return []
