"""Open transactions of a read-only log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, Log
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from tests.support.keyed_batches import keyed_batch, marker
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producing import Client, committed_offsets


def begin(log: Log, producer_id: int, sequence: int = 0) -> None:
    """Append a batch of a transaction."""
    data = keyed_batch(
        [(b"k", b"v")], START_MS, producer_id=producer_id, sequence=sequence, transactional=True
    )
    log.append_batches(data, origin=AppendOrigin.CLIENT)


def test_reader_lists_the_transactions_of_the_writer(tmp_path: Path) -> None:
    """INT-5: as they begin and end; hanging ones of a live broker are visible."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        begin(log, 1)
        begin(log, 2)
        with manual_log(directory, read_only=True) as reader:
            assert [1, 2] == [each.producer_id for each in reader.list_transactions()]
            assert log.list_transactions() == reader.list_transactions()
            end = marker(1, 0, START_MS, abort=True)
            log.append_batches(end, origin=AppendOrigin.COORDINATOR)
            log.roll()
            begin(log, 3)
            assert [2, 3] == [each.producer_id for each in reader.list_transactions()]
            assert log.list_transactions() == reader.list_transactions()


def test_follower_reads_the_transaction_index_of_a_live_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INT-4: new entries are read from the file; no replay is logged, not for debugging either."""
    caplog.set_level(logging.DEBUG, "kafkalog.log.transactions")
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as writer:
        client.send(writer, transactional=True)
        client.end(writer, "abort")
        with manual_log(tmp_path / "orders-0", read_only=True) as reader:
            for number in range(1, 5):
                assert [] == committed_offsets(reader)
                assert 2 * number == reader.log_end_offset
                client.send(writer, transactional=True)
                client.end(writer, "abort")
    assert [] == caplog.records


def test_follower_does_not_warn_before_the_writer_adds_an_entry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INT-4: the marker is written before its index entry; the batches have the facts."""
    path = tmp_path / "orders-0" / "00000000000000000000.txnindex"
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as writer:
        client.send(writer, transactional=True)
        client.end(writer, "abort")
        with manual_log(tmp_path / "orders-0", read_only=True) as reader:
            assert [] == committed_offsets(reader)
            client.send(writer, transactional=True)
            client.end(writer, "abort")
            whole = path.read_bytes()
            for size in (34, 40):
                path.write_bytes(whole[:size])
                assert [] == committed_offsets(reader)
            path.write_bytes(whole)
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_reader_warns_of_a_missing_entry_at_its_first_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INT-4: the rule for followers does not hide it."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as writer:
        for _ in range(2):
            client.send(writer, transactional=True)
            client.end(writer, "abort")
    path = tmp_path / "orders-0" / "00000000000000000000.txnindex"
    path.write_bytes(path.read_bytes()[:34])
    with manual_log(tmp_path / "orders-0", read_only=True) as reader:
        assert [] == committed_offsets(reader)
    assert 1 == caplog.text.count("contradicts its segment: 1 entries are added")


class DeletingFileSystem(PosixFileSystem):
    """A file system that calls `on_index`, if set, before it opens a transaction index."""

    def __init__(self) -> None:
        super().__init__()
        self.on_index: Callable[[], object] | None = None

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a file, and call `on_index` once."""
        if path.suffix == ".txnindex" and self.on_index is not None:
            on_index, self.on_index = self.on_index, None
            on_index()
        return super().open(path, create=create, write=write)


@pytest.mark.parametrize("is_open", [True, False])
def test_aborted_transactions_index_deleted_returns_the_remaining(
    tmp_path: Path, is_open: bool
) -> None:
    """A reader, opened before or during the deletion, uses the segments that the writer kept."""
    client, clock, directory = Client(7), ManualClock(), tmp_path / "orders-0"
    scheduler, disk = ManualScheduler(clock), DeletingFileSystem()
    with manual_log(directory, clock=clock, scheduler=scheduler) as writer:
        for _ in range(2):
            client.send(writer, transactional=True)
            client.end(writer, "abort")
            writer.roll()

        def delete() -> None:
            writer.delete_records(2)
            scheduler.advance(writer.config.file_delete_delay_ms)
            assert not (directory / f"{0:020d}.txnindex").exists()

        if is_open:
            writer.close()
            reader = manual_log(directory, read_only=True, filesystem=disk)
            writer = manual_log(directory, clock=clock, scheduler=scheduler)
            disk.on_index = delete
        else:
            disk.on_index = delete
            reader = manual_log(directory, read_only=True, filesystem=disk)
        with reader, writer:
            assert [2] == [
                each.first_offset for each in partition_of(reader).reader.aborted_transactions(0, 4)
            ]
            assert disk.on_index is None
