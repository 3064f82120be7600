"""Measurements of kafkalog and a peer side by side in one process, with both sides of each ratio.

Absolute times on shared machines move by 40 %, ratios by 10 to 15 %: so the cases of a comparison
are interleaved round by round, and medians are compared. CPU-bound work is timed by the thread's
CPU clock, work that waits for a disk by the wall clock. The collector runs between cases, not
within them, but stays on: a peer that makes garbage pays for it as it would in use.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asv_bench.peers.results import THE_GOAL, Result, split_label, write_line

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
    """
    One row of the table: what is compared, the two cases, and how many times faster to be.

    The label is `P1 what` or `P1 what / peer`: the goal's name where it belongs to one, and the
    peer's where the table has several. A ratio of 0 asks for nothing. A goal that is a time and no
    ratio is made by `at_most`: the time is the other side then.
    """

    label: str
    ours: str
    peer: str
    ratio: float
    limit_seconds: float = 0.0


def at_most(label: str, ours: str, seconds: float) -> Goal:
    """Return the goal that a case takes so long at most, for all its items together."""
    return Goal(f"{label} / {THE_GOAL}", ours, "", 1.0, seconds)


@dataclass(slots=True)
class Comparison:
    """
    Cases that do the same work on `items` records, and the goals between them.

    `prepare` runs before each case, outside the measurement, with the name of the case. `unit` is
    the name of the `items`. Before the first round every case runs once; for programs that compile
    themselves during the run, all cases together for `warm_seconds`, each for its share, and at
    least once. `rounds` is the default number of rounds. The maker of the comparison may add
    `notes` after the run, and results that are not times.
    """

    title: str
    items: int
    cases: dict[str, Callable[[], object]]
    goals: Sequence[Goal]
    clock: Callable[[], float] = time.thread_time
    prepare: Callable[[str], object] = lambda _name: None
    unit: str = "record"
    warm_seconds: float = 0.0
    rounds: int = ROUNDS
    notes: list[str | Result] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def run(self, rounds: int, *, warm: bool = True) -> None:
        """
        Run every case unmeasured, then once in each round, in turn.

        Args:
            rounds: how many.
            warm: whether cases that want to get warm are given the time for it.
        """
        # Present objects are the benchmark's own data: no case pays for their collection.
        gc.collect()
        gc.freeze()
        share = self.warm_seconds / len(self.cases) if warm else 0.0
        for name, case in self.cases.items():
            self._warm_up(name, case, share)
        self.seconds = {name: [] for name in self.cases}
        for _ in range(rounds):
            for name, case in self.cases.items():
                self.prepare(name)
                gc.collect()
                start = self.clock()
                case()
                self.seconds[name].append(self.clock() - start)

    def _warm_up(self, name: str, case: Callable[[], object], seconds: float) -> None:
        began = self.clock()
        while True:
            self.prepare(name)
            case()
            if self.clock() - began >= seconds:
                return

    def median(self, name: str) -> float:
        """Return the median seconds of a case."""
        return statistics.median(self.seconds[name])

    def ratio(self, goal: Goal) -> float:
        """Return how many times faster ours is than the other side, by medians."""
        return statistics.median(self._other_side(goal)) / self.median(goal.ours)

    def best_ratio(self, goal: Goal) -> float:
        """Return the ratio of the fastest rounds: what a neighbour's load disturbs least."""
        return min(self._other_side(goal)) / min(self.seconds[goal.ours])

    def rows(self) -> Iterable[str]:
        """Return one line for each goal, with both sides and the verdict."""
        for goal in self.goals:
            ratio = self.ratio(goal)
            ours, theirs = (
                self._each_item(statistics.median(side))
                for side in (self.seconds[goal.ours], self._other_side(goal))
            )
            verdict = "" if not goal.ratio else "ok" if ratio >= goal.ratio else "BELOW"
            yield (
                f"{goal.label:<34} {self.title:<22} {ours:>8.1f} "
                f"{theirs:>8.1f} {ratio:>6.1f}x {goal.ratio:>5.1f}x "
                f"{verdict:<6}{self.best_ratio(goal):>6.1f}x"
            )

    def results(self, peer: str) -> Iterable[Result]:
        """Return what is kept of each goal; `peer` is the other side where the label has none."""
        for goal in self.goals:
            name, what, against = split_label(goal.label)
            yield Result(
                goal=name,
                what=what,
                work=self.title,
                unit=f"ns a {self.unit}",
                peer=against or peer,
                wanted=goal.ratio,
                ours=tuple(map(self._each_item, self.seconds[goal.ours])),
                theirs=tuple(map(self._each_item, self._other_side(goal))),
            )

    def _other_side(self, goal: Goal) -> list[float]:
        if goal.limit_seconds:
            return [goal.limit_seconds] * len(self.seconds[goal.ours])
        return self.seconds[goal.peer]

    def _each_item(self, seconds: float) -> float:
        return seconds / self.items * 1e9


