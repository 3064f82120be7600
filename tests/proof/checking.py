"""Check of what a cut or a kill has left: opened, read by two programs, judged by the oracle.

The library recovers the files and serves them; the files are also read by `plain_log`. Both
have to agree on every record between the log's start and its end, except for corrupt ranges.

Runs in a separate process: if it dies, hangs or raises, that is a broken promise as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from kafkalog import Log, open_log
from kafkalog.errors import CorruptRecordError
from kafkalog.log.reading import OnCorrupt
from tests.proof.contents import Spec, content, identity
from tests.proof.oracle import Observed, Oracle, Problem, Seen, View
from tests.proof.plain_log import PlainBatch, PlainLog, PlainRecord, read_log
from tests.proof.single_logs import config_of

__all__ = ["check_logs", "observe"]


def check_logs(root: Path, oracle: Oracle, seed: int) -> list[Problem]:
    """Open the single logs of a disk, and judge them."""
    logging.disable(logging.CRITICAL)
    random = Random(seed)
    problems: list[Problem] = []
    view = View({})
    opened = []
    for stream in oracle.streams.values():
        directory = root / stream.spec.directory
        if not directory.exists():
            continue
        log = open_log(directory, config=config_of(stream.spec, random))
        opened.append(log)
        observed = observe(log, directory, stream.number, stream.spec, problems, random)
        view.partitions[stream.spec.directory] = observed
    problems += oracle.check(view)
    if random.random() < 0.5:
        for log in opened:
            log.close()
    return problems


def observe(
    log: Log,
    directory: Path,
    number: int,
    spec: Spec,
    problems: list[Problem],
    random: Random,
    *,
    recovered: bool = True,
) -> Observed:
    """
    Return what one log serves, after the comparison of both programs that read it.

    With `recovered` nothing was appended since it was opened: all of it is durable then.
    """
    start, end = log.log_start_offset, log.log_end_offset
    where = f"{spec.directory} [{start}, {end})"
    if recovered and log.durable_offset != end:
        text = f"{where}: {log.durable_offset}"
        problems.append(Problem("what a recovered log serves is not all durable", text))
    plain = read_log(directory)
    outcomes, first_open = plain.outcomes()
    bases = [batch.base_offset for batch in plain.batches]
    if bases != sorted(set(bases)):
        problems.append(Problem("offsets of the files do not rise", f"{where}: {bases}"))
    written = {
        record.offset: (batch, record)
        for batch, record in plain.data()
        if start <= record.offset < end
    }
    served, way = _read(log, start)
    # Records without a promise may be torn below others that survived: a corrupt range, reported.
    log.find_holes()
    reported = log.corrupt_ranges()
    torn_count = sum(each.size_bytes > 0 for each in reported)
    if way == "skip" and not torn_count:
        problems.append(Problem("a read misses offsets, and the log reports no damage", where))
    problems += _differences(log, where, served, written, plain)
    problems += _committed(log, where, written, outcomes, first_open, way)
    problems += _epochs(log, where, plain)
    ranges = tuple((each.first_offset, each.next_offset) for each in reported)
    found = Observed(start, end, {}, log.durable_offset, torn_count=torn_count, reported=ranges)
    for offset in served.keys() & written.keys():
        batch, record = written[offset]
        name = identity(record.value, record.headers)
        expected = None if name is None or name[0] != number else content(spec, *name)
        if expected is None or name is None:
            found.foreign.append(f"{offset}: {record}"[:300])
        elif (expected.key, expected.value) != (record.key, record.value) or (
            expected.headers and expected.headers != record.headers
        ):
            found.foreign.append(f"{offset}: {record} is not {expected}"[:600])
        else:
            found.records[offset] = Seen(*name, outcomes.get(batch.base_offset, ""))
    problems += _looked_up(log, where, served, random)
    return found


Served = dict[int, tuple[bytes | None, bytes | None]]
Written = dict[int, tuple[PlainBatch, PlainRecord]]


def _read(log: Log, start: int) -> tuple[Served, OnCorrupt]:
    """
    Return what a log serves, and how to read it.

    After a stop in order no opening searches for damage: a read may be the first to report it.
    """
    is_torn = any(each.size_bytes for each in log.corrupt_ranges())
    way: OnCorrupt = "skip" if is_torn else "raise"
    try:
        return _served(log, start, way), way
    except CorruptRecordError:
        return _served(log, start, "skip"), "skip"


def _served(log: Log, start: int, way: OnCorrupt) -> Served:
    return {each.offset: (each.key, each.value) for each in log.records(start, on_corrupt=way)}


def _differences(
    log: Log, where: str, served: Served, written: Written, plain: PlainLog
) -> Iterator[Problem]:
    """Yield where the library serves other records than the files hold."""
    for offset, (key, value) in served.items():
        there = written.get(offset)
        if there is None:
            yield Problem("a record is served that no file holds", f"{where}: {offset}")
        elif (there[1].key, there[1].value) != (key, value):
            yield Problem("a record is served otherwise than it lies", f"{where}: {offset}")
    corrupt_ranges = log.corrupt_ranges()
    missing = [
        offset
        for offset in written.keys() - served.keys()
        if not any(each.first_offset <= offset < each.next_offset for each in corrupt_ranges)
    ]
    if missing:
        text = f"{where}: {sorted(missing)[:10]}, fences {corrupt_ranges}, stops {plain.stops}"
        yield Problem("a whole record is not served, and not reported", text)


def _committed(
    log: Log,
    where: str,
    written: Written,
    outcomes: dict[int, str],
    first_open: int | None,
    way: OnCorrupt,
) -> Iterator[Problem]:
    """Yield where readers of committed records see others than the markers state."""
    stable = log.last_stable_offset
    limit = log.log_end_offset if first_open is None else first_open
    if stable != limit and not log.corrupt_ranges():
        text = f"{where}: {stable}, the markers say {limit}"
        yield Problem("the last stable offset is not what the markers say", text)
    committed = log.records(
        log.log_start_offset,
        isolation="read_committed",
        on_corrupt=way,
    )
    shown = {each.offset for each in committed}
    expected = {
        offset
        for offset, (batch, _record) in written.items()
        if outcomes.get(batch.base_offset, "committed") == "committed" and offset < stable
    }
    if shown != expected and not log.corrupt_ranges():
        more, less = sorted(shown - expected)[:8], sorted(expected - shown)[:8]
        text = f"{where}: too many {more}, too few {less}"
        yield Problem("readers of committed records see others than the markers say", text)


def _epochs(log: Log, where: str, plain: PlainLog) -> Iterator[Problem]:
    """Yield where a log knows other leader epochs than its batches have."""
    firsts: dict[int, int] = {}
    lasts: dict[int, int] = {}
    for batch in plain.batches:
        if batch.magic == 2 and log.log_start_offset <= batch.base_offset < log.log_end_offset:
            firsts.setdefault(batch.leader_epoch, batch.base_offset)
            lasts[batch.leader_epoch] = batch.last_offset
    epochs = sorted(each for each in firsts if each >= 0)
    if epochs and log.leader_epoch < epochs[-1]:
        text = f"{where}: {log.leader_epoch}, the batches have {epochs[-1]}"
        yield Problem("a leader epoch is not known after a start", text)
    for epoch, following in pairwise(epochs):
        end = log.end_offset_for_epoch(epoch)
        if end.epoch != epoch or not lasts[epoch] < end.end_offset <= firsts[following]:
            text = f"{where}: {end}, the batches say {lasts[epoch] + 1} to {firsts[following]}"
            yield Problem("a leader epoch ends elsewhere than its batches", text)


def _looked_up(log: Log, where: str, served: Served, random: Random) -> Iterator[Problem]:
    """Yield where looking up one offset gives another answer than reading them all."""
    offsets = sorted(served)
    for offset in random.sample(offsets, min(5, len(offsets))):
        found = log.get(offset)
        if found is None or (found.key, found.value) != served[offset]:
            yield Problem("a look-up answers otherwise than a scan", f"{where}: {offset}: {found}")
