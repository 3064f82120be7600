"""A run of the soak: load, faults in turn, samples, and the judgements of all of them.

The load and the samples are tasks of one event loop; faults run one after another, each kind once
in a round, in an order that follows from the seed. After each round everything acknowledged must
have reached the follower of its service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkalog import KafkaLogError
from tests.soak.faults import Fault, chosen_faults, unclean
from tests.soak.final_state import judge_directory
from tests.soak.flatness import ALLOWANCES, SHORT_RUN, Verdict, judge_series
from tests.soak.sampling import process_sample
from tests.soak.stage import Outcome, Pace, Service, Stage
from tests.soak.web import GONE

__all__ = ["Run", "conduct", "judge_samples"]

# The warm-up of shorter runs ends before retention and buffers have reached their sizes.
JUDGED_MINUTES = 30
# Statuses that a numbered client may get before its request is acknowledged.
ALLOWED_STATUSES = {GONE, 200, 429, 503, 507}
ANSWER_SECONDS = 10.0
# Time before the end in which no fault begins, as most take less; at most a tenth of a run.
END_SECONDS = 60.0


Show = Callable[[str], None]
Sample = dict[str, Any]


@dataclass
class Run:
    """
    Result of a run.

    Attributes:
        seed, seconds, is_bounded: of the run; `is_bounded` is True on bounded file systems.
        outcomes: the faults.
        samples: the time `at`, and the measures of each process and volume by its name.
        counts: what was done.
        problems: sentences; empty if everything is as it must be.
        verdicts: by series, its figures.
    """

    seed: int
    seconds: float
    is_bounded: bool
    outcomes: list[Outcome] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)


async def conduct(
    folder: Path,
    pace: Pace,
    seed: int,
    seconds: float,
    *,
    is_bounded: bool,
    show: Show,
) -> Run:
    """
    Run the soak in a folder for so many seconds, and at least one round of all faults.

    Args:
        folder: gets the volumes, and what the programs print.
        pace, seed, seconds: of the run.
        is_bounded: use file systems on loop devices, which needs root.
        show: prints a line.
    """
    stage, run = Stage(folder, pace, seed, is_bounded=is_bounded), Run(seed, seconds, is_bounded)
    stop = asyncio.Event()
    try:
        await stage.open()
        load = [
            asyncio.create_task(client.run(pace.pause, stop))
            for service in stage.services
            for client in service.clients
        ]
        sampling = asyncio.create_task(_sample(stage, run, folder / "samples.jsonl"))
        await _rounds(stage, run, sampling, show)
        run.seconds = stage.now()
        sampling.cancel()
        stop.set()
        await asyncio.gather(*load)
        await _judge_end(stage, run)
    finally:
        await stage.close()
    judge_samples(run)
    return run


async def _rounds(stage: Stage, run: Run, sampling: asyncio.Task[None], show: Show) -> None:
    faults, rounds = list(chosen_faults(is_bounded=stage.is_bounded)), 0
    before: dict[str, int] = {}
    while not rounds or stage.now() < run.seconds:
        stage.random.shuffle(faults)
        for fault in faults:
            if rounds and stage.now() + min(END_SECONDS, run.seconds / 10) > run.seconds:
                break
            await asyncio.sleep(stage.pace.between)
            outcome = await _inject(stage, fault)
            run.outcomes.append(outcome)
            run.problems += [f"{outcome.fault}: {each}" for each in outcome.problems]
            show(_line(outcome))
            if sampling.done():
                sampling.result()
        rounds += 1
        if stage.now() + min(END_SECONDS, run.seconds / 10) > run.seconds:
            await asyncio.sleep(max(run.seconds - stage.now(), 0))
        await _judge_delivery(stage, run, before)
    run.counts["rounds of all faults"] = rounds


async def _inject(stage: Stage, fault: Fault) -> Outcome:
    outcome = Outcome(fault.__name__.replace("_", " "), stage.now())
    try:
        await fault(stage, outcome)
    except OSError as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    outcome.seconds = stage.now() - outcome.at
    return outcome


def _line(outcome: Outcome) -> str:
    answers = ", ".join(f"{count} x {name}" for name, count in outcome.answers.items())
    times = f"{outcome.seconds:.1f} s, longest wait {outcome.longest:.2f} s"
    text = f"{outcome.at:6.0f} s  {outcome.fault}: {answers} ({times})"
    return text + "".join(f"\n!!! {each}" for each in outcome.problems)


async def _sample(stage: Stage, run: Run, lines: Path) -> None:
    """Sample all processes and volumes until the task is cancelled; keep the lines of JSON."""
    while True:
        sample: Sample = {"at": round(stage.now(), 1)}
        for service in stage.services:
            for program in (service.program, service.follower):
                found = process_sample(program.pid) if program.pid else None
                if found is not None:
                    sample[program.name] = {"life": program.starts, **found}
            # An unmounted one is being repaired.
            with contextlib.suppress(OSError):
                used = await asyncio.to_thread(service.volume.sample)
                sample[f"volume of {service.name}"] = used
            await service.get("/metrics")
        run.samples.append(sample)
        with lines.open("a") as file:
            file.write(json.dumps(sample) + "\n")
        await asyncio.sleep(stage.pace.sample)


async def _judge_delivery(stage: Stage, run: Run, before: dict[str, int]) -> None:
    """Everything acknowledged has reached the followers, and each client has made progress."""
    for service in stage.services:
        run.problems += [f"{service.name}: {each}" for each in await service.undelivered()]
        for client in service.clients:
            if client.acknowledged <= before.get(client.name, 0):
                run.problems.append(f"{client.name} has made no progress in a round of faults")
            before[client.name] = client.acknowledged
    run.counts["checks of delivery"] = run.counts.get("checks of delivery", 0) + 1


async def _judge_end(stage: Stage, run: Run) -> None:
    """End all programs in order, and judge their reports and the directories."""
    counts = Counter[str]()
    for service in stage.services:
        run.problems += [f"{service.name}: {each}" for each in await service.undelivered()]
        await service.follower.end()
        status, _ = await service.program.end()
        counts[f"exit status of {service.name}: {status}"] += 1
        for program in (service.program, service.follower):
            run.problems += [f"{program.name}: {each}" for each in program.violations]
        _judge_clients(service, run, counts)
        report = service.program.report
        try:
            found, read = await asyncio.to_thread(
                judge_directory,
                service.volume.data,
                service.acknowledged(),
                _active_clients(service),
                report.get("accounts", ()),
            )
        except (KafkaLogError, OSError) as error:
            found, read = [f"{type(error).__name__}: {error}"], 0
        run.problems += [f"{service.name}, at the end: {each}" for each in found]
        run.problems += unclean(service)
        counts["records judged by followers"] += service.follower.report.get("records", 0)
        counts["records judged at the end"] += read
        counts += Counter(report.get("counts", {}))
        for name, count in report.get("errors", {}).items():
            counts[f"errors of clients in the service: {name}"] += count
    run.counts |= counts


def _active_clients(service: Service) -> list[str]:
    """Return the clients that have written up to the end, except those of transactions."""
    inner = service.program.report.get("acknowledged", ())
    return [each.name for each in service.clients] + [
        name for name in inner if name.startswith("orders-")
    ]


def _judge_clients(service: Service, run: Run, counts: Counter[str]) -> None:
    for client in service.clients:
        for status, count in client.statuses.items():
            counts[f"requests of numbered clients: {status}"] += count
        wrong = set(client.statuses) - ALLOWED_STATUSES
        if wrong:
            run.problems.append(f"{client.name} got the statuses {sorted(wrong)}")
        if client.longest > ANSWER_SECONDS:
            run.problems.append(f"{client.name} waited {client.longest:.1f} s for an answer")
    counts["records acknowledged"] += sum(service.acknowledged().values())
    longest = max(each.longest for each in service.clients)
    counts["longest wait for an answer, ms"] = max(
        counts["longest wait for an answer, ms"], round(1000 * longest)
    )


def judge_samples(run: Run) -> None:
    """Judge each series of a run; add the verdicts, and the problems of those that grow."""
    is_short = run.seconds < JUDGED_MINUTES * 60
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for sample in run.samples:
        for name, found in sample.items():
            for measure in set(ALLOWANCES) & set(found if name != "at" else ()):
                series.setdefault((name, measure), []).append((sample["at"], found[measure]))
    for (name, measure), values in sorted(series.items()):
        allowance = (SHORT_RUN if is_short else ALLOWANCES)[measure]
        verdict = judge_series(values, run.seconds, allowance)
        run.verdicts[f"{name}: {measure}"] = verdict
        if verdict.problem:
            run.problems.append(f"{measure} of {name} is not flat: {verdict.problem}")
