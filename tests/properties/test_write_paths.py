"""Every append path writes the bytes of the slow path, and the reference reads the rows.

Rows: the slow path is `Log.append` of one object a record, and the reference codecs read its
output. Encoded batches are made by the reference codecs and have to come out unchanged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import Log, LogConfig, TopicPartition
from kafkalog.log.log import partition_of
from tests.properties import of_examples
from tests.properties.any_logs import (
    PLANS,
    AnyLog,
    Content,
    Plan,
    any_logs,
    contents,
    encode_plan,
    times,
)
from tests.properties.truth import Row, truth_of
from tests.support import append_apis
from tests.support.log_sources import Logs
from tests.support.logs import SMALL_INDEX_BYTES, manual_log
from tests.support.manual_time import START_MS
from tests.support.old_appends import RELEASES, WORDS

PARTITION = TopicPartition("orders", 3)


@dataclass(frozen=True)
class AppendCase:
    """
    Rows, and the log that gets them.

    Attributes:
        magic, codec: what the log writes.
        parts: rows of one call each.
        settings: of the log.
    """

    magic: int
    codec: int | None
    parts: list[list[append_apis.Row]]
    settings: dict[str, Any]

    @property
    def appends_time(self) -> bool:
        """True if records get the time of the append."""
        return bool(self.settings["message_timestamp_type"] == "LogAppendTime")

    def config(self) -> LogConfig:
        """Return the settings of the log."""
        return LogConfig(
            message_format_version=RELEASES[self.magic],
            compression_type=WORDS[self.codec],
            segment_index_bytes=SMALL_INDEX_BYTES,
            message_timestamp_after_max_ms=2**63 - 1,
            **self.settings,
        )

    def open(self, directory: Path) -> Log:
        """Open an empty log."""
        return manual_log(directory, config=self.config())

    def expected(self) -> list[Row]:
        """Return what is to be read again."""
        rows = [row for part in self.parts for row in part]
        return [self._row(offset, *row) for offset, row in enumerate(rows)]

    def _row(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: append_apis.Headers,
    ) -> Row:
        pairs = tuple((name.encode(), cell) for name, cell in headers)
        if self.magic == 0:
            return Row(offset, -1, -1, key, value)
        if self.appends_time:
            timestamp = START_MS
        epoch = 0 if self.magic == 2 else -1
        kind = int(self.appends_time)
        return Row(offset, timestamp, kind, key, value, pairs, leader_epoch=epoch)


@st.composite
def append_cases(draw: st.DrawFn) -> AppendCase:
    """Draw rows and a log."""
    magic = draw(st.sampled_from([2, 2, 1, 0]))
    codec = draw(st.sampled_from([None, 0, 1, 2, 3, *([4] if magic == 2 else [])]))
    seed = draw(st.integers(0, 2**16))
    counts = draw(st.lists(st.sampled_from([1, 2, 9, 40]), min_size=1, max_size=3))
    random = Random(seed)
    parts: list[list[append_apis.Row]] = []
    for count in counts:
        plan = Plan(count=count, times=draw(st.sampled_from(["rising", "any", "none", "some"])))
        made = contents(random, count, has_headers=magic == 2, are_texts=True)
        parts.append(
            [
                (
                    each.key,
                    each.value,
                    time,
                    [
                        (name.decode("utf-8", "surrogateescape"), cell)
                        for name, cell in each.headers
                    ],
                )
                for each, time in zip(made, times(plan, random), strict=True)
            ]
        )
    return AppendCase(
        magic,
        codec,
        parts,
        {
            "batch_bytes": draw(st.sampled_from([200, 1000, 1 << 20])),
            "segment_bytes": draw(st.sampled_from([20_000, 1 << 30])),
            "message_timestamp_type": draw(
                st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"])
            ),
        },
    )


def _row(content: Content, timestamp: int) -> append_apis.Row:
    headers = [(name.decode(), cell) for name, cell in content.headers]
    return content.key, content.value, timestamp, headers


@contextmanager
def folder() -> Iterator[Path]:
    """Make a directory for partitions."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def stored(directory: Path) -> list[bytes]:
    """Return the bytes of all segments."""
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def slow_log(parent: Path, given_rows: AppendCase) -> Path:
    """Write by the slow path, and check that the reference reads the rows that were given."""
    directory = parent / "slow-0"
    with given_rows.open(directory) as log:
        for part in given_rows.parts:
            append_apis.one_by_one(log, part)
    assert given_rows.expected() == truth_of(directory).rows
    return directory


