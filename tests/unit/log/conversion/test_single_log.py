"""Conversion of a log to a new directory: kept, split, copied, refused and skipped parts."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Codec, LogConfig, Record
from kafkalog.cli.demo.flights import find_flights, flights
from kafkalog.errors import (
    CorruptRecordError,
    LogCleaningAbortedError,
    LogStorageError,
    NotALogError,
)
from kafkalog.log.conversion import partition as conversion
from kafkalog.log.conversion.data_directory import convert_directory
from kafkalog.log.conversion.outcome import ConversionProgress
from kafkalog.log.conversion.single_log import convert_log
from kafkalog.records.codecs import compress
from kafkalog.records.conversion.convert import convert_batches, convert_runs
from tests.support import golden
from tests.support.converted_logs import (
    SMALL,
    T,
    bases,
    ensure_placed,
    ensure_reads_as,
    read,
    transaction_entries,
    write_log,
    write_old_log,
)
from tests.support.damage import batch_positions, fix_crc, flip, truncate
from tests.support.golden_old import OldManifest, all_old_partitions, old_data_directory
from tests.support.reference_messages import Message, encode_set

# ---- kept parts


@pytest.mark.parametrize(("broker", "name"), all_old_partitions())
def test_convert_old_brokers_log_equals_its_manifest(
    tmp_path: Path, broker: str, name: str
) -> None:
    """All 123 partitions of four brokers, all formats; segments begin at the same offsets."""
    manifest = OldManifest(broker, name)
    target = tmp_path / name
    made = convert_log(manifest.directory, target)
    ensure_reads_as(manifest, target)
    assert made.verified
    assert manifest.summary.log_end_offset == made.log_end_offset
    assert bases(target)[-1] == bases(manifest.directory)[-1]
    assert set(bases(target)) <= set(bases(manifest.directory))


# A controller's log has no records of clients, and other files next to it.
PARTITIONS = [name for name in golden.partitions(golden.CLEAN) if not name.startswith("__cluster")]


@pytest.mark.parametrize("name", PARTITIONS)
def test_convert_recompressed_keeps_batches_and_transactions(tmp_path: Path, name: str) -> None:
    """Each batch keeps its header fields; small files are copied."""
    source = golden.data_directory(golden.CLEAN) / name
    convert_log(source, tmp_path / name, codec=Codec.GZIP)
    fields = (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "is_control",
        "is_transactional",
        "partition_leader_epoch",
        "max_timestamp",
    )

    def headers(directory: Path) -> list[tuple[Any, ...]]:
        with kafkalog.open_log(directory, read_only=True) as log:
            return [tuple(getattr(b.header, f) for f in fields) for b in log.batches()]

    assert headers(source) == headers(tmp_path / name)
    assert read(source) == read(tmp_path / name)
    for path in source.iterdir():
        if path.suffix in (".snapshot", ".txnindex") or "." not in path.name:
            assert path.read_bytes() == (tmp_path / name / path.name).read_bytes()
    metadata = (tmp_path / name / "partition.metadata").read_bytes()
    assert (source / "partition.metadata").read_bytes() == metadata


def test_converted_log_takes_appends_at_the_old_end(tmp_path: Path) -> None:
    """The new log counts as cleanly closed."""
    write_log(tmp_path / "a-0")
    convert_log(tmp_path / "a-0", tmp_path / "b-0", codec=Codec.LZ4, config=SMALL)
    with kafkalog.open_log(tmp_path / "b-0", config=SMALL) as log:
        assert log.recovery_report.clean
        info = log.append([Record(value=b"next")])
    assert 400 == info.first_offset
    assert read(tmp_path / "a-0") == read(tmp_path / "b-0")[:-1]


def test_convert_leaves_out_batches_below_the_log_start(tmp_path: Path) -> None:
    """The batch that has the start is kept as a whole, and the log start stays."""
    source = write_log(tmp_path / "a-0")
    with kafkalog.open_log(source, config=SMALL) as log:
        log.delete_records(205)
    made = convert_log(source, tmp_path / "b-0")
    assert 205 == made.log_start_offset
    with kafkalog.open_log(tmp_path / "b-0", read_only=True) as log:
        assert 205 == log.log_start_offset
        assert 205 == next(iter(log.records())).offset
    first = min((tmp_path / "b-0").glob("*.log"))
    assert 200 == kafkalog.BatchView(first.read_bytes()[: _first_size(first)]).base_offset


def _first_size(path: Path) -> int:
    return 12 + int(struct.unpack_from(">i", path.read_bytes(), 8)[0])


def test_convert_log_without_records_keeps_its_end(tmp_path: Path) -> None:
    """The name of its empty segment is the offset of the next append."""
    source = write_log(tmp_path / "a-0")
    with kafkalog.open_log(source, config=SMALL) as log:
        log.truncate_fully_and_start_at(10_000)
    made = convert_log(source, tmp_path / "b-0")
    assert (10_000, 10_000, 0) == (made.log_start_offset, made.log_end_offset, made.result_bytes)
    with kafkalog.open_log(tmp_path / "b-0") as log:
        assert 10_000 == log.append([Record(value=b"v")]).first_offset


def test_convert_keeps_the_time_of_segments(tmp_path: Path) -> None:
    """Records of v0 have no timestamp: retention uses the age of the file."""
    old = [encode_set([Message(n, 0, 0, -1, b"k", b"v" * 999)], codec=1) for n in range(60)]
    source = write_old_log(tmp_path / "a-0", *old[:30])
    (source / f"{30:020}.log").write_bytes(b"".join(old[30:]))
    for number, path in enumerate(sorted(source.glob("*.log"))):
        os.utime(path, (1_400_000_000 + number, 1_400_000_000 + number))
    convert_log(source, tmp_path / "b-0", codec=Codec.NONE, config=LogConfig(segment_bytes=9000))
    times = {int(path.stem): path.stat().st_mtime for path in (tmp_path / "b-0").glob("*.log")}
    assert 2 < len(times)
    assert {base: 1_400_000_000 + (base >= 30) for base in times} == times


def test_convert_report_and_progress_add_up(tmp_path: Path) -> None:
    """Both stages report all bytes; the sums are the sizes of the files."""
    source = write_log(tmp_path / "a-0")
    steps: list[ConversionProgress] = []
    made = convert_log(source, tmp_path / "b-0", codec=Codec.ZSTD, progress=steps.append)
    size = sum(path.stat().st_size for path in source.glob("*.log"))
    assert size == made.source_bytes == made.report.source_bytes
    result = sum(path.stat().st_size for path in (tmp_path / "b-0").glob("*.log"))
    assert result == made.result_bytes == made.report.result_bytes
    assert size - result == made.saved_bytes > 0
    assert 400 == made.report.records_converted
    assert bases(source) == [segment.base_offset for segment in made.segments]
    assert (size, result) == (
        sum(segment.source_bytes for segment in made.segments),
        sum(segment.result_bytes for segment in made.segments),
    )
    assert all(segment.was_converted for segment in made.segments)
    for stage in ("converting", "verifying"):
        done = [step.done_bytes for step in steps if step.stage == stage]
        assert sorted(done) == done
        assert size == done[-1]


def test_convert_demo_records_to_old_formats_and_back_keeps_them(tmp_path: Path) -> None:
    """20,000 flights of the demo: down to v0 and v1, and up again, compressed."""
    made = list(flights(find_flights(), 20_000))
    config = LogConfig(segment_bytes=1 << 20, compression_type="zstd")
    with kafkalog.open_log(tmp_path / "flights-0", config=config) as log:
        log.append(made)
    for magic, codec in ((0, Codec.NONE), (1, Codec.GZIP)):
        old = tmp_path / f"v{magic}-0"
        old.mkdir()
        for path in (tmp_path / "flights-0").glob("*.log"):
            down = convert_batches(path.read_bytes(), magic, codec=codec)
            (old / path.name).write_bytes(down.data)
        convert_log(old, tmp_path / f"up-{magic}", codec=Codec.ZSTD)
        found = [(record[3], record[4], record[1]) for record in read(tmp_path / f"up-{magic}")]
        assert [(r.key, r.value, r.timestamp_ms if magic else -1) for r in made] == found


# ---- segments


def test_convert_splits_a_segment_that_grows_and_its_transactions(tmp_path: Path) -> None:
    """Each entry of the transaction index is in the segment that has its marker."""
    name = "transactions-0"
    source = golden.data_directory(golden.CLEAN) / name
    compressed = tmp_path / "compressed-0"
    convert_log(source, compressed, codec=Codec.ZSTD, config=LogConfig(segment_bytes=1 << 20))
    config = LogConfig(segment_bytes=2048)
    made = convert_log(compressed, tmp_path / "plain-0", codec=Codec.NONE, config=config)
    assert made.segment_count > len(made.segments)
    assert read(source) == read(tmp_path / "plain-0")

    before, after = transaction_entries(source), transaction_entries(tmp_path / "plain-0")
    assert [entry for _, entry in before] == [entry for _, entry in after]
    ensure_placed(after, bases(tmp_path / "plain-0"))


def test_convert_segment_above_the_setting_is_not_split(tmp_path: Path) -> None:
    """A segment above `segment.bytes` may stay as large as it is."""
    source = write_log(tmp_path / "a-0", config=LogConfig())
    made = convert_log(source, tmp_path / "b-0", config=LogConfig(segment_bytes=2048))
    assert (1, 1) == (len(made.segments), made.segment_count)


# ---- damage


def test_convert_damaged_log_raises_and_leaves_no_target(tmp_path: Path) -> None:
    """The error is typed and names the place; the source stays unchanged."""
    source = write_log(tmp_path / "a-0")
    path = source / f"{bases(source)[1]:020}.log"
    position = batch_positions(path)[1]
    flip(path, position + 65)
    with golden.unchanged(source), pytest.raises(CorruptRecordError) as caught:
        convert_log(source, tmp_path / "b-0")
    assert (str(path), position) == (caught.value.path, caught.value.position)
    assert [source] == list(tmp_path.iterdir())


def test_convert_skip_leaves_out_and_reports_damage(tmp_path: Path) -> None:
    """The batches around it are converted, and read back equal."""
    source = write_log(tmp_path / "a-0")
    path = source / f"{bases(source)[1]:020}.log"
    position = batch_positions(path)[1]
    flip(path, position + 65)
    made = convert_log(source, tmp_path / "b-0", codec=Codec.ZSTD, on_corrupt="skip")
    left = made.left_out[0]
    assert (1, path, position) == (len(made.left_out), left.path, left.position)
    found = [record[0] for record in read(tmp_path / "b-0")]
    assert [n for n in range(400) if not left.first_offset <= n < left.next_offset] == found
    assert 10 == left.next_offset - left.first_offset


def test_convert_torn_tail_is_reported_and_left_out(tmp_path: Path) -> None:
    """The conversion does not raise: opening the log would cut the tail, too."""
    source = write_log(tmp_path / "a-0", config=LogConfig())
    (source / ".kafka_cleanshutdown").unlink()
    (source / "recovery-point-offset-checkpoint").unlink()
    path = next(source.glob("*.log"))
    truncate(path, path.stat().st_size - 7)
    made = convert_log(source, tmp_path / "b-0")
    assert ["torn tail: TRUNCATED"] == [left.reason for left in made.left_out]
    assert 390 == made.log_end_offset


def test_convert_damaged_end_keeps_its_offsets(tmp_path: Path) -> None:
    """A later append must not get the offsets of records that are missing."""
    source = write_log(tmp_path / "a-0", config=LogConfig())
    path = next(source.glob("*.log"))
    flip(path, batch_positions(path)[-2] + 65)
    (source / ".kafka_cleanshutdown").unlink()
    made = convert_log(source, tmp_path / "b-0", on_corrupt="skip")
    assert 400 == made.log_end_offset
    with kafkalog.open_log(tmp_path / "b-0") as log:
        assert (390, 400) == (len(list(log.records())), log.log_end_offset)


def lying_wrapper(offset: int) -> bytes:
    """Return a wrapper whose CRC is right and whose content is invalid."""
    inside = compress(Codec.GZIP, b"\0" * 60)
    return encode_set([Message(offset, 1, 1, T, None, inside)])


def test_convert_undecodable_old_batch_raises_or_is_left_out(tmp_path: Path) -> None:
    """Its CRC is right, so no corrupt range covers it."""
    good = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in range(5)])
    more = encode_set([Message(n, 0, 0, -1, b"k", b"v") for n in range(6, 9)])
    source = write_old_log(tmp_path / "a-0", good, lying_wrapper(5), more)
    with pytest.raises(CorruptRecordError):
        convert_log(source, tmp_path / "b-0")
    made = convert_log(source, tmp_path / "b-0", on_corrupt="skip")
    assert [(len(good), 5, False)] == [
        (left.position, left.first_offset, left.kept) for left in made.left_out
    ]
    assert [0, 1, 2, 3, 4, 6, 7, 8] == [record[0] for record in read(tmp_path / "b-0")]


def test_convert_skip_copies_an_undecodable_v2_batch(tmp_path: Path) -> None:
    """The bytes are kept: another reader may decode them one day."""
    source = write_log(tmp_path / "a-0", config=LogConfig(), appends=3)
    path = next(source.glob("*.log"))
    data = bytearray(path.read_bytes())
    start = batch_positions(path)[1]
    size = 12 + struct.unpack_from(">i", data, start + 8)[0]
    data[start + 22] = 1  # The codec bits name gzip.
    data[start : start + size] = fix_crc(bytes(data[start : start + size]))
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError):
        convert_log(source, tmp_path / "b-0", codec=Codec.ZSTD)
    made = convert_log(source, tmp_path / "b-0", codec=Codec.ZSTD, on_corrupt="skip")
    assert [(start, size, True)] == [
        (left.position, left.size_bytes, left.kept) for left in made.left_out
    ]
    assert bytes(data[start : start + size]) in next((tmp_path / "b-0").glob("*.log")).read_bytes()
    assert made.verified


def test_convert_lost_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification finds the missing batch; without it the conversion succeeds."""
    source = write_log(tmp_path / "a-0")
    real = convert_runs

    def lossy(*arguments: Any, **options: Any) -> Any:
        return list(real(*arguments, **options))[1:]

    monkeypatch.setattr(conversion, "convert_runs", lossy)
    with pytest.raises(CorruptRecordError, match="has different records"):
        convert_log(source, tmp_path / "b-0")
    assert [source] == list(tmp_path.iterdir())
    assert not convert_log(source, tmp_path / "b-0", verify=False).verified


