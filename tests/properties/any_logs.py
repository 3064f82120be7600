"""Logs of everything that a log may be made of, encoded by the slow reference codecs.

    formats     v0, v1 and v2 in one log, in any order; a codec that the format has, for each batch
    records     null, empty and repeated keys; null, empty, short and long values; headers with null
                values, empty keys and bytes that are no text
    times       rising, falling, none, the log's own, and relative to a horizon of deletion
    batches     of plain producers, of numbered ones (past the largest number, too), of transactions
                that are committed, aborted or open
    holes       between batches and segments; in batches, where a compaction took records out; and
                batches that it kept empty
    segments    which end anywhere, begin at large offsets, and may be empty at the end

The streams of codecs are the reference's or the libraries', which compress better. What is drawn is
a plan of the batches, which hypothesis can make smaller; bytes come from a seed in the plan.

Thread-safety: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final, Literal

from hypothesis import strategies as st

from kafkalog.records import codecs as library
from kafkalog.records.codecs import Codec
from tests.properties.truth import HeaderPair, Row
from tests.support import reference, reference_codecs, reference_messages, reference_records
from tests.support.manual_time import START_MS
from tests.support.reference import Header
from tests.support.reference_messages import Message
from tests.support.reference_records import Entry

__all__ = [
    "KEYS",
    "PLANS",
    "AnyLog",
    "Content",
    "Plan",
    "any_logs",
    "contents",
    "encode_plan",
    "times",
]

Times = Literal["rising", "any", "none", "some", "appended", "horizon"]
Kept = Literal["all", "some", "none"]
Role = Literal["plain", "numbered", "wrapping", "first", "second"]
End = Literal["no", "commit", "abort"]

FORMS: Final = [
    *((2, codec) for codec in (0, 0, 0, 0, 1, 2, 3, 4)),
    *((1, codec) for codec in (0, 1, 2, 3)),
    *((0, codec) for codec in (0, 1, 2, 3)),
]
# Producers by their roles: id, whether transactional, first sequence.
PRODUCERS: Final[dict[Role, tuple[int, bool, int]]] = {
    "numbered": (5, False, 0),
    "wrapping": (6, False, 2**31 - 3),
    "first": (7, True, 0),
    "second": (8, True, 0),
}
KEYS: Final = (None, b"", b"a", b"b", b"key", b"a key of thirteen bytes or more")
NAMES: Final = (b"", b"h", b"trace-id", "h\u00e4".encode(), b"\xff\xfe odd")


@dataclass(frozen=True)
class Plan:
    """
    One batch, or so many plain messages.

    Attributes:
        form: magic and codec.
        count: how many records it had when it was written.
        seed: of its bytes.
        times: what timestamps it has.
        kept: which records are left.
        hole: offsets missing before it.
        role: of its producer; old formats have none.
        ends: how the transaction of its producer ends after it.
        begins_segment: whether it is the first of one.
        epoch_rises: whether a new leader wrote it.
        by_library: whether the library compresses it, not the reference.
    """

    form: tuple[int, int] = (2, 0)
    count: int = 1
    seed: int = 0
    times: Times = "rising"
    kept: Kept = "all"
    hole: int = 0
    role: Role = "plain"
    ends: End = "no"
    begins_segment: bool = False
    epoch_rises: bool = False
    by_library: bool = False


@dataclass(frozen=True)
class Content:
    """Key, value and headers of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = ()


@dataclass
class AnyLog:
    """
    The segments of a log.

    Attributes:
        plans: what they were made of.
        segments: their bytes by their base offsets.
        rows: the rows given to the encoder.
    """

    plans: Sequence[Plan]
    segments: dict[int, bytes] = field(init=False, default_factory=dict)
    rows: list[Row] = field(init=False, default_factory=list)

    def write(self, directory: Path) -> None:
        """Make the partition."""
        directory.mkdir(parents=True)
        for base_offset, data in self.segments.items():
            (directory / f"{base_offset:020}.log").write_bytes(data)


PLANS: Final = st.builds(
    Plan,
    form=st.sampled_from(FORMS),
    count=st.sampled_from([1, 2, 3, 4, 6, 9, 30, 300]),
    seed=st.integers(0, 2**16),
    times=st.sampled_from(["rising", "any", "none", "some", "appended", "horizon"]),
    kept=st.sampled_from(["all", "all", "some", "none"]),
    hole=st.sampled_from([0, 0, 0, 1, 7]),
    role=st.sampled_from(["plain", "first", "second", "numbered", "wrapping"]),
    ends=st.sampled_from(["no", "abort", "commit"]),
    begins_segment=st.sampled_from([False, False, True]),
    epoch_rises=st.booleans(),
    by_library=st.booleans(),
)


