"""Java process of a benchmark: one source file of ours, run with Kafka's jars."""

from __future__ import annotations

from pathlib import Path

from asv_bench.peers.line_process import LineProcess


class JavaProcess(LineProcess):
    """The process; see `LineProcess`."""

    def __init__(self, source: Path, jars: Path, *arguments: str) -> None:
        command = ["java", "-XX:+UseG1GC", "-Xms1g", "-Xmx4g", "-cp", f"{jars}/*"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", str(source), *arguments]
        super().__init__(command)
