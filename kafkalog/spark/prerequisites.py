"""Checks for the prerequisites of Spark: pyspark with its Arrow, and Java.

Without them Spark reports its own errors, few of which name the cause.

Thread-safety: reads from the machine, and changes nothing. Nothing here imports pyspark.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError

__all__ = ["JAVA_MIN", "require_java", "require_pyspark"]

JAVA_MIN: Final = 17


def require_pyspark() -> None:
    """
    Check that pyspark and pyarrow can be imported.

    Raises:
        KafkaLogSparkError: SPARK_MISSING.
    """
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise KafkaLogSparkError(
                ErrorCode.SPARK_MISSING,
                f"{name} is not installed: pip install 'kafkalog[spark]' brings it",
                package=name,
            )


def require_java() -> int:
    """
    Return the version of the Java that Spark is going to start.

    Raises:
        KafkaLogSparkError: JAVA_MISSING if there is none, or one before JAVA_MIN.
    """
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None or not Path(java).is_file():
        where = (
            f"JAVA_HOME is {java_home}, which has none"
            if java_home
            else "there is none on the PATH"
        )
        raise _missing(where, java_home)
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        ).stderr
    except OSError as error:
        raise _missing(f"{java} does not start: {error}", java_home) from error
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    version = 0 if found is None else int(found[1])
    if version < JAVA_MIN:
        raise _missing(f"{java} is {output.partition(chr(10))[0] or 'silent'}", java_home)
    return version


def _missing(why: str, java_home: str | None) -> KafkaLogSparkError:
    return KafkaLogSparkError(
        ErrorCode.JAVA_MISSING,
        f"Spark needs Java {JAVA_MIN} or later: {why}; install one, and let JAVA_HOME name it",
        java_home=java_home,
    )
