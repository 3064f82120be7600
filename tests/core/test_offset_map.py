"""Tests of the offset map, compared with a dictionary; hostile columns."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_run
from kafkalog._core.key_hash import siphash
from kafkalog._core.offset_map import ABSENT, ELSEWHERE, KEYLESS, OffsetMap
from kafkalog._core.status import STATUS_CODES
from tests.support import golden
from tests.support.buffers import exact
from tests.support.examples import examples
from tests.support.key_columns import KeyColumns

OK, FULL = STATUS_CODES["OK"], STATUS_CODES["FULL"]
ENTRY_SIZE = 24
SECRET = bytes(range(16))

Identity = Literal["md5", "siphash"]
IDENTITIES: tuple[Identity, ...] = ("md5", "siphash")


def make(entries: int, *, identity: Identity = "md5", **settings: Any) -> OffsetMap:
    """Return a map of `entries` entries at the end of its block of memory."""
    memory = exact(b"\xaa" * (entries * ENTRY_SIZE))
    arguments: dict[str, Any] = {"load_factor": 1.0, "secret": SECRET} | settings
    return OffsetMap(memory, identity=identity, **arguments)


def put_all(
    offset_map: OffsetMap, columns: KeyColumns, offsets: list[int] | None = None
) -> tuple[int, int]:
    """Put all rows with rising offsets or with `offsets`."""
    if offsets is None:
        offsets = list(range(len(columns.keys)))
    return offset_map.put_run(
        columns.data, columns.positions, columns.sizes, np.array(offsets, np.int64)
    )


def get_all(offset_map: OffsetMap, columns: KeyColumns) -> list[int]:
    """Look up all rows."""
    found = np.full(len(columns.keys), -99, np.int64)
    offset_map.get_run(columns.data, columns.positions, columns.sizes, found)
    return found.tolist()


def latest(columns: KeyColumns, offsets: list[int]) -> dict[bytes, int]:
    """Return the model: a dictionary of the latest offset of each key."""
    model: dict[bytes, int] = {}
    for key, offset in zip(columns.keys, offsets, strict=True):
        if key is not None:
            model[key] = max(offset, model.get(key, -1))
    return model


KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=3), st.binary(max_size=90)), max_size=400)


@pytest.mark.parametrize("identity", IDENTITIES)
@settings(max_examples=examples(60))
@given(keys=KEYS, data=st.data())
def test_map_any_keys_equals_a_dictionary(
    identity: Identity, keys: list[bytes | None], data: st.DataObject
) -> None:
    """For any keys and any order of offsets the latest offset of each key is found."""
    columns = KeyColumns.of(keys)
    offsets = data.draw(st.lists(st.integers(0, 2**63 - 2), min_size=len(keys), max_size=len(keys)))
    offset_map = make(max(1, len(set(keys))), identity=identity)
    assert (len(keys), OK) == put_all(offset_map, columns, offsets)
    model = latest(columns, offsets)
    assert len(model) == len(offset_map)
    assert [KEYLESS if key is None else model[key] for key in keys] == get_all(offset_map, columns)
    assert max(offsets, default=-1) == offset_map.latest_offset


@settings(max_examples=examples(40))
@given(entries=st.integers(1, 40), keys=st.lists(st.binary(max_size=2), max_size=200))
def test_map_full_refuses_the_first_new_key(entries: int, keys: list[bytes]) -> None:
    """A full map reports the row and keeps its entries; other keys are still absent."""
    columns = KeyColumns.of(keys)
    offset_map = make(entries)
    expected_row = next(
        (row for row in range(len(keys)) if len(set(keys[: row + 1])) > entries), len(keys)
    )
    status = FULL if expected_row < len(keys) else OK
    assert (expected_row, status) == put_all(offset_map, columns)
    assert expected_row - 1 == offset_map.latest_offset
    model = latest(KeyColumns.of(keys[:expected_row]), list(range(expected_row)))
    assert [model.get(key, ABSENT) for key in keys] == get_all(offset_map, columns)


@pytest.mark.parametrize("load_factor", [0.5, 0.9, 1.0])
def test_map_filled_to_its_limit_finds_every_key(load_factor: float) -> None:
    """At any load factor each key is found, and the search for an absent key ends."""
    offset_map = make(5000, load_factor=load_factor)
    usable = int(5000 * load_factor)
    there = KeyColumns.of([b"there-%d" % number for number in range(usable)])
    absent = KeyColumns.of([b"absent-%d" % number for number in range(500)])
    assert (usable, OK) == put_all(offset_map, there)
    assert (0, FULL) == put_all(offset_map, absent)
    assert list(range(usable)) == get_all(offset_map, there)
    assert [ABSENT] * 500 == get_all(offset_map, absent)
    assert usable == len(offset_map) == offset_map.usable


@settings(max_examples=examples(25))
@given(
    entries=st.integers(1, 700),
    load_factor=st.sampled_from([0.7, 0.9, 1.0]),
    rows=st.lists(st.integers(0, 699), max_size=40),
    steps=st.lists(st.integers(0, 400), max_size=6),
)
def test_map_that_grows_equals_a_dictionary(
    entries: int, load_factor: float, rows: list[int], steps: list[int]
) -> None:
    """Keys are found and the latest are marked, for any number of growth steps."""
    offset_map = make(max(2, entries), load_factor=load_factor)
    marks = bytearray(500)
    offset_map.mark(marks, 0)
    count = offset_map.usable
    model: dict[bytes, int] = {}
    offset = 0
    for step in steps:
        # Some known keys, then a rising number of new keys.
        keys = [b"%d" % (row % count) for row in rows]
        keys += [b"%d" % number for number in range(min(count, step))]
        columns = KeyColumns.of(keys)
        offsets = list(range(offset, offset + len(keys)))
        assert (len(keys), OK) == put_all(offset_map, columns, offsets)
        model |= latest(columns, offsets)
        offset += len(keys)
        assert [model[key] for key in keys] == get_all(offset_map, columns)
    everything = KeyColumns.of([b"%d" % number for number in range(count)])
    assert [model.get(key or b"", ABSENT) for key in everything.keys] == get_all(
        offset_map, everything
    )
    flags = np.empty(offset, np.uint8)
    assert offset == 0 or offset_map.latest_run(np.arange(offset), flags)
    assert sorted(model.values()) == np.flatnonzero(flags[:offset]).tolist()


def test_map_with_few_keys_touches_little_memory() -> None:
    """Touching all memory would cost more than putting the keys."""
    memory = bytearray(b"\xaa" * (100_000 * ENTRY_SIZE))
    offset_map = OffsetMap(memory, load_factor=0.9, secret=SECRET)
    assert 90_000 == offset_map.usable
    assert (1000, OK) == put_all(offset_map, KeyColumns.of([b"%d" % row for row in range(1000)]))
    assert b"\xaa" * (97_000 * ENTRY_SIZE) == memory[3000 * ENTRY_SIZE :]


def test_map_full_updates_known_keys() -> None:
    """Only a new key needs an entry."""
    offset_map = make(2)
    assert (2, FULL) == put_all(offset_map, KeyColumns.of([b"a", b"b", b"c"]))
    assert (3, OK) == put_all(offset_map, KeyColumns.of([b"b", b"a", b"b"]), [10, 11, 12])
    assert [11, 12, ABSENT] == get_all(offset_map, KeyColumns.of([b"a", b"b", b"c"]))


def test_map_offset_never_falls() -> None:
    """An offset below the stored one changes nothing."""
    offset_map = make(3)
    put_all(offset_map, KeyColumns.of([b"a", b"a"]), [9, 4])
    assert 9 == offset_map.get(b"a") == offset_map.latest_offset


@pytest.mark.parametrize("offset", [0, 1, 2**62, 2**63 - 2])
def test_map_extreme_offsets_are_kept(offset: int) -> None:
    """Offset 0 is not an empty entry, and the largest offset does not overflow."""
    offset_map = make(1)
    assert OK == offset_map.put(b"", offset)
    assert offset == offset_map.get(b"")
    assert FULL == offset_map.put(b"other", 5)


def test_map_single_calls_equal_runs() -> None:
    """`put` and `get` are runs of one row."""
    offset_map = make(10)
    assert [OK] * 10 == [offset_map.put(b"%d" % number, number) for number in range(10)]
    assert list(range(10)) == [offset_map.get(b"%d" % number) for number in range(10)]
    assert ABSENT == offset_map.get(b"10")


def test_map_cleared_is_empty_and_has_another_secret() -> None:
    """No entry stays, and keys chosen to collide under one secret do not under the next."""
    offset_map = make(100, identity="siphash")
    columns = KeyColumns.of([b"%d" % number for number in range(90)])
    put_all(offset_map, columns)
    offset_map.clear(secret=SECRET[::-1])
    assert (0, -1) == (len(offset_map), offset_map.latest_offset)
    assert [ABSENT] * 90 == get_all(offset_map, columns)
    assert (90, OK) == put_all(offset_map, columns)


@settings(max_examples=examples(60))
@given(keys=KEYS, room=st.integers(1, 50))
def test_map_entries_are_hashes_and_latest_offsets(keys: list[bytes | None], room: int) -> None:
    """The copy has the SipHash and latest offset of each key once, in several calls."""
    columns = KeyColumns.of(keys)
    offset_map = make(max(1, 2 * len(set(keys))), identity="siphash")
    put_all(offset_map, columns)
    found: dict[bytes, int] = {}
    slot, rows = 0, room
    while rows == room:
        firsts, seconds, offsets = (np.full(room, -9, np.int64) for _ in range(3))
        slot, rows = offset_map.entries(firsts, seconds, offsets, slot=slot)
        assert [-9] * (room - rows) == offsets[rows:].tolist()
        halves = np.stack([firsts, seconds], axis=1)[:rows]
        found |= zip((half.tobytes() for half in halves), offsets.tolist(), strict=False)
    model = latest(columns, list(range(len(keys))))
    hashes = siphash(SECRET, list(model))
    assert dict(zip(hashes, model.values(), strict=True)) == found
    assert (slot, 0) == offset_map.entries(firsts, seconds, offsets, slot=slot)


def test_map_entries_of_a_negative_slot_raise() -> None:
    """Columns without rows and slots after the last one get no entries."""
    none = np.empty(0, np.int64)
    assert (0, 0) == make(1).entries(none, none, none)
    assert (99, 0) == make(1).entries(*(np.empty(1, np.int64) for _ in range(3)), slot=99)
    with pytest.raises(IndexError, match="slot not found: -1"):
        make(1).entries(none, none, none, slot=-1)


def test_map_start_and_end_bound_a_run() -> None:
    """Rows outside are not touched, and results start with the first row."""
    columns = KeyColumns.of([b"%d" % number for number in range(10)])
    offset_map = make(10)
    offsets = np.arange(10, dtype=np.int64)
    reached = offset_map.put_run(
        columns.data, columns.positions, columns.sizes, offsets, start=3, end=7
    )
    assert (7, OK) == reached
    assert [*[ABSENT] * 3, 3, 4, 5, 6, *[ABSENT] * 3] == get_all(offset_map, columns)
    found = np.full(2, -99, np.int64)
    offset_map.get_run(columns.data, columns.positions, columns.sizes, found, start=6, end=8)
    assert [6, ABSENT] == found.tolist()


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("part_count", [2, 3, 7])
def test_map_parts_divide_the_keys(identity: Identity, part_count: int) -> None:
    """With one secret each key is in exactly one part, and parts have similar sizes."""
    columns = KeyColumns.of([b"key-%d" % number for number in range(2000)])
    takers = np.zeros(2000, np.int64)
    for part in range(part_count):
        offset_map = make(2000, identity=identity, part=part, part_count=part_count)
        assert (2000, OK) == put_all(offset_map, columns)
        found = np.array(get_all(offset_map, columns))
        mine = found != ELSEWHERE
        assert np.arange(2000)[mine].tolist() == found[mine].tolist()
        assert len(offset_map) == np.count_nonzero(mine)
        assert 0.8 < np.count_nonzero(mine) * part_count / 2000 < 1.2
        assert 1999 == offset_map.latest_offset
        takers += mine
    assert [1] * 2000 == takers.tolist()


def test_map_put_of_decoded_batches_finds_their_keys() -> None:
    """The columns of decode_run are passed unchanged, with null keys."""
    records = [(b"a", b"1"), (None, b"2"), (b"b", None), (b"a", b"3")]
    builder = BatchBuilder()
    for key, value in records:
        builder.append(key, value)
    data = bytes(builder.finish(base_offset=40))
    builder.reset()
    builder.append(b"c", b"4")
    data += bytes(builder.finish(base_offset=50))
    columns = RecordColumns(10)
    assert (5, 2, len(data), OK) == decode_run(data, 0, columns)
    offset_map = make(3)
    keys = columns.key_position, columns.key_size
    assert (5, OK) == offset_map.put_run(data, *keys, columns.offset)
    found = np.empty(5, np.int64)
    offset_map.get_run(data, *keys, found)
    assert [43, KEYLESS, 42, 43, 50] == found.tolist()


def test_map_md5_loses_a_key_of_equal_sum_and_siphash_keeps_it() -> None:
    """The published collision under both identities."""
    vector = golden.vectors("md5_collision")
    first, second = (bytes.fromhex(vector[name]) for name in ("first", "second"))
    for identity, expected in zip(IDENTITIES, ([1, 1], [0, 1]), strict=True):
        offset_map = make(4, identity=identity)
        put_all(offset_map, KeyColumns.of([first, second]))
        assert expected == get_all(offset_map, KeyColumns.of([first, second]))


def test_map_advance_to_never_lowers_the_latest_offset() -> None:
    """The end of a segment may be after its last key."""
    offset_map = make(1)
    offset_map.advance_to(77)
    offset_map.advance_to(5)
    assert 77 == offset_map.latest_offset


# ---- hostile columns and wrong use ----


def columns_of_one(position: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return columns of 300 rows, valid except for the last."""
    positions, sizes = np.zeros(300, np.int64), np.full(300, 2, np.int32)
    positions[-1], sizes[-1] = position, size
    return positions, sizes


