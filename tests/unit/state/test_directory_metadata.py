"""`partition.metadata`, `meta.properties` and the ids in them, against brokers' files."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptStateError, LogStorageError
from kafkalog.files.names import META_PROPERTIES, PARTITION_METADATA
from kafkalog.files.posix import PosixFileSystem
from kafkalog.java_properties import parse_properties
from kafkalog.state.kafka_uuid import (
    ZERO_ID,
    format_id,
    is_reserved_directory_id,
    new_id,
    parse_id,
)
from kafkalog.state.meta_properties import (
    MetaProperties,
    format_properties,
    read_meta_properties,
    write_meta_properties,
)
from kafkalog.state.partition_metadata import read_partition_metadata, write_partition_metadata
from tests.support.golden import DATA_SETS, data_directory
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
SAMPLE_ID = uuid.UUID(bytes=bytes(range(16)))
SAMPLE_TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with a durable, empty directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def put(disk: SimulatedDisk, name: str, content: bytes) -> None:
    """Make a file with that content."""
    disk.open(DATA / name, create=True).pwrite(content, 0)


def test_format_id_equals_that_of_kafka() -> None:
    """22 characters; 24 with padding are read as well."""
    assert SAMPLE_TEXT == format_id(SAMPLE_ID)
    assert SAMPLE_ID == parse_id(SAMPLE_TEXT) == parse_id(SAMPLE_TEXT + "==")


@pytest.mark.parametrize(
    "text",
    [
        "",
        SAMPLE_TEXT[:-1],
        SAMPLE_TEXT + "A",
        SAMPLE_TEXT + "=",
        "+" + SAMPLE_TEXT[1:],
        SAMPLE_TEXT + "\n",
        "\u00e4" * 22,
    ],
)
def test_parse_id_invalid_text_is_refused(text: str) -> None:
    """Other lengths, other alphabets."""
    with pytest.raises(ValueError, match="must be 16 bytes"):
        parse_id(text)


@given(st.uuids())
def test_parse_id_any_formatted_id_is_returned(value: uuid.UUID) -> None:
    """Spelled and parsed is the same."""
    assert value == parse_id(format_id(value))


def test_new_id_is_unique_and_does_not_begin_with_a_dash() -> None:
    """They stand on command lines, and are none of the reserved ones."""
    values = {new_id() for _ in range(200)}
    assert 200 == len(values)
    assert not any(format_id(value).startswith("-") for value in values)
    assert not any(is_reserved_directory_id(value) for value in values)
    assert [True, True, False] == [is_reserved_directory_id(uuid.UUID(int=n)) for n in (0, 99, 100)]


def test_partition_metadata_bytes_equal_those_of_kafka(disk: SimulatedDisk) -> None:
    """No newline at the end; on the disk when the call returns."""
    assert read_partition_metadata(disk, DATA) is None
    write_partition_metadata(disk, DATA, SAMPLE_ID)
    expected = bytes.fromhex(
        "76 65 72 73 69 6f 6e 3a 20 30 0a 74 6f 70 69 63 5f 69 64 3a 20"
        "41 41 45 43 41 77 51 46 42 67 63 49 43 51 6f 4c 44 41 30 4f 44 77"
    )
    assert expected == disk.crash().snapshot()["/data/partition.metadata"]
    assert SAMPLE_ID == read_partition_metadata(disk, DATA)
    with pytest.raises(ValueError, match="all zeros"):
        write_partition_metadata(disk, DATA, ZERO_ID)


@pytest.mark.parametrize(
    "content",
    [
        f"version: 0\ntopic_id: {SAMPLE_TEXT}\n",
        f"version: 7\r\ntopic_id: \t {SAMPLE_TEXT}\r\n",
        f"version:  0\ntopic_id: {SAMPLE_TEXT}==",
    ],
)
def test_partition_metadata_of_other_writers_is_read(disk: SimulatedDisk, content: str) -> None:
    """Any version, any blanks after the colon, a newline at the end."""
    put(disk, PARTITION_METADATA, content.encode())
    assert SAMPLE_ID == read_partition_metadata(disk, DATA)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "must have 2 lines, .*got 0"),
        (b"version: 0", "must have 2 lines, .*got 1"),
        (f"version: 0\ntopic_id: {SAMPLE_TEXT}\nmore: 1".encode(), "must have 2 lines, .*got 3"),
        (f"topic_id: {SAMPLE_TEXT}\nversion: 0".encode(), "line 1"),
        (f"version:0\ntopic_id: {SAMPLE_TEXT}".encode(), "line 1"),
        (f"version: -1\ntopic_id: {SAMPLE_TEXT}".encode(), "line 1"),
        (f"version: 0\ntopic_id:{SAMPLE_TEXT}".encode(), "line 2"),
        (b"version: 0\ntopic_id: short", "line 2: an id must be 16 bytes .*got 'short'"),
        (b"version: 0\ntopic_id: " + b"A" * 22, "all zeros"),
        (b"\xff\xff\n\xff", "decode"),
        (bytes(100), "lines"),
        (b"x" * 70_000, "size must be <="),
    ],
)
def test_partition_metadata_damaged_raises(disk: SimulatedDisk, content: bytes, match: str) -> None:
    """One typed error, naming the file."""
    put(disk, PARTITION_METADATA, content)
    with pytest.raises(CorruptStateError, match=match) as caught:
        read_partition_metadata(disk, DATA)
    assert "/data/partition.metadata" == caught.value.path


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_metadata_of_broker_is_read_and_written_back(data_set: str, tmp_path: Path) -> None:
    """Every partition's file byte for byte; meta.properties but for its date."""
    filesystem = PosixFileSystem()
    source = data_directory(data_set)
    count = 0
    for path in source.glob(f"*/{PARTITION_METADATA}"):
        topic_id = read_partition_metadata(filesystem, path.parent)
        assert topic_id is not None
        write_partition_metadata(filesystem, tmp_path, topic_id)
        assert path.read_bytes() == (tmp_path / PARTITION_METADATA).read_bytes()
        count += 1
    assert count > 0
    properties = read_meta_properties(filesystem, source)
    assert properties is not None
    write_meta_properties(filesystem, tmp_path, properties, now_ms=0)
    expected, actual = (
        (directory / META_PROPERTIES).read_text().splitlines() for directory in (source, tmp_path)
    )
    assert [expected[0], *expected[2:]] == [actual[0], *actual[2:]]
    assert properties == read_meta_properties(filesystem, tmp_path)


