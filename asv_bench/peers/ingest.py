"""Goals P18 to P20: durable ingestion over many partitions, against RocksDB, LMDB and SQLite.

    python -m asv_bench.peers.ingest [--quick] [PARTITIONS ...]

64 clients of asyncio in one process, 10 records of 200 bytes a request, over 1, 10, 100 and 1,000
partitions. Each engine has a process (`ingest_process.py`), and all take turns, round by round. The
processes count the calls by which they wait for their disk (`sync_calls.c`). By the wall clock, on
the disk that holds temporary files.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from asv_bench.peers import sync_calls
from asv_bench.peers.common import Options, add_options, options_of, report
from asv_bench.peers.ingest_engines import CALLS, ENGINES, LINGER, PEERS, properties_of
from asv_bench.peers.ingest_process import CLIENTS, RECORDS, VALUE_BYTES, Round
from asv_bench.peers.line_process import LineProcess
from asv_bench.peers.results import THE_GOAL, Result, write_line
from asv_bench.peers.stores import Workspace
from kafkalog import ConfigError, ManagerConfig

ROOT: Final = Path(__file__).resolve().parents[2]
PARTITIONS: Final = (1, 10, 100, 1000)
ROUNDS, ROUNDS_QUICK = 7, 3
ROUND_MS, ROUND_MS_QUICK = 3000, 1000
BEST: Final = "best of the three"

OURS: Final = "kafkalog"
JOURNAL: Final = "kafkalog, journal"

Rounds: TypeAlias = Mapping[str, Sequence[Round]]


def engines() -> tuple[list[str], list[str]]:
    """Return the engines to measure, and notes about those that this version lacks."""
    found, notes = [], []
    for name in ENGINES:
        try:
            ManagerConfig.from_properties(properties_of(name))
        except ConfigError as error:
            notes.append(f"{name.upper()} IS NOT MEASURED: {error}")
        else:
            found.append(name)
    return found, notes


def measure(
    names: Sequence[str], partition_count: int, workspace: Workspace, options: Options
) -> Rounds:
    """Return the rounds of each engine, which took turns."""
    folder = workspace.fresh()
    folder.mkdir()
    environment = sync_calls.preloaded(sync_calls.build(folder))
    rounds = options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS)
    duration = str(ROUND_MS_QUICK if options.quick else ROUND_MS)
    module = [sys.executable, "-m", "asv_bench.peers.ingest_process"]
    found: dict[str, list[Round]] = {name: [] for name in names}
    with ExitStack() as stack:
        processes: dict[str, LineProcess] = {}
        for name in names:
            command = [*module, name, str(partition_count), str(workspace.fresh())]
            processes[name] = stack.enter_context(LineProcess(command, environment=environment))
        # The first round, of which nothing is kept, waits for the start of each process.
        for number in range(rounds + 1):
            for name, process in processes.items():
                numbers = process.ask(duration)
                if not numbers:
                    raise RuntimeError(f"{name} ended, for {partition_count} partitions")
                if number:
                    found[name].append(Round(*numbers))
    return found


def results_of(found: Rounds, partition_count: int) -> Iterator[Result]:
    """Yield the results of the engines of ours: against the best peer, and against each."""
    work = work_of(partition_count)
    times = {name: [each.request_ns for each in rounds] for name, rounds in found.items()}
    p99 = {name: [1e3 * each.p99_us for each in rounds] for name, rounds in found.items()}
    peers = [name for name in found if name in PEERS]
    best_times = min((times[name] for name in peers), key=statistics.median)
    best_p99 = min((p99[name] for name in peers), key=statistics.median)
    with_goals = engine_of_goals(found)
    for name in found:
        if name in PEERS:
            continue
        goals = ("P18", "P19", "P20") if name == with_goals else ("", "", "")
        yield _result((goals[0], name, work), BEST, times[name], best_times)
        if name == CALLS:
            continue
        yield _result((goals[1], f"{name}: p99", work), BEST, p99[name], best_p99)
        syncs = [each.syncs / each.groups for each in found[name]]
        amount = _result((goals[2], f"{name}: syncs", work), THE_GOAL, syncs, [1.0] * len(syncs))
        yield replace(amount, unit="syncs a group")
    for peer in peers:
        yield _result(("", OURS, work), peer, times[OURS], times[peer])


def engine_of_goals(names: Collection[str]) -> str:
    """Return the engine that the goals are for: the one for many partitions, where there is one."""
    return next((name for name in (LINGER, JOURNAL) if name in names), OURS)


def work_of(partition_count: int) -> str:
    """Return the number of partitions in words."""
    return "1 partition" if partition_count == 1 else f"{partition_count:,} partitions"


def _result(
    labels: tuple[str, str, str], peer: str, ours: Sequence[float], theirs: Sequence[float]
) -> Result:
    """Return a result; a goal is to be as good as the other side."""
    goal, what, work = labels
    wanted = 1.0 if goal else 0.0
    return Result(goal, what, work, "ns a request", peer, wanted, tuple(ours), tuple(theirs))


def print_rounds(found: Rounds, partition_count: int) -> None:
    """Print the medians of each engine."""
    print(f"\n{work_of(partition_count)}, {CLIENTS} clients, {RECORDS} x {VALUE_BYTES} B a request")
    print(f"{'':<28}{'requests/s':>11}{'p50 ms':>8}{'p99 ms':>8}{'syncs/group':>12}{'group':>7}")
    for name, rounds in found.items():
        columns = zip(
            *(
                (
                    1e9 / each.request_ns,
                    each.p50_us / 1000,
                    each.p99_us / 1000,
                    each.syncs / each.groups,
                    each.requests / each.groups,
                )
                for each in rounds
            ),
            strict=True,
        )
        rate, p50, p99, syncs, group = map(statistics.median, columns)
        print(f"{name:<28}{rate:>11,.0f}{p50:>8.2f}{p99:>8.2f}{syncs:>12.2f}{group:>7.1f}")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Print a table for each number of partitions; exit code as `report`."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("--engines", help="names, separated by semicolons; all if it is not given")
    parser.add_argument("partitions", nargs="*", type=int, help="all numbers where none is given")
    parsed = parser.parse_args(arguments)
    options = options_of(parsed)
    names, notes = engines()
    for note in notes:
        print(f"!!! {note}", file=sys.stderr, flush=True)
        if options.results is not None:
            write_line(options.results, note)
    if parsed.engines:
        names = [name for name in names if name in parsed.engines.split("; ")]
    status = 0
    for partition_count in parsed.partitions or PARTITIONS:
        workspace = Workspace()
        try:
            found = measure(names, partition_count, workspace, options)
        finally:
            workspace.remove()
        print_rounds(found, partition_count)
        if OURS in found and set(found) & set(PEERS):
            status |= report(results_of(found, partition_count), options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
