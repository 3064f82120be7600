"""`search_records` and `count_matches`: records with a text or a pattern in key, value or headers.

Keys and values are searched as columns: a literal in all cells of a batch of rows at once, a
regular expression cell by cell. Only records that are found are decoded as records. A search in
headers decodes every record.

Thread-safety: an iterator belongs to one thread at a time.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from kafkalog._core.arrow_export import ArrowBatch
from kafkalog._core.record import Record
from kafkalog.files.directories import Paths
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.inspection.record_reading import (
    RecordSelection,
    log_range,
    open_found,
    read_present,
    report_damage,
    resume_after_deletion,
    select_found,
)
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition

__all__ = ["MatchedRecord", "count_matches", "search_records"]

FIELDS: Final = ("key", "value", "headers")
# Rows of one search: enough that its start costs nothing, few enough for the processor's cache.
_BATCH_BYTES: Final = 1024 * 1024
_PAGE_RECORDS: Final = 1024
# Selected offsets with at most this distance are read together: a read that begins in between
# would decode the same batch again.
_NEAR: Final = 64


class MatchedRecord(NamedTuple):
    """
    A record that was found, or a neighbour of one.

    Attributes:
        partition: the partition.
        record: the record.
        is_match: False for a record before or after a match.
    """

    partition: TopicPartition
    record: Record
    is_match: bool


class _Page(NamedTuple):
    """Offsets of consecutive records, and the rows among them that match, ascending."""

    offsets: Sequence[int]
    rows: list[int]


@dataclass(frozen=True, slots=True)
class _Search:
    """
    A search, with its arguments checked.

    Attributes:
        pattern: a literal, or a regular expression.
        ignores_case: whether the case of ASCII letters is ignored.
        fields: names of FIELDS.
    """

    pattern: bytes | re.Pattern[bytes]
    ignores_case: bool
    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ValueError("pattern must not be empty")
        for name in self.fields:
            if name not in FIELDS:
                raise ValueError(f"fields must be of {', '.join(FIELDS)}, got {name!r}")
        if not self.fields:
            raise ValueError(f"fields must be at least one of {', '.join(FIELDS)}, got none")

    def cell_matcher(self) -> Callable[[bytes | memoryview], object]:
        """Return a function whose result is true for a cell that matches."""
        pattern = self.pattern
        if isinstance(pattern, bytes):
            pattern = re.compile(re.escape(pattern), re.IGNORECASE if self.ignores_case else 0)
        return pattern.search

    def finder(self) -> Callable[[bytes, int], int] | None:
        """Return a function that finds a literal from a position on, -1 for none."""
        pattern = self.pattern
        if not isinstance(pattern, bytes):
            return None
        if not self.ignores_case:
            literal = pattern
            return lambda data, start: data.find(literal, start)
        search = re.compile(re.escape(pattern), re.IGNORECASE).search

        def find(data: bytes, start: int) -> int:
            found = search(data, start)
            return -1 if found is None else found.start()

        return find


def search_records(
    paths: Paths,
    pattern: bytes | re.Pattern[bytes],
    *,
    fields: Iterable[str] = ("key", "value"),
    ignore_case: bool = False,
    context: int = 0,
    limit: int | None = None,
    selection: RecordSelection | None = None,
    on_damage: Callable[[CorruptRange], object] | None = None,
    filesystem: FileSystem | None = None,
) -> Iterator[MatchedRecord]:
    """
    Yield the records that have a text or match a pattern, in the order of partitions and offsets.

    >>> for partition, record, _ in kafkalog.search_records("orders@data", b"refused"):
    ...     print(partition, record.offset, record.value)

    Args:
        paths: partition directories, data directories, or names as `topic@directory`.
        pattern: bytes to find, or a compiled regular expression of bytes.
        fields: names of the fields to search: "key", "value", "headers" (keys and values of them).
        ignore_case: whether the case of ASCII letters in bytes is ignored; an expression has flags.
        context: number of records before and after a match that are yielded, too.
        limit: largest number of matches.
        selection: range of offsets and times, and the key; all records if None.
        on_damage: called with each corrupt range that was skipped.
        filesystem: the disk; the machine's if None.

    Raises:
        NotALogError, UnknownTopicOrPartitionError, LogStorageError: as for `read_records`.
        ValueError: the pattern is empty, or an argument is out of its range.
    """
    search = _Search(pattern, ignore_case, tuple(dict.fromkeys(fields)))
    if context < 0 or (limit is not None and limit < 0):
        raise ValueError(f"context and limit must be >= 0, got {context} and {limit}")
    selection = RecordSelection() if selection is None else selection
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    left = limit
    for each in select_found(filesystem, paths):
        if left == 0:
            return
        with open_found(filesystem, each) as log:
            if log is None:
                continue
            first, last = log_range(log, selection)
            pages = _limited(_pages(log, first, last, selection, search), left)
            for selected in _with_context(pages, context):
                for record in _read_selected(log, selected, selection):
                    is_match = selected[record.offset]
                    if left is not None and is_match:
                        left -= 1
                    yield MatchedRecord(each.name.topic_partition, record, is_match)
            if on_damage is not None:
                report_damage(log, first, last, on_damage)


def count_matches(
    paths: Paths,
    pattern: bytes | re.Pattern[bytes],
    *,
    fields: Iterable[str] = ("key", "value"),
    ignore_case: bool = False,
    selection: RecordSelection | None = None,
    on_damage: Callable[[CorruptRange], object] | None = None,
    filesystem: FileSystem | None = None,
) -> int:
    """
    Return the number of records that have a text or match a pattern.

    Args:
        paths, pattern, fields, ignore_case, on_damage, filesystem: as for `search_records`.
        selection: range of offsets and times; all records if None.

    Raises:
        NotALogError, UnknownTopicOrPartitionError, LogStorageError, ValueError: as for
            `search_records`.
    """
    search = _Search(pattern, ignore_case, tuple(dict.fromkeys(fields)))
    selection = RecordSelection() if selection is None else selection
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    count = 0
    for each in select_found(filesystem, paths):
        with open_found(filesystem, each) as log:
            if log is None:
                continue
            first, last = log_range(log, selection)
            count += sum(len(page.rows) for page in _pages(log, first, last, selection, search))
            if on_damage is not None:
                report_damage(log, first, last, on_damage)
    return count


# ------------------------------------------------------------------------------------------ pages


def _pages(
    log: Log, start: int, end: int, selection: RecordSelection, search: _Search
) -> Iterator[_Page]:
    read_pages = _pages_of_records if "headers" in search.fields else _pages_of_columns

    def read(start: int, end: int) -> Iterator[_Page]:
        return read_pages(log, start, end, selection, search)

    return resume_after_deletion(log, start, end, read, lambda page: page.offsets[-1])


def _pages_of_records(
    log: Log, start: int, end: int, selection: RecordSelection, search: _Search
) -> Iterator[_Page]:
    matches = search.cell_matcher()
    records = log.records(start, end, on_corrupt="skip", isolation=selection.isolation)

    def cells(record: Record) -> Iterator[bytes]:
        if "key" in search.fields:
            yield record.key or b""
        if "value" in search.fields:
            yield record.value or b""
        for name, value in record.headers:
            yield name.encode("utf-8", "surrogateescape")
            yield value or b""

    selected = filter(selection.has, records)
    while found := [
        (record.offset, any(map(matches, cells(record))))
        for record in islice(selected, _PAGE_RECORDS)
    ]:
        rows = [row for row, (_, is_match) in enumerate(found) if is_match]
        yield _Page([offset for offset, _ in found], rows)


def _pages_of_columns(
    log: Log, start: int, end: int, selection: RecordSelection, search: _Search
) -> Iterator[_Page]:
    filters: list[tuple[str, str, Any]] = []
    if selection.since_ms is not None:
        filters.append(("timestamp", ">=", selection.since_ms))
    if selection.until_ms is not None:
        filters.append(("timestamp", "<", selection.until_ms))
    if selection.key is not None:
        filters.append(("key", "==", selection.key))
    scan = log.scan(
        start,
        end,
        columns=("offset", *search.fields),
        filters=filters,
        isolation=selection.isolation,
        on_corrupt="skip",
        binary_type="large_binary",
        batch_bytes=_BATCH_BYTES,
    )
    find, matches = search.finder(), search.cell_matcher()
    for batch in scan:
        rows: set[int] = set()
        for column in range(1, len(search.fields) + 1):
            edges, data = _buffer(batch, column, 1).cast("q"), _buffer(batch, column, 2)
            if find is not None:
                rows.update(_literal_rows(bytes(data), edges, find, search.pattern))
            else:
                rows.update(_matching_rows(batch, column, edges, data, matches))
        yield _Page(_buffer(batch, 0, 1).cast("q"), sorted(rows))


def _buffer(batch: ArrowBatch, column: int, slot: int) -> memoryview:
    found = batch.buffer(column, slot)
    return memoryview(b"") if found is None else found.cast("B")


def _literal_rows(
    data: bytes,
    edges: Sequence[int],
    find: Callable[[bytes, int], int],
    literal: bytes | re.Pattern[bytes],
) -> Iterator[int]:
    """Yield the cells with a literal; cell i is `data[edges[i] : edges[i + 1]]`."""
    assert isinstance(literal, bytes)
    row, found = 0, find(data, 0)
    while found >= 0:
        row = bisect_right(edges, found, row) - 1
        end = edges[row + 1]
        if found + len(literal) <= end:
            yield row
            found = find(data, end)
        else:
            found = find(data, found + 1)


def _matching_rows(
    batch: ArrowBatch,
    column: int,
    edges: Sequence[int],
    data: memoryview,
    matches: Callable[[memoryview], object],
) -> Iterator[int]:
    """Yield the cells that match; a null does not."""
    bits = batch.buffer(column, 0)
    for row in range(len(batch)):
        is_null = bits is not None and not bits[row >> 3] >> (row & 7) & 1
        if not is_null and matches(data[edges[row] : edges[row + 1]]):
            yield row


# ---------------------------------------------------------------------------------------- context


def _limited(pages: Iterable[_Page], limit: int | None) -> Iterator[_Page]:
    """Yield pages up to a number of matches."""
    for page in pages:
        if limit is not None:
            page = _Page(page.offsets, page.rows[:limit])
            limit -= len(page.rows)
        yield page
        if limit == 0:
            return


def _with_context(pages: Iterable[_Page], context: int) -> Iterator[dict[int, bool]]:
    """Yield the offsets of matches and their neighbours, page by page; True for a match."""
    before: deque[int] = deque(maxlen=min(context, sys.maxsize))
    after = 0
    for page in pages:
        count = len(page.offsets)
        selected = dict.fromkeys(range(min(after, count)), False)
        after = max(after - count, 0)
        for row in page.rows:
            for near in range(max(row - context, 0), min(row + context + 1, count)):
                selected.setdefault(near, False)
            selected[row] = True
            after = max(after, row + context + 1 - count)
        found: dict[int, bool] = {}
        if page.rows:
            missing = context - page.rows[0]
            if missing > 0:
                found.update(dict.fromkeys(list(before)[-missing:], False))
        found.update((page.offsets[row], selected[row]) for row in sorted(selected))
        if selected:
            before.clear()
        rest = max(selected, default=-1) + 1
        before.extend(page.offsets[row] for row in range(max(rest, count - context), count))
        if found:
            yield found


def _read_selected(
    log: Log, selected: dict[int, bool], selection: RecordSelection
) -> Iterator[Record]:
    """Yield the records of selected offsets; those that follow each other are read together."""
    offsets = sorted(selected)
    position = 0
    while position < len(offsets):
        last = position
        while last + 1 < len(offsets) and offsets[last + 1] - offsets[last] <= _NEAR:
            last += 1
        first_offset, end_offset = offsets[position], offsets[last] + 1
        position = last + 1
        for record in read_present(log, first_offset, end_offset, selection.isolation):
            if record.offset in selected and selection.has(record):
                yield record
