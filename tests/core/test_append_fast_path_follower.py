"""Tests that the follower's fast path agrees with the check of each batch, or declines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec
from kafkalog.records.validation import follower
from tests.support.encoded_batches import BatchSpec, batch, edited, follower_fast_path
from tests.support.packed_runs import run_contents

RULES = AppendRules.of(LogConfig(segment_bytes=2**20))
CONTROL, TRANSACTIONAL = 0x20, 0x10
# Fields that decide about the fast path: position, layout and value.
EDITS = st.sampled_from(
    [
        (0, ">q", 0),
        (0, ">q", -1),
        (8, ">i", 40),
        (8, ">i", 2**31 - 1),
        (12, ">i", -2),
        (12, ">i", 9),
        (16, ">b", 1),
        (16, ">b", 3),
        (21, ">h", 5),
        (21, ">h", CONTROL | TRANSACTIONAL),
        (23, ">i", 7),
        (23, ">i", -1),
        (35, ">q", -1),
        (43, ">q", 77),
        (57, ">i", 2),
        (57, ">i", -1),
    ]
)


def made_of(
    pieces: list[tuple[Codec, int, int, int, tuple[int, str, int] | None]],
) -> tuple[bytes, list[int]]:
    """Return batches with gaps between them, and the epoch of each."""
    data, epochs, start = b"", [], 0
    for codec, gap, epoch, producer, edit in pieces:
        start += gap
        one = batch(
            BatchSpec(codec, timestamps=(-1,), keys=(b"k",)) if producer == 3 else BatchSpec(codec),
            base_offset=start,
            partition_leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
        )
        data += one if edit is None else edited(one, *edit)
        epochs.append(epoch)
        start += 3
    return data, epochs


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
            st.integers(0, 2),
            st.integers(-1, 1),
            st.sampled_from([-1, -1, 3]),
            st.none() | EDITS,
        ),
        max_size=4,
    ),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2),
)
def test_follower_fast_path_agrees_with_the_check_of_each_batch(
    pieces: list[Any], cut: int, damages: list[tuple[int, int]]
) -> None:
    """Also for truncated and hostile bytes: refused batches are never a run here."""
    data = bytearray(made_of(pieces)[0])
    del data[len(data) - min(cut, len(data)) :]
    for position, value in damages:
        if data:
            data[position % len(data)] = value
    run = follower_fast_path(bytes(data), RULES.segment_bytes)
    again = follower_fast_path(data, RULES.segment_bytes)
    assert (run is None) == (again is None)
    if run is None or again is None:
        return
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follower, "follower_fast_path", lambda *_arguments: None)
            reference = follower.validate_as_follower(bytes(data), RULES)
    except KafkaLogError as error:
        raise AssertionError("a run was made of what is refused") from error
    assert run_contents(reference) == run_contents(run) == run_contents(again)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]),
            st.integers(0, 5),
            st.integers(-1, 1),
            st.sampled_from([-1, 3]),
            st.none(),
        ),
        max_size=5,
    )
)
def test_follower_fast_path_plain_batches_are_a_run_with_their_epoch(pieces: list[Any]) -> None:
    """Of any known codec, with gaps, with producers; -2 if epochs differ."""
    data, epochs = made_of(pieces)
    run = follower_fast_path(data, RULES.segment_bytes)
    assert run is not None
    assert len(pieces) == len(run.batches)
    assert (epochs[0] if len(set(epochs)) == 1 else -2) == run.leader_epoch


def test_follower_fast_path_declines_other_batches() -> None:
    """Control batches, old formats, unknown codecs, epochs below -1, and batches over a segment."""
    data = batch()
    assert follower_fast_path(data, len(data)) is not None
    assert follower_fast_path(data, len(data) - 1) is None
    for edit in ((21, ">h", CONTROL), (16, ">b", 1), (21, ">h", 5), (12, ">i", -2)):
        assert follower_fast_path(edited(data, *edit), len(data)) is None, edit
    assert follower_fast_path(data[:-1] + b"!", len(data)) is None


def test_follower_fast_path_without_the_gil_agrees() -> None:
    """Above the size from which on other threads may run."""
    data, start = b"", 0
    while len(data) < 300 * 1024:
        data += batch(BatchSpec(keys=(b"k" * 4000, None, b"")), base_offset=start)
        start += 3
    run = follower_fast_path(data, RULES.segment_bytes)
    assert run is not None
    assert (start, start) == (run.record_count, run.batches.end_offset)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    assert follower_fast_path(damaged, RULES.segment_bytes) is None
