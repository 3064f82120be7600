"""Facts of logs for the tests of retention: by hand, and any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from kafkalog.log.retention import LogFacts, SegmentFacts

__all__ = ["NOW_MS", "facts_of", "logs", "segment"]

NOW_MS = 1_700_000_000_000
RECORDS = 10


def segment(
    *, size: int = 100, time_ms: int = NOW_MS, file_time_ms: int = NOW_MS, records: int = RECORDS
) -> SegmentFacts:
    """Return a segment that `facts_of` gives its place."""
    return SegmentFacts(0, records, size, time_ms, file_time_ms, is_active=False)


def facts_of(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int = NOW_MS,
    log_start_offset: int = 0,
    limit_offset: int | None = None,
) -> LogFacts:
    """Return a log of these segments, consecutive from offset 0, the last one active."""
    placed: list[SegmentFacts] = []
    base = 0
    for each in segments:
        end = base + each.end_offset - each.base_offset
        placed.append(replace(each, base_offset=base, end_offset=end, is_active=False))
        base = end
    placed[-1] = replace(placed[-1], is_active=True)
    return LogFacts(
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        log_end_offset=base,
        limit_offset=base if limit_offset is None else limit_offset,
        segments=tuple(placed),
    )


@st.composite
def logs(draw: st.DrawFn) -> LogFacts:
    """Return any log: some segments empty, some without timestamps, some from the future."""
    times = st.one_of(
        st.just(-1),
        st.integers(NOW_MS - 300, NOW_MS + 100),
        st.just(NOW_MS + 10_000_000),
    )
    segments = draw(
        st.lists(
            st.builds(
                segment,
                size=st.integers(0, 120),
                time_ms=times,
                file_time_ms=st.integers(NOW_MS - 300, NOW_MS + 50),
                records=st.integers(1, 10),
            ),
            min_size=1,
            max_size=7,
        )
    )
    if draw(st.booleans()):
        segments[-1] = segment(size=0, time_ms=-1, records=0)
    log = facts_of(segments)
    end = log.log_end_offset
    return replace(
        log,
        log_start_offset=draw(st.integers(0, end)),
        limit_offset=draw(st.one_of(st.just(end), st.integers(0, end))),
    )
