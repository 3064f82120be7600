"""Segments with hostile content: every whole batch around it is served, and none is removed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any, Literal

import pytest

from kafkalog import Log, Record
from kafkalog._core.assign_offsets import assign_offsets
from kafkalog.errors import CorruptRecordError, KafkaLogError, UnsupportedCodecError
from tests.support.damage import log_file
from tests.support.golden import unchanged, vectors
from tests.support.logs import manual_log, numbered, records_until_error

CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in vectors("invalid")["cases"]}
GOOD = bytes.fromhex(CASES["good"]["hex"])
# The hostile batch may have offsets up to here; the good batches after it begin here.
BEHIND = 100
Fact = tuple[int, int, bytes | None, bytes | None]


def good_batch_at(base_offset: int) -> bytes:
    """Return the good batch of three records at another offset."""
    data = bytearray(GOOD)
    assign_offsets(data, base_offset=base_offset)
    return bytes(data)


def write_segment(directory: Path, data: bytes, base_offset: int = 0) -> Path:
    """Write one segment file of a partition, which is made if it is missing."""
    directory.mkdir(exist_ok=True)
    path = log_file(directory, base_offset)
    path.write_bytes(data)
    return path


def fact_of(record: Record) -> Fact:
    """Return the compared fields of a record; reads key and value."""
    return record.offset, record.timestamp_ms, record.key, record.value


def facts(log: Log, on_corrupt: Literal["raise", "skip"] = "skip") -> list[Fact]:
    """Return every record, with its key and value read."""
    records = log.records(on_corrupt=on_corrupt)
    return [fact_of(record) for record in records]


def raised(log: Log) -> tuple[list[Fact], KafkaLogError | None]:
    """Read with the default of raising; return the records before the error, and the error."""
    found, error = records_until_error(log)
    return [fact_of(record) for record in found], error


def good_facts(base_offset: int) -> list[Fact]:
    """Return the records of the good batch at an offset."""
    return [(base_offset + delta, *fact[1:]) for delta, fact in enumerate(GOOD_FACTS)]


@pytest.fixture(name="good", scope="module", autouse=True)
def fixture_good(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Read the good batch once, for comparison with all others."""
    directory = tmp_path_factory.mktemp("good") / "good-0"
    write_segment(directory, GOOD)
    with manual_log(directory) as log:
        GOOD_FACTS[:] = facts(log, "raise")
    assert 3 == len(GOOD_FACTS)


GOOD_FACTS: list[Fact] = []


def ensure_appends_are_reread(directory: Path, **settings: Any) -> None:
    """Append a record at the end, close in order, and find it after all earlier records."""
    with manual_log(directory, **settings) as log:
        before = facts(log)
        info = log.append([Record(key=b"appended", value=b"later")])
        assert log.log_end_offset - 1 == info.first_offset
        assert all(fact[0] < info.first_offset for fact in before)
    with manual_log(directory, **settings) as log:
        assert log.recovery_report.clean
        assert before == facts(log)[:-1]
        assert (info.first_offset, b"appended", b"later") == (
            facts(log)[-1][0],
            *facts(log)[-1][2:],
        )


def ensure_error_is_located(error: KafkaLogError, path: Path, first: int, last: int) -> None:
    """Assert that an error is about the stored bytes, and has their position."""
    assert isinstance(error, (CorruptRecordError, UnsupportedCodecError))
    assert str(path) == error.path
    assert error.position is not None
    assert first <= error.position < last
    assert error.base_offset is not None
    assert str(error.position) in str(error)
    assert str(path) in str(error)


@pytest.mark.parametrize("name", CASES)
def test_hostile_bytes_alone_in_a_segment_open_and_accept_appends(
    directory: Path, name: str
) -> None:
    """Read-only and for writing: whole batches are served, and no other records."""
    content = bytes.fromhex(CASES[name]["hex"])
    path = write_segment(directory, content)

    with unchanged(directory), manual_log(directory, read_only=True) as log:
        read_only = facts(log)
        before, error = raised(log)
        assert before == read_only[: len(before)]
        if error is not None:
            ensure_error_is_located(error, path, 0, len(content))
    with manual_log(directory) as log:
        assert read_only == facts(log)
        assert all(0 <= fact[0] < log.log_end_offset for fact in read_only)
    kept = path.read_bytes() + b"".join(
        side.read_bytes() for side in sorted(directory.glob("*.broken"))
    )
    assert content.rstrip(b"\0") == kept.rstrip(b"\0")
    ensure_appends_are_reread(directory)


@pytest.mark.parametrize("name", CASES)
def test_hostile_bytes_between_good_batches_cost_no_good_batch(directory: Path, name: str) -> None:
    """All records before and after it are served, and the error has the position."""
    hostile = bytes.fromhex(CASES[name]["hex"])
    head, tail = good_batch_at(0), good_batch_at(BEHIND)
    content = head + rebased(hostile) + tail
    path = write_segment(directory, content)

    with unchanged(directory), manual_log(directory, read_only=True) as log:
        ensure_good_are_served(log, path, len(head), len(content) - len(tail))
    with manual_log(directory) as log:
        ensure_good_are_served(log, path, len(head), len(content) - len(tail))
        assert BEHIND + 3 == log.log_end_offset
        assert () == log.recovery_report.cut
    assert content == path.read_bytes()
    ensure_appends_are_reread(directory)


