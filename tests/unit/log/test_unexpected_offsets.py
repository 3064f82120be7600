"""Appends of a follower that begin below the log end have an error of their own (PAR-15)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, Log, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from tests.support.encoded_batches import batch
from tests.support.logs import manual_log
from tests.support.old_logs import chapter


def refused(log: Log, data: bytes) -> UnexpectedAppendOffsetError:
    """Append as a follower; return the error."""
    before = log.log_end_offset
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append_batches(data, assign_offsets=False)
    assert before == log.log_end_offset
    return caught.value


@pytest.mark.parametrize("origin", [None, AppendOrigin.REPLICATION])
def test_append_below_the_log_end_says_its_offsets(
    directory: Path, origin: AppendOrigin | None
) -> None:
    """PAR-15: first and last offset of the append, and the log end, for what comes next."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=5), assign_offsets=False)
        data = batch(base_offset=7) + batch(base_offset=20)
        with pytest.raises(UnexpectedAppendOffsetError, match="begins at offset 7") as caught:
            log.append_batches(data, assign_offsets=False, origin=origin)
        error = caught.value
        assert (7, 22, 8) == (error.first_offset, error.last_offset, error.log_end_offset)
        assert (7, 0) == (error.base_offset, error.position)
        assert vars(error) == vars(pickle.loads(pickle.dumps(error)))


def test_append_of_a_batch_that_is_there_is_unexpected(directory: Path) -> None:
    """PAR-15: a follower that fetched it twice compares the last offset with its end."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=0), assign_offsets=False)
        error = refused(log, batch(base_offset=0))
        assert error.last_offset is not None
        assert error.log_end_offset is not None
        assert error.last_offset < error.log_end_offset


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_below_the_log_end_says_the_offset_of_its_first_record(
    directory: Path, magic: int
) -> None:
    """PAR-15: its own offset is that of the last record, which may be above the log end."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=0), assign_offsets=False)
        error = refused(log, chapter(magic, 1, [2, 3, 4]).data)
        assert (2, 4, 3) == (error.first_offset, error.last_offset, error.log_end_offset)


def test_offsets_that_do_not_rise_have_the_other_error(directory: Path) -> None:
    """PAR-15: by type a follower can tell its own state from a broken append."""
    with manual_log(directory) as log:
        data = batch(base_offset=9) + batch(base_offset=5)
        with pytest.raises(OffsetsOutOfOrderError) as caught:
            log.append_batches(data, assign_offsets=False)
        assert type(caught.value) is OffsetsOutOfOrderError
        assert 0 == log.log_end_offset
