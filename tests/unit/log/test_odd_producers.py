"""Batches with invalid producer fields, and producers with batches below the log start."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, InvalidRecordError, Log, Record, open_log
from kafkalog._core import crc32c
from kafkalog.files.names import SegmentFiles
from kafkalog.log.cleaner_access import cleaner_access
from tests.support.keyed_batches import keyed_batch
from tests.support.logs import manual_log
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/data/orders-0")
EPOCH_POSITION, SEQUENCE_POSITION, CRC_POSITION = 51, 53, 17


def odd(producer_epoch: int = 0, base_sequence: int = 0, base_offset: int = 0) -> bytes:
    """Return a batch with a right CRC and invalid producer fields."""
    data = bytearray(keyed_batch([(b"k", b"v")], 1_700_000_000_000, producer_id=5, sequence=0))
    struct.pack_into(">hi", data, EPOCH_POSITION, producer_epoch, base_sequence)
    struct.pack_into(">I", data, CRC_POSITION, crc32c.value(bytes(data[CRC_POSITION + 4 :])))
    struct.pack_into(">q", data, 0, base_offset)
    return bytes(data)


ODD = [{"producer_epoch": -2}, {"base_sequence": -2}, {"producer_epoch": -(2**15)}]


@pytest.mark.parametrize("fields", ODD, ids=str)
def test_append_batches_invalid_producer_field_is_refused(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    """HOST-1: a snapshot could not store it; the log takes the next append, and closes."""
    with open_log(tmp_path / "t-0") as log:
        for data in (odd(**fields), keyed_batch([(b"a", b"b")], 0) + odd(**fields, base_offset=1)):
            with pytest.raises(InvalidRecordError, match="must be -1 or more"):
                log.append_batches(data, assign_offsets=False)
        assert 0 == log.log_end_offset
        log.append([Record(value=b"x")])
        log.roll()


@pytest.mark.parametrize("fields", ODD, ids=str)
def test_open_log_batch_with_invalid_producer_has_no_producer(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    """HOST-1: directories with such a batch open, roll and close, after crashes as well."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    SegmentFiles(directory, 0).log.write_bytes(odd(**fields))
    for number in range(3):
        with open_log(directory) as log:
            assert number + 1 == len(list(log.records()))
            assert not cleaner_access(log).last_batches()
            log.append([Record(value=b"y")])
            log.roll()
        shutil.copytree(directory, tmp_path / f"{number}-0")
        (tmp_path / f"{number}-0" / ".kafka_cleanshutdown").unlink()
        open_log(tmp_path / f"{number}-0").close()


def sent(log: Log, producer_id: int) -> bool:
    """Send the first batch of a producer; return whether it is a duplicate."""
    data = keyed_batch([(b"k", b"v")], 1_700_000_000_000, producer_id=producer_id, sequence=0)
    return log.append_batches(data, origin=AppendOrigin.CLIENT).is_duplicate


@pytest.mark.parametrize("how", ["killed", "closed", "killed without snapshots"])
@pytest.mark.parametrize("rolls", [False, True])
def test_producer_with_batch_below_the_log_start_stays_known(how: str, rolls: bool) -> None:
    """PAR-5: states are replayed from the segment's base, also below the log start."""
    disk = SimulatedDisk()
    log = manual_log(DIRECTORY, filesystem=disk)
    assert [False, False] == [sent(log, 1), sent(log, 2)]
    if rolls:
        log.roll()
        log.append([Record(value=b"x")])
    log.flush()
    log.delete_records(1)
    if how == "closed":
        log.close()
    left = disk.killed()
    if how == "killed without snapshots":
        for name in left.list(DIRECTORY):
            if name.endswith(".snapshot"):
                left.unlink(DIRECTORY / name)
    with manual_log(DIRECTORY, filesystem=left) as again:
        assert 1 == again.log_start_offset
        assert [True, True] == [sent(again, 1), sent(again, 2)]
        again.truncate_to(again.log_end_offset)
        assert [True, True] == [sent(again, 1), sent(again, 2)]
