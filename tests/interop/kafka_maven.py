"""Fetch a real Apache Kafka from Maven Central, once, into a cache directory.

The cache is `.kafka/` beside `pyproject.toml`, or what KAFKALOG_KAFKA_CACHE names. A version is
there as a whole or not at all: jars are copied into a scratch directory, which is renamed when
Maven is done. Processes that fetch at the same time (xdist workers) wait for one file lock, and
all but the first find the work done.

Where Java 17 or Maven is missing the interop tests are skipped and pytest's summary says why; with
KAFKALOG_REQUIRE_KAFKA=1 they fail instead. A fetch that fails with both present is an error, never
a skip: a gate that cannot reach Maven Central has not tested anything and must not look green.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KafkaInstall", "KafkaUnavailableError", "fetch_kafka", "missing_reason"]

KAFKA_VERSION = "4.1.2"
SCALA_VERSION = "2.13"
# kafka_2.13 brings no SLF4J binding, and without one the broker logs nothing: not even "started".
SLF4J_VERSION = "1.7.36"
JAVA_VERSION_MIN = 17
FETCH_TIMEOUT_SECONDS = 400
PROJECT = Path(__file__).parents[2]

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkalog.interop</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_{SCALA_VERSION}</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>{SLF4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaUnavailableError(RuntimeError):
    """Kafka could not be fetched; the message carries what Maven said."""


@dataclass(frozen=True, slots=True)
class KafkaInstall:
    """The jars of one Kafka version, and how a main class of it is started."""

    libraries: Path
    version: str

    def command(self, main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
        """Return the command line for one of Kafka's programs; small heap, quick start."""
        return [
            "java",
            "-Xms64m",
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{self.libraries}/*",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            main_class,
            *arguments,
        ]

    def run(
        self, main_class: str, *arguments: str, timeout_seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's programs to its end; the caller judges its exit status."""
        return subprocess.run(
            self.command(main_class, *arguments),
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_seconds,
            check=False,
        )


def cache_directory() -> Path:
    """Return where fetched versions are kept."""
    chosen = os.environ.get("KAFKALOG_KAFKA_CACHE")
    return Path(chosen) if chosen else PROJECT / ".kafka"


def java_version() -> int | None:
    """Return the major version of the `java` on the path, or None where there is none."""
    if shutil.which("java") is None:
        return None
    answer = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def missing_reason() -> str | None:
    """Say what this machine lacks for running Kafka; None where nothing is missing."""
    version = java_version()
    if version is None:
        return "no `java` on the path: install a Java 17 runtime (Debian: openjdk-17-jre-headless)"
    if version < JAVA_VERSION_MIN:
        return f"Java {version} on the path, Kafka {KAFKA_VERSION} needs {JAVA_VERSION_MIN}"
    if not installed(cache_directory()) and shutil.which("mvn") is None:
        return "no `mvn` on the path to fetch Kafka with (Debian: apt install maven)"
    return None


def libraries_of(cache: Path) -> Path:
    return cache / f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}"


def installed(cache: Path) -> bool:
    return libraries_of(cache).is_dir()


def fetch_kafka() -> KafkaInstall:
    """Return the cached Kafka, fetching it first if this is the first time (about 10 s)."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed(cache):
            fetch_into(cache)
    return KafkaInstall(libraries_of(cache), KAFKA_VERSION)


def fetch_into(cache: Path) -> None:
    scratch = cache / "fetching"
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "jars").mkdir(parents=True)
    (scratch / "pom.xml").write_text(POM)
    run_maven(
        [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(scratch / "pom.xml"),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={scratch / 'jars'}",
        ]
    )
    if not any((scratch / "jars").glob(f"kafka_{SCALA_VERSION}-{KAFKA_VERSION}.jar")):
        raise KafkaUnavailableError(f"Maven ended well but left no Kafka in {scratch / 'jars'}")
    (scratch / "jars").rename(libraries_of(cache))
    shutil.rmtree(scratch)


def run_maven(command: Sequence[str]) -> None:
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(
            f"Maven did not fetch Kafka within {FETCH_TIMEOUT_SECONDS} s"
        ) from error
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr)[-2000:]
        raise KafkaUnavailableError(
            f"Maven could not fetch Kafka {KAFKA_VERSION} (exit status {answer.returncode}); "
            f"without a network run the tests with -m 'not interop'. It said:\n{said}"
        )
