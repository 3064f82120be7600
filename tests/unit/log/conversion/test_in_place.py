"""Conversion of a log in place: replaced and kept segments, open readers, refusals."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Codec, LogConfig, Record
from kafkalog.errors import (
    ConfigError,
    CorruptIndexError,
    CorruptRecordError,
    LogCleaningAbortedError,
    LogLockedError,
    NotALogError,
)
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.conversion import in_place
from kafkalog.log.conversion.data_directory import convert_directory
from kafkalog.log.conversion.outcome import ConversionProgress, LogConversion
from kafkalog.log.conversion.single_log import convert_log
from kafkalog.records.codecs import compress
from kafkalog.records.conversion.convert import convert_runs
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
from tests.support.damage import batch_positions, flip
from tests.support.golden_old import (
    OldManifest,
    all_old_partitions,
    copy_old_data_directory,
    copy_old_partition,
)
from tests.support.logs import manual_log
from tests.support.reference_messages import Message, encode_set


def inodes(directory: Path) -> dict[str, tuple[int, int]]:
    """
    Return the inode and time of last modification of every segment file.

    The indexes of the last segment are left out: they grow with every opening for writing.
    """
    last = bases(directory)[-1]
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in directory.iterdir()
        if path.suffix == ".log" or (path.suffix.endswith("index") and int(path.stem) < last)
    }


@pytest.mark.parametrize(("broker", "name"), all_old_partitions())
def test_convert_in_place_old_brokers_log_equals_its_manifest(
    tmp_path: Path, broker: str, name: str
) -> None:
    """All 123 partitions of four brokers, recompressed; segments begin at the same offsets."""
    manifest = OldManifest(broker, name)
    directory = copy_old_partition(broker, name, tmp_path / name)
    before = bases(directory)
    made = convert_log(directory, in_place=True, codec=Codec.ZSTD)
    ensure_reads_as(manifest, directory)
    assert manifest.summary.log_end_offset == made.log_end_offset
    assert set(before) <= set(bases(directory))
    assert len(bases(directory)) == made.segment_count
    sizes = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert sizes == made.result_bytes
    assert not list(directory.glob("*.cleaned")) + list(directory.glob("*.swap"))


def test_convert_in_place_rolls_the_active_segment_and_takes_appends(tmp_path: Path) -> None:
    """The old active segment is sealed and converted; the report's sums are those of the files."""
    directory = write_log(tmp_path / "a-0")
    before, expected = bases(directory), read(directory)
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    made = convert_log(directory, in_place=True, codec=Codec.LZ4, config=SMALL)
    assert [*before, 400] == bases(directory)
    assert before == [segment.base_offset for segment in made.segments]
    assert (size, 400) == (made.source_bytes, made.report.records_converted)
    assert made.source_bytes == made.report.source_bytes
    assert made.result_bytes == made.report.result_bytes < size
    assert expected == read(directory)
    with kafkalog.open_log(directory, config=SMALL) as log:
        assert log.recovery_report.clean
        assert 400 == log.append([Record(value=b"next")]).first_offset


def test_convert_in_place_of_converted_log_changes_no_file(tmp_path: Path) -> None:
    """Neither v2 to v2 without a codec, nor a codec that every batch has."""
    directory = write_log(tmp_path / "a-0")
    before = inodes(directory)
    made = convert_log(directory, in_place=True)
    assert before == inodes(directory)
    assert (0, made.source_bytes) == (made.report.records_converted, made.result_bytes)
    assert made.report.source_bytes_by_codec == {"none": made.source_bytes}
    assert not any(segment.was_converted for segment in made.segments)
    convert_log(directory, in_place=True, codec=Codec.ZSTD)
    before = inodes(directory)
    assert 0 == convert_log(directory, in_place=True, codec=Codec.ZSTD).saved_bytes
    assert before == inodes(directory)


def test_convert_in_place_incompressible_batches_change_no_file(tmp_path: Path) -> None:
    """The batches are compressed once more, found no smaller, and kept."""
    with kafkalog.open_log(tmp_path / "a-0") as log:
        log.append([Record(value=os.urandom(500))])
    convert_log(tmp_path / "a-0", in_place=True, codec=Codec.ZSTD)
    before = inodes(tmp_path / "a-0")
    made = convert_log(tmp_path / "a-0", in_place=True, codec=Codec.ZSTD)
    assert before == inodes(tmp_path / "a-0")
    assert (1, 0) == (made.report.batches_copied, made.report.records_converted)