HOSTILE = [
    (9, 2),
    (10, 1),
    (-1, 1),
    (-(2**63), 5),
    (2**63 - 1, 2**31 - 1),
    (0, 11),
    (11, 0),
    (2**62, 0),
]


@pytest.mark.parametrize(("position", "size"), HOSTILE)
def test_map_key_outside_the_bytes_is_refused(position: int, size: int) -> None:
    """Positions or sizes that no decoder returns raise, and nothing is read there."""
    data = exact(b"0123456789")
    positions, sizes = columns_of_one(position, size)
    offset_map = make(10)
    with pytest.raises(IndexError, match=r"row 299, .* outside the 10 bytes given"):
        offset_map.put_run(data, positions, sizes, np.arange(300, dtype=np.int64))
    with pytest.raises(IndexError, match=r"row 299, .* outside the 10 bytes given"):
        offset_map.get_run(data, positions, sizes, np.empty(300, np.int64))


@pytest.mark.parametrize(("position", "size"), [(10, 0), (0, 10), (9, 1), (-5, -1), (10**9, -7)])
def test_map_key_at_the_edge_is_found(position: int, size: int) -> None:
    """The last byte is inside; an empty key may be at the end, a null key anywhere."""
    positions, sizes = columns_of_one(position, size)
    offset_map = make(10)
    offsets = np.arange(300, dtype=np.int64)
    assert (300, OK) == offset_map.put_run(exact(b"0123456789"), positions, sizes, offsets)
    assert (1 if size < 0 else 2) == len(offset_map)


