"""Follower appends that begin below the log end raise their own error (PAR-15)."""

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
def test_append_below_the_log_end_error_has_its_offsets(
    directory: Path, origin: AppendOrigin | None
) -> None:
    """PAR-15: first and last offset, and the log end, so that the follower can react."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=5), assign_offsets=False)
        data = batch(base_offset=7) + batch(base_offset=20)
        with pytest.raises(UnexpectedAppendOffsetError, match="begins at offset 7") as caught:
            log.append_batches(data, assign_offsets=False, origin=origin)
        error = caught.value
        assert (7, 22, 8) == (error.first_offset, error.last_offset, error.log_end_offset)
        assert (7, 0) == (error.base_offset, error.position)
        assert vars(error) == vars(pickle.loads(pickle.dumps(error)))


def test_append_of_an_existing_batch_raises_unexpected_offset(directory: Path) -> None:
    """PAR-15: a follower that fetched it twice compares the last offset with its end."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=0), assign_offsets=False)
        error = refused(log, batch(base_offset=0))
        assert error.last_offset is not None
        assert error.log_end_offset is not None
        assert error.last_offset < error.log_end_offset


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_below_the_log_end_error_has_its_first_offset(directory: Path, magic: int) -> None:
    """PAR-15: the wrapper's own offset is that of its last record, maybe above the log end."""
    with manual_log(directory) as log:
        log.append_batches(batch(base_offset=0), assign_offsets=False)
        error = refused(log, chapter(magic, 1, [2, 3, 4]).data)
        assert (2, 4, 3) == (error.first_offset, error.last_offset, error.log_end_offset)


def test_append_of_falling_offsets_raises_out_of_order(directory: Path) -> None:
    """PAR-15: the type separates a follower's own state from a wrong append."""
    with manual_log(directory) as log:
        data = batch(base_offset=9) + batch(base_offset=5)
        with pytest.raises(OffsetsOutOfOrderError) as caught:
            log.append_batches(data, assign_offsets=False)
        assert type(caught.value) is OffsetsOutOfOrderError
        assert 0 == log.log_end_offset
