"""Appends of encoded batches: accepted batches, their offsets, metadata and segments.

A run that keeps its offsets is stored unchanged. A run that gets offsets equals the reference's
bytes, or has the same records if it is rewritten. Then both are divided into segments: by the
kernel, and batch by batch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from kafkalog._core.batch_metadata import BatchFacts
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.errors import KafkaLogError, OffsetOverflowError, OffsetsOutOfOrderError
from kafkalog.model import NOTHING_REWRITTEN, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.follower import validate_as_follower
from kafkalog.records.validation.leader import validate_as_leader
from tests.fuzz.inputs import Choices, mended
from tests.support import reference, reference_records
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import follower_fast_path
from tests.support.kernel_staging import KernelStaging
from tests.support.old_appends import config
from tests.support.reference import Header, Scan
from tests.support.reference_conversion import PlainRecord, decode_run, records_in_format
from tests.support.reference_records import Refused
from tests.support.slow_staging import SlowStaging, StagingRules

__all__ = ["append_as_follower", "append_as_leader"]

CONTROL, APPEND_TIME = 0x20, 0x08
EPOCHS_DIFFER = -2
# Smallest value of leader epoch, producer id, producer epoch and sequence: none.
SMALLEST_FIELD = -1
ORIGINS = (AppendOrigin.EMBEDDED, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)
# Some timestamps of the seeds are before it, some after it, and some too far.
NOW_MS = 1_700_000_000_500
LIMITS = (1 << 20, 61, 100, 200, 400)
CODECS = (None, codecs.NONE, codecs.GZIP, codecs.LZ4)


# ---- as a follower ----------------------------------------------------------------------------


def append_as_follower(data: bytes) -> None:
    """Batches keep their offsets: the fast path accepts plain ones, bad ones are refused."""
    choices = Choices(data)
    (mends,) = choices.flags(1)
    segment_bytes, end_offset = choices.one_of(LIMITS), choices.number(2)
    rules = _staging_rules(choices, segment_bytes)
    octets = mended(choices.rest) if mends else choices.rest
    walk = reference.scan_batches(octets)
    expected = _fast_path_facts(walk, segment_bytes)
    runs = (
        follower_fast_path(octets, segment_bytes),
        follower_fast_path(bytearray(octets), segment_bytes),
    )
    for run in runs:
        assert (run is None) == (expected is None)
        if run is not None:
            _assert_metadata(run, octets, walk, expected)
    try:
        slow = validate_as_follower(
            memoryview(octets), replace(_rules(2, None, 1 << 20), segment_bytes=segment_bytes)
        )
    except KafkaLogError:
        # A wrapper may start below the offset of its header, and a marker may be unknown.
        assert expected is None
        return
    assert ("OK", octets) == (walk.status, bytes(slow.data))
    assert [header.last_offset for _, header in walk.batches] == [
        batch.last_offset for batch in slow.batches
    ]
    if expected is not None:
        assert expected == list(slow.batches)
    _assert_offsets_kept(slow, octets, end_offset)
    _assert_staged_alike(slow, rules)


def _fast_path_facts(walk: Scan, size_limit: int) -> list[BatchFacts] | None:
    """Return the metadata of the batches of a run; None if one needs the slow path."""
    facts = []
    if walk.status != "OK":
        return None
    for _, header in walk.batches:
        is_known = header.magic == 2 and header.attributes & 7 <= codecs.ZSTD
        is_small = header.size_bytes <= size_limit
        if not is_known or not is_small or header.attributes & CONTROL:
            return None
        if header.partition_leader_epoch < SMALLEST_FIELD:
            return None
        if min(header.producer_id, header.producer_epoch, header.base_sequence) < SMALLEST_FIELD:
            return None
        shallow = -1 if header.max_timestamp == -1 else header.last_offset
        facts.append(
            BatchFacts(
                header.size_bytes,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                shallow,
            )
        )
    return facts


def _assert_metadata(
    run: MemoryRecords, octets: bytes, walk: Scan, facts: list[BatchFacts] | None
) -> None:
    """Assert that the metadata of the fast path equals the headers."""
    headers = [header for _, header in walk.batches]
    epochs = {header.partition_leader_epoch for header in headers}
    assert (octets, facts) == (bytes(run.data), list(run.batches))
    assert sum(header.record_count for header in headers) == run.record_count
    assert any(header.producer_id >= 0 for header in headers) == run.has_producers
    assert (epochs.pop() if len(epochs) == 1 else EPOCHS_DIFFER) == run.leader_epoch
    used = [header.attributes & 7 for header in headers if header.attributes & 7]
    assert (used[-1:] or [0]) == [(run.rewriting or NOTHING_REWRITTEN).target_codec]


def _assert_offsets_kept(run: MemoryRecords, octets: bytes, end_offset: int) -> None:
    """Assert that a run is accepted only after the end of the log."""
    facts = list(run.batches)
    try:
        info = assign_run_offsets(run, end_offset, 3)
    except OffsetsOutOfOrderError:
        assert facts[0].base_offset < end_offset
        return
    assert octets == bytes(run.data)
    if facts:
        assert end_offset <= facts[0].base_offset == info.first_offset
        assert facts[-1].last_offset == info.last_offset
        assert max(batch.max_timestamp for batch in facts) == info.max_timestamp_ms


# ---- as a leader ------------------------------------------------------------------------------


def append_as_leader(data: bytes) -> None:
    """Batches get their offsets: bytes equal the reference's, or records if rewritten."""
    choices = Choices(data)
    mends, is_log_append_time, is_key_required = choices.flags(3)
    magic, codec = choices.one_of([2, 2, 2, 1, 0]), choices.one_of(CODECS)
    origin, limit = choices.one_of(ORIGINS), choices.one_of(LIMITS)
    end_offset, epoch = choices.number(choices.one_of([1, 8])), choices.number(1)
    staging = _staging_rules(choices, 1 << 20)
    octets = mended(choices.rest) if mends else choices.rest
    rules = _rules(
        magic, codec, limit, is_log_append_time=is_log_append_time, is_key_required=is_key_required
    )
    walk = reference.scan_batches(octets, check_order=False)
    is_new = magic == 2 and all(header.magic == 2 for _, header in walk.batches)
    try:
        run = validate_as_leader(memoryview(octets), rules, NOW_MS, origin)
    except KafkaLogError:
        if is_new:
            assert not _is_good(octets, walk, rules, origin, must=True)
        return
    assert walk.status == "OK"
    if is_new:
        assert _is_good(octets, walk, rules, origin, must=False)
    if end_offset < 0:
        return
    try:
        info = assign_run_offsets(run, end_offset, epoch)
    except OffsetOverflowError:
        assert end_offset + run.record_count > 2**63 - 1
        return
    except KafkaLogError:
        # A wrapper is encoded again for its offset and may become too large.
        assert magic < 2
        return
    stored = bytes(run.data)
    if is_new and codec is None:
        assert _with_offsets(octets, walk, rules, end_offset, epoch) == stored
    _assert_whole(stored, run, end_offset, epoch)
    assert (end_offset, end_offset + run.record_count - 1) == (info.first_offset, info.last_offset)
    _assert_same_records(octets, stored, rules, end_offset)
    _assert_staged_alike(run, staging)


