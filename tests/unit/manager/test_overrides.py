"""File of topic overrides: its bytes, its generations, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import ConfigError, CorruptStateError
from kafkalog.files.names import TOPIC_OVERRIDES
from kafkalog.manager.deletion_marks import PartitionMark
from kafkalog.manager.overrides import (
    ANY_ID,
    EVERYWHERE,
    NO_ID,
    Deletion,
    SavedOverrides,
    read_overrides,
    write_overrides,
)
from tests.support.managers import manual_manager, scheduler_of
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")


def disk_with(content: bytes) -> SimulatedDisk:
    """Return a disk with the content as the file of a data directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(DATA / TOPIC_OVERRIDES, create=True)
    handle.pwrite(content, 0)
    handle.close()
    return disk


def test_write_overrides_has_a_line_per_setting_and_the_generation_last() -> None:
    """The order does not depend on the order of the changes."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    said = {"b.c": {"retention.ms": "-1"}, "a": {"x": "1=2", "cleanup.policy": "compact,delete"}}
    marks = {"/a b,c": {11: PartitionMark(7, 500, 213, -1), 3: PartitionMark(8, 0, 99, 4)}}
    deleting = {
        "e": (Deletion(ANY_ID, frozenset({EVERYWHERE})),),
        "g": (Deletion("CCC", frozenset({"D1", "/a b,c"}), {**marks, "D1": {}}),),
        "f": (Deletion("AAA", frozenset({"D1", "/a b,c"})), Deletion(NO_ID, frozenset({"D2"}))),
    }
    saved = SavedOverrides(
        5,
        said,
        {"log.retention.ms": "7"},
        {"d": 12},
        deleting,
        ids={"a": "BBB"},
        directories={"D1": "/disk1"},
    )
    write_overrides(disk, DATA, saved, now_ms=START_MS)
    handle = disk.open(DATA / TOPIC_OVERRIDES)
    lines = handle.pread(handle.size(), 0).decode().splitlines()
    assert [
        "#",
        "#Tue Nov 14 22:13:20 UTC 2023",
        "<default>/log.retention.ms=7",
        "<creating>/d=12",
        "<deleting>/e=@%2A",
        "<deleting>/f=AAA@/a%20b%2Cc,D1 -@D2",
        "<deleting>/g=CCC@/a%20b%2Cc\\=3.8.0.99.4+11.7.500.213.-1,D1\\=",
        "<id>/a=BBB",
        "<directory>/D1=/disk1",
        "a/cleanup.policy=compact,delete",
        "a/x=1\\=2",
        "b.c/retention.ms=-1",
        "generation=5",
    ] == lines
    assert saved == read_overrides(disk, DATA)


@pytest.mark.parametrize("mark", ["1.2.3", "1.2.3.4.x", "one.2.3.4.5", "1.2.3.4.5.6"])
def test_read_overrides_invalid_deletion_mark_is_refused(mark: str) -> None:
    """Without the mark the next start could delete other partitions."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(DATA / TOPIC_OVERRIDES, create=True)
    handle.pwrite(f"<deleting>/e=AAA@D1\\={mark}\ngeneration=5\n".encode(), 0)
    with pytest.raises(CorruptStateError):
        read_overrides(disk, DATA)


def test_deletion_note_without_id_matches_every_partition_of_its_name() -> None:
    """Earlier versions wrote such notes."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(DATA / TOPIC_OVERRIDES, create=True)
    handle.pwrite(b"<deleting>/e=\ngeneration=5\n", 0)
    found = read_overrides(disk, DATA)
    assert found is not None
    (note,) = found.deleting["e"]
    assert note.is_of("AAA", frozenset({"D1"}))
    assert note.is_of(None, frozenset({"D2"}))


@settings(max_examples=30)
@given(
    topics=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
        st.dictionaries(
            st.from_regex(r"[a-z.]{1,10}", fullmatch=True), st.text(max_size=8), min_size=1
        ),
        max_size=4,
    ),
    generation=st.integers(0, 2**62),
)
def test_overrides_written_are_read_back(
    topics: dict[str, dict[str, str]], generation: int
) -> None:
    """With any characters in values, and any topic names."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    saved = SavedOverrides(generation, topics)
    write_overrides(disk, DATA, saved, now_ms=START_MS)
    assert saved == read_overrides(disk, DATA)


def test_read_overrides_truncated_file_is_refused() -> None:
    """The generation is last: without it no other line is used."""
    whole = b"a/retention.ms=-1\nb/retention.ms=-1\ngeneration=17\n"
    for size in range(whole.index(b"=17") + 1):
        with pytest.raises(CorruptStateError):
            read_overrides(disk_with(whole[:size]), DATA)


@pytest.mark.parametrize(
    "content",
    [
        b"<creating>/a=x\ngeneration=1\n",
        b"generation=x\n",
        b"retention.ms=5\ngeneration=1\n",
        b"a b/x=1\ngeneration=1\n",
        b"\\u12",
    ],
)
def test_read_overrides_damaged_file_raises_and_advises_a_repair(content: bytes) -> None:
    """It is not read as an empty file."""
    with pytest.raises(CorruptStateError, match="repair the file"):
        read_overrides(disk_with(content), DATA)


def test_generation_rises_with_the_clock_or_without_it() -> None:
    """Of two directories, the later change has the larger generation."""
    content = SavedOverrides(topics={"a": {"x": "1"}, "b": {}}, defaults={"y": "2"})
    first = SavedOverrides(10).followed_by(content, now_ms=100)
    assert SavedOverrides(100, {"a": {"x": "1"}}, {"y": "2"}) == first
    assert 101 == first.followed_by(SavedOverrides(), now_ms=50).generation


def test_directory_that_missed_a_change_gets_the_newest_file() -> None:
    """The newest file of all directories counts, and is written to all."""
    disk = SimulatedDisk()
    first, second = Path("/disks/a"), Path("/disks/b")
    with manual_manager(first, filesystem=disk) as manager:
        manager.create_topic("orders", 1, {"retention.ms": "1"})
    with manual_manager(first, second, filesystem=disk) as manager:
        scheduler_of(manager).clock.advance(5)
        manager.reconfigure("orders", {"retention.ms": "2"})
    handle = disk.open(first / TOPIC_OVERRIDES, write=True)
    handle.truncate(0)
    handle.pwrite(b"orders/retention.ms=1\ngeneration=1\n", 0)
    with manual_manager(first, second, filesystem=disk) as manager:
        assert 2 == manager.log("orders").config.retention_ms
    found = read_overrides(disk, first)
    assert found == read_overrides(disk, second)
    assert found is not None
    assert {"orders": {"retention.ms": "2"}} == found.topics


def test_start_unknown_setting_of_a_topic_raises() -> None:
    """Ignoring it could delete records that the topic must keep."""
    disk = disk_with(b"orders/retention.mss=1\ngeneration=1\n")
    with pytest.raises(ConfigError, match=r"kafkalog_topics: .*retention\.ms") as raised:
        manual_manager(DATA, filesystem=disk)
    assert raised.value.path == str(DATA / TOPIC_OVERRIDES)
    disk.unlink(DATA / TOPIC_OVERRIDES)
    manual_manager(DATA, filesystem=disk).close()