def test_convert_in_place_keeps_the_time_of_segments(tmp_path: Path) -> None:
    """Records of v0 have no timestamp: retention uses the age of the file."""
    old = encode_set([Message(n, 0, 0, -1, b"k", b"v") for n in range(60)])
    directory = write_old_log(tmp_path / "a-0", old)
    path = directory / f"{0:020}.log"
    # Recovery writes the file once more, so the time is set after it.
    kafkalog.open_log(directory).close()
    os.utime(path, (1_400_000_000, 1_400_000_000))
    convert_log(directory, in_place=True)
    assert 1_400_000_000 == path.stat().st_mtime


def test_convert_in_place_skips_segments_below_the_log_start(tmp_path: Path) -> None:
    """Retention deletes them soon. The segment with the log start is converted as a whole."""
    directory = write_log(tmp_path / "a-0")
    with manual_log(directory) as log:
        log.delete_records(205)
        start = bases(directory)[0]
    made = convert_log(directory, in_place=True, codec=Codec.ZSTD)
    assert (205, start) == (made.log_start_offset, made.segments[0].base_offset)
    with kafkalog.open_log(directory, read_only=True) as log:
        assert 205 == next(iter(log.records())).offset


@pytest.mark.parametrize("name", ["transactions-0", "compact-txn-0"])
def test_convert_in_place_split_keeps_transactions_with_markers(tmp_path: Path, name: str) -> None:
    """Every entry of a transaction index stays, in the segment that has its marker."""
    directory = golden.copy_partition(golden.CLEAN, name, tmp_path / name)
    expected = read(directory)

    before = transaction_entries(directory)
    convert_log(directory, in_place=True, codec=Codec.ZSTD)
    assert before == transaction_entries(directory)
    config = LogConfig(segment_bytes=2048)
    made = convert_log(directory, in_place=True, codec=Codec.NONE, config=config)
    assert made.segment_count > len(made.segments)
    after = transaction_entries(directory)
    assert [entry for _, entry in before] == [entry for _, entry in after]
    ensure_placed(after, bases(directory))
    assert expected == read(directory)


def test_convert_in_place_progress_reaches_the_end(tmp_path: Path) -> None:
    """Both stages report all bytes of all segments."""
    directory = write_log(tmp_path / "a-0")
    steps: list[ConversionProgress] = []
    made = convert_log(directory, in_place=True, codec=Codec.ZSTD, progress=steps.append)
    for stage in ("converting", "verifying"):
        done = [step.done_bytes for step in steps if step.stage == stage]
        assert sorted(done) == done
        assert made.source_bytes == done[-1]


# ---- replacement in an open log


def test_replaced_segment_stays_readable_by_open_readers(tmp_path: Path) -> None:
    """A read from before the replacement keeps the old segment; a later read has the new one."""
    directory = write_log(tmp_path / "a-0")
    with manual_log(directory) as log:
        leaving = log.segments()[0]
        held = log.read(0)
        records = log.records()
        first = next(records)
        for kind in ("log", "index", "timeindex"):
            path = directory / f"{0:020}.{kind}"
            path.with_name(path.name + ".cleaned").write_bytes(path.read_bytes())
        cleaner_access(log).replace_segments([leaving], [0])
        assert leaving is not log.segments()[0]
        assert [0, *range(1, 400)] == [first.offset, *(record.offset for record in records)]
        assert 0 == next(iter(held.batches())).base_offset
        assert list(range(400)) == [record.offset for record in log.records()]
        assert 0 == log.append([Record(value=b"v")]).first_offset - 400
        with pytest.raises(LogCleaningAbortedError, match="has left"):
            cleaner_access(log).replace_segments([leaving], [0])
    assert not list(directory.glob("*.cleaned"))