def _is_good(
    octets: bytes, walk: Scan, rules: AppendRules, origin: AppendOrigin, *, must: bool
) -> bool:
    """
    Return whether a leader accepts batches of v2, by simple checks.

    With `must`, False also for batches that these checks do not decide: compressed and control
    batches, append time, and a required codec.
    """
    if walk.status != "OK":
        return False
    if len(walk.batches) > 1 and origin is not AppendOrigin.EMBEDDED:
        return False
    return all(
        _is_good_batch(octets[start : start + header.size_bytes], header, rules, origin, must=must)
        for start, header in walk.batches
    )


def _is_good_batch(
    batch: bytes, header: Header, rules: AppendRules, origin: AppendOrigin, *, must: bool
) -> bool:
    codec = header.attributes & 7
    is_special = header.attributes & (CONTROL | APPEND_TIME) or codec
    if must and (is_special or rules.wanted_codec is not None):
        return False
    is_small = header.size_bytes <= min(rules.max_message_bytes, rules.segment_bytes)
    is_dense = 0 < header.record_count == header.last_offset_delta + 1
    if not is_small or not is_dense or not _is_allowed_for(header, origin):
        return False
    try:
        payload = codecs.decompress(codec, batch[61:])
        sent = Header(**{**vars(header), "attributes": header.attributes & ~APPEND_TIME})
        records = reference_records.decode(payload, sent)
    except (Refused, codecs.Damaged):
        return False
    if header.attributes & CONTROL:
        return True
    late = NOW_MS + rules.after_ms
    return all(
        (r.entry.key is not None or not rules.is_key_required)
        and (
            rules.is_log_append_time or r.timestamp == -1 or NOW_MS - rules.before_ms <= r.timestamp
        )
        and (rules.is_log_append_time or r.timestamp <= late)
        for r in records
    )


def _is_allowed_for(header: Header, origin: AppendOrigin) -> bool:
    """Return whether the origin may write a batch with this header."""
    if origin is AppendOrigin.COORDINATOR:
        return True
    if origin is AppendOrigin.CLIENT and header.base_offset:
        return False
    if header.attributes & CONTROL or (header.attributes & 0x10 and header.producer_id < 0):
        return False
    return header.producer_id < 0 or header.base_sequence >= 0


