"""The file of what topics say: its bytes, its generations, and what is made of a damaged one."""

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
from tests.support.managers import manual_manager
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")


def disk_with(content: bytes) -> SimulatedDisk:
    """Return a disk on which a data directory has that file."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(DATA / TOPIC_OVERRIDES, create=True)
    handle.pwrite(content, 0)
    handle.close()
    return disk


def test_file_has_one_line_for_each_setting_and_its_generation_last() -> None:
    """In an order that does not depend on that of the changes."""
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
def test_note_of_deletion_with_a_garbled_mark_is_refused(mark: str) -> None:
    """Without it the next start could delete what is not meant."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(DATA / TOPIC_OVERRIDES, create=True)
    handle.pwrite(f"<deleting>/e=AAA@D1\\={mark}\ngeneration=5\n".encode(), 0)
    with pytest.raises(CorruptStateError):
        read_overrides(disk, DATA)


def test_note_of_deletion_without_id_means_every_partition_of_its_name() -> None:
    """As notes were that earlier versions wrote."""
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
def test_whatever_is_written_is_read(topics: dict[str, dict[str, str]], generation: int) -> None:
    """Texts of any characters, whatever the topics are called."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    saved = SavedOverrides(generation, topics)
    write_overrides(disk, DATA, saved, now_ms=START_MS)
    assert saved == read_overrides(disk, DATA)


def test_file_that_was_cut_is_refused() -> None:
    """The generation stands last: without it nothing of the rest is believed."""
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
def test_damaged_file_is_an_error_that_says_what_to_do(content: bytes) -> None:
    """It is not taken for one that says nothing."""
    with pytest.raises(CorruptStateError, match="repair the file"):
        read_overrides(disk_with(content), DATA)


def test_generation_rises_with_the_clock_or_without_it() -> None:
    """So that of two directories the one that was changed later counts."""
    content = SavedOverrides(topics={"a": {"x": "1"}, "b": {}}, defaults={"y": "2"})
    first = SavedOverrides(10).followed_by(content, now_ms=100)
    assert SavedOverrides(100, {"a": {"x": "1"}}, {"y": "2"}) == first
    assert 101 == first.followed_by(SavedOverrides(), now_ms=50).generation


def test_directory_that_missed_a_change_learns_of_it() -> None:
    """The latest of all files counts, and is written to all."""
    disk = SimulatedDisk()
    first, second = Path("/disks/a"), Path("/disks/b")
    with manual_manager(first, filesystem=disk) as manager:
        manager.create_topic("orders", 1, {"retention.ms": "1"})
    with manual_manager(first, second, filesystem=disk) as manager:
        manager.time.advance(5)
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


def test_setting_that_nobody_knows_any_longer_is_an_error() -> None:
    """Passing over it could delete what a topic is to keep."""
    disk = disk_with(b"orders/retention.mss=1\ngeneration=1\n")
    with pytest.raises(ConfigError, match=r"kafkalog_topics: .*retention\.ms") as raised:
        manual_manager(DATA, filesystem=disk)
    assert raised.value.path == str(DATA / TOPIC_OVERRIDES)
    disk.unlink(DATA / TOPIC_OVERRIDES)
    manual_manager(DATA, filesystem=disk).close()