def test_map_of_no_bytes_accepts_empty_keys() -> None:
    """A buffer without bytes has only empty and null keys."""
    offset_map = make(1)
    columns = np.zeros(2, np.int64), np.array([0, -1], np.int32)
    assert (2, OK) == offset_map.put_run(exact(b""), *columns, np.array([3, 4], np.int64))
    assert 3 == offset_map.get(b"")


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
def test_map_impossible_offset_is_refused(offset: int) -> None:
    """No record has this offset."""
    with pytest.raises(ValueError, match=r"offset of row 0 must be .*, got"):
        make(1).put(b"a", offset)


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (1, 0), (0, 3)])
def test_map_rows_out_of_bounds_are_refused(start: int, end: int) -> None:
    """The rows must be inside the columns."""
    columns = np.zeros(2, np.int64), np.zeros(2, np.int32)
    with pytest.raises(IndexError, match="rows must be in 0 to 2, got"):
        make(1).put_run(b"", *columns, np.zeros(2, np.int64), start=start, end=end)
    with pytest.raises(IndexError, match="rows must be in 0 to 2, got"):
        make(1).get_run(b"", *columns, np.zeros(2, np.int64), start=start, end=end)


def test_map_columns_of_unequal_sizes_are_refused() -> None:
    """Each row needs a position, a size, an offset and a result."""
    two, three, sizes = np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(3, np.int32)
    with pytest.raises(ValueError, match="sizes and offsets must be as many as positions, 2"):
        make(1).put_run(b"", two, sizes, two)
    with pytest.raises(ValueError, match="as many as positions, 3"):
        make(1).put_run(b"", three, sizes, two)
    with pytest.raises(ValueError, match="found must have 3 rows, got 2"):
        make(1).get_run(b"", three, sizes, two)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load_factor": 0.0}, "load_factor must be above 0"),
        ({"load_factor": 1.01}, "load_factor must be above 0"),
        ({"load_factor": float("nan")}, "load_factor must be above 0"),
        ({"load_factor": 0.4}, "must hold an entry of 24 bytes, got"),
        ({"identity": "sha1"}, "key identity must be one of md5, siphash, got 'sha1'"),
        ({"secret": b"short"}, "a secret must have 16 bytes, got 5"),
        ({"part": 1}, "got 1 of 1"),
        ({"part": -1, "part_count": 2}, "got -1 of 2"),
        ({"part_count": 0}, "got 0 of 0"),
        ({"part_count": 2**32}, "got 0 of"),
    ],
)
def test_map_impossible_setting_is_refused(arguments: dict[str, Any], message: str) -> None:
    """The constructor raises."""
    with pytest.raises(ValueError, match=message):
        make(2, **arguments)