def test_meta_properties_date_equals_that_of_java(disk: SimulatedDisk) -> None:
    """English names whatever the locale, UTC."""
    properties = MetaProperties(cluster_id="dMKr_zHSSDuy_QKL-pe5ng", node_id=1)
    write_meta_properties(disk, DATA, properties, now_ms=1_795_248_080_999)
    assert (
        b"#\n#Sat Nov 21 08:01:20 UTC 2026\nnode.id=1\nversion=1\n"
        b"cluster.id=dMKr_zHSSDuy_QKL-pe5ng\n" == disk.crash().snapshot()["/data/meta.properties"]
    )


def test_meta_properties_version_0_has_broker_id(disk: SimulatedDisk) -> None:
    """Version 0 is assumed where none is given; its node id is called broker.id."""
    assert read_meta_properties(disk, DATA) is None
    put(disk, META_PROPERTIES, b"broker.id=5\nnode.id=6\nsomething.else=x\n")
    properties = MetaProperties(version=0, node_id=5)
    assert properties == read_meta_properties(disk, DATA)
    write_meta_properties(disk, DATA, properties, now_ms=0)
    assert properties == read_meta_properties(disk, DATA)
    assert MetaProperties(version=0) == MetaProperties(version=0, node_id=None)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"version=2\n", "version must be 0 or 1, got 2"),
        (b"version=x\n", "version must be a number, got 'x'"),
        (b"version=1\nnode.id=1\n", "requires cluster.id and node.id"),
        (b"version=1\ncluster.id=c\n", "requires cluster.id and node.id"),
        (b"version=1\ncluster.id=c\nbroker.id=1\n", "requires"),
        (b"version=1\ncluster.id=c\nnode.id=99999999999\n", "must be a number, got"),
        (b"version=1\ncluster.id=c\nnode.id=9999999999\n", "32 bits"),
        (b"version=0\ndirectory.id=short\n", "must be 16 bytes"),
        (b"version=0\ndirectory.id=" + b"A" * 22 + b"\n", "reserved"),
        (b"a=\\u12G4\n", "four hex digits"),
        (b" " * 1_100_000, "size must be <="),
    ],
)
def test_meta_properties_damaged_raises(disk: SimulatedDisk, content: bytes, match: str) -> None:
    """One typed error, naming the file."""
    put(disk, META_PROPERTIES, content)
    with pytest.raises(CorruptStateError, match=match) as caught:
        read_meta_properties(disk, DATA)
    assert "/data/meta.properties" == caught.value.path


def test_metadata_disk_error_is_a_storage_error(disk: SimulatedDisk) -> None:
    """Not damage: the file may be whole."""
    put(disk, META_PROPERTIES, b"version=0\n")
    put(disk, PARTITION_METADATA, b"version: 0")
    for read in (read_meta_properties, read_partition_metadata):
        disk.fail_at(1, only=frozenset({"pread"}))
        with pytest.raises(LogStorageError, match="reading failed"):
            read(disk, DATA)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=5))
def test_meta_properties_any_values_are_read_back(pairs: dict[str, str]) -> None:
    """Formatted and parsed is the same; the file is plain ASCII."""
    text = format_properties(pairs, now_ms=0)
    assert text.isascii()
    assert pairs == {each.key: each.value for each in parse_properties(text)}