# ---- places


def test_convert_existing_target_is_refused(tmp_path: Path) -> None:
    """An empty directory is not overwritten either, nor one left by an earlier attempt."""
    source = write_log(tmp_path / "a-0", appends=1)
    (tmp_path / "b-0").mkdir()
    with pytest.raises(LogStorageError, match="exists"):
        convert_log(source, tmp_path / "b-0")
    (tmp_path / ".c-0.converting").mkdir()
    with pytest.raises(LogStorageError, match="earlier attempt"):
        convert_log(source, tmp_path / "c-0")
    assert [] == list((tmp_path / "b-0").iterdir())


def test_convert_target_in_a_data_directory_is_refused(tmp_path: Path) -> None:
    """A broker that starts there must not find an unfinished log."""
    source = write_log(tmp_path / "a-0", appends=1)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    with pytest.raises(NotALogError, match="data directory"):
        convert_log(source, tmp_path / "data" / "a-0")


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_convert_source_without_log_is_refused(tmp_path: Path, what: str) -> None:
    """The error names the source, and no target directory stays."""
    source = tmp_path / "a-0"
    if what == "file":
        source.write_text("")
    elif what == "empty":
        source.mkdir()
    with pytest.raises(NotALogError) as caught:
        convert_log(source, tmp_path / "b-0")
    assert str(source) == str(caught.value.path)
    assert not (tmp_path / "b-0").exists()
    assert not (tmp_path / ".b-0.converting").exists()