@pytest.mark.parametrize("mappings_max", [1, 512])
def test_read_only_log_follows_a_replacement(tmp_path: Path, mappings_max: int) -> None:
    """Also a log that has to open its files again and gets the new ones."""
    directory = write_log(tmp_path / "a-0")
    config = LogConfig(mappings_max=mappings_max, open_files_max=mappings_max)
    with kafkalog.open_log(directory, read_only=True, config=config) as log:
        expected = [(record.offset, record.value) for record in log.records()]
        for codec in (Codec.ZSTD, Codec.NONE):
            convert_log(directory, in_place=True, codec=codec, config=SMALL)
            assert expected == [(record.offset, record.value) for record in log.records()]
            for offset in (3, 200, 399):
                record = log.get(offset)
                assert record is not None
                assert expected[offset] == (offset, record.value)


# ---- damage


def damaged_log(directory: Path) -> tuple[Path, int]:
    """Write a log whose second segment has damage that no recovery scans for."""
    write_log(directory)
    path = directory / f"{bases(directory)[1]:020}.log"
    position = batch_positions(path)[1]
    flip(path, position + 65)
    return path, position


def test_convert_in_place_damage_raises_and_keeps_the_log_whole(tmp_path: Path) -> None:
    """Segments before the damaged one stay converted; the damaged one is not changed."""
    path, position = damaged_log(tmp_path / "a-0")
    data = path.read_bytes()
    done: list[LogConversion] = []
    with pytest.raises(CorruptRecordError) as caught:
        convert_log(
            tmp_path / "a-0", in_place=True, codec=Codec.ZSTD, config=SMALL, done=done.append
        )
    assert (str(path), position) == (caught.value.path, caught.value.position)
    [partial] = done
    bases = sorted(int(each.stem) for each in (tmp_path / "a-0").glob("*.log"))
    before = [base for base in bases if base < int(path.stem)]
    assert (before, False) == ([each.base_offset for each in partial.segments], partial.is_complete)
    assert all(each.was_converted for each in partial.segments)
    assert data == path.read_bytes()
    with kafkalog.open_log(tmp_path / "a-0") as log:
        codecs = [batch.codec for batch in log.batches(on_corrupt="skip")]
        assert 390 == len(list(log.records(on_corrupt="skip")))
    assert Codec.ZSTD == codecs[0]
    assert Codec.NONE == codecs[-1]


def test_convert_in_place_skip_keeps_the_damaged_segment(tmp_path: Path) -> None:
    """The report lists it. It is kept, since no other copy of its records exists."""
    path, _ = damaged_log(tmp_path / "a-0")
    data = path.read_bytes()
    made = convert_log(
        tmp_path / "a-0", in_place=True, codec=Codec.ZSTD, config=SMALL, on_corrupt="skip"
    )
    assert [(path, 0, len(data), True)] == [
        (left.path, left.position, left.size_bytes, left.kept) for left in made.left_out
    ]
    assert data == path.read_bytes()
    converted = {segment.base_offset: segment.was_converted for segment in made.segments}
    assert [int(path.stem)] == [base for base, done in converted.items() if not done]
    with kafkalog.open_log(tmp_path / "a-0") as log:
        assert 390 == len(list(log.records(on_corrupt="skip")))


def test_convert_in_place_undecodable_old_batch_keeps_its_segment(tmp_path: Path) -> None:
    """The CRC of the batch is right: only its records show the damage."""
    lying = encode_set([Message(5, 1, 1, T, None, compress(Codec.GZIP, bytes(60)))])
    good = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in range(5)])
    directory = write_old_log(tmp_path / "a-0", good, lying)
    with pytest.raises(CorruptRecordError):
        convert_log(directory, in_place=True)
    made = convert_log(directory, in_place=True, on_corrupt="skip")
    assert [True] == [left.kept for left in made.left_out]
    assert good + lying == (directory / f"{0:020}.log").read_bytes()


def test_convert_in_place_damaged_transaction_index_keeps_its_segment(tmp_path: Path) -> None:
    """The new place of its entries is unknown until a recovery rebuilds the index."""
    name = "transactions-0"
    directory = golden.copy_partition(golden.CLEAN, name, tmp_path / name)
    kafkalog.open_log(directory).close()
    path = next(path for path in directory.glob("*.txnindex") if path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptIndexError):
        convert_log(directory, in_place=True, codec=Codec.LZ4)
    made = convert_log(directory, in_place=True, codec=Codec.LZ4, on_corrupt="skip")
    assert [path.with_suffix(".log")] == [left.path for left in made.left_out]
    assert [True] == [left.kept for left in made.left_out]