@st.composite
def any_logs(draw: st.DrawFn) -> AnyLog:
    """Draw a log."""
    plans = draw(st.lists(PLANS, max_size=9))
    first_offset = draw(st.sampled_from([0, 0, 3, 5_000_000_000]))
    empty_after = draw(st.sampled_from([None, None, None, 0, 4]))
    return encode_plan(plans, first_offset=first_offset, empty_after=empty_after)


def encode_plan(
    plans: Sequence[Plan], *, first_offset: int = 0, empty_after: int | None = None
) -> AnyLog:
    """
    Return the log that plans come to.

    Args:
        plans: of batches.
        first_offset: base offset of the first segment.
        empty_after: offsets between all of them and an empty segment; None for no such segment.
    """
    writer = _Writer(AnyLog(plans), first_offset)
    for plan in plans:
        writer.add(plan)
    if empty_after is not None:
        writer.begin_segment(writer.next_offset + empty_after)
    return writer.log


def contents(
    random: Random, count: int, *, has_headers: bool = True, are_texts: bool = False
) -> list[Content]:
    """
    Return records; some of what is rare is in nearly every log.

    Args:
        random: what decides.
        count: how many.
        has_headers: whether some have headers.
        are_texts: whether all names of those are text.
    """
    # Names that are no text are in few batches, so that most logs can be read as text.
    names = NAMES if not are_texts and random.random() < 0.1 else NAMES[:4]
    return [
        Content(random.choice(KEYS), _value(random), _headers(random, names) if has_headers else ())
        for _ in range(count)
    ]


def _value(random: Random) -> bytes | None:
    kind = random.random()
    if kind < 0.15:
        return None
    if kind < 0.3:
        return b""
    if kind < 0.31:
        # More than a tile of the decoder, and more than an index interval.
        return random.randbytes(100) * 170
    return random.randbytes(random.choice([1, 12, 13, 60, 130])) * random.choice([1, 1, 4])


def _headers(random: Random, names: Sequence[bytes]) -> tuple[HeaderPair, ...]:
    if random.random() < 0.6:
        return ()
    values = (None, b"", b"v", b"a value of thirteen bytes or more")
    return tuple((random.choice(names), random.choice(values)) for _ in range(random.randint(1, 3)))


def times(plan: Plan, random: Random) -> list[int]:
    """Return the timestamps of a plan's records."""
    match plan.times:
        case "none":
            return [-1] * plan.count
        case "rising":
            first = START_MS + random.randrange(60)
            return list(range(first, first + plan.count))
        case "some":
            return [random.choice([-1, START_MS + random.randrange(60)]) for _ in range(plan.count)]
        case _:
            return [START_MS + random.randrange(60) for _ in range(plan.count)]