def test_convert_log_during_a_swap_is_refused(tmp_path: Path) -> None:
    """Read-only its segments are incomplete; a writer completes the swap."""
    source = golden.data_directory(golden.SWAP) / golden.partitions(golden.SWAP)[0]
    with golden.unchanged(source), pytest.raises(LogCleaningAbortedError, match="swap"):
        convert_log(source, tmp_path / "b-0")


def test_convert_unknown_on_corrupt_is_refused(tmp_path: Path) -> None:
    """A misspelt value must not permit the loss of records."""
    with pytest.raises(ValueError, match="ignore"):
        convert_log(tmp_path, tmp_path / "b", on_corrupt="ignore")  # type: ignore[arg-type]


# ---- data directories


def test_convert_directory_keeps_checkpoints_and_marker(tmp_path: Path) -> None:
    """Every partition of a 2.8 broker; log starts, watermarks and the marker stay."""
    source = old_data_directory("kafka-2.8")
    made = convert_directory(source, tmp_path / "data", codec=Codec.LZ4)
    assert {path.name for path in source.iterdir() if path.is_dir()} == {
        log.source.name for log in made.logs
    }
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        assert (source / name).read_bytes() == (tmp_path / "data" / name).read_bytes()
    for converted in made.logs:
        assert read(converted.source) == read(converted.target)
    name = "deleted-records-v1-0"
    with kafkalog.open_log(tmp_path / "data" / name) as log:
        assert log.recovery_report.clean
        assert (249, 400, 400) == (log.log_start_offset, log.log_end_offset, log.durable_offset)


