"""Open transactions, as a log that is only read tells them."""

from __future__ import annotations

from pathlib import Path

from kafkalog import AppendOrigin, Log
from tests.support.keyed_batches import keyed_batch, marker
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS


def begin(log: Log, producer_id: int, sequence: int = 0) -> None:
    """Append a batch of a transaction."""
    data = keyed_batch(
        [(b"k", b"v")], START_MS, producer_id=producer_id, sequence=sequence, transactional=True
    )
    log.append_batches(data, origin=AppendOrigin.CLIENT)


def test_list_transactions_of_a_reader_tells_those_of_the_writer(tmp_path: Path) -> None:
    """INT-5: as they begin and end; hanging ones of a live broker can be seen."""
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