@pytest.mark.parametrize("append_path", append_apis.APPEND_APIS)
@of_examples()
@given(given_rows=append_cases())
def test_append_path_writes_the_bytes_of_the_slow_path(
    append_path: append_apis.AppendApi, given_rows: AppendCase
) -> None:
    """Byte for byte, over batches and segments."""
    with folder() as parent:
        slow = slow_log(parent, given_rows)
        with given_rows.open(parent / "fast-0") as log:
            for part in given_rows.parts:
                append_path(log, part)
        assert stored(slow) == stored(parent / "fast-0")


@of_examples()
@given(
    given_rows=append_cases(),
    binary_type=st.sampled_from(["binary", "large_binary", "binary_view"]),
)
def test_append_of_a_scan_writes_the_bytes_of_the_slow_path(
    given_rows: AppendCase, binary_type: Any
) -> None:
    """From another log's Arrow columns, and from its records, which are not decoded."""
    rows = [row for part in given_rows.parts for row in part]
    given_rows = replace(given_rows, parts=[rows])
    with folder() as parent:
        slow = slow_log(parent, given_rows)
        with manual_log(parent / "source-0", batch_bytes=500) as source:
            append_apis.one_by_one(source, rows)
            with given_rows.open(parent / "columns-0") as log:
                log.append_columns(source.scan(binary_type=binary_type))
            with given_rows.open(parent / "records-0") as log:
                log.append(source.records(), timestamp_ms=-1)
        assert stored(slow) == stored(parent / "columns-0") == stored(parent / "records-0")


@of_examples()
@given(given_rows=append_cases(), buffer_bytes=st.sampled_from([1, 100, 2000]))
def test_appender_small_buffer_writes_the_rows(given_rows: AppendCase, buffer_bytes: int) -> None:
    """A batch has the records that fit in the buffer, so batches are smaller."""
    with folder() as parent:
        with given_rows.open(parent / "own-0") as log:
            for part in given_rows.parts:
                append_apis.by_appender(log, part, buffer_bytes=buffer_bytes)
        assert given_rows.expected() == truth_of(parent / "own-0").rows


# ---- encoded batches --------------------------------------------------------------------------


@st.composite
def clients_batches(draw: st.DrawFn) -> tuple[int, list[AnyLog]]:
    """Draw appends of whole batches of one format, counted from zero, without holes."""
    magic = draw(st.sampled_from([2, 2, 1, 0]))
    plans = PLANS.filter(lambda plan: plan.form[0] == magic and plan.times != "horizon")
    made = []
    for plan in draw(st.lists(plans, min_size=1, max_size=4)):
        whole = Plan(plan.form, plan.count, plan.seed, plan.times, by_library=plan.by_library)
        made.append(encode_plan([_dated(whole)]))
    return magic, made


def _dated(plan: Plan) -> Plan:
    """Return a plan without log append times, which clients may not send."""
    return plan if plan.times != "appended" else Plan(plan.form, plan.count, plan.seed)


@of_examples(2)
@given(
    appends=clients_batches(),
    codec=st.sampled_from([None, 0, 1, 2, 3, 4]),
    appends_time=st.booleans(),
)
def test_append_batches_of_clients_store_their_rows(
    appends: tuple[int, list[AnyLog]], codec: int | None, appends_time: bool
) -> None:
    """With offsets assigned, and recompressed if the log has another codec."""
    magic, made = appends
    codec = None if magic < 2 and codec == 4 else codec
    settings = {"message_timestamp_type": "LogAppendTime" if appends_time else "CreateTime"}
    given_rows = AppendCase(magic, codec, [], {**settings, "max_message_bytes": 1 << 24})
    expected: list[Row] = []
    with folder() as parent:
        with given_rows.open(parent / "own-0") as log:
            for each in made:
                first = log.log_end_offset
                (data,) = each.segments.values()
                info = log.append_batches(data)
                assert (first, len(each.rows)) == (info.first_offset, info.record_count)
                for row in each.rows:
                    changed = row._replace(offset=first + row.offset)
                    if magic == 2:
                        changed = changed._replace(leader_epoch=0)
                    if magic and appends_time:
                        changed = changed._replace(timestamp=START_MS, timestamp_type=1)
                    expected.append(changed)
        assert expected == truth_of(parent / "own-0").rows