def _with_offsets(
    octets: bytes, walk: Scan, rules: AppendRules, end_offset: int, epoch: int
) -> bytes:
    """Return batches that keep their codec, with offsets and epoch set by the reference."""
    made = b""
    for start, header in walk.batches:
        batch = octets[start : start + header.size_bytes]
        payload = codecs.decompress(header.attributes & 7, batch[61:])
        sent = Header(**{**vars(header), "attributes": header.attributes & ~APPEND_TIME})
        times = [record.timestamp for record in reference_records.decode(payload, sent)]
        timed = [time for time in times if time != -1]
        kind, largest = (1, NOW_MS) if rules.is_log_append_time else (0, max([*timed, -1]))
        made += reference.set_max_timestamp(batch, kind, largest)
    return reference.assign_offsets(made, end_offset, epoch)[0]


def _assert_whole(stored: bytes, run: MemoryRecords, end_offset: int, epoch: int) -> None:
    """Assert that the bytes are valid batches in order, and equal their metadata."""
    walk = reference.scan_batches(stored, next_offset=end_offset)
    assert ("OK", len(run.batches)) == (walk.status, len(walk.batches))
    for batch, (_, header) in zip(run.batches, walk.batches, strict=True):
        found = header.size_bytes, header.last_offset, header.max_timestamp
        assert (batch.size_bytes, batch.last_offset, batch.max_timestamp) == found
        if header.magic == 2:
            assert (batch.base_offset, epoch) == (header.base_offset, header.partition_leader_epoch)
        if batch.max_timestamp >= 0:
            assert batch.shallow_offset == header.last_offset


def _assert_same_records(octets: bytes, stored: bytes, rules: AppendRules, end_offset: int) -> None:
    """Assert that a log has the appended records, with consecutive offsets."""
    try:
        sent = [record for batch in decode_run(octets) for record in batch.records]
    except Refused:
        # Messages of a wrapper may have any offsets: they are replaced.
        sent = None
    found = [record for batch in decode_run(stored) for record in batch.records]
    assert list(range(end_offset, end_offset + len(found))) == [each.offset for each in found]
    if rules.is_log_append_time and rules.magic:
        assert {NOW_MS} >= {each.timestamp for each in found}
    if sent is None:
        return
    expected = records_in_format(sent, rules.magic)
    assert [_content(each) for each in expected] == [_content(each) for each in found]
    if not rules.is_log_append_time and rules.magic:
        assert [max(each.timestamp, -1) for each in _as_sent(octets)] == [
            max(each.timestamp, -1) for each in found
        ]


def _content(record: PlainRecord) -> tuple[object, ...]:
    return record.key, record.value, record.headers


def _as_sent(octets: bytes) -> list[PlainRecord]:
    """Return the records with their timestamps, without the append time of their batch."""
    run = bytearray(octets)
    for start, header in reference.scan_batches(octets, check_order=False).batches:
        if header.magic == 2:
            run[start + 22] &= ~APPEND_TIME
        else:
            run[start + 17] &= ~APPEND_TIME
    return [record for batch in decode_run(mended(bytes(run))) for record in batch.records]


# ---- in which segment -------------------------------------------------------------------------


def _staging_rules(choices: Choices, segment_bytes: int) -> StagingRules:
    return StagingRules(
        segment_bytes=min(segment_bytes, choices.one_of([2**31 - 1, 100, 700])),
        interval_bytes=choices.one_of([4096, 0, 61, 200]),
        roll_after_ms=choices.one_of([2**62, 0, 5, 1000]),
        index_bytes=choices.one_of([2**16, 0, 24, 60]),
    )


def _assert_staged_alike(run: MemoryRecords, rules: StagingRules) -> None:
    """Assert that the kernel divides a run into segments like a loop over its batches."""
    facts = list(run.batches)
    # A wrapper may claim more offsets than a segment has: a log refuses it.
    if not facts or any(batch.last_offset - batch.base_offset >= 2**31 for batch in facts):
        return
    base_offset = facts[0].base_offset
    slow = SlowStaging(rules, base_offset, NOW_MS)
    fast = KernelStaging(rules, base_offset, NOW_MS)
    for part in (facts[: len(facts) // 2], facts[len(facts) // 2 :]):
        if part:
            slow.append(part, NOW_MS)
            fast.append(part, NOW_MS)
    slow.close()
    fast.close()
    assert slow.files() == fast.segments


@cache
def _rules(
    magic: int,
    codec: int | None,
    limit_bytes: int,
    *,
    is_log_append_time: bool = False,
    is_key_required: bool = False,
) -> AppendRules:
    """Return the rules of a log."""
    made = config(
        magic,
        codec,
        message_timestamp_type="LogAppendTime" if is_log_append_time else "CreateTime",
        cleanup_policy=("compact" if is_key_required else "delete",),
    )
    return replace(
        AppendRules.of(made), max_message_bytes=limit_bytes, segment_bytes=max(limit_bytes, 200)
    )
