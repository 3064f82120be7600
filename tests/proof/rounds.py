"""Rounds of a workload that something ends: a cut of the power, or a kill; then a start, a check.

The judge itself opens nothing of the library: it forks a writer, ends it, and forks a checker, so
that it outlives whatever happens to them. Forks keep a round short; nothing here has threads.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.proof.disks import Disk, run
from tests.proof.harness import Proof
from tests.proof.oracle import Oracle, Problem, Stream
from tests.proof.shared_events import Event, SharedEvents
from tests.proof.tally import tally

__all__ = ["Rounds", "Workload", "fork", "in_order", "judge_in_a_child"]

_CHECK_SECONDS = 90.0
_MOST_FOUND = 20
# A writer without a new event for so long has done all it does.
_SILENT_SECONDS = 0.7
_CONTROL = "control"

Write = Callable[[SharedEvents, Path, Oracle, int, int], None]
Check = Callable[[Path, Oracle, int], list[Problem]]


@dataclass(frozen=True)
class Workload:
    """
    Work of the rounds of one kind.

    Attributes:
        name: for counters.
        write: works until it is ended: (shared, root, oracle, seed, first operation).
        check: opens and judges: (root, oracle, seed).
        longest: bytes that a writer adds to the shared events until an end, at most, except for
            the early ends: so a slow machine does no less between two ends than a fast one.
    """

    name: str
    write: Write
    check: Check
    longest: int

    @property
    def slug(self) -> str:
        """The name as one word."""
        return self.name.replace(" ", "-")


class Rounds:
    """Rounds on one disk, or in one folder; the oracle remembers from round to round."""

    def __init__(
        self, proof: Proof, workload: Workload, folder: Path, disk: Disk | None = None
    ) -> None:
        self._proof = proof
        self._workload = workload
        self._disk = disk
        self._folder = folder
        self._root = folder / "root" if disk is None else disk.point
        self._shared = SharedEvents(folder / "events")
        self._control = SharedEvents(folder / "events-of-control", 4 << 20)
        self._controlled = 0
        self._first = 1
        self._others: list[int] = []
        self._running: list[int] = []
        self._random = Random(proof.random.getrandbits(64))
        self._oracle = Oracle(exact=disk is None)
        self._history: list[str] = []
        self._name = f"{'' if disk is None else disk.kind + ', '}{workload.name}"
        self._unchecked = 0
        self._is_over = True
        self._left = 0

    def run(self) -> None:
        """Continue until the time is over, enough was found, or the requested rounds are done."""
        left = int(self._proof.options.get("rounds", "0")) or sys.maxsize
        while left and self._proof.seconds_left() and len(self._proof.found) < _MOST_FOUND:
            self.one()
            left -= 1

    def renew(self) -> None:
        """Begin with an empty disk."""
        self._oracle = Oracle(exact=self._disk is None, seed=self._random.getrandbits(32))
        self._history = []
        self._controlled = 0
        if self._disk is not None:
            self._disk.make()
        else:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root.mkdir()
        self._left = self._random.randint(8, 30)
        self._is_over = False
        self._unchecked = 0

    def one(self) -> None:
        """Let a writer work, end it, and mostly check what is left."""
        if self._is_over or self._left == 0:
            self.renew()
        self._left -= 1
        self._shared.clear()
        seed = self._random.getrandbits(32)
        first = self._first = self._first + 100_000
        if self._disk is not None:
            self._control.clear()
            start = self._controlled
            control = fork(self._shared, lambda: write_control(self._control, self._root, start))
            self._others = [control]
        writer = fork(
            self._shared,
            lambda: self._workload.write(self._shared, self._root, self._oracle, seed, first),
        )
        early = self._random.random() < 0.3
        self._running = [writer, *self._others]
        try:
            if not early:
                self._wait_for_opening()
                self._wait_for_work(self._random.randrange(self._workload.longest))
            time.sleep(self._random.random() * (0.04 if early else 0.01))
            self._end(early)
        finally:
            self._kill()
        is_wanted = self._left == 0 or self._unchecked > 3 or self._random.random() < 0.65
        # Before more is written to a topic, it must be known which of two of its name is there.
        if is_wanted or self._oracle.undecided_topics():
            self._judge(seed)
        else:
            self._unchecked += 1

    def _wait_for_opening(self) -> None:
        """Wait until the writer has opened what it works on, or ended in an error."""
        deadline = time.monotonic() + 10
        position = 8
        while time.monotonic() < deadline:
            end = self._shared.length()
            for event in self._shared.events(position, end):
                if event[0] == "wrong" or (event[0] == "kind" and event[1].startswith("openings")):
                    return
            position = end
            time.sleep(0.002)

    def _wait_for_work(self, size: int) -> None:
        """Wait until the writer has added so many bytes more, or adds none for a while."""
        length = self._shared.length()
        target, silent = length + size, time.monotonic() + _SILENT_SECONDS
        while length < target and time.monotonic() < silent:
            time.sleep(0.001)
            if self._shared.length() != length:
                length, silent = self._shared.length(), time.monotonic() + _SILENT_SECONDS

    def _streams(self) -> list[Stream]:
        return list(self._oracle.streams.values())

    # ----------------------------------------------------------------------------------- ending

    def _kill(self) -> None:
        """End the processes of this round that have not ended."""
        for process in self._running:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self._running = []

    def _end(self, early: bool) -> None:
        """Cut the power or kill, read the reports until then, and start the machine again."""
        count = self._proof.count
        if self._disk is None:
            self._kill()
            evidence_end = after = self._shared.length()
        else:
            with self._disk.opened() as descriptor:
                if self._random.random() < 0.5:
                    self._sync_some()
                evidence_end, control = self._shared.length(), self._control.length()
                self._disk.cut(descriptor)
                # Events that are added now were in progress at the cut, and are no evidence.
                time.sleep(0.002)
                self._kill()
            after = self._shared.length()
        evidence = self._events(8, evidence_end)
        rumours = self._events(evidence_end, after)
        self._remember(evidence, rumours)
        self._oracle.apply(evidence, evidence=True)
        self._oracle.apply(rumours, evidence=False)
        self._oracle.ended()
        count(f"{self._name}: {'kills' if self._disk is None else 'cuts'}")
        if early:
            count(f"{self._name}: ends within 40 ms of a start")
        for name, number in tally(evidence).items():
            count(f"{self._name}: {name}", number)
        if self._disk is not None:
            self._disk.again()
            late = self._control.length()
            before = [event[1] for event in self._control.events(8, control)]
            said = [event[1] for event in self._control.events(control, late)]
            self._judge_control(max(before, default=0), max(said, default=0))

    def _sync_some(self) -> None:
        """Sync some files, so that later writes are on the disk where earlier ones are not."""
        is_log = self._random.random() < 0.7
        try:
            files = list(self._root.rglob("*.log" if is_log else "*"))
            files = [path for path in files if path.is_file() and path.stat().st_size]
        except OSError:
            # A file was deleted at the same time.
            return
        count = self._random.randint(1, max(1, len(files) // 2))
        for path in self._random.sample(files, min(count, len(files))):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except OSError:
                continue
            try:
                os.fdatasync(descriptor)
            except OSError:
                pass
            finally:
                os.close(descriptor)

    def _judge_control(self, before: int, during: int) -> None:
        """Compare the file of the plain program with what it acknowledged before and during."""
        path = self._root / _CONTROL
        data = path.read_bytes() if path.exists() else b""
        kept = 0
        while data[kept : kept + 512] == control_block(kept):
            kept += 512
        if kept < before:
            text = f"{kept} of {before} bytes"
            self._report(Problem("the control lost what was synced before the cut", text), [])
        name = "control without kafkalog, cuts that lost an answer given"
        self._proof.count(f"{name} before them", int(kept < before))
        self._proof.count(f"{name} during them", int(kept < during))
        self._controlled = kept

    def _remember(self, evidence: list[Event], rumours: list[Event]) -> None:
        lines = [f"{event!r}\n" for event in evidence]
        lines.append("---- the end came here ----\n")
        lines += [f"{event!r}\n" for event in rumours]
        self._history.append("".join(lines))
        del self._history[:-12]

    # ---------------------------------------------------------------------------------- checking

    def _judge(self, seed: int) -> None:
        """Let a checker open everything and compare it with what the oracle knows."""
        self._unchecked = 0
        before = self._folder / "before"
        shutil.rmtree(before, ignore_errors=True)
        # With its holes, which a preallocated file has.
        run("cp", "-a", "--sparse=auto", str(self._root), str(before))
        problems, self._oracle = judge_in_a_child(self._workload, self._root, self._oracle, seed)
        self._proof.count(f"{self._name}: checks")
        streams = self._streams()
        self._proof.count(f"{self._name}: logs recovered and compared", len(streams))
        self._proof.count(
            f"{self._name}: records compared with the requests",
            sum(len(each.must) for each in streams),
        )
        for problem in problems[:4]:
            self._report(problem, [before, self._root])
        if problems:
            self._is_over = True
        for name, number in self._oracle.kinds.items():
            self._proof.count(f"{self._name}: {name}", number)
        self._oracle.kinds.clear()

    def _events(self, start: int, end: int) -> list[Event]:
        """Return the reports of a writer; what cannot be read of it is evidence itself."""
        try:
            return self._shared.events(start, end)
        except ValueError as error:
            text = f"{error}; from {start} to {end}"
            path = self._folder / "events.bin"
            path.write_bytes(self._shared.content(end))
            self._report(Problem("a writer's memory is damaged", text), [path])
            return []

    def _report(self, problem: Problem, files: list[Path]) -> None:
        log = self._folder / "events.txt"
        log.write_text("".join(self._history))
        details = f"{self._name}: {problem.details}"
        self._proof.broken(problem.title, details, [log, *files])
        self._is_over = True


def fork(shared: SharedEvents, work: Callable[[], object]) -> int:
    """Return the process that does this and nothing else."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - reported to the parent
        text = traceback.format_exc()
        shared.add("wrong", f"a writer ended in {type(error).__name__}", text[-3000:])
    finally:
        os._exit(0)


