"""Tests of the selection of logs: the cleanable range, its urgency, and the next log."""

from __future__ import annotations

import pytest

from kafkalog.cleaner.selection import (
    CheckpointReset,
    CleanableRange,
    CleaningCandidate,
    LogCleaningFacts,
    SegmentCleaningFacts,
    choose_log,
    cleanable_range,
    cleaning_candidate,
    compaction_delay_ms,
)

NOW = 10_000


def log(
    *segments: SegmentCleaningFacts, start: int = 0, end: int = 500, stable: int | None = None
) -> LogCleaningFacts:
    """Return facts; by default segments of 100 offsets, the last of them active."""
    if not segments:
        segments = tuple(SegmentCleaningFacts(base, 1000, 0, 0, base, base + 99) for base in BASES)
    return LogCleaningFacts(segments, start, end, end if stable is None else stable)


BASES = (0, 100, 200, 300, 400)


def span(
    facts: LogCleaningFacts, checkpoint: int | None = None, *, lag: int = 0, now: int = NOW
) -> CleanableRange:
    """Return the cleanable range."""
    return cleanable_range(facts, checkpoint=checkpoint, now_ms=now, min_lag_ms=lag)


def test_range_without_checkpoint_begins_at_the_log_start() -> None:
    """A log that was never cleaned is dirty from its start to the active segment."""
    assert CleanableRange(0, 400) == span(log())
    assert CleanableRange(150, 400) == span(log(start=150))


def test_range_begins_at_the_checkpoint() -> None:
    """It need not be the base of a segment."""
    assert CleanableRange(250, 400) == span(log(), 250)


@pytest.mark.parametrize(
    ("checkpoint", "reset"),
    [
        (99, CheckpointReset.BELOW_START),
        (100, None),
        (500, None),
        (501, CheckpointReset.BEYOND_END),
    ],
)
def test_range_with_invalid_checkpoint_begins_at_the_log_start(
    checkpoint: int, reset: CheckpointReset | None
) -> None:
    """A checkpoint outside the log is ignored, with a reason."""
    found = span(log(start=100), checkpoint)
    assert reset == found.reset
    assert (100 if reset else checkpoint) == found.first_dirty


def test_range_with_checkpoint_in_the_active_segment_is_empty() -> None:
    """All cleanable segments are clean."""
    assert CleanableRange(450, 450) == span(log(), 450)


def test_range_ends_at_the_last_stable_offset() -> None:
    """An open transaction is never cleaned, and no later record is."""
    assert CleanableRange(0, 233) == span(log(stable=233))
    assert CleanableRange(300, 300) == span(log(stable=233), 300)


@pytest.mark.parametrize(
    ("lag", "end"), [(0, 400), (1, 300), (100, 300), (101, 200), (200, 200), (201, 100), (900, 0)]
)
def test_range_with_lag_ends_before_the_first_young_segment(lag: int, end: int) -> None:
    """By the youngest record of a segment; an age equal to the lag is not young."""
    # Segments end at 99, 199, 299, 399 ms.
    assert CleanableRange(0, end) == span(log(), lag=lag, now=399)


def test_range_lag_ignores_clean_segments() -> None:
    """A young record in the clean part does not end the range."""
    segments = [
        SegmentCleaningFacts(0, 10, largest_timestamp_ms=NOW),
        SegmentCleaningFacts(100, 10),
    ]
    assert CleanableRange(100, 200) == span(
        log(*segments, SegmentCleaningFacts(200, 0)), 100, lag=5
    )
    # But the segment with the first dirty offset is dirty.
    assert CleanableRange(50, 50) == span(log(*segments, SegmentCleaningFacts(200, 0)), 50, lag=5)


@pytest.mark.parametrize(
    ("first_dirty", "max_lag", "delay"),
    [(0, 9_000, 900), (150, 9_000, 900), (200, 9_000, 800), (0, 9_900, 0), (0, 99_999, 0)],
)
def test_delay_counts_from_the_earliest_dirty_record(
    first_dirty: int, max_lag: int, delay: int
) -> None:
    """By the first batch of each segment; segment 0 has no timestamp, it is 0."""
    facts = log()
    assert delay == compaction_delay_ms(facts, first_dirty, now_ms=NOW, max_lag_ms=max_lag)


def test_delay_without_timestamps_is_none() -> None:
    """Messages of v0 have no timestamp, so they are never late. The active segment never counts."""
    facts = log(SegmentCleaningFacts(0, 10), SegmentCleaningFacts(100, 10, first_timestamp_ms=1))
    assert 0 == compaction_delay_ms(facts, 0, now_ms=NOW, max_lag_ms=0)


def weigh(facts: LogCleaningFacts, found: CleanableRange, ratio: float = 0.5) -> CleaningCandidate:
    """Return the candidate; never late."""
    return cleaning_candidate(
        "name", facts, found, now_ms=NOW, max_lag_ms=NOW * 2, min_dirty_ratio=ratio
    )


@pytest.mark.parametrize(
    ("first_dirty", "first_uncleanable", "clean", "cleanable"),
    [
        (0, 400, 0, 4000),
        (200, 400, 2000, 2000),
        (250, 400, 3000, 2000),  # the segment at 200 counts in both
        (0, 399, 0, 3000),  # that at 300 is not whole
        (250, 299, 3000, 0),
        (400, 400, 4000, 0),
        (450, 450, 5000, 0),
    ],
)
def test_candidate_counts_whole_segments(
    first_dirty: int, first_uncleanable: int, clean: int, cleanable: int
) -> None:
    """As in a broker."""
    candidate = weigh(log(), CleanableRange(first_dirty, first_uncleanable))
    assert (clean, cleanable) == (candidate.clean_bytes, candidate.cleanable_bytes)
    assert cleanable / max(1, clean + cleanable) == candidate.dirty_ratio


def candidate(
    name: str, cleanable: int, *, delay: int = 0, clean: int = 100, ratio: float = 0.5
) -> CleaningCandidate:
    """Return a candidate with these weights."""
    return CleaningCandidate(name, CleanableRange(0, 1), clean, cleanable, delay, ratio)


def test_choice_is_the_dirtiest_candidate_above_its_ratio() -> None:
    """By ratio, not by bytes."""
    candidates = [
        candidate("dirty", 300),
        candidate("dirtier", 50, clean=10),
        candidate("larger", 10_000, clean=9_000),
    ]
    chosen = choose_log(candidates)
    assert chosen is not None
    assert "dirtier" == chosen.name


def test_choice_at_the_limit_is_not_due() -> None:
    """The ratio must be above it; at 0 a dirty byte is needed, at 1 no log is due."""
    assert choose_log([candidate("even", 100)]) is None
    assert choose_log([candidate("zero", 0, ratio=0.0)]) is None
    assert choose_log([candidate("empty", 0, clean=0, ratio=0.0)]) is None
    assert choose_log([candidate("one", 100, clean=0, ratio=1.0)]) is None
    assert choose_log([candidate("byte", 1, ratio=0.0)]) is not None


def test_choice_that_must_be_cleaned_is_due_at_any_ratio() -> None:
    """If any byte is dirty; it does not precede a dirtier log."""
    late, dirty = candidate("late", 1, delay=5), candidate("dirty", 900)
    assert late == choose_log([late])
    assert dirty == choose_log([late, dirty])
    assert choose_log([candidate("nothing", 0, delay=5)]) is None
    assert choose_log([]) is None