def rebased(hostile: bytes) -> bytes:
    """Return hostile bytes with the base offset after the first good batch instead of 0."""
    return (3).to_bytes(8) + hostile[8:] if hostile[:8] == bytes(8) else hostile


def ensure_good_are_served(log: Log, path: Path, first: int, last: int) -> None:
    """Assert that the good batches around the bytes first to last are served in both modes."""
    found = facts(log)
    assert good_facts(0) == found[:3]
    assert good_facts(BEHIND) == found[-3:]
    offsets = [fact[0] for fact in found]
    assert sorted(offsets) == offsets
    before, error = raised(log)
    assert good_facts(0) == before[:3]
    assert before == found[: len(before)]
    if error is None:
        assert found == before
    else:
        ensure_error_is_located(error, path, first, last)
    for offset in (0, 2, BEHIND, BEHIND + 2):
        assert offset == next(log.records(offset, on_corrupt="skip")).offset
        assert offset == next(log.records(offset)).offset


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("v0_", "v1_"))])
def test_old_messages_with_a_good_crc_are_kept_and_set_the_log_end(
    directory: Path, name: str
) -> None:
    """
    Whole messages of formats v0 and v1 stay, with any content; others are truncated as damage.

    If the offset of a wrapper is lower than its last inner offset, a broker serves records above
    the end of its log. Here that offset is rejected, and the wrapper is a corrupt range.
    """
    content = bytes.fromhex(CASES[name]["hex"])
    whole = CASES[name]["check"]["error"] is None and CASES[name]["walk"]["batches"] == 1
    path = write_segment(directory, content)
    with manual_log(directory) as log:
        if whole:
            last = int.from_bytes(content[:8])
            lies = name == "v1_wrapper_offset_too_small"
            assert lies == bool(log.corrupt_ranges())
            assert log.log_end_offset > last if lies else log.log_end_offset == last + 1
            found = [(b.position, b.last_offset) for b in log.batches(on_corrupt="skip")]
            assert found == ([] if lies else [(0, last)])
        else:
            assert [path] == [cut.path for cut in log.recovery_report.cut]
    assert (content if whole else b"") == path.read_bytes()


@pytest.mark.parametrize("name", ["zstd_bomb_32MiB", "zstd_record_length_1GiB"])
def test_decompression_bomb_uses_no_more_memory_than_allowed(directory: Path, name: str) -> None:
    """Reads, skips and look-ups by time stop at the limit."""
    limit = 100_000
    write_segment(
        directory, good_batch_at(0) + rebased(bytes.fromhex(CASES[name]["hex"])) + good_batch_at(50)
    )
    with manual_log(directory, decompressed_max_bytes=limit) as log:
        tracemalloc.start()
        try:
            found, error = raised(log)
            assert good_facts(0) == found
            assert isinstance(error, CorruptRecordError)
            assert good_facts(50) == [fact for fact in facts(log) if fact[0] >= 50]
            with pytest.raises(CorruptRecordError):
                list(log.read(3).records())
            latest = max(fact[1] for fact in GOOD_FACTS)
            for timestamp in (latest, latest + 1, 2**60):
                try:
                    log.offset_for_timestamp(timestamp)
                except CorruptRecordError as error:
                    assert error.position == len(GOOD)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 20 * limit


def test_hostile_segment_costs_no_neighbour(tmp_path: Path) -> None:
    """Other segments of the log, and another partition of the data directory."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_bytes(b"version=1\ncluster.id=x\nnode.id=1\n")
    other = data / "other-0"
    with manual_log(other) as log:
        log.append(numbered(0, 5))
    directory = data / "orders-0"
    write_segment(directory, good_batch_at(0))
    write_segment(directory, bytes.fromhex(CASES["crc_wrong"]["hex"]), 3)
    write_segment(directory, good_batch_at(6), 6)

    for read_only in (True, False):
        with (
            manual_log(directory, read_only=read_only) as log,
            manual_log(other, read_only=read_only) as neighbour,
        ):
            assert good_facts(0) + good_facts(6) == facts(log)
            assert [(3, 6)] == [(f.first_offset, f.next_offset) for f in log.corrupt_ranges()]
            assert [b"v%d" % number for number in range(5)] == [
                record.value for record in neighbour.records()
            ]
            assert () == neighbour.corrupt_ranges()
    assert good_batch_at(0) == log_file(directory, 0).read_bytes()
    assert bytes.fromhex(CASES["crc_wrong"]["hex"]) == log_file(directory, 3).read_bytes()
    assert good_batch_at(6) == log_file(directory, 6).read_bytes()
