"""Several judges of one part at the same time, each in a separate process and with a separate seed.

A cut waits for a disk and for the clock most of the time, so that two or more take no longer than
one. Each judge has the seed of the part, whatever else runs: chosen alone, by an option, it
makes the same choices again. What it counted and found comes back when it has ended.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import NoReturn

from tests.proof.harness import Broken, Proof

__all__ = ["Judge", "run_side_by_side"]

# Of prctl: a signal for this process when its parent has ended.
_PR_SET_PDEATHSIG = 1
# Limit for the end of a round that has begun when the time is over.
_LAST_ROUND_SECONDS = 300.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Judge:
    """
    One judge.

    Attributes:
        name: a word for names of files and for messages.
        work: judges until the time of its `Proof` is over.
    """

    name: str
    work: Callable[[Proof], None]


@dataclass
class _Running:
    """A judge in its process, with what has come back so far."""

    judge: Judge
    process: int
    answer: int
    data: bytes = b""


def run_side_by_side(proof: Proof, judges: Sequence[Judge]) -> None:
    """Run judges, and add what they counted and found to `proof`; a dead one is a finding."""
    running: list[_Running] = []
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        for judge in judges:
            started = _start(proof, judge)
            running.append(started)
        _collect(proof, running)
    finally:
        for each in running:
            os.kill(each.process, signal.SIGTERM)
        for each in running:
            os.waitpid(each.process, 0)
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, so that what is mounted is unmounted; that is not interrupted again."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _start(proof: Proof, judge: Judge) -> _Running:
    """Return a judge that is at work."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = os.fork()
    if process:
        os.close(writer)
        return _Running(judge, process, reader)
    os.close(reader)
    own = replace(
        proof,
        part=f"{proof.part}-{judge.name}",
        seconds=proof.seconds_left(),
        folder=proof.folder / judge.name,
        counts=Counter(),
        notes=[],
        found=[],
    )

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        # If the exception is lost, as after a fork, the round that has begun is the last.
        own.seconds = 0.0
        _leave(number, frame)

    status = 1
    try:
        signal.signal(signal.SIGTERM, leave)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == parent:
            own.folder.mkdir()
            _work(own, judge)
            with open(writer, "wb") as file:  # noqa: PTH123 - a descriptor
                pickle.dump((own.counts, own.notes, own.found), file)
            status = 0
    except SystemExit:
        # The part was ended; no process waits for an answer.
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the parent finds no answer
        traceback.print_exc()
    finally:
        os._exit(status)


def _work(proof: Proof, judge: Judge) -> None:
    """Judge; an error that ends it is a finding, with the ones before it."""
    try:
        judge.work(proof)
    except Exception:  # noqa: BLE001 - whatever leaves a judge is what the run has to report
        proof.broken("a judge ended in an error", traceback.format_exc(), [proof.folder])


def _collect(proof: Proof, running: Sequence[_Running]) -> None:
    """Take in the answers as they come."""
    waiting = {each.answer: each for each in running}
    deadline = time.monotonic() + proof.seconds_left() + _LAST_ROUND_SECONDS
    while waiting and time.monotonic() < deadline:
        for answer in select.select(list(waiting), [], [], _PAUSE_SECONDS)[0]:
            data = os.read(answer, 1 << 20)
            waiting[answer].data += data
            if not data:
                os.close(answer)
                _add(proof, waiting.pop(answer))
    for each in waiting.values():
        text = f"{each.judge.name} went on {_LAST_ROUND_SECONDS:g} s behind its time"
        proof.broken("a judge did not end", text)


def _add(proof: Proof, each: _Running) -> None:
    """Add what a judge counted and found."""
    if not each.data:
        proof.broken("a judge has ended without an answer", each.judge.name)
        return
    counts: Counter[str]
    notes: list[str]
    found: list[Broken]
    counts, notes, found = pickle.loads(each.data)
    proof.counts.update(counts)
    for note in notes:
        proof.note(note)
    proof.found += found
