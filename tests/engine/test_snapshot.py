"""Tests of snapshots of a log: replaced values, read bounds, and publication."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot, ReadBound


def segments() -> Any:
    """Return two segments at 0 and 10."""
    return SimpleNamespace(
        segments=(SimpleNamespace(size_bytes=500), SimpleNamespace(size_bytes=700)),
        base_after=lambda slot: [10, None][slot],
    )


def test_snapshot_replace_returns_a_new_snapshot() -> None:
    """Equal are those of the same segments with the same numbers."""
    found = segments()
    first = LogSnapshot(found, 20, 600, 5)
    other = first.replace(end_offset=21)
    assert LogSnapshot(found, 21, 600, 5) == other
    assert hash(other) == hash(LogSnapshot(found, 21, 600, 5))
    assert first != other
    assert first != LogSnapshot(segments(), 20, 600, 5)
    assert first != (found, 20, 600, 5)
    assert first == first.replace()
    with pytest.raises(AttributeError):
        first.end_offset = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match="copied"):
        first.__reduce__()


def test_snapshot_read_bound_is_its_end_or_a_sealed_segment() -> None:
    """The last segment by what is published, the others by their size and their successor."""
    snapshot = LogSnapshot(segments(), 20, 600, 5)
    assert ReadBound(500, 10) == snapshot.read_bound(0)
    assert ReadBound(end=600, following_offset=20) == snapshot.read_bound(1)


def test_published_snapshot_is_the_latest() -> None:
    """A reader that holds an earlier one keeps it."""
    first = LogSnapshot(segments(), 20, 600, 5)
    published = PublishedSnapshot(first)
    assert first is published.snapshot
    published.publish(first.replace(end_offset=30))
    assert (20, 30) == (first.end_offset, published.snapshot.end_offset)
    with pytest.raises(TypeError):
        published.publish(None)  # type: ignore[arg-type]