def test_convert_directory_of_killed_broker_writes_no_marker(tmp_path: Path) -> None:
    """Its producer snapshots are older than its log ends. Deleted directories are left out."""
    source = golden.data_directory(golden.UNCLEAN)
    made = convert_directory(source, tmp_path / "data")
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert all(name.endswith("-delete") for name in made.left_out)
    assert "__cluster_metadata-0" in made.copied
    metadata = golden.snapshot(source / "__cluster_metadata-0")
    assert metadata == golden.snapshot(tmp_path / "data" / "__cluster_metadata-0")


def test_convert_directory_with_a_damaged_log_writes_nothing(tmp_path: Path) -> None:
    """With skip all logs are converted."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    write_log(data / "a-0")
    broken = write_log(data / "b-0", config=replace(SMALL, segment_bytes=1 << 20))
    path = next(broken.glob("*.log"))
    flip(path, batch_positions(path)[3] + 65)
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    with pytest.raises(CorruptRecordError):
        convert_directory(data, tmp_path / "new")
    assert [data] == list(tmp_path.iterdir())
    made = convert_directory(data, tmp_path / "new", on_corrupt="skip")
    assert [0, 1] == [len(log.left_out) for log in made.logs]


def test_convert_directory_without_partitions_is_refused(tmp_path: Path) -> None:
    """There is nothing to convert."""
    with pytest.raises(NotALogError, match="no partition"):
        convert_directory(tmp_path, tmp_path / "new")
