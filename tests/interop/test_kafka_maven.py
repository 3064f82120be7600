"""Messages of the fetcher on an incomplete machine; needs neither Java nor Maven."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import kafka_maven
from .kafka_maven import KafkaUnavailableError, missing_reason, run_maven


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the whole search path, and an empty cache."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("KAFKALOG_KAFKA_CACHE", str(tmp_path / "cache"))
    return directory


def put_java(directory: Path, version: str) -> None:
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)


def test_missing_reason_without_java_names_the_package(programs: Path) -> None:
    """The reason names the missing program."""
    assert "openjdk-17-jre-headless" in (missing_reason() or "")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_missing_reason_with_old_java_names_both_versions(
    programs: Path, version: str, major: int
) -> None:
    """Old and new version schemes of Java are understood."""
    put_java(programs, version)

    assert f"Java {major} on the path, Kafka 4.1.2 needs 17" == missing_reason()


def test_missing_reason_without_maven_depends_on_the_cache(programs: Path) -> None:
    """Maven is needed for fetching only: a filled cache serves without it."""
    put_java(programs, "17.0.15")

    assert "no `mvn` on the path" in (missing_reason() or "")
    (kafka_maven.cache_directory() / kafka_maven.KAFKA.name).mkdir(parents=True)
    assert missing_reason() is None


def test_run_maven_failed_raises_with_its_output() -> None:
    """A fetch that fails must not look like a machine without Maven."""
    failing = [sys.executable, "-c", "print('no route to repo'); raise SystemExit(1)"]

    with pytest.raises(KafkaUnavailableError, match="no route to repo"):
        run_maven(failing)


def test_fetch_kafka_again_uses_the_cached_version(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second to come finds the version there and starts no Maven."""
    calls: list[list[str]] = []

    def fake(command: list[str]) -> None:
        calls.append(list(command))
        target = Path(command[-1].partition("=")[2])
        (target / "kafka_2.13-4.1.2.jar").write_bytes(b"")

    monkeypatch.setattr(kafka_maven, "run_maven", fake)
    first = kafka_maven.fetch_kafka()
    second = kafka_maven.fetch_kafka()

    assert first == second
    assert 1 == len(calls)
    assert ["kafka_2.13-4.1.2.jar"] == [path.name for path in first.libraries.iterdir()]
