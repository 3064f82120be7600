"""The grammar of names: a golden table of good and bad ones, and parse as inverse of build."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import NotALogError
from kafkalog.files.names import (
    MAX_BASE_OFFSET,
    MAX_OFFSET,
    DirectoryState,
    FileKind,
    FileState,
    PartitionDirectory,
    SegmentFileName,
    SegmentFiles,
    ensure_topic_name,
    is_topic_name,
    parse_partition_directory,
    parse_segment_file,
    partition_directory_name,
    segment_file_name,
    temporary_path,
    topics_collide,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.model import TopicPartition

ID = "d1fd385e08244b67abda956d24471627"

GOOD_FILES = {
    "00000000000000000000.log": (0, FileKind.LOG, FileState.LIVE, None),
    "00000000000000005000.index": (5000, FileKind.OFFSET_INDEX, FileState.LIVE, None),
    "00000000000000005000.timeindex": (5000, FileKind.TIME_INDEX, FileState.LIVE, None),
    "00000000000000005000.txnindex": (5000, FileKind.TRANSACTION_INDEX, FileState.LIVE, None),
    "00000000000000005000.snapshot": (5000, FileKind.SNAPSHOT, FileState.LIVE, None),
    "09223372034707292160.log": (MAX_BASE_OFFSET, FileKind.LOG, FileState.LIVE, None),
    "09223372036854775807.snapshot": (MAX_OFFSET, FileKind.SNAPSHOT, FileState.LIVE, None),
    "00000000000000005000.log.swap": (5000, FileKind.LOG, FileState.SWAP, None),
    "00000000000000005000.timeindex.cleaned": (5000, FileKind.TIME_INDEX, FileState.CLEANED, None),
    "00000000000000005000.snapshot.deleted": (5000, FileKind.SNAPSHOT, FileState.DELETED, None),
    "00000000000000005000.index.tmp": (5000, FileKind.OFFSET_INDEX, FileState.TEMPORARY, None),
    "00000000000000005000.log.broken": (5000, FileKind.LOG, FileState.BROKEN, None),
    "00000000000000005000.log.0.broken": (5000, FileKind.LOG, FileState.BROKEN, 0),
    "00000000000000005000.log.817.broken": (5000, FileKind.LOG, FileState.BROKEN, 817),
}

BAD_FILES = [
    "",
    ".log",
    "0.log",
    "0000000000000000000.log",  # 19 digits
    "000000000000000000000.log",  # 21 digits
    "09223372036854775808.log",  # 2^63
    "99999999999999999999.log",
    "-0000000000000000001.log",
    "+0000000000000000001.log",
    "0000000000000000000a.log",
    " 00000000000000000000.log",
    "00000000000000000000.log\n",
    "\u0660" * 20 + ".log",  # Arabic-Indic digits
    "00000000000000000000",
    "00000000000000000000.",
    "00000000000000000000.LOG",
    "00000000000000000000.logs",
    "00000000000000000000.deleted",
    "00000000000000000000.checkpoint",
    "00000000000000000000-0000000001.checkpoint",
    "00000000000000000000.log.",
    "00000000000000000000.log.swap.deleted",
    "00000000000000000000.log.817",
    "00000000000000000000.log.817.deleted",
    "00000000000000000000.log.0817.broken",
    "00000000000000000000.log.9223372036854775808.broken",
    "00000000000000000000.log~",
    "leader-epoch-checkpoint",
    "partition.metadata",
    ".lock",
]

TOPIC_249 = "t" * 249
GOOD_DIRECTORIES = {
    "orders-0": ("orders", 0, DirectoryState.LIVE, None),
    "orders-eu-2147483647": ("orders-eu", 2147483647, DirectoryState.LIVE, None),
    "__consumer_offsets-49": ("__consumer_offsets", 49, DirectoryState.LIVE, None),
    "a.b_c-7": ("a.b_c", 7, DirectoryState.LIVE, None),
    "--1": ("-", 1, DirectoryState.LIVE, None),
    "x-delete-0": ("x-delete", 0, DirectoryState.LIVE, None),
    f"x-0.{ID}-delete-3": (f"x-0.{ID}-delete", 3, DirectoryState.LIVE, None),
    f"{TOPIC_249}-0": (TOPIC_249, 0, DirectoryState.LIVE, None),
    f"u-gone-0.{ID}-delete": ("u-gone", 0, DirectoryState.DELETE, ID),
    f"orders-eu-12.{ID}-stray": ("orders-eu", 12, DirectoryState.STRAY, ID),
    f"orders-eu-12.{ID}-future": ("orders-eu", 12, DirectoryState.FUTURE, ID),
    f"a.b-0.{ID}-future": ("a.b", 0, DirectoryState.FUTURE, ID),
}

BAD_DIRECTORIES = [
    "",
    "orders",
    "orders-",
    "-0",
    "orders-x",
    "orders-00",
    "orders-01",
    "orders--",
    "orders-+1",
    "orders-1 ",
    "orders-1\n",
    "orders-2147483648",
    "orders-99999999999",
    "or ders-0",
    "or/ders-0",
    "\u00e9-0",
    ".-0",
    "..-0",
    f"{'t' * 250}-0",
    "orders-delete",
    "orders-0-delete",
    f"orders-0.{ID}",
    f"orders-0.{ID}-deleted",
    f"orders-0.{ID[:-1]}-delete",
    f"orders-0.{ID}0-delete",
    f"orders-0.{ID.upper()}-delete",
    f"orders.{ID}-delete",
    f"{'t' * 214}-0.{ID}-delete",  # 256 characters
    "remote-log-index-cache",
    "lost+found",
]


@pytest.mark.parametrize("name", GOOD_FILES)
def test_segment_file_name_valid_is_parsed_and_built(name: str) -> None:
    """The table, in both directions."""
    assert GOOD_FILES[name] == parse_segment_file(name)
    assert name == segment_file_name(*GOOD_FILES[name])


@pytest.mark.parametrize("name", BAD_FILES)
def test_segment_file_name_invalid_is_refused(name: str) -> None:
    """Nothing but what we build is a segment's file."""
    assert try_parse_segment_file(name) is None
    with pytest.raises(ValueError, match="must be that of a segment file, got"):
        parse_segment_file(name)


