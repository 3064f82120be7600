"""Tests of `LogCounters` and `PoolCounters`."""

from __future__ import annotations

import copy

import pytest

from kafkalog._engine.counters import LogCounters, PoolCounters


def test_log_counters_add_up() -> None:
    """Each call adds to its own counts."""
    counters = LogCounters()
    counters.add_append(2, 5, 100)
    counters.add_append(1, 1, 70)
    counters.add_read(3, 40)
    counters.add_deletion(1, 600)
    assert (2, 3, 6, 170) == (
        counters.append_count,
        counters.appended_batches,
        counters.appended_records,
        counters.appended_bytes,
    )
    assert (3, 40) == (counters.read_records, counters.read_bytes)
    assert (1, 600) == (counters.deleted_segments, counters.deleted_bytes)


def test_pool_counters_add_up() -> None:
    """Each call adds to its own count."""
    counters = PoolCounters()
    counters.hit_file()
    counters.hit_mapping()
    counters.hit_mapping()
    counters.miss_file()
    counters.miss_mapping()
    assert (1, 1, 2, 1) == (
        counters.file_hits,
        counters.file_misses,
        counters.mapping_hits,
        counters.mapping_misses,
    )


@pytest.mark.parametrize("kind", [LogCounters, PoolCounters])
def test_counters_cannot_be_copied(kind: type[LogCounters | PoolCounters]) -> None:
    """Two counters with the same counts would be added up twice."""
    with pytest.raises(TypeError, match=kind.__name__):
        copy.copy(kind())
