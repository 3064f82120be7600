"""Tests that a staged cleaning, installed later, equals a cleaning in the log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from kafkalog import LogCleaningAbortedError, LogConfig, Record, compact_log, open_log
from kafkalog.cleaner.live_records import LiveRecordBitmap
from kafkalog.cleaner.log_to_clean import LogToClean, log_to_clean
from kafkalog.cleaner.staged import StagedCleaning, install_cleaning, stage_cleaning, staging_runs
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import Log
from tests.support.compacted_logs import RETENTION_MS, fill
from tests.support.manual_time import ManualClock

CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=3_000,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
NOW_MS = 1_700_000_000_000


def made(directory: Path, seed: int) -> Path:
    """Make a log of some segments, half of which were cleaned before."""
    clock = ManualClock(NOW_MS)
    with open_log(directory, config=CONFIG, clock=clock) as log:
        fill(log, clock.now_ms, batch_count=60, seed=seed)
        compact_log(log, include_active=True)
        clock.advance(2 * RETENTION_MS)
        fill(log, clock.now_ms, batch_count=60, seed=seed + 1)
        log.roll()
    return directory


def clock_later() -> ManualClock:
    return ManualClock(NOW_MS + 3 * RETENTION_MS)


def marks_of(log: Log, target: LogToClean) -> LiveRecordBitmap:
    """Find the latest records of keys by a slow scan."""
    start, end = target.facts.segments[0].base_offset, target.boundary(target.span())
    latest = {
        record.key: record.offset
        for record in log.records(isolation="read_committed")
        if record.key is not None and record.offset < end
    }
    offsets = np.array(sorted(latest.values()), np.int64) - start
    bits = np.zeros(end - start, np.uint8)
    bits[offsets] = 1
    return LiveRecordBitmap(np.packbits(bits, bitorder="little"), start, end)


def stage(log_directory: Path, staging: Path) -> StagedCleaning:
    """Stage, and send the result through JSON as a job does."""
    staging.mkdir()
    with open_log(log_directory, config=CONFIG, clock=clock_later(), read_only=True) as log:
        target = log_to_clean(log)
        staged = stage_cleaning(log, target, marks_of(log, target), staging)
    return StagedCleaning.from_json(json.loads(json.dumps(staged.to_json())))


def stage_in_runs(log_directory: Path, staging: Path) -> tuple[StagedCleaning, int]:
    """Stage each run separately, the last one first; return the sum of results and the number."""
    staging.mkdir()
    parts: list[StagedCleaning] = []
    with open_log(log_directory, config=CONFIG, clock=clock_later(), read_only=True) as log:
        target = log_to_clean(log)
        marks = marks_of(log, target)
        runs = staging_runs(log, target, 1)
        for run in reversed(runs):
            folder = staging / str(run.first)
            folder.mkdir()
            parts.insert(0, stage_cleaning(log, log_to_clean(log), marks, folder, run=run))
    assert runs[0].first == 0
    assert [run.stop for run in runs[:-1]] == [run.first for run in runs[1:]]
    return StagedCleaning.joined(parts), len(runs)


def content(directory: Path) -> dict[str, bytes]:
    """Return the files of segments without the preallocated tails of indexes."""
    suffixes = (".log", ".txnindex", ".index", ".timeindex")
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in suffixes}


@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_staged_cleaning_leaves_the_bytes_of_a_cleaning_in_the_log(
    tmp_path: Path, seed: int, in_runs: bool
) -> None:
    """Equal segments and indexes, with tombstones, transactions and checkpoint."""
    here = made(tmp_path / "orders-0", seed)
    there = Path(shutil.copytree(here, tmp_path / "copy" / "orders-0"))
    for path in here.iterdir():
        shutil.copystat(path, there / path.name)
    staging = tmp_path / "staging"
    staged = stage_in_runs(there, staging)[0] if in_runs else stage(there, staging)
    with open_log(there, config=CONFIG, clock=clock_later()) as log:
        adopted = install_cleaning(log, staged)
        checkpoint = cleaner_access(log).cleaner_offset
    with open_log(here, config=CONFIG, clock=clock_later()) as log:
        cleaning = compact_log(log)

    assert adopted >= 1
    assert cleaning.end_offset == checkpoint
    assert cleaning.statistics.records_kept == staged.statistics["records_kept"]
    assert content(here) == content(there)


def test_log_is_split_where_no_transaction_is_open(tmp_path: Path) -> None:
    """By the producer snapshots; anywhere in a log without producers."""
    plain = tmp_path / "plain-0"
    with open_log(plain, config=CONFIG, clock=ManualClock(NOW_MS)) as log:
        for number in range(100):
            log.append([Record(key=b"%d" % (number % 7), value=bytes(200))] * 4)
        log.roll()
        segments = len(log.segments()) - 1
    counts = [
        stage_in_runs(made(tmp_path / f"orders-{seed}", seed), tmp_path / f"staging-{seed}")[1]
        for seed in range(4)
    ]

    assert segments == stage_in_runs(plain, tmp_path / "staging")[1] > 10
    assert max(counts) > 1


def test_install_done_again_changes_nothing(tmp_path: Path) -> None:
    """The second one exchanges no segment."""
    there = made(tmp_path / "orders-0", 7)
    staged = stage(there, tmp_path / "staging")
    with open_log(there, config=CONFIG, clock=clock_later()) as log:
        first = install_cleaning(log, staged)
        before = content(there)
        second = install_cleaning(log, staged)

        assert before == content(there)
    assert first >= 1
    assert second == 0


def test_install_in_a_log_cleaned_since_raises(tmp_path: Path) -> None:
    """Nothing changes, and the staged files stay."""
    there = made(tmp_path / "orders-0", 9)
    staged = stage(there, tmp_path / "staging")
    with open_log(there, config=CONFIG, clock=clock_later()) as log:
        compact_log(log)
        before = content(there)
        with pytest.raises(LogCleaningAbortedError, match="has changed since it was read"):
            install_cleaning(log, staged)

        assert before == content(there)
    assert any((tmp_path / "staging").iterdir())


def test_install_without_the_staged_files_raises(tmp_path: Path) -> None:
    """The error names the missing file, before any change."""
    there = made(tmp_path / "orders-0", 11)
    staged = stage(there, tmp_path / "staging")
    changed = [each.base_offset for group in staged.groups for each in group.fresh]
    (tmp_path / "staging" / f"{changed[-1]:020}.log.cleaned").unlink()
    with open_log(there, config=CONFIG, clock=clock_later()) as log:
        before = content(there)
        with pytest.raises(
            LogCleaningAbortedError, match=f"{changed[-1]:020}.log.cleaned is missing"
        ):
            install_cleaning(log, staged)

        assert before == content(there)


def test_live_record_bitmap_with_too_few_bits_raises() -> None:
    """A range needs a bit for each offset."""
    with pytest.raises(ValueError, match="bits must be at least 9, got 8"):
        LiveRecordBitmap(np.zeros(1, np.uint8), 0, 9)
