"""Tests that the leader's fast path agrees with the check of each batch, or declines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.append_fast_path import leader_fast_path
from kafkalog._core.memory_records import MemoryRecords
from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError
from kafkalog.model import AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec
from kafkalog.records.validation import leader
from tests.support.encoded_batches import NOW_MS, BatchSpec, batch, edited
from tests.support.packed_runs import run_contents

RULES = AppendRules.of(LogConfig(segment_bytes=2**20))
STRICT = AppendRules.of(
    LogConfig(
        segment_bytes=2**20,
        max_message_bytes=170,
        message_timestamp_before_max_ms=100,
        message_timestamp_after_max_ms=50,
        cleanup_policy=("compact",),
    )
)
STAMPING = AppendRules.of(LogConfig(message_timestamp_type="LogAppendTime"))
CONTROL, TRANSACTIONAL = 0x20, 0x10
# Fields that decide about the fast path: position, layout and value.
EDITS = st.sampled_from(
    [
        (0, ">q", 5),
        (0, ">q", -1),
        (8, ">i", 40),
        (16, ">b", 1),
        (21, ">h", 3),
        (21, ">h", 8),
        (21, ">h", 0x40),
        (21, ">h", 0x80),
        (21, ">h", CONTROL),
        (21, ">h", TRANSACTIONAL),
        (23, ">i", 7),
        (23, ">i", -1),
        (27, ">q", NOW_MS - 101),
        (27, ">q", -9),
        (35, ">q", -1),
        (35, ">q", -9),
        (51, ">h", 4),
        (53, ">i", -1),
        (57, ">i", 2),
        (57, ">i", 4),
    ]
)
PIECES = st.lists(
    st.tuples(
        st.sampled_from([(b"a", b"b"), (b"a", None), (b"a" * 30, b"b" * 30)]),
        st.sampled_from([(NOW_MS, NOW_MS + 5), (NOW_MS - 100, NOW_MS + 51), (-1, -1), (0, -1)]),
        st.sampled_from([-1, -1, 3]),
        st.none() | st.none() | EDITS,
    ),
    max_size=4,
)
ORIGINS = st.sampled_from([AppendOrigin.EMBEDDED, AppendOrigin.EMBEDDED, AppendOrigin.CLIENT])


def look(data: bytes, rules: AppendRules, origin: AppendOrigin) -> MemoryRecords | None:
    """Return the run of the fast path."""
    of_client = origin is AppendOrigin.CLIENT
    copy = bytearray(data)
    run = leader_fast_path(copy, rules.limits, rules.segment_bytes, NOW_MS, of_client=of_client)
    assert data == copy
    return run


def made_of(pieces: list[Any]) -> bytes:
    """Return batches as producers send them."""
    data = b""
    for keys, timestamps, producer, edit in pieces:
        one = batch(
            BatchSpec(keys=keys, timestamps=timestamps),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
        )
        data += one if edit is None else edited(one, *edit)
    return data


@settings(max_examples=200)
@given(
    PIECES,
    st.sampled_from([RULES, RULES, STRICT, STAMPING]),
    ORIGINS,
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=1),
)
def test_leader_fast_path_agrees_with_the_check_of_each_batch(
    pieces: list[Any],
    rules: AppendRules,
    origin: AppendOrigin,
    cut: int,
    damages: list[tuple[int, int]],
) -> None:
    """Also for truncated and hostile bytes: refused or corrected batches are never a run here."""
    data = bytearray(made_of(pieces))
    del data[len(data) - min(cut, len(data)) :]
    for position, value in damages:
        if data:
            data[position % len(data)] = value
    run = look(bytes(data), rules, origin)
    if run is None:
        return
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leader, "leader_fast_path", lambda *_arguments, **_options: None)
            reference = leader.validate_as_leader(data, rules, NOW_MS, origin)
    except KafkaLogError as error:
        raise AssertionError("a run was made of what is refused") from error
    assert run_contents(reference) == run_contents(run)
    assert reference.leader_epoch == run.leader_epoch


@settings(max_examples=60)
@given(PIECES, ORIGINS)
def test_leader_fast_path_plain_batches_are_a_run(pieces: list[Any], origin: AppendOrigin) -> None:
    """Any that the settings allow: with producers, without keys or timestamps."""
    plain = [(*piece[:3], None) for piece in pieces[: 1 if origin is AppendOrigin.CLIENT else 4]]
    run = look(made_of(plain), RULES, origin)
    assert run is not None
    assert (len(plain), 2 * len(plain)) == (len(run.batches), run.record_count)
    assert any(piece[2] >= 0 for piece in plain) == run.has_producers


def test_leader_fast_path_declines_other_batches() -> None:
    """Any batch to be refused, decompressed or corrected."""
    data = batch()
    assert look(data, RULES, AppendOrigin.EMBEDDED) is not None
    assert look(data, STAMPING, AppendOrigin.EMBEDDED) is None
    assert look(data + data, RULES, AppendOrigin.CLIENT) is None
    assert look(data + batch(BatchSpec(Codec.LZ4)), RULES, AppendOrigin.EMBEDDED) is None
    assert look(data[:-1] + b"!", RULES, AppendOrigin.EMBEDDED) is None
    assert look(edited(data, len(data) - 1, ">b", 2), RULES, AppendOrigin.EMBEDDED) is None
    assert look(edited(data, 0, ">q", 1), RULES, AppendOrigin.CLIENT) is None
    for edit in ((21, ">h", CONTROL), (16, ">b", 1), (35, ">q", NOW_MS), (57, ">i", 2)):
        assert look(edited(data, *edit), RULES, AppendOrigin.EMBEDDED) is None, edit
    small = AppendRules.of(LogConfig(max_message_bytes=len(data) - 1))
    assert look(data, small, AppendOrigin.EMBEDDED) is None
    for keys, timestamps in (((None,), (NOW_MS,)), ((b"",), (NOW_MS - 101,))):
        made = BatchSpec(keys=keys, timestamps=timestamps)
        assert look(batch(made), STRICT, AppendOrigin.EMBEDDED) is None


def test_leader_fast_path_without_the_gil_agrees() -> None:
    """Above the size from which on other threads may run."""
    count = 25
    data = batch(BatchSpec(keys=(b"k" * 4000, None, b""))) * count
    validated = leader.validate_as_leader(data, RULES, NOW_MS)
    for run in (look(data, RULES, AppendOrigin.EMBEDDED), validated):
        assert run is not None
        assert (3 * count, 3 * count) == (run.record_count, run.batches.end_offset)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    assert look(bytes(damaged), RULES, AppendOrigin.EMBEDDED) is None