def print_header(peer: str) -> None:
    """Print the head of the table that `Comparison.rows` fills."""
    print(
        f"{'what':<34} {'work':<22} {'kafkalog':>8} {peer:>8} {'ratio':>7} {'goal':>6} "
        f"{'':<6} {'best':>6}  (ns a record, medians; best: ratio of the fastest rounds)"
    )


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line of every comparison; see `add_options`."""

    quick: bool
    rounds: int | None
    results: Path | None

    def rounds_of(self, comparison: Comparison) -> int:
        """Return how many rounds a comparison has."""
        if self.rounds is not None:
            return self.rounds
        return min(comparison.rounds, ROUNDS_QUICK) if self.quick else comparison.rounds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every comparison takes to a command line."""
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds")
    parser.add_argument("--rounds", type=int, help="instead of those it has by itself")
    parser.add_argument("--results", type=Path, help="file to add results to, as lines of JSON")


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options that the command line gave."""
    return Options(arguments.quick, arguments.rounds, arguments.results)


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse a command line that has nothing else."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return options_of(parser.parse_args(arguments))


def run_all(comparisons: Iterable[Comparison], *, peer: str, options: Options) -> int:
    """
    Run and print comparisons, and keep their results if an option requests it.

    Returns:
        an exit code: 1 for a missed goal, unless results are kept, which contain it.
    """
    print_header(peer)
    reached = True
    for comparison in _with_notes(comparisons, options):
        comparison.run(options.rounds_of(comparison), warm=not options.quick)
        for row in comparison.rows():
            print(row, flush=True)
        if options.results is not None:
            for result in comparison.results(peer):
                write_line(options.results, result)
        reached &= all(comparison.ratio(goal) >= goal.ratio for goal in comparison.goals)
    return 0 if reached or options.results is not None else 1


def _with_notes(comparisons: Iterable[Comparison], options: Options) -> Iterator[Comparison]:
    """Yield comparisons; the notes of each are complete when the next is requested."""
    done: list[Comparison] = []
    for comparison in comparisons:
        _print_notes(done, options)
        yield comparison
        done.append(comparison)
    _print_notes(done, options)


def _print_notes(done: list[Comparison], options: Options) -> None:
    while done:
        for note in done.pop().notes:
            print(f"  {_note_text(note)}", flush=True)
            if options.results is not None:
                write_line(options.results, note)


def _note_text(note: str | Result) -> str:
    if isinstance(note, str):
        return note
    goal = f", {note.wanted:.1f}x wanted" * bool(note.wanted)
    return (
        f"{note.goal} {note.what}, {note.work}: {note.ours_median:.1f} {note.unit}, "
        f"{note.peer} {note.theirs_median:.1f}: {note.ratio:.1f}x{goal}"
    )


def run_table(
    arguments: Sequence[str], comparisons: Callable[..., Iterable[Comparison]], *, peer: str
) -> int:
    """
    Print one table, as the command line asks for it; return the exit code.

    Args:
        arguments: the command line.
        comparisons: makes them; takes the keyword `quick`.
        peer: head of the column of the other side.
    """
    options = parse_options(arguments)
    return run_all(comparisons(quick=options.quick), peer=peer, options=options)


def report(found: Iterable[Result], options: Options) -> int:
    """Print results and keep them; return an exit code as `run_all` does."""
    reached = True
    for each in found:
        reached &= each.is_reached
        print(f"{each.goal} {each.what:<24} {each.work:<44} {each.ours_median:>8.1f} ", end="")
        print(f"{each.theirs_median:>8.1f} {each.peer:<12} {each.ratio:.2f}x", flush=True)
        if options.results is not None:
            write_line(options.results, each)
    return 0 if reached or options.results is not None else 1
