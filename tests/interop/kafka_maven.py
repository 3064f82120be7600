"""Cache of Apache Kafka releases and other jars, fetched once from Maven Central.

The cache is `.kafka/` next to `pyproject.toml`, or the directory in KAFKALOG_KAFKA_CACHE. A version
exists as a whole or not at all: jars are copied into a scratch directory, which is renamed at the
end of Maven. Processes that fetch at the same time (xdist workers) wait for one file lock, and all
but the first find the version.

A JVM spends half of the time of a short program of Kafka on loading classes. The first broker that
is stopped leaves an archive of its classes in the cache, and later programs map it; its name
contains the version of Java.

Without Java 17 or Maven the interop tests are skipped with a reason in pytest's summary; with
KAFKALOG_REQUIRE_KAFKA=1 they fail instead. A fetch that fails with both present is an error, never
a skip: a gate that cannot reach Maven Central has not tested anything and must not look green.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "TOOLS",
    "KafkaInstall",
    "KafkaUnavailableError",
    "Project",
    "cache_directory",
    "cached",
    "fetch_jars",
    "fetch_kafka",
    "fetch_tools",
    "missing_reason",
    "run_fetcher",
]

KAFKA_VERSION = "4.1.2"
SCALA_VERSION = "2.13"
# kafka_2.13 brings no SLF4J binding, and without one the broker logs nothing: not even "started".
SLF4J_VERSION = "1.7.36"
JAVA_VERSION_MIN = 17
FETCH_TIMEOUT_SECONDS = 400
PROJECT = Path(__file__).parents[2]

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkalog.interop</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>"""


class KafkaUnavailableError(RuntimeError):
    """Kafka could not be fetched; the message contains the output of Maven."""


@dataclass(frozen=True, slots=True)
class Project:
    """
    Jars that are fetched together.

    Attributes:
        name: of the directory in the cache.
        dependencies: group, artifact and version; the first one's jar shows that they are there.
        only: artifacts to keep, of those and what they need; all that runs if empty.
    """

    name: str
    dependencies: tuple[tuple[str, str, str], ...]
    only: tuple[str, ...] = ()

    @property
    def pom(self) -> str:
        """Project file for Maven."""
        listed = (
            DEPENDENCY.format(group=group, artifact=artifact, version=version)
            for group, artifact, version in self.dependencies
        )
        return POM.format(dependencies="".join(listed))

    @property
    def first_jar(self) -> str:
        """Name of the file without which nothing was fetched."""
        _group, artifact, version = self.dependencies[0]
        return f"{artifact}-{version}.jar"


