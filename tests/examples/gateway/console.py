"""Kafka's console clients, each as a program with its own JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.interop.kafka_maven import KafkaInstall

__all__ = ["console_consume", "console_produce"]

TIMEOUT_SECONDS = 120


def console_produce(
    tools: KafkaInstall,
    address: str,
    topic: str,
    rows: Sequence[tuple[str, str]],
    *options: str,
) -> None:
    """Send (key, value) rows, without line ends and vertical bars in keys, by the producer."""
    run(
        tools,
        "org.apache.kafka.tools.ConsoleProducer",
        f"--bootstrap-server={address}",
        f"--topic={topic}",
        "--property=parse.key=true",
        "--property=key.separator=|",
        *options,
        text="".join(f"{key}|{value}\n" for key, value in rows),
    )


def console_consume(
    tools: KafkaInstall, address: str, topic: str, count: int, *options: str
) -> list[tuple[str, str]]:
    """Return (key, value) of the first `count` records of partition 0; None is `null`."""
    output = run(
        tools,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        f"--bootstrap-server={address}",
        f"--topic={topic}",
        "--partition=0",
        "--offset=earliest",
        f"--max-messages={count}",
        "--timeout-ms=30000",
        "--property=print.key=true",
        "--property=key.separator=|",
        *options,
    )
    rows = (line.partition("|") for line in output.splitlines())
    return [(key, value) for key, _bar, value in rows]


def run(tools: KafkaInstall, main_class: str, *arguments: str, text: str = "") -> str:
    """Run a program to its end; return its standard output."""
    answer = subprocess.run(
        tools.command(main_class, *arguments, leaves_archive=True),
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    tools.keep_archive()
    assert answer.returncode == 0, f"{answer.stdout[-1000:]}{answer.stderr[-3000:]}"
    errors = [line for line in answer.stderr.splitlines() if "ERROR" in line]
    assert not errors, "\n".join(errors)
    return answer.stdout
