"""The clean-shutdown marker: existence counts, content informs, removal is durable."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.errors import LogPermissionError, LogStorageError
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.shutdown_marker import (
    ShutdownMarker,
    read_shutdown_marker,
    remove_shutdown_marker,
    write_shutdown_marker,
)
from tests.support.golden import CLEAN, UNCLEAN, data_directory
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
PATH = DATA / ".kafka_cleanshutdown"


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with a durable, empty data directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def test_marker_bytes_equal_those_of_kafka_and_survive(disk: SimulatedDisk) -> None:
    """The bytes of the specification; on the disk when the call returns."""
    assert read_shutdown_marker(disk, DATA) is None
    write_shutdown_marker(disk, DATA, broker_epoch=17)
    assert b'{"version":0,"brokerEpoch":17}' == disk.crash().snapshot()[str(PATH)]
    assert ShutdownMarker(17) == read_shutdown_marker(disk, DATA)
    write_shutdown_marker(disk, DATA)
    assert b'{"version":0,"brokerEpoch":-1}' == disk.crash().snapshot()[str(PATH)]
    assert ShutdownMarker(None) == read_shutdown_marker(disk, DATA)


def test_remove_marker_is_durable_when_it_returns(disk: SimulatedDisk) -> None:
    """A marker that came back after a crash would let damaged logs pass for clean ones."""
    write_shutdown_marker(disk, DATA)
    assert remove_shutdown_marker(disk, DATA)
    assert [None] == [read_shutdown_marker(state, DATA) for _, state in disk.crash_states()]
    assert not remove_shutdown_marker(disk, DATA)


def test_remove_marker_failed_raises(disk: SimulatedDisk) -> None:
    """The caller must not continue as if the marker were removed."""
    write_shutdown_marker(disk, DATA)
    disk.fail_at(1, 13, only=frozenset({"unlink"}))
    with pytest.raises(LogPermissionError, match="removing failed"):
        remove_shutdown_marker(disk, DATA)
    disk.fail_at(1, only=frozenset({"sync_directory"}))
    with pytest.raises(LogStorageError, match="removing failed"):
        remove_shutdown_marker(disk, DATA)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"17",
        b"{}",
        b'{"version":0}',
        b'{"brokerEpoch":17}',
        b'{"version":0,"brokerEpoch":"17"}',
        b'{"version":0,"brokerEpoch":true}',
        b'{"version":0,"brokerEpoch":1.5}',
        b'{"version":0,"brokerEpoch":-2}',
        b'{"version":0,"brokerEpoch":9223372036854775808}',
        b"[" * 60_000,
        b"1" * 60_000,
        b" " * 70_000,
    ],
)
def test_read_marker_any_content_is_a_marker(disk: SimulatedDisk, content: bytes) -> None:
    """Only the epoch is unknown then."""
    disk.open(PATH, create=True).pwrite(content, 0)
    assert ShutdownMarker(None) == read_shutdown_marker(disk, DATA)


def test_read_marker_unknown_fields_are_ignored(disk: SimulatedDisk) -> None:
    """A later version may have more fields."""
    disk.open(PATH, create=True).pwrite(b'{"version":1,"more":[1],"brokerEpoch":5}\n', 0)
    assert ShutdownMarker(5) == read_shutdown_marker(disk, DATA)


def test_read_marker_of_broker_is_read() -> None:
    """A stopped broker leaves a marker, a killed broker does not."""
    filesystem = PosixFileSystem()
    directory = data_directory(CLEAN)
    marker = read_shutdown_marker(filesystem, directory)
    assert marker is not None
    text = f'{{"version":0,"brokerEpoch":{marker.broker_epoch}}}'
    assert text == (directory / CLEAN_SHUTDOWN_MARKER).read_text()
    assert read_shutdown_marker(filesystem, data_directory(UNCLEAN)) is None