def project_of(version: str) -> Project:
    """Return the broker of a version of Kafka."""
    return Project(
        f"kafka_{SCALA_VERSION}-{version}",
        (
            ("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
            ("org.slf4j", "slf4j-simple", SLF4J_VERSION),
        ),
    )


KAFKA = project_of(KAFKA_VERSION)
# Kafka's command line programs, which its broker does not need.
TOOLS = Project(
    f"kafka-tools-{KAFKA_VERSION}",
    (
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", SLF4J_VERSION),
    ),
)


@dataclass(frozen=True, slots=True)
class KafkaInstall:
    """The jars of one Kafka version, and how a main class of it is started."""

    libraries: Path
    version: str

    @property
    def class_archive(self) -> Path:
        """Path of the archive of classes for this Java, which may not exist yet."""
        java = zlib.crc32((java_says() or "").encode())
        return self.libraries.with_name(f"{self.libraries.name}-classes-{java:08x}.jsa")

    @property
    def _archive_of_now(self) -> Path:
        return self.class_archive.with_suffix(f".{os.getpid()}")

    def keep_archive(self) -> None:
        """Let later programs map the archive of a program that has ended, if it left one."""
        if self._archive_of_now.exists():
            self._archive_of_now.replace(self.class_archive)

    def command(
        self, main_class: str, *arguments: str, heap: str = "256m", leaves_archive: bool = False
    ) -> list[str]:
        """
        Return the command line for one of Kafka's programs; small heap, quick start.

        Args:
            main_class: the program.
            arguments: its own.
            heap: the most that it may have.
            leaves_archive: whether it leaves an archive of its classes at its end, where there is
                none yet; `keep_archive` takes it.
        """
        flags: list[str] = []
        if self.class_archive.exists():
            # Of an archive that does not fit nothing is reported: the program only starts later.
            flags = [f"-XX:SharedArchiveFile={self.class_archive}", "-Xlog:disable"]
        elif leaves_archive:
            flags = [f"-XX:ArchiveClassesAtExit={self._archive_of_now}", "-Xlog:disable"]
        return [
            "java",
            "-Xms64m",
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *flags,
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


def java_says() -> str | None:
    """Return the version output of the `java` on the path, or None without one."""
    java = shutil.which("java")
    return None if java is None else _said_by(java)


@cache
def _said_by(java: str) -> str:
    answer = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    return answer.stderr + answer.stdout


def java_version() -> int | None:
    """Return the major version of the `java` on the path, or None where there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', java_says() or "")
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def missing_reason(project: Project = KAFKA) -> str | None:
    """Return what this machine lacks for Kafka's jars; None if nothing is missing."""
    version = java_version()
    if version is None:
        return "no `java` on the path: install a Java 17 runtime (Debian: openjdk-17-jre-headless)"
    if version < JAVA_VERSION_MIN:
        return f"Java {version} on the path, Kafka {KAFKA_VERSION} needs {JAVA_VERSION_MIN}"
    if not (cache_directory() / project.name).is_dir() and shutil.which("mvn") is None:
        return "no `mvn` on the path to fetch Kafka with (Debian: apt install maven)"
    return None


def fetch_kafka(version: str = KAFKA_VERSION) -> KafkaInstall:
    """Return a cached Kafka, fetching it first if this is the first time (about 10 s)."""
    return KafkaInstall(fetch_jars(project_of(version)), version)


def fetch_tools() -> KafkaInstall:
    """Return Kafka's command line programs, fetching them first if this is the first time."""
    return KafkaInstall(fetch_jars(TOOLS), KAFKA_VERSION)


def fetch_jars(project: Project) -> Path:
    """Return the directory of a project's jars, fetching them first if this is the first time."""
    return cached(project.name, lambda scratch: fetch_into(scratch, project))


def cached(name: str, fetch: Callable[[Path], Path]) -> Path:
    """
    Return a directory of the cache, which is there as a whole or made now.

    Args:
        name: of the directory.
        fetch: fills a scratch directory; returns what of it is to be kept.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / name).is_dir():
            scratch = cache / "fetching"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            fetch(scratch).rename(cache / name)
            shutil.rmtree(scratch, ignore_errors=True)
    return cache / name


def fetch_into(scratch: Path, project: Project) -> Path:
    jars = scratch / "jars"
    jars.mkdir(parents=True)
    (scratch / "pom.xml").write_text(project.pom)
    only = [f"-DincludeArtifactIds={','.join(project.only)}"] if project.only else []
    run_maven(
        [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(scratch / "pom.xml"),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            *only,
            f"-DoutputDirectory={jars}",
        ]
    )
    if not (jars / project.first_jar).exists():
        raise KafkaUnavailableError(f"Maven ended well but left no {project.first_jar} in {jars}")
    return jars


def run_maven(command: Sequence[str]) -> None:
    run_fetcher("Maven", command, FETCH_TIMEOUT_SECONDS)


def run_fetcher(name: str, command: Sequence[str], timeout_seconds: float) -> None:
    """
    Run a program that fetches something from a registry.

    Raises:
        KafkaUnavailableError: it failed; its output is in the lines after the first.
    """
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"{name} was not done within {timeout_seconds} s") from error
    if answer.returncode != 0:
        said = (answer.stdout + answer.stderr)[-2000:]
        raise KafkaUnavailableError(
            f"{name} could not fetch what was asked of it (exit status {answer.returncode}); "
            f"without a network run the tests with -m 'not interop'. Its output:\n{said}"
        )