@of_examples(2)
@given(
    made=any_logs(),
    piece=st.sampled_from([1, 3, 100]),
    segment_bytes=st.sampled_from([200_000, 1 << 30]),
)
def test_append_batches_of_another_log_store_the_same_bytes(
    made: AnyLog, piece: int, segment_bytes: int
) -> None:
    """Any log, in appends of several batches: the same bytes, rows and transactions."""
    with folder() as parent:
        made.write(parent / "source-0")
        truth = truth_of(parent / "source-0")
        data = b"".join(made.segments.values())
        ends = [0]
        for header in truth.headers:
            ends.append(ends[-1] + header.size_bytes)
        cuts = [*ends[::piece], ends[-1]]
        with manual_log(parent / "copy-0", segment_bytes=segment_bytes) as log:
            for start, end in pairwise(cuts):
                if start < end:
                    log.append_batches(data[start:end], assign_offsets=False)
            committed = [record.offset for record in log.records(isolation="read_committed")]
        copied = truth_of(parent / "copy-0")
        assert data == b"".join(stored(parent / "copy-0"))
        assert (truth.rows, truth.transactions) == (copied.rows, copied.transactions)
        visible = copied.visible("read_committed", 0, copied.end_offset)
        assert [row.offset for row in visible] == committed


@of_examples()
@given(
    plans=st.lists(PLANS.filter(lambda plan: plan.form[0] == 2), min_size=1, max_size=5),
    before=st.integers(0, 3),
)
def test_ingest_file_of_batches_keeps_its_rows(plans: list[Plan], before: int) -> None:
    """Assigned in place: only offsets and leader epochs differ from the file."""
    made = encode_plan([Plan(each.form, each.count, each.seed, each.times) for each in plans])
    (data,) = made.segments.values()
    with folder() as parent:
        (parent / "batches").write_bytes(data)
        with manual_log(parent / "own-0") as log:
            for number in range(before):
                log.append_lists([b"before"], [b"%d" % number])
            partition_of(log).appender.ingest(parent / "batches")
        rows = truth_of(parent / "own-0").rows[before:]
        assert [
            row._replace(offset=row.offset + before, leader_epoch=0) for row in made.rows
        ] == rows


# ---- producers --------------------------------------------------------------------------------


@of_examples(2)
@given(
    given_rows=append_cases(),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    ends=st.sampled_from(["", "commit", "abort"]),
)
def test_producer_writes_the_rows_sent(given_rows: AppendCase, codec: str, ends: str) -> None:
    """Numbered or in a transaction, in batches of the producer's own size."""
    settings: dict[str, Any] = {"compression_type": codec, "batch_size": 500}
    if given_rows.magic < 2:
        given_rows = replace(given_rows, magic=2)
    with folder() as parent:
        logs = Logs(parent, config=given_rows.config())
        logs.create_topic(PARTITION.topic, PARTITION.partition + 1)
        logs.create_topic("__transaction_state", 1)
        if ends:
            settings["transactional_id"] = "t"
        producer = logs.clients().producer(**settings)
        rows = [row for part in given_rows.parts for row in part]
        _send(producer, rows, ends)
        producer.close()
        logs.close()
        truth = truth_of(parent / str(PARTITION))
        found = [row._replace(producer_id=-1, producer_epoch=-1, sequence=-1) for row in truth.rows]
        assert given_rows.expected() == found
        assert list(range(len(rows))) == [row.sequence for row in truth.rows]
        committed = truth.visible("read_committed", 0, truth.end_offset)
        assert (0 if ends == "abort" else len(rows)) == len(committed)


def _send(producer: Any, rows: list[append_apis.Row], ends: str) -> None:
    if ends:
        producer.begin_transaction()
    for key, value, timestamp_ms, headers in rows:
        producer.send(
            PARTITION.topic,
            value,
            key=key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition=PARTITION.partition,
        )
    producer.flush()
    if ends:
        {"commit": producer.commit_transaction, "abort": producer.abort_transaction}[ends]()
