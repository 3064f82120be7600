"""Tests of runs of plain messages of old formats, compared with single messages.

The tests compare runs with the path of single batches: `read_batches` replaces `read_parts`, and
batches are staged one at a time.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import AppendInfo, CorruptRecordError, KafkaLogError, Log, Record
from kafkalog._core.batch import scan_batches
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.log import reader, reading
from kafkalog.log.local_log import LocalLog
from kafkalog.log.log import partition_of
from kafkalog.records.message_run import MessageRun
from kafkalog.records.validation import follower
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS, ManualClock
from tests.support.old_logs import (
    Chapter,
    OldFact,
    chapter,
    chapters_of,
    fact_of,
    facts_of,
    write_chapters,
)
from tests.support.reference_messages import Message, encode_messages

FIRST = 40

KEY_SIZE_POSITION = {0: 18, 1: 26}
RELEASES = {0: "0.9.0", 1: "0.10.2"}
PLAIN = [(0, 0, 1), (1, 0, 1)]
OTHERS = [(0, 1, 3), (1, 1, 3), (1, 3, 1), (2, 0, 2), (2, 1, 2)]


# -- reading -----------------------------------------------------------------------------------


def lying(data: bytes, magic: int) -> bytes:
    """Return a message whose key is shorter than its key size, with a right CRC."""
    made = bytearray(data)
    made[KEY_SIZE_POSITION[magic]] = 0x7F
    made[12:16] = zlib.crc32(made[16:]).to_bytes(4, "big")
    return bytes(made)


def outcome(read: Callable[[], Any]) -> tuple[list[OldFact], tuple[Any, ...] | None]:
    """Return the records of a reader, and the error that ends them."""
    found: list[OldFact] = []
    try:
        found.extend(map(fact_of, read()))
    except KafkaLogError as error:
        place = error.path, error.position, error.base_offset
        return found, (type(error), str(error), *place)
    return found, None


def assert_like_one_by_one(directory: Path, ranges: list[tuple[int, int]]) -> None:
    """Compare the result of each range with that of single batches, around damage and up to it."""
    for on_corrupt in ("raise", "skip"):
        for start, end in [(FIRST, 2**40), *ranges]:
            outcomes = []
            for one_by_one in (True, False):
                with pytest.MonkeyPatch.context() as patch:
                    if one_by_one:
                        patch.setattr(reader, "read_parts", reading.read_batches)
                    with manual_log(directory, read_only=True) as log:
                        begin = min(start, log.log_end_offset)
                        read = partial(log.records, begin, end, on_corrupt=on_corrupt)
                        outcomes.append(outcome(read))
            assert outcomes[0] == outcomes[1], (on_corrupt, start, end)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(PLAIN * 4 + OTHERS), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=2),
    st.sets(st.integers(0, 24), max_size=2),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=2),
)
def test_records_of_mixed_runs_equal_single_reads(
    plan: list[tuple[int, int, int]],
    flips: list[tuple[int, int]],
    liars: set[int],
    ranges: list[tuple[int, int]],
) -> None:
    """All formats mixed, bytes changed anywhere, wrong sizes under a right CRC."""
    chapters = chapters_of(plan, first_offset=FIRST)
    data = bytearray(
        b"".join(
            lying(each.data, each.magic) if number in liars and not each.codec and each.magic < 2
            else each.data
            for number, each in enumerate(chapters)
        )
    )  # fmt: skip
    for place, mask in flips:
        data[place % len(data)] ^= mask
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "old-0"
        write_chapters(directory, chapters).write_bytes(data)
        assert_like_one_by_one(directory, [(FIRST + a, FIRST + b) for a, b in ranges])


def gapped(magic: int, count: int) -> list[Chapter]:
    """Return plain messages with holes between their offsets, as compaction leaves them."""
    return [chapter(magic, 0, [FIRST + 3 * number]) for number in range(count)]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_a_long_run_are_those_written(directory: Path, magic: int) -> None:
    """More messages than one walk covers, and offsets with holes; from any offset on."""
    chapters = gapped(magic, 3 * reading.WALK_BATCHES_MAX + 7)
    write_chapters(directory, chapters)
    facts = facts_of(chapters)
    with manual_log(directory, read_only=True) as log:
        assert facts == [fact_of(record) for record in log.records()]
        for start, end in ((FIRST, FIRST), (FIRST + 1, FIRST + 8), (FIRST + 3000, FIRST + 6004)):
            inside = [fact for fact in facts if start <= fact[0] < end]
            assert inside == [fact_of(record) for record in log.records(start, end)]


def test_records_up_to_an_offset_skip_later_damage(directory: Path) -> None:
    """A message after the range, but in the same run, is not decoded."""
    chapters = chapters_of([(1, 0, 1)] * 9, first_offset=FIRST)
    path = write_chapters(directory, chapters)
    bad = lying(chapters[5].data, 1)
    path.write_bytes(b"".join(each.data for each in chapters[:5]) + bad + chapters[6].data)
    with manual_log(directory, read_only=True) as log:
        assert 5 == len(list(log.records(FIRST, FIRST + 5)))
        found: list[Record] = []
        with pytest.raises(CorruptRecordError) as caught:
            found.extend(log.records())
        assert (5, FIRST + 5) == (len(found), caught.value.base_offset)
        skipped = [record.offset for record in log.records(on_corrupt="skip")]
        assert [*range(FIRST, FIRST + 5), FIRST + 6] == skipped


def test_records_up_to_a_hole_skip_a_later_wrapper(directory: Path) -> None:
    """The run is cut at the end of the range; a later wrapper with invalid content is not read."""
    noise = encode_messages([Message(FIRST + 10, 1, 1, START_MS, None, b"no gzip stream")])
    plain = [chapter(1, 0, [FIRST]), chapter(1, 0, [FIRST + 5])]
    path = write_chapters(directory, plain)
    path.write_bytes(path.read_bytes() + noise)
    with manual_log(directory, read_only=True) as log:
        assert facts_of(plain[:1]) == [fact_of(each) for each in log.records(FIRST, FIRST + 3)]
        with pytest.raises(CorruptRecordError):
            list(log.records())


def test_read_parts_returns_one_run_of_plain_messages(directory: Path) -> None:
    """Runs end at wrappers and v2 batches, and have the right offsets and positions."""
    plan = [(0, 0, 1)] * 3 + [(1, 0, 1)] * 2 + [(1, 1, 4), (2, 0, 3), (1, 0, 1)]
    chapters = chapters_of(plan, first_offset=FIRST)
    write_chapters(directory, chapters)
    with manual_log(directory, read_only=True) as log:
        parts = list(
            reading.read_parts(partition_of(log).view.snapshot(), FIRST, 2**40, on_corrupt="raise")
        )
        ends = [FIRST + count for count in (5, 9, 12, 13)]
        assert ends == [part.next_offset for part in parts]
        first, last = parts[0], parts[-1]
        assert isinstance(first, MessageRun)
        assert isinstance(last, MessageRun)
        assert (FIRST, FIRST + 4, 0) == (first.first_offset, first.last_offset, first.position)
        assert FIRST + 4 == first.last_batch().header.base_offset
        assert first.last_position == first.last_batch().position
        assert last.position == sum(len(each.data) for each in chapters[:-1])
        assert "offsets 40 to 44" in repr(first)


# -- writing -----------------------------------------------------------------------------------


def files_of(directory: Path) -> dict[str, bytes]:
    """Return every file of a partition."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def fill(
    log: Log, clock: ManualClock, magic: int, appends: list[tuple[bool, list[int], int, int]]
) -> list[AppendInfo]:
    """Append columns or encoded messages: sizes of values, first time, step; the clock moves on."""
    infos = []
    for is_encoded, sizes, first_ms, step_ms in appends:
        times = START_MS + first_ms + step_ms * np.arange(len(sizes), dtype=np.int64)
        values = [bytes(size) for size in sizes]
        if is_encoded:
            rows = zip(values, times.tolist(), strict=True)
            sent = [Message(7, magic, 0, time, None, value) for value, time in rows]
            infos.append(log.append_batches(encode_messages(sent)))
        else:
            infos.append(log.append_columns(None, values, timestamps=times))
        clock.advance(700)
    return infos


