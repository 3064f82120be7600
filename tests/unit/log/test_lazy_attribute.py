"""Attributes that are created when they are first read."""

from __future__ import annotations

from pathlib import Path

from kafkalog.log.lazy_attribute import LazyAttribute
from tests.support.logs import append_sized, manual_log


class Holder:
    """A holder that counts the creations of its value."""

    count = 0

    def _made(self) -> list[int]:
        self.count += 1
        return [self.count]

    value: LazyAttribute[list[int]] = LazyAttribute(lambda holder: holder._made())


def test_lazy_attribute_is_created_once_at_first_read() -> None:
    """Each instance has its own value."""
    holder, other = Holder(), Holder()
    assert Holder.value.peek(holder) is None
    assert 0 == holder.count
    first = holder.value
    assert first is holder.value
    assert first is Holder.value.peek(holder)
    assert first is not other.value
    assert (1, 1) == (holder.count, other.count)


def test_lazy_attribute_read_during_creation_has_one_value() -> None:
    """A second reader arrives while the first one creates the value."""
    seen: list[list[int]] = []

    class Nested(Holder):
        def _made(self) -> list[int]:
            if not seen:
                seen.append([])
                seen.append(self.value)
            return super()._made()

    nested = Nested()
    assert nested.value is seen[1]
    assert nested.value is seen[1]


def test_indexes_of_unread_segments_are_not_created(tmp_path: Path) -> None:
    """Neither opening nor closing a log creates them; a look-up creates those of its segment."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, segment_bytes=500) as log:
        for _ in range(20):
            append_sized(log, 120)
    with manual_log(directory, segment_bytes=500) as log:
        segments = log.segments()
        assert 5 == len(segments)
        assert [[], [], [], []] == [segment.indexes.made() for segment in segments[:-1]]
        assert 5 == log.read(5).first_offset
        made = [len(segment.indexes.made()) for segment in segments]
        assert [0, 2, 0, 0, 2] == made
    assert [0, 2, 0, 0, 2] == [len(segment.indexes.made()) for segment in segments]
