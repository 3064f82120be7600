"""A counter that fails over: one process is killed, a second one opens the directory and continues.

Each process that serves the counter writes it to a journal before it answers. The first one to open
the data directory has it for itself; another one waits until the lock is free, which it is when the
first one is dead, however it died. The answers of the first one are on the disk; a request without
an answer may be there or not, so the client sends it again: a request that is in the journal is
answered from there, and not counted twice. The journal is compacted, so that the next start reads
little.

    python examples/journaling.py [DIRECTORY]              runs all of it
    python examples/journaling.py serve DIRECTORY          is one process; one request per line
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from kafkalog import Log, LogLockedError, LogManager, Record

TOPIC, KEY = "counter-journal", b"counter"
Server: TypeAlias = "subprocess.Popen[str]"

# ---------------------------------------------------------------------------------- one process


def standing_by(directory: str) -> LogManager:
    """Return the manager of a directory as soon as its lock is free."""
    while True:
        try:
            return LogManager([directory])
        except LogLockedError:
            time.sleep(0.01)


class Counter:
    """
    A counter in a journal.

    Attributes:
        value: the count.
        last_request: number of the last request that is in it.
    """

    def __init__(self, log: Log) -> None:
        self.value = self.last_request = 0
        self._log = log
        for record in log.records():
            self.value, self.last_request = map(int, (record.value or b"").split())

    def add(self, request: int, amount: int) -> None:
        """Count, unless the request was counted before; afterwards it is on the disk."""
        if request > self.last_request:
            entry = b"%d %d" % (self.value + amount, request)
            self._log.append([Record(key=KEY, value=entry)], wait="durable")
            self.value, self.last_request = self.value + amount, request


def serve(directory: str) -> int:
    """Answer requests (`number amount` on a line) with `number value` until there are no more."""
    with standing_by(directory) as manager:
        if TOPIC not in manager.topics():
            manager.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
        else:
            manager.compact(TOPIC, 0, include_active=True)
        counter = Counter(manager.log(TOPIC))
        print(f"ready {counter.value}", flush=True)
        for line in sys.stdin:
            request, amount = map(int, line.split())
            counter.add(request, amount)
            print(request, counter.value, flush=True)
    return 0


# ------------------------------------------------------------------------- the client, and a kill


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Server]:
    """Start a process that serves, or waits for the lock."""
    with subprocess.Popen(
        [sys.executable, __file__, "serve", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield server


def answer_of(server: Server) -> list[str]:
    """Return the next line of a process; nothing if it is dead."""
    assert server.stdout is not None
    return server.stdout.readline().split()


def int_pair(words: list[str]) -> tuple[int, int]:
    """Return the two numbers of an answer."""
    first, second = map(int, words)
    return first, second


def ask(server: Server, requests: dict[int, int]) -> None:
    """Send requests, without waiting for the answers."""
    assert server.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        for request, amount in requests.items():
            server.stdin.write(f"{request} {amount}\n")
        server.stdin.flush()


def fail_over(directory: Path, count: int) -> bool:
    """Kill the first process during the requests; return whether each was counted exactly once."""
    requests = {number: number % 9 + 1 for number in range(1, count + 1)}
    totals = dict(zip(requests, itertools.accumulate(requests.values()), strict=True))
    with contextlib.ExitStack() as processes:
        first = processes.enter_context(started(directory))
        print("the first process is", *answer_of(first))
        second = processes.enter_context(started(directory))
        ask(first, requests)
        answers = dict([int_pair(answer_of(first)) for _ in range(count // 3)])
        first.send_signal(signal.SIGKILL)
        # Its answers before it died are counted as answered.
        while answer := answer_of(first):
            answers.update([int_pair(answer)])
        print(f"it answered {len(answers)} requests and was killed")
        state, value = answer_of(second)
        print(f"the second process is {state} {value}")
        # It may have written one more, and died before the answer.
        found = [number for number, total in totals.items() if total == int(value)]
        is_right = found in ([len(answers)], [len(answers) + 1])
        open_requests = {each: requests[each] for each in requests if each not in answers}
        ask(second, open_requests)
        answers.update([int_pair(answer_of(second)) for _ in open_requests])
    print(f"{len(answers)} requests make {answers[count]}")
    return is_right and answers == totals


def main(arguments: list[str]) -> int:
    """Serve, or run everything in a directory, or in a temporary one."""
    if arguments[:1] == ["serve"]:
        return serve(arguments[1])
    with tempfile.TemporaryDirectory() as scratch:
        is_right = fail_over(Path(arguments[0] if arguments else scratch), 120)
    print("each was counted once" if is_right else "the counter is WRONG")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