def test_convert_in_place_lost_records_never_replace_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification finds the missing batch, and the new files are removed."""
    directory = write_log(tmp_path / "a-0")
    expected = read(directory)

    def lossy(*arguments: Any, **options: Any) -> Any:
        return list(convert_runs(*arguments, **options))[1:]

    monkeypatch.setattr(in_place, "convert_runs", lossy)
    with pytest.raises(CorruptRecordError, match="has different records"):
        convert_log(directory, in_place=True, codec=Codec.ZSTD)
    assert expected == read(directory)
    assert not list(directory.glob("*.cleaned"))


# ---- places


def test_convert_in_place_log_open_for_writing_is_refused(tmp_path: Path) -> None:
    """The directory lock keeps out a second writer."""
    directory = write_log(tmp_path / "a-0")
    with manual_log(directory), pytest.raises(LogLockedError):
        convert_log(directory, in_place=True, codec=Codec.ZSTD)


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_convert_in_place_path_without_log_is_refused(tmp_path: Path, what: str) -> None:
    """An empty directory must not become a log, as it would if it were opened for writing."""
    path = tmp_path / "a-0"
    if what == "file":
        path.write_text("")
    elif what == "empty":
        path.mkdir()
    with pytest.raises(NotALogError):
        convert_log(path, in_place=True)
    assert not path.is_dir() or not list(path.iterdir())


def test_convert_needs_either_a_target_or_in_place(tmp_path: Path) -> None:
    """In place is always verified."""
    directory = write_log(tmp_path / "a-0", appends=1)
    for call in (convert_log, convert_directory):
        with pytest.raises(ConfigError, match="either a target directory or"):
            call(directory)
        with pytest.raises(ConfigError, match="either a target directory or"):
            call(directory, tmp_path / "b-0", in_place=True)
        with pytest.raises(ConfigError, match="verify must be True"):
            call(directory, in_place=True, verify=False)


def test_convert_directory_in_place_keeps_other_files(tmp_path: Path) -> None:
    """Checkpoints, metadata and the clean shutdown marker; every partition is converted."""
    data = copy_old_data_directory("kafka-2.8", tmp_path / "data")
    before = golden.snapshot(data)
    records = {path.name: read(path) for path in data.iterdir() if path.is_dir()}
    made = convert_directory(data, in_place=True, codec=Codec.LZ4)
    assert set(records) == {log.source.name for log in made.logs}
    for name, expected in records.items():
        assert expected == read(data / name)
    after = golden.snapshot(data)
    segments = (".log", "index", ".deleted", "/")
    changing = {".kafka_cleanshutdown", "recovery-point-offset-checkpoint"}
    kept = {name for name in before if not name.endswith(segments)} - changing
    # As in a broker, snapshots of earlier closes and at the log start go with the next opening.
    snapshots = {name for name in kept if name.endswith(".snapshot")}
    assert snapshots & set(after) < snapshots
    kept -= snapshots - set(after)
    assert kept
    assert {name: before[name] for name in kept} == {name: after.get(name) for name in kept}
    assert changing <= set(after)


def test_convert_directory_in_place_stops_at_damage(tmp_path: Path) -> None:
    """Partitions before it are converted, later ones are not. With skip one segment is kept."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    config = replace(SMALL, segment_bytes=1 << 20)
    for name in ("a-0", "b-0", "c-0"):
        write_log(data / name, config=config)
    path = next((data / "b-0").glob("*.log"))
    flip(path, batch_positions(path)[3] + 65)
    done: list[LogConversion] = []
    with pytest.raises(CorruptRecordError):
        convert_directory(data, in_place=True, codec=Codec.ZSTD, config=config, done=done.append)
    assert [(data / "a-0", 400, True), (data / "b-0", 0, False)] == [
        (log.source, log.report.records_converted, log.is_complete) for log in done
    ]
    made = convert_directory(
        data, in_place=True, codec=Codec.ZSTD, config=config, on_corrupt="skip"
    )
    assert [0, 400] == [log.report.records_converted for log in (made.logs[0], made.logs[2])]
    assert [0, 1, 0] == [len(log.left_out) for log in made.logs]