def judge_in_a_child(
    workload: Workload, root: Path, oracle: Oracle, seed: int
) -> tuple[list[Problem], Oracle]:
    """
    Run a check in a process; its death, its error and its silence are problems.

    Returns:
        The problems, and the oracle as it is afterwards.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        try:
            logging.raiseExceptions = False
            answer: tuple[list[Problem], Oracle | None]
            answer = (workload.check(root, oracle, seed), oracle)
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            title = f"opening raised {type(error).__name__}"
            answer = ([Problem(title, traceback.format_exc()[-4000:])], None)
        try:
            with open(writer, "wb") as file:  # noqa: PTH123
                pickle.dump(answer, file)
        finally:
            os._exit(0)
    os.close(writer)
    data = b""
    deadline = time.monotonic() + _CHECK_SECONDS
    with open(reader, "rb", buffering=0) as file:  # noqa: PTH123
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = file.read(1 << 20)
            if not part:
                break
            data += part
        else:
            os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        text = "or hung, where it was SIGKILL"
        return [Problem(f"a start after it ended by {name}", text)], oracle
    problems, judged = pickle.loads(data)
    return list(problems), oracle if judged is None else judged


def in_order(proof: Proof) -> None:
    """Put counters of one workload side by side."""
    counts = sorted(proof.counts.items())
    proof.counts.clear()
    proof.counts.update(dict(counts))


def control_block(position: int) -> bytes:
    """Return the 512 bytes of the control's file at a position."""
    return b"%020d" % position * 25 + b"%012d" % (position % 10**12)


def write_control(shared: SharedEvents, root: Path, position: int) -> None:
    """Be the plain program: write, sync, report."""
    try:
        descriptor = os.open(root / _CONTROL, os.O_RDWR | os.O_CREAT, 0o644)
        while position < 1 << 20:
            os.pwrite(descriptor, control_block(position), position)
            os.fdatasync(descriptor)
            position += 512
            shared.add("control", position)
            time.sleep(0.003)
    except OSError:
        return