@pytest.mark.parametrize("size", [0, 23])
def test_map_memory_without_an_entry_is_refused(size: int) -> None:
    """An entry takes 24 bytes."""
    with pytest.raises(ValueError, match="must hold an entry of 24 bytes, got"):
        OffsetMap(bytearray(size), load_factor=1.0, secret=SECRET)


def test_map_memory_is_used_in_whole_entries() -> None:
    """Bytes after the last whole entry stay unchanged."""
    memory = bytearray(b"\xaa" * (3 * ENTRY_SIZE + 23))
    offset_map = OffsetMap(memory, load_factor=1.0, secret=SECRET)
    assert 3 == offset_map.slots == offset_map.usable
    put_all(offset_map, KeyColumns.of([b"a", b"b", b"c"]))
    assert b"\xaa" * 23 == memory[-23:]


def test_map_memory_must_be_writable() -> None:
    """The map writes to it."""
    with pytest.raises((BufferError, ValueError)):
        OffsetMap(bytes(240), secret=SECRET)


# ---- marks ----


def marked(columns: KeyColumns, offsets: list[int], offset_map: OffsetMap) -> list[int] | None:
    """Return the marks of the rows, None if the map has no marks for them."""
    flags = np.full(len(offsets), 9, np.uint8)
    has_marks = offset_map.latest_run(np.array(offsets, np.int64), flags)
    return flags.tolist() if has_marks else None


