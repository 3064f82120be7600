"""Relays without Java: library and an emulated loader of a broker take a compacted log in turn.

The library's legs are processes that are killed while they append, roll and compact, half of them
at a change of a name by which segments are exchanged, which takes a moment only. The broker's legs
treat what is left as the loader of Kafka 4 does (`tests.support.broker_loader`), and append and
clean by its rules. After each leg the latest values are read by the library and by a reader of the
emulation's own, which interprets nothing but names and headers.

`python -m tests.proof.loader_relays SEED DIRECTORY PREFIX` is the library's leg.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkalog import (
    BatchView,
    CleanerConfig,
    KafkaLogError,
    LogConfig,
    Record,
    compact_log,
    open_log,
)
from kafkalog.files.posix import PosixFileSystem
from tests.proof.harness import ROOT, Proof
from tests.proof.relay_history import History
from tests.support.broker_loader import EmulatedBroker, raw_batches

__all__ = ["main", "run"]

LEGS_OF_RELAY = 8
WAIT_SECONDS = 120
# Time after which a process that has not ended writes the stacks of its threads.
STACKS_SECONDS = 110
KEYS = 60
START_MS = 1_700_000_000_000
MEMORY_BYTES = 1 << 20
# Suffixes of files during an exchange of segments.
SUFFIXES = (".cleaned", ".swap", ".deleted", ".covered")

Latest = dict[str, str]


def run(proof: Proof) -> None:
    """Run relays until the time is over."""
    number = 0
    while proof.seconds_left() > 0:
        _relay(proof, proof.folder / f"loader-relay-{number}" / "latest-0")
        proof.count("relays with an emulated loader")
        number += 1


def _relay(proof: Proof, directory: Path) -> None:
    directory.mkdir(parents=True)
    history = History()
    for leg in range(LEGS_OF_RELAY):
        problems = _library_leg(proof, directory, history, leg)
        problems += _differences(history, _loaded_by_headers(directory), "the emulation")
        if not problems:
            _broker_leg(proof, directory, history, leg)
            problems = _differences(history, _by_headers(directory), "the emulation")
            with open_log(directory, read_only=True) as log:
                found = {_text(each.key): _text(each.value) for each in log.records()}
            problems += _differences(history, found, "the library")
        for problem in problems:
            proof.broken(problem.split(":")[0], f"leg {leg}: {problem}", [directory.parent])
        if problems or proof.seconds_left() <= 0:
            break
    shutil.rmtree(directory.parent, ignore_errors=True)


def _differences(history: History, found: Latest, reader: str) -> list[str]:
    """Return what is wrong with the latest values; what was seen is certain from here on."""
    latest = history.latest["latest"]
    wrong = [key for key, may in latest.items() if found.get(key, "") not in may]
    for key, value in found.items():
        latest[key] = [value]
    if not wrong:
        return []
    sample = [(key, found.get(key)) for key in sorted(wrong)[:3]]
    return [f"latest values are wrong: {reader} has {len(wrong)} others, such as {sample}"]


def _library_leg(proof: Proof, directory: Path, history: History, leg: int) -> list[str]:
    seed = str(proof.random.getrandbits(31))
    command = [sys.executable, "-m", "tests.proof.loader_relays", seed, str(directory), f"L{leg}"]
    is_killed = proof.random.random() < 0.8
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        end = process.kill if is_killed else process.stdin.close
        timer = threading.Timer(proof.random.uniform(0.01, 0.6), end)
        hangs = threading.Event()

        def end_hanging() -> None:
            hangs.set()
            process.kill()

        watchdog = threading.Timer(WAIT_SECONDS, end_hanging)
        watchdog.start()
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            what, *arguments = json.loads(line)
            proof.count(f"library: {what}")
            if what == "open":
                timer.start()
            elif what == "try":
                history.try_renew("latest", *arguments)
            elif what == "done":
                history.renew("latest", *arguments)
        text = process.stderr.read().decode(errors="replace")[-1500:]
        process.wait(WAIT_SECONDS)
        watchdog.cancel()
    was_killed = process.returncode == -signal.SIGKILL
    proof.count("kills of the library" if was_killed else "stops of the library")
    if hangs.is_set():
        stacks = text or "no stack: it was still being imported"
        return [f"the library hangs: it did not end within {WAIT_SECONDS} s: {stacks}"]
    if process.returncode not in (0, -signal.SIGKILL):
        return [f"the library failed: it ended with {process.returncode}: {text}"]
    return []


def _broker_leg(proof: Proof, directory: Path, history: History, leg: int) -> None:
    # It is not stopped in order, and leaves no marker.
    (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
    broker = EmulatedBroker(PosixFileSystem(), directory)
    broker.load()
    for number in range(proof.random.randrange(12)):
        key, value = f"k{proof.random.randrange(KEYS)}", f"B{leg}-{number}"
        history.try_renew("latest", key, value)
        broker.append(key.encode(), value.encode(), START_MS + number)
        history.renew("latest", key, value)
    what = proof.random.choice(["nothing", "roll", "clean", "roll and clean"])
    if "roll" in what:
        broker.roll()
    if "clean" in what:
        broker.clean()
    proof.count(f"emulated loader: {what}")


def _by_headers(directory: Path) -> Latest:
    """Return the latest values by the names and headers alone, of all whole batches."""
    found: Latest = {}
    for path in sorted(directory.glob("*.log")):
        for batch in raw_batches(path.read_bytes()):
            for record in BatchView(batch.data).records():
                found[_text(record.key)] = _text(record.value)
    return found


def _loaded_by_headers(directory: Path) -> Latest:
    """As `_by_headers`, of a copy that the emulated loader was given: a kill leaves swap files."""
    copy = directory.parent / "loaded" / directory.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(directory, copy)
    (copy / ".kafka_cleanshutdown").unlink(missing_ok=True)
    EmulatedBroker(PosixFileSystem(), copy).load()
    return _by_headers(copy)


def _text(data: bytes | None) -> str:
    return (data or b"").decode()


class _EndingDisk(PosixFileSystem):
    """A disk whose process is killed before or after a change of such a name."""

    def __init__(self, drawn: random.Random) -> None:
        super().__init__()
        self._suffix = drawn.choice(SUFFIXES)
        self._left = drawn.randrange(1, 9)
        self._ends_after = drawn.random() < 0.5

    def rename(self, source: Path, target: Path) -> None:
        with self._change(source, target):
            super().rename(source, target)

    def unlink(self, path: Path) -> None:
        with self._change(path):
            super().unlink(path)

    @contextmanager
    def _change(self, *paths: Path) -> Iterator[None]:
        """Make a change, and end the process where it is the one."""
        self._left -= any(path.name.endswith(self._suffix) for path in paths)
        is_last = self._left == 0
        if is_last and not self._ends_after:
            self._end()
        yield
        if is_last:
            self._end()

    def _end(self) -> None:
        say(f"killed at a name with {self._suffix}")
        os.kill(os.getpid(), signal.SIGKILL)


def say(what: str, *arguments: Any) -> None:
    """Write a line in one system call, so that a kill leaves no half of it."""
    os.write(1, json.dumps([what, *arguments]).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Append, roll and compact until the standard input ends, or until the process is killed."""
    faulthandler.dump_traceback_later(STACKS_SECONDS)
    seed, directory, prefix = arguments
    drawn = random.Random(int(seed))
    config = LogConfig(
        segment_bytes=drawn.choice((700, 1400, 5000)),
        cleanup_policy=("compact",),
        segment_index_bytes=1024,
        message_timestamp_after_max_ms=2**62,
    )
    disk = _EndingDisk(drawn) if drawn.random() < 0.5 else PosixFileSystem()
    count = 0
    with open_log(directory, config=config, filesystem=disk) as log:
        say("open")
        while not select.select([sys.stdin], [], [], 0)[0]:
            for _ in range(drawn.randrange(1, 40)):
                count += 1
                key, value = f"k{drawn.randrange(KEYS)}", f"{prefix}-{count}"
                say("try", key, value)
                log.append([Record(key=key.encode(), value=value.encode(), timestamp_ms=START_MS)])
                say("done", key, value)
            if drawn.random() < 0.7:
                log.roll()
                compact_log(log, config=CleanerConfig(), memory_bytes=MEMORY_BYTES)
                say("compacted")
    say("closed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KafkaLogError as error:
        say("failed", repr(error))
        raise
