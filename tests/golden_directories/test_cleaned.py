"""Segments cleaned by a real broker, and the same segments cleaned here, byte for byte.

A broker that was killed, or stopped while files waited for their deletion, left the segments
from before and after the cleaning. Nothing is compressed there, so the bytes can be compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog._core.header import parse_header
from kafkalog.cleaner.record_filter import LastProducerBatch
from kafkalog.state.producer_snapshot import decode_snapshot
from tests.support.cleaning import SegmentCleaning
from tests.support.golden import GOLDEN

KILLED = [
    (GOLDEN / "kafka-4.1-swap" / "data" / "u-compact-0", 631, ".swap", 830),
    (GOLDEN / "kafka-4.1-unclean" / "data" / "u-compact-0", 433, ".cleaned", 634),
]
STOPPED = GOLDEN / "kafka-4.1" / "data" / "compact-none-0"


def segment(directory: Path, base_offset: int, suffix: str = "") -> bytes:
    """Return the log file of a segment."""
    return (directory / f"{base_offset:020d}.log{suffix}").read_bytes()


def latest_horizon(data: bytes) -> int:
    """Return the latest delete horizon of a run: the time of its cleaning, and the retention."""
    position, latest = 0, 0
    while position < len(data):
        header = parse_header(data, position)
        latest = max(latest, header.delete_horizon_ms or 0)
        position += header.size_bytes
    return latest


@pytest.mark.parametrize(("directory", "base_offset", "suffix", "end_offset"), KILLED)
def test_clean_segment_of_a_killed_broker_gives_its_bytes(
    directory: Path, base_offset: int, suffix: str, end_offset: int
) -> None:
    """Old values are removed, tombstones get a horizon, batches are rewritten as by a broker."""
    expected = segment(directory, base_offset, suffix)
    cleaning = SegmentCleaning(end_offset, now_ms=latest_horizon(expected), entries=1000)
    cleaned = cleaning.clean([segment(directory, base_offset)])
    assert expected == cleaned.data
    assert cleaned.statistics.horizons_set > 0
    assert cleaned.statistics.batches_rewritten > 0


def test_clean_round_of_a_stopped_broker_gives_its_bytes() -> None:
    """A whole round: four clean segments into one, three dirty ones, producers, old horizons."""
    sources = [segment(STOPPED, base, ".deleted") for base in (0, 900, 1081, 1240)]
    sources += [segment(STOPPED, base, ".deleted") for base in (1417, 1605, 1781)]
    expected = [segment(STOPPED, base) for base in (0, 1417, 1605, 1781)]
    # The producers had sent the batches of the snapshot at the log end before the round began.
    snapshot = STOPPED / "00000000000000002116.snapshot"
    producers = decode_snapshot(snapshot.read_bytes(), end_offset=2116)
    cleaning = SegmentCleaning(
        end_offset=1961,
        first_dirty=1417,
        now_ms=latest_horizon(expected[1]) - 300,
        delete_retention_ms=300,
        last_batches={
            producer.producer_id: LastProducerBatch(producer.last_offset, producer.producer_epoch)
            for producer in producers
        },
    )
    cleaned = cleaning.clean(sources)
    assert expected[0] == b"".join(cleaned.runs[:4])
    assert expected[1:] == cleaned.runs[4:]
    assert cleaned.statistics.tombstones_expired > 0
    assert cleaned.statistics.batches_emptied > 0