@settings(max_examples=examples(60))
@given(keys=KEYS, first=st.integers(0, 2**62), steps=st.lists(st.integers(1, 3), min_size=400))
def test_marks_of_any_keys_are_set_for_the_latest_records(
    keys: list[bytes | None], first: int, steps: list[int]
) -> None:
    """The rows are put in two calls; a record without a key is never the latest."""
    columns = KeyColumns.of(keys)
    offsets = (first + np.cumsum(steps[: len(keys)], dtype=np.int64)).tolist()
    offset_map = make(max(1, len(set(keys))))
    offset_map.mark(exact(bytes(150)), first)
    half = len(keys) // 2
    numbers = np.array(offsets, np.int64)
    for start, end in ((0, half), (half, len(keys))):
        offset_map.put_run(
            columns.data, columns.positions, columns.sizes, numbers, start=start, end=end
        )
    model = latest(columns, offsets)
    expected = [
        int(key is not None and model[key] == offset)
        for key, offset in zip(keys, offsets, strict=True)
    ]
    assert expected == marked(columns, offsets, offset_map)


def test_marks_of_offsets_out_of_order_follow_the_latest() -> None:
    """An older record put later changes nothing."""
    columns = KeyColumns.of([b"a", b"a", b"a"])
    offset_map = make(1)
    offset_map.mark(bytearray(2), 3)
    put_all(offset_map, columns, [9, 5, 9])
    assert [0, 0, 1, 0] == marked(columns, [3, 5, 9, 8], offset_map)