def append_one_by_one(local: LocalLog, data: Any, batches: BatchMetadata) -> bool:
    """Stage and write each batch alone, unlike a log, which writes as many as fit."""
    segments, start_offset = local.snapshot.segments, local.snapshot.start_offset
    segment, full, position = segments.active, [], 0
    for facts in batches:
        row, size = segment.stage(BatchMetadata([facts]), 0)
        if not row:
            full.append(segment)
            segment = local.create_segment(facts.base_offset)
            segments = segments.with_segment(segment)
            row, size = segment.stage(BatchMetadata([facts]), 0)
        assert (1, facts.size_bytes) == (row, size)
        segment.commit(memoryview(data)[position : position + size], size)
        position += size
    end_offset, end_position = batches.end_offset, segment.size_bytes
    local.replace_all(LogSnapshot(segments, end_offset, end_position, start_offset))
    local.seal(full)
    return bool(full)


@settings(max_examples=60)
@given(
    st.sampled_from([0, 1]),
    st.lists(
        st.tuples(
            st.booleans(),
            st.lists(st.integers(0, 100), max_size=40),
            st.integers(0, 3000),
            st.integers(-60, 90),
        ),
        min_size=1,
        max_size=5,
    ),
    st.fixed_dictionaries(
        {
            "segment_bytes": st.sampled_from([150, 400, 1000, 2**20]),
            "index_interval_bytes": st.sampled_from([0, 1, 90, 300, 4096]),
            "segment_ms": st.sampled_from([1, 800, 2500, 2**40]),
            "segment_index_bytes": st.sampled_from([12, 24, 60, 2**20]),
            "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        }
    ),
)
def test_appended_run_leaves_the_files_of_single_appends(
    magic: int, appends: list[tuple[bool, list[int], int, int]], changes: dict[str, Any]
) -> None:
    """Rolls by size, time and full indexes, index entries and infos: equal byte for byte."""
    seen = []
    with tempfile.TemporaryDirectory() as parent:
        for one_by_one in (True, False):
            directory = Path(parent) / str(one_by_one) / "old-0"
            directory.parent.mkdir()
            clock = ManualClock()
            with pytest.MonkeyPatch.context() as patch:
                if one_by_one:
                    patch.setattr(LocalLog, "append", append_one_by_one)
                with manual_log(
                    directory, clock=clock, message_format_version=RELEASES[magic], **changes
                ) as log:
                    infos = fill(log, clock, magic, appends)
                    bases = [segment.base_offset for segment in log.segments()]
            seen.append((infos, bases, files_of(directory)))
    assert seen[0] == seen[1]


def scan_without_columns(
    data: bytes, position: int, *, columns: object = None, **options: Any
) -> Any:
    """Scan without filling columns, so that no message is read together with others."""
    return scan_batches(data, position, **options)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(PLAIN * 6 + OTHERS), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=1),
    st.sampled_from([100, 400, 2**20]),
)
def test_replicated_run_is_appended_like_single_entries(
    plan: list[tuple[int, int, int]], flips: list[tuple[int, int]], segment_bytes: int
) -> None:
    """A follower's append: the same files, or the same refusal."""
    data = bytearray(b"".join(each.data for each in chapters_of(plan, first_offset=FIRST)))
    for place, mask in flips:
        data[place % len(data)] ^= mask
    seen: list[Any] = []
    with tempfile.TemporaryDirectory() as parent:
        for name in ("single", "runs"):
            directory = Path(parent) / name / "old-0"
            directory.parent.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                if name == "single":
                    patch.setattr(follower, "scan_batches", scan_without_columns)
                with manual_log(
                    directory, segment_bytes=segment_bytes, index_interval_bytes=90
                ) as log:
                    try:
                        seen.append(log.append_batches(data, assign_offsets=False))
                    except KafkaLogError as error:
                        seen.append((type(error), str(error), error.position, error.base_offset))
            seen.append(files_of(directory))
    assert seen[:2] == seen[2:]