@pytest.mark.parametrize(
    "parts",
    [
        (-1, FileKind.LOG),
        (MAX_BASE_OFFSET + 1, FileKind.LOG),
        (MAX_OFFSET + 1, FileKind.SNAPSHOT),
        (0, FileKind.LOG, FileState.DELETED, 5),
        (0, FileKind.LOG, FileState.BROKEN, -1),
    ],
)
def test_segment_file_name_impossible_is_not_built(parts: tuple[int, FileKind]) -> None:
    """HOST-8: a segment begins where 32 bits more are offsets; only what was cut has a position."""
    with pytest.raises(ValueError, match=r"base offset|cut position"):
        segment_file_name(*parts)


@given(
    st.builds(
        SegmentFileName,
        st.integers(0, MAX_BASE_OFFSET),
        st.sampled_from(FileKind),
        st.sampled_from(FileState),
        st.none(),
    )
    | st.builds(
        SegmentFileName,
        st.integers(0, MAX_BASE_OFFSET),
        st.sampled_from(FileKind),
        st.just(FileState.BROKEN),
        st.integers(0, MAX_OFFSET),
    )
)
def test_segment_file_name_any_built_is_parsed(parts: SegmentFileName) -> None:
    """Whatever is built means the same when it is read, and begins with its offset."""
    name = segment_file_name(*parts)
    assert parts == parse_segment_file(name)
    assert parts.base_offset == int(name.split(".", maxsplit=1)[0])


@given(st.text(alphabet="0123456789.-logindextmes", max_size=40))
def test_segment_file_name_any_parsed_is_built(name: str) -> None:
    """Parsing is one-to-one: no two names mean the same file."""
    parsed = try_parse_segment_file(name)
    assert parsed is None or name == segment_file_name(*parsed)


def test_segment_files_are_the_paths_of_one_segment() -> None:
    """All kinds, any state, in the order in which they are renamed."""
    files = SegmentFiles(Path("d"), 42)
    names = [path.name.partition(".")[2] for path in files]
    assert ["log", "index", "timeindex", "txnindex"] == names
    assert Path("d/00000000000000000042.snapshot") == files.snapshot
    assert Path("d/00000000000000000042.log.swap") == files.in_state(FileState.SWAP).log
    assert Path("e/00000000000000000042.index") == files.in_directory(Path("e")).offset_index
    assert Path("d/00000000000000000042.timeindex") == files.time_index
    assert Path("d/00000000000000000042.txnindex") == files.transaction_index
    assert Path("d/00000000000000000042.log.817.broken") == files.broken(FileKind.LOG, 817)
    assert Path("d/00000000000000000042.index.tmp") == temporary_path(files.offset_index)


