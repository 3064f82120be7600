"""New settings of an open log: the ones that apply at once, later, or after a reopening."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import ConfigError, Log, LogClosedError, ReadOnlyLogError, Record
from kafkalog.records.codecs import Codec
from kafkalog.settings import settings_of
from tests.support.logs import append_sized, manual_log, numbered
from tests.support.manual_time import START_MS, ManualScheduler


def bases(log: Log) -> list[int]:
    """Return the base offsets of the segments."""
    return [segment.base_offset for segment in log.segments()]


def test_reconfigure_returns_changed_keys_and_when_they_apply(directory: Path) -> None:
    """The same settings change nothing."""
    with manual_log(directory) as log:
        old = log.config
        assert not log.reconfigure(old)
        change = log.reconfigure(old.replace(retention_ms=5, preallocate=True, open_files_max=7))
        assert ("retention.ms",) == change.at_once
        assert ("preallocate",) == change.next_segment
        assert ("kafkalog.open.files.max",) == change.reopening
        assert old.replace(retention_ms=5, preallocate=True) == log.config


def test_reconfigure_segment_size_applies_to_the_active_segment(directory: Path) -> None:
    """A smaller and a larger size."""
    with manual_log(directory, segment_bytes=1000) as log:
        append_sized(log, 100)
        append_sized(log, 100)
        log.reconfigure(log.config.replace(segment_bytes=250))
        append_sized(log, 100)
        assert [0, 2] == bases(log)
        log.reconfigure(log.config.replace(segment_bytes=1000))
        for _number in range(9):
            append_sized(log, 100)
        assert [0, 2] == bases(log)


def test_reconfigure_segment_time_applies_to_the_active_segment(directory: Path) -> None:
    """The segment keeps its jitter, which never makes the time negative."""
    with manual_log(directory, segment_ms=10_000, segment_jitter_ms=9_000) as log:
        append_sized(log, 100, timestamp_ms=START_MS)
        log.reconfigure(log.config.replace(segment_ms=1, segment_jitter_ms=0))
        append_sized(log, 100, timestamp_ms=START_MS)
        assert [0] == bases(log)
        append_sized(log, 100, timestamp_ms=START_MS + 2)
        assert [0, 2] == bases(log)


def test_reconfigure_policy_changes_the_roll_of_compacted_logs(directory: Path) -> None:
    """The compaction lag limits `segment.ms` if the policy has compact."""
    with manual_log(directory, max_compaction_lag_ms=5, min_compaction_lag_ms=0) as log:
        log.append([Record(key=b"k", value=b"v", timestamp_ms=START_MS)])
        log.append([Record(key=b"k", value=b"v", timestamp_ms=START_MS + 6)])
        assert [0] == bases(log)
        log.reconfigure(log.config.replace(cleanup_policy=("compact",)))
        log.append([Record(key=b"k", value=b"v", timestamp_ms=START_MS + 7)])
        assert [0, 2] == bases(log)
        with pytest.raises(Exception, match="key"):
            log.append([Record(value=b"v")])


def test_reconfigure_index_interval_applies_at_once(directory: Path) -> None:
    """With 0 every later batch gets an entry."""
    with manual_log(directory, index_interval_bytes=10_000) as log:
        for _number in range(4):
            append_sized(log, 100)
        assert 0 == len(log.segments()[0].offset_index.view)
        log.reconfigure(log.config.replace(index_interval_bytes=0))
        for _number in range(4):
            append_sized(log, 100)
        assert 4 == len(log.segments()[0].offset_index.view)


def test_reconfigure_codec_applies_to_the_next_append(directory: Path) -> None:
    """Old batches keep their codec."""
    with manual_log(directory) as log:
        log.append([Record(value=bytes(500))] * 5)
        log.reconfigure(log.config.replace(compression_type="zstd"))
        log.append([Record(value=bytes(500))] * 5)
        codecs = [batch.header.codec for batch in log.batches()]
        assert [Codec.NONE, Codec.ZSTD] == codecs
        assert list(range(10)) == [record.offset for record in log.records()]


def test_reconfigure_retention_applies_to_the_next_pass(directory: Path) -> None:
    """The change itself deletes nothing."""
    with manual_log(directory, segment_bytes=300) as log:
        for _number in range(9):
            append_sized(log, 100)
        log.reconfigure(log.config.replace(retention_bytes=300))
        assert [0, 3, 6] == bases(log)
        assert 2 == len(log.apply_retention())


def test_reconfigure_flush_interval_is_rescheduled(directory: Path) -> None:
    """Set, made shorter, switched off."""
    scheduler = ManualScheduler()
    with manual_log(directory, scheduler=scheduler) as log:
        for flush_ms, expected in ((500, [500]), (20, [20]), (2**63 - 1, [])):
            log.reconfigure(log.config.replace(flush_ms=flush_ms))
            pending = [delay for name, delay in scheduler.pending if name == "flush-interval"]
            assert expected == pending
        log.reconfigure(log.config.replace(flush_ms=20))
        log.append(numbered(0, 3))
        assert 0 == log.durable_offset
        scheduler.advance(20)
        assert 3 == log.durable_offset


@pytest.mark.parametrize("before", [True, False])
def test_reconfigure_preallocation_applies_to_the_next_segment(
    directory: Path, before: bool
) -> None:
    """A preallocated segment is still trimmed at its roll."""
    with manual_log(directory, segment_bytes=4096, preallocate=before) as log:
        append_sized(log, 100)
        log.reconfigure(log.config.replace(preallocate=not before))
        first = log.segments()[0].path
        assert (4096 if before else 100) == first.stat().st_size
        log.roll()
        append_sized(log, 100)
        second = log.segments()[1].path
        assert (100, 100 if before else 4096) == (first.stat().st_size, second.stat().st_size)
    assert (100, 100) == (first.stat().st_size, second.stat().st_size)


def test_reconfigure_closed_or_read_only_log_is_refused(directory: Path) -> None:
    """Each raises its own error."""
    with manual_log(directory) as log:
        log.append(numbered(0, 1))
    with pytest.raises(LogClosedError):
        log.reconfigure(log.config.replace(retention_ms=5))
    with (
        manual_log(directory, read_only=True) as reader,
        pytest.raises(ReadOnlyLogError),
    ):
        reader.reconfigure(reader.config.replace(retention_ms=5))


def test_reconfigure_every_key_while_open(directory: Path) -> None:
    """No key breaks appends, reads, or the clean close."""
    others: dict[str, object] = {
        "cleanup_policy": (),
        "message_timestamp_type": "LogAppendTime",
        "compression_type": "lz4",
        "segment_index_bytes": 64,
        "max_message_bytes": 5000,
        "message_format_version": "2.8",
    }
    with manual_log(directory, segment_bytes=2000) as log:
        count = 0
        for name, setting in settings_of(type(log.config)).items():
            value = getattr(log.config, name)
            if name in others:
                value = others[name]
            elif setting.kind == "boolean":
                value = not value
            else:
                low = 1 if setting.lower is None else max(setting.lower, 1)
                value = type(value)(low if value != low else low + 1)
            try:
                log.reconfigure(log.config.replace(**{name: value}))
            except ConfigError:
                # The value contradicts another key: the error came before any change.
                continue
            if "bytes" in name or name.endswith("_ms"):
                log.reconfigure(log.config.replace(**{name: setting.default}))
            log.append(numbered(count, 3))
            count += 3
        assert count == log.log_end_offset
    with manual_log(directory) as log:
        assert log.recovery_report.clean
        assert list(range(count)) == [record.offset for record in log.records()]