class _Writer:
    """Encodes plans, one after another."""

    def __init__(self, log: AnyLog, first_offset: int) -> None:
        self.log = log
        self.next_offset = first_offset
        self._epoch = -1
        self._sequences: dict[int, int] = {}
        self._opened: set[int] = set()
        self.begin_segment(first_offset)

    def begin_segment(self, base_offset: int) -> None:
        """Let the next batch be the first of a segment."""
        self._base_offset = base_offset
        self.log.segments.setdefault(base_offset, b"")

    def add(self, plan: Plan) -> None:
        """Write the batch of a plan."""
        magic, codec = plan.form
        random = Random(plan.seed)
        self.next_offset += plan.hole
        if plan.begins_segment:
            # A segment may have lost what was first in it.
            self.begin_segment(self.next_offset - random.choice([0, plan.hole]))
        if plan.epoch_rises:
            self._epoch += 1
        stamps = times(plan, random)
        made = contents(random, plan.count, has_headers=magic == 2)
        kept = _kept(plan, random)
        if magic == 2:
            self._add_batch(plan, codec, stamps, made, kept)
        else:
            self._add_messages(plan, stamps, made, kept or [plan.count - 1])
        self.next_offset += plan.count
        if magic == 2 and plan.ends != "no" and plan.role in ("first", "second"):
            self._end(PRODUCERS[plan.role][0], random, is_abort=plan.ends == "abort")

    def _write(self, data: bytes) -> None:
        self.log.segments[self._base_offset] += data

    # ---- v2 ----

    def _add_batch(
        self,
        plan: Plan,
        codec: int,
        stamps: list[int],
        made: list[Content],
        kept: list[int],
    ) -> None:
        stays = [stamps[number] for number in kept]
        largest = max(stays or stamps)
        has_horizon = plan.times == "horizon"
        header = Header(
            base_offset=self.next_offset,
            partition_leader_epoch=self._epoch,
            attributes=8 * (plan.times == "appended") + 64 * has_horizon,
            last_offset_delta=plan.count - 1,
            base_timestamp=START_MS + 10**9 if has_horizon else stamps[0],
            max_timestamp=largest,
            record_count=len(kept),
        )
        header = self._numbered(plan, header)
        payload = reference_records.encode(
            Entry(
                number,
                stamps[number] - header.base_timestamp,
                made[number].key,
                made[number].value,
                made[number].headers,
            )
            for number in kept
        )
        if codec and kept:
            header = replace(header, attributes=header.attributes | codec)
            payload = _compressed(plan, codec, payload)
        self._write(reference.encode_batch(header, payload))
        for number in kept:
            self.log.rows.append(
                Row(
                    header.base_offset + number,
                    largest if plan.times == "appended" else stamps[number],
                    int(plan.times == "appended"),
                    made[number].key,
                    made[number].value,
                    made[number].headers,
                    header.producer_id,
                    header.producer_epoch,
                    (header.base_sequence + number) % 2**31 if header.base_sequence >= 0 else -1,
                    header.partition_leader_epoch,
                )
            )

    def _numbered(self, plan: Plan, header: Header) -> Header:
        """Return a header with producer and sequence."""
        if plan.role == "plain":
            return header
        producer_id, is_transactional, first = PRODUCERS[plan.role]
        sequence = self._sequences.get(producer_id, first)
        self._sequences[producer_id] = (sequence + plan.count) % 2**31
        return replace(
            header,
            attributes=header.attributes | 16 * is_transactional,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def _end(self, producer_id: int, random: Random, *, is_abort: bool) -> None:
        """Write the marker of a transaction."""
        time = START_MS + random.randrange(70)
        header = Header(
            base_offset=self.next_offset,
            partition_leader_epoch=self._epoch,
            attributes=16 + 32,
            base_timestamp=time,
            max_timestamp=time,
            producer_id=producer_id,
            producer_epoch=0,
            record_count=1,
        )
        key = b"\0\0\0\0" if is_abort else b"\0\0\0\1"
        record = Entry(key=key, value=bytes(6))
        self._write(reference.encode_batch(header, reference_records.encode([record])))
        self.next_offset += 1

    # ---- v0 and v1 ----

    def _add_messages(
        self, plan: Plan, stamps: list[int], made: list[Content], kept: list[int]
    ) -> None:
        magic, codec = plan.form
        is_appended = magic == 1 and plan.times == "appended"
        append_time = max(stamps)
        messages = [
            Message(
                self.next_offset + number,
                magic,
                8 * is_appended,
                -1 if magic == 0 else append_time if is_appended else stamps[number],
                made[number].key,
                made[number].value,
            )
            for number in kept
        ]
        if codec == 0:
            self._write(reference_messages.encode_messages(messages))
        else:
            self._write(self._wrapper(plan, messages))
        timestamp_type = -1 if magic == 0 else int(is_appended)
        self.log.rows += [
            Row(each.offset, each.timestamp, timestamp_type, each.key, each.value)
            for each in messages
        ]

    def _wrapper(self, plan: Plan, messages: list[Message]) -> bytes:
        """Return a wrapper; in v1 offsets are relative to what was its first record once."""
        magic, codec = plan.form
        base_offset = self.next_offset if magic else 0
        inner = reference_messages.encode_messages(
            replace(each, offset=each.offset - base_offset) for each in messages
        )
        return reference_messages.encode_message(
            Message(
                messages[-1].offset,
                magic,
                codec | messages[0].attributes,
                max(each.timestamp for each in messages),
                None,
                _compressed(plan, codec, inner),
            )
        )


def _kept(plan: Plan, random: Random) -> list[int]:
    match plan.kept:
        case "all":
            return list(range(plan.count))
        case "none":
            return []
        case _:
            return [number for number in range(plan.count) if random.random() < 0.5]


def _compressed(plan: Plan, codec: int, data: bytes) -> bytes:
    magic = plan.form[0]
    if plan.by_library and not (magic == 0 and codec == reference_codecs.LZ4):
        return library.compress(Codec(codec), data)
    return reference_codecs.compress(codec, data, magic)