@pytest.mark.parametrize("name", GOOD_DIRECTORIES)
def test_directory_name_valid_is_parsed_and_built(name: str) -> None:
    """The table, in both directions; only a deleted name of full length may truncate the topic."""
    topic, partition, state, unique_id = GOOD_DIRECTORIES[name]
    parsed = parse_partition_directory(name)
    assert PartitionDirectory(TopicPartition(topic, partition), state, unique_id) == parsed
    assert name == partition_directory_name(TopicPartition(topic, partition), state, unique_id)
    assert not parsed.topic_may_be_cut


@pytest.mark.parametrize("name", BAD_DIRECTORIES)
def test_directory_name_invalid_is_refused(name: str) -> None:
    """The error has the form of a partition directory's name."""
    assert try_parse_partition_directory(name) is None
    with pytest.raises(NotALogError, match="topic-partition"):
        parse_partition_directory(name)


@pytest.mark.parametrize(
    ("state", "partition", "kept"),
    [
        (DirectoryState.DELETE, 0, 213),
        (DirectoryState.STRAY, 0, 214),
        (DirectoryState.DELETE, 10, 212),
    ],
)
def test_directory_name_long_topic_is_truncated_if_deleted(
    state: DirectoryState, partition: int, kept: int
) -> None:
    """The name has at most 255 characters, and reports that the topic may be truncated."""
    name = partition_directory_name(TopicPartition(TOPIC_249, partition), state, ID)
    assert f"{'t' * kept}-{partition}.{ID}{state.value}" == name
    assert 255 == len(name)
    assert parse_partition_directory(name).topic_may_be_cut


def test_directory_name_long_topic_is_refused_if_future() -> None:
    """A future name gives the topic back, so it cannot be cut."""
    with pytest.raises(ValueError, match="at most 255 characters, got 291"):
        partition_directory_name(TopicPartition(TOPIC_249, 0), DirectoryState.FUTURE, ID)


@pytest.mark.parametrize(
    ("topic", "partition", "state", "unique_id", "match"),
    [
        ("a b", 0, DirectoryState.LIVE, None, "must have only characters of"),
        ("a", -1, DirectoryState.LIVE, None, "partition must be 0 to 2147483647"),
        ("a", 2**31, DirectoryState.LIVE, None, "partition must be 0 to 2147483647"),
        ("a", 0, DirectoryState.LIVE, ID, "unique_id must be None"),
        ("a", 0, DirectoryState.DELETE, "abc", "hex"),
    ],
)
def test_directory_name_impossible_is_not_built(
    topic: str, partition: int, state: DirectoryState, unique_id: str | None, match: str
) -> None:
    """A name that cannot be parsed is not built."""
    with pytest.raises(ValueError, match=match):
        partition_directory_name(TopicPartition(topic, partition), state, unique_id)


def test_directory_name_deleted_gets_a_new_id() -> None:
    """Two deletions of one partition do not collide."""
    names = {
        partition_directory_name(TopicPartition("a", 0), DirectoryState.DELETE) for _ in range(10)
    }
    assert 10 == len(names)


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True).filter(is_topic_name),
    st.integers(0, 2**31 - 1),
    st.sampled_from(DirectoryState),
)
def test_directory_name_any_built_is_parsed(
    topic: str, partition: int, state: DirectoryState
) -> None:
    """Dashes, dots and digits in the topic do not matter."""
    topic_partition = TopicPartition(topic, partition)
    unique_id = None if state is DirectoryState.LIVE else ID
    name = partition_directory_name(topic_partition, state, unique_id)
    assert PartitionDirectory(topic_partition, state, unique_id) == parse_partition_directory(name)
    assert f"{topic}-{partition}" == str(topic_partition)


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "...", "-", TOPIC_249, "__consumer_offsets"])
def test_topic_name_legal_is_returned(topic: str) -> None:
    """249 of [A-Za-z0-9._-]."""
    assert is_topic_name(topic)
    assert topic == ensure_topic_name(topic)


@pytest.mark.parametrize(
    ("topic", "match"),
    [
        ("", "must not be empty"),
        (".", "must not be empty"),
        ("..", "must not be empty"),
        ("t" * 250, "at most 249 characters, got 250"),
        ("a/b", "must have only characters of"),
        ("a\n", "must have only characters of"),
        ("\u00e4", "must have only characters of"),
    ],
)
def test_topic_name_illegal_is_refused_with_the_rule(topic: str, match: str) -> None:
    """The message has the rule."""
    assert not is_topic_name(topic)
    with pytest.raises(ValueError, match=match):
        ensure_topic_name(topic)


def test_topics_collide_if_equal_but_for_dots_and_underscores() -> None:
    """As Kafka's metric names would."""
    assert topics_collide("a.b", "a_b")
    assert topics_collide("a", "a")
    assert not topics_collide("a.b", "a-b")