@pytest.mark.parametrize(
    ("offsets", "has_marks"),
    [([2, 3], False), ([3, 10], True), ([10, 11], False), ([18, 19], False)],
)
def test_marks_of_offsets_outside_are_none(offsets: list[int], has_marks: bool) -> None:
    """Offsets below the first, after the last, and above the latest offset of the map."""
    columns = KeyColumns.of([b"a", b"b"])
    offset_map = make(2)
    offset_map.mark(bytearray(1 if has_marks else 2), 3)
    put_all(offset_map, columns, [3, 10])
    assert has_marks == (marked(columns, offsets, offset_map) is not None)
    assert marked(columns, [3, 10], offset_map) == [1, 1]


def test_marks_of_a_partial_or_cleared_map_are_none() -> None:
    """A map of one part does not have the keys of others; `clear` drops the marks."""
    columns = KeyColumns.of([b"a"])
    offset_map = make(2, part=0, part_count=2)
    offset_map.mark(bytearray(1), 0)
    put_all(offset_map, columns)
    assert marked(columns, [0], offset_map) is None
    offset_map.clear(secret=SECRET)
    put_all(offset_map, columns)
    assert marked(columns, [0], offset_map) is None


def test_marks_of_a_map_with_keys_raise() -> None:
    """Keys put before have no marks; a negative offset and short columns also raise."""
    offset_map = make(2)
    with pytest.raises(ValueError, match=r"must be set on an empty map .*, got -1"):
        offset_map.mark(bytearray(1), -1)
    offset_map.mark(bytearray(1), 0)
    put_all(offset_map, KeyColumns.of([b"a"]))
    with pytest.raises(ValueError, match="got 0 on 1 keys"):
        offset_map.mark(bytearray(1), 0)
    with pytest.raises(ValueError, match="latest must have 2 rows, got 1"):
        offset_map.latest_run(np.zeros(2, np.int64), np.zeros(1, np.uint8))
