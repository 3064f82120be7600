"""Small files of any content: checkpoints, markers, journals, snapshots, internal records.

Each is refused with an error of the library, or read; a second write and read return the same. The
first byte chooses the kind of file. If a checksum covers the content, a second byte decides whether
it is made valid, since a mutation rarely has a valid one.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kafkalog._core import crc32c
from kafkalog.clients import offset_records, transaction_records
from kafkalog.errors import KafkaLogError
from kafkalog.files.names import SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from kafkalog.indexes.transaction_index import TransactionIndex
from kafkalog.manager.overrides import read_overrides
from kafkalog.records.control import decode_control
from kafkalog.spark.txn.model import Intent
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.meta_properties import read_meta_properties, write_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata, write_partition_metadata
from kafkalog.state.producer_snapshot import decode_snapshot, encode_snapshot
from kafkalog.state.shutdown_marker import read_shutdown_marker
from kafkalog.state.sync_journal import SyncJournal
from tests.fuzz.inputs import Choices

__all__ = ["KINDS", "read_state"]

_DISK: Final = PosixFileSystem()
_memory = Path("/dev/shm")
_FOLDER: Final = Path(
    tempfile.mkdtemp(prefix="kafkalog-fuzz-", dir=_memory if _memory.is_dir() else None)
)
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def read_state(data: bytes) -> None:
    """Read one small file of any content."""
    choices = Choices(data)
    kind = choices.one_of(KINDS)
    is_summed = bool(choices.byte() & 1)
    with contextlib.suppress(KafkaLogError):
        kind(choices.rest, is_summed)


def _file(name: str, data: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(data)
    return path


def _offsets(data: bytes, _is_summed: bool) -> None:
    checkpoint = OffsetCheckpoint(_DISK, _file("recovery-point-offset-checkpoint", data))
    found = checkpoint.read()
    checkpoint.write(found)
    assert found == checkpoint.read()


def _epochs(data: bytes, _is_summed: bool) -> None:
    checkpoint = LeaderEpochCheckpoint(_DISK, _file("leader-epoch-checkpoint", data))
    found = checkpoint.read()
    checkpoint.write(found)
    assert found == checkpoint.read()


def _meta_properties(data: bytes, _is_summed: bool) -> None:
    _file("meta.properties", data)
    found = read_meta_properties(_DISK, _FOLDER)
    if found is not None:
        write_meta_properties(_DISK, _FOLDER, found, now_ms=0)
        assert found == read_meta_properties(_DISK, _FOLDER)


def _partition_metadata(data: bytes, _is_summed: bool) -> None:
    _file("partition.metadata", data)
    found = read_partition_metadata(_DISK, _FOLDER)
    if found is not None:
        write_partition_metadata(_DISK, _FOLDER, found)
        assert found == read_partition_metadata(_DISK, _FOLDER)


def _shutdown_marker(data: bytes, _is_summed: bool) -> None:
    _file(".kafka_cleanshutdown", data)
    assert read_shutdown_marker(_DISK, _FOLDER) is not None


def _overrides(data: bytes, _is_summed: bool) -> None:
    _file(".kafkalog_topics", data)
    read_overrides(_DISK, _FOLDER)


def _snapshot(data: bytes, is_summed: bool) -> None:
    if is_summed and len(data) >= 6:
        data = data[:2] + struct.pack(">I", crc32c.value(data[6:])) + data[6:]
    found = decode_snapshot(data)
    again = decode_snapshot(encode_snapshot(found))
    assert {each.producer_id: each for each in found} == {each.producer_id: each for each in again}


def _sync_note(data: bytes, is_summed: bool) -> None:
    if is_summed:
        data = data[:28].ljust(28, b"\0")
        data += struct.pack(">I", crc32c.value(data))
    note = SyncJournal(_DISK, _file(".kafkalog_syncs", data), bytes(8))
    found = note.begin_recovery(100, errors_are_kept=True)
    note.close()
    assert found is None or found >= 100


def _transaction_index(data: bytes, _is_summed: bool) -> None:
    path = _file(SegmentFiles(_FOLDER, 1000).transaction_index.name, data)
    index = TransactionIndex(_DISK, path, 1000, read_only=True)
    index.load()
    index.collect(0, 2**62)
    index.close()


def _transaction(data: bytes, is_summed: bool) -> None:
    if is_summed:
        transaction_records.decode_key(data)
        return
    found = transaction_records.decode_value(data)
    again = transaction_records.decode_value(transaction_records.encode_value(found))
    if found.state is transaction_records.TransactionState.EMPTY:
        found = replace(found, partitions=())
    # Version 0 is written, which does not have these fields; the header has the first of them.
    assert (False, ()) == (again.has_own_epochs, again.other_producer_ids)
    assert again == replace(found, has_own_epochs=False, other_producer_ids=())


def _group(data: bytes, is_summed: bool) -> None:
    if is_summed:
        where = offset_records.decode_key(data)
        if where is not None:
            assert where == offset_records.decode_key(offset_records.encode_key(where))
        return
    found = offset_records.decode_value(data)
    assert found == offset_records.decode_value(offset_records.encode_value(found))


def _control(data: bytes, is_summed: bool) -> None:
    place = data[0] % (len(data) + 1) if data else 0
    decode_control(data[:place], None if is_summed else data[place:])


def _intent(data: bytes, _is_summed: bool) -> None:
    found = Intent.from_json(data, "the intent")
    assert found == Intent.from_json(found.to_json(), "the intent")


KINDS: Final[list[Callable[[bytes, bool], Any]]] = [
    _offsets,
    _epochs,
    _meta_properties,
    _partition_metadata,
    _shutdown_marker,
    _overrides,
    _snapshot,
    _sync_note,
    _transaction_index,
    _transaction,
    _group,
    _control,
    _intent,
]
