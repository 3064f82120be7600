"""A Spark of two threads for tests: small, silent, on this machine only, and gone afterwards.

Everything it writes is in one directory of the test run. Nothing here imports pyspark before a
session is asked for, so that the tests around it run where there is none.

`settings` is what a script that a test starts as a separate process gives its session, too.

A JVM spends a third of its time for Spark with loading classes. One run leaves an archive of them
in `build`, and later runs map it; its name has the versions of Java and Spark.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.bytecode import kept_bytecode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["class_archive", "environment", "settings", "start_session", "stop_session", "why_not"]

ROOT = Path(__file__).parents[2]
JAVA_MIN = 17
# Short programs end before the optimizing compiler would have paid; without it a JVM starts sooner
# and does long work at a third of the speed. The archive of classes is of these flags, too.
JAVA_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"

# Errors are shown, but not Spark's messages about tasks and queries that fail on purpose.
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {directory}/spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


@cache
def _java_says() -> str | None:
    """Return the output of `java -version`, None without Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    command = [java, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr


@cache
def why_not() -> str | None:
    """Return why there can be no Spark here, None where there can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    said = _java_says()
    if said is None:
        return f"no Java {JAVA_MIN} or later, which Spark needs"
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or later, and this is {said.splitlines()[:1]}"
    return None


def class_archive() -> Path:
    """Return where the archive of classes of this Java and this Spark is, once there is one."""
    key = f"{_java_says()} {version('pyspark')} {JAVA_FLAGS}"
    return ROOT / "build" / f"spark-classes-{zlib.crc32(key.encode()):08x}.jsa"


def _flags() -> str:
    archive = class_archive()
    mapped = f" -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off"
    return JAVA_FLAGS + (mapped if archive.exists() else "")


def environment(*, quick_start: bool = True) -> dict[str, str]:
    """
    Return what the processes around a session need: this Python, this package, no network.

    Args:
        quick_start: whether the JVM has the flags of tests, which make it start quickly and run
            slowly: what is measured must not have them.
    """
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = [str(ROOT), *(entry for entry in entries if entry != str(ROOT))]
    return {
        # Also for programs that start sessions by themselves.
        "SPARK_SUBMIT_OPTS": _flags() if quick_start else "",
        **kept_bytecode(),
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of a session that keeps its files in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING.format(directory=directory))
    java = (
        f"-Dlog4j2.configurationFile={logging} -Dderby.system.home={directory / 'derby'}"
        f" -Djava.io.tmpdir={directory} {_flags()}"
    )
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        # A worker may be long in coming where other tests keep the cores busy.
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.python.unix.domain.socket.enabled": "true",
        # A socket's name has 108 bytes at most, so it cannot lie deep in a directory of a test.
        "spark.python.unix.domain.socket.dir": "/tmp",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def start_session(directory: Path, *, leaves_archive: bool = False, **more: str) -> SparkSession:
    """
    Start a JVM and a session in it.

    Args:
        directory: for its files.
        leaves_archive: whether it leaves an archive of its classes, where there is none yet.
        more: settings, with underscores for their dots.
    """
    os.environ.update(environment())
    session_settings = settings(directory)
    if leaves_archive and not class_archive().exists():
        class_archive().parent.mkdir(exist_ok=True)
        session_settings["spark.driver.extraJavaOptions"] += (
            f" -XX:ArchiveClassesAtExit={_archive_of_now()}"
        )
    # Loading pyspark raises deprecation warnings of Python and pandas, which are its own.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("kafkalog-tests")
        for name, value in session_settings.items():
            builder = builder.config(name, value)
        for name, value in more.items():
            builder = builder.config(name.replace("_", "."), value)
        return builder.getOrCreate()


def _archive_of_now() -> Path:
    return class_archive().with_suffix(f".{os.getpid()}")


def stop_session(spark: SparkSession) -> None:
    """Stop a session and its JVM, and wait until the JVM is gone."""
    from pyspark import SparkContext

    with warnings.catch_warnings():
        # py4j leaves objects open until the process ends; we close them here.
        warnings.simplefilter("ignore")
        gateway = SparkContext._gateway
        spark.stop()
        if gateway is None:
            return
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()
        try:
            # It may have to write its archive.
            process.wait(timeout=120)
            if _archive_of_now().exists():
                _archive_of_now().replace(class_archive())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
        del gateway, process
        gc.collect()
