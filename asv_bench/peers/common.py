"""Measure kafkalog and a peer side by side in one process, and print both sides of each ratio.

Absolute times on shared machines move by 40 %, ratios by 10 to 15 %: so the cases of a comparison
are interleaved round by round, and medians are compared. CPU-bound work is timed by the thread's
CPU clock, work that waits for a disk by the wall clock. The collector runs between cases, not
within them, but stays on: a peer that makes garbage pays for it as it would in use.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

ROUNDS = 7
ROUNDS_QUICK = 5

KEY_SIZE = 16
VALUE_SIZES = (100, 1024)
BATCH_SIZES = (16 * 1024, 1024 * 1024)
TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Records:
    """Records of equal sizes and different bytes, timestamps 1 ms apart: the standard work."""

    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.keys)) + sum(map(len, self.values))


def make_records(count: int, value_size: int, *, seed: int = 1) -> Records:
    """Return `count` records with keys of KEY_SIZE bytes; the same for the same arguments."""
    source = random.Random(seed)
    pool = source.randbytes(value_size + 64 * 1024)
    starts = [source.randrange(64 * 1024) for _ in range(count)]
    return Records(
        keys=[b"key-%012d" % number for number in range(count)],
        values=[pool[start : start + value_size] for start in starts],
        timestamps=[TIMESTAMP_MS + number for number in range(count)],
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """One row of the table: what is compared, the two cases, and how many times faster to be."""

    label: str
    ours: str
    peer: str
    ratio: float


@dataclass(slots=True)
class Comparison:
    """
    Cases that do the same work on `items` records, and the goals between them.

    `prepare` runs before each case, outside the measurement, with the name of the case.
    """

    title: str
    items: int
    cases: dict[str, Callable[[], object]]
    goals: Sequence[Goal]
    clock: Callable[[], float] = time.thread_time
    prepare: Callable[[str], object] = lambda _name: None
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def run(self, rounds: int) -> None:
        """Run every case once unmeasured, then once in each round, in turn."""
        # What was made so far is the benchmark's own data: no case pays for a look at it.
        gc.collect()
        gc.freeze()
        for name, case in self.cases.items():
            self.prepare(name)
            case()
        self.seconds = {name: [] for name in self.cases}
        for _ in range(rounds):
            for name, case in self.cases.items():
                self.prepare(name)
                gc.collect()
                start = self.clock()
                case()
                self.seconds[name].append(self.clock() - start)

    def median(self, name: str) -> float:
        """Return the median seconds of a case."""
        return statistics.median(self.seconds[name])

    def nanoseconds(self, name: str) -> float:
        """Return the median nanoseconds per record of a case."""
        return self.median(name) / self.items * 1e9

    def ratio(self, goal: Goal) -> float:
        """Return how many times faster ours is than the peer, by medians."""
        return self.median(goal.peer) / self.median(goal.ours)

    def best_ratio(self, goal: Goal) -> float:
        """Return the ratio of the fastest rounds: what a neighbour's load disturbs least."""
        return min(self.seconds[goal.peer]) / min(self.seconds[goal.ours])

    def rows(self) -> Iterable[str]:
        """Return one line for each goal, with both sides and the verdict."""
        for goal in self.goals:
            ratio = self.ratio(goal)
            verdict = "ok" if ratio >= goal.ratio else "BELOW"
            yield (
                f"{goal.label:<34} {self.title:<22} {self.nanoseconds(goal.ours):>8.1f} "
                f"{self.nanoseconds(goal.peer):>8.1f} {ratio:>6.1f}x {goal.ratio:>5.1f}x "
                f"{verdict:<6}{self.best_ratio(goal):>6.1f}x"
            )


def print_header(peer: str) -> None:
    """Print the head of the table that `Comparison.rows` fills."""
    print(
        f"{'what':<34} {'work':<22} {'kafkalog':>8} {peer:>8} {'ratio':>7} {'goal':>6} "
        f"{'':<6} {'best':>6}  (ns a record, medians; best: ratio of the fastest rounds)"
    )


def run_all(comparisons: Iterable[Comparison], *, peer: str, rounds: int) -> bool:
    """Run and print comparisons; return whether every goal was reached."""
    print_header(peer)
    reached = True
    for comparison in comparisons:
        comparison.run(rounds)
        for row in comparison.rows():
            print(row, flush=True)
        reached &= all(comparison.ratio(goal) >= goal.ratio for goal in comparison.goals)
    return reached


def run_table(
    arguments: Sequence[str], comparisons: Callable[..., Iterable[Comparison]], *, peer: str
) -> int:
    """
    Print one table, as the command line asks for it; return the exit code: 1 for a goal missed.

    Args:
        arguments: `--quick`, or nothing.
        comparisons: makes them; takes the keyword `quick`.
        peer: head of the column of the other side.
    """
    quick = "--quick" in arguments
    rounds = ROUNDS_QUICK if quick else ROUNDS
    return 0 if run_all(comparisons(quick=quick), peer=peer, rounds=rounds) else 1
