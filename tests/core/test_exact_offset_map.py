"""Tests of exact offset maps: a callback compares keys with equal hashes."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkalog._core.offset_map import ABSENT, ELSEWHERE, KEYLESS, OffsetMap
from kafkalog._core.status import STATUS_CODES
from tests.support import golden
from tests.support.buffers import exact
from tests.support.examples import examples
from tests.support.key_columns import KeyColumns

OK, FULL = STATUS_CODES["OK"], STATUS_CODES["FULL"]
SECRET = bytes(range(16))
VECTOR = golden.vectors("md5_collision")
FIRST, SECOND = (bytes.fromhex(VECTOR[name]) for name in ("first", "second"))


class Records:
    """The log of a test: the key at each offset, and the comparisons of the map."""

    def __init__(self, keys: list[bytes | None], first_offset: int = 0) -> None:
        self.keys = keys
        self.columns = KeyColumns.of(keys)
        self.first_offset = first_offset
        self.offsets = np.arange(first_offset, first_offset + len(keys), dtype=np.int64)
        self.compared_rows: list[tuple[int, int]] = []

    def same_keys(self, offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> list[bool]:
        """Compare the keys at offsets with the keys of rows, and record the comparisons."""
        self.compared_rows += zip(offsets.tolist(), rows.tolist(), strict=True)
        return [
            self.keys[offset - self.first_offset] == self.keys[row]
            for offset, row in zip(offsets.tolist(), rows.tolist(), strict=True)
        ]

    def put(self, offset_map: OffsetMap, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Put all rows, or a range of rows."""
        columns = self.columns
        return offset_map.put_run(
            columns.data,
            columns.positions,
            columns.sizes,
            self.offsets,
            start=start,
            end=end,
            same_keys=self.same_keys,
        )

    def get(self, offset_map: OffsetMap, *, own: bool = True) -> list[int]:
        """Look up all rows, with their own offsets or without."""
        columns = self.columns
        found = np.full(len(self.keys), -99, np.int64)
        offset_map.get_run(
            columns.data,
            columns.positions,
            columns.sizes,
            found,
            offsets=self.offsets if own else None,
            same_keys=self.same_keys,
        )
        return found.tolist()

    def latest(self) -> list[int]:
        """Return the expected offset of each row, by a dictionary."""
        model = dict(zip(self.keys, self.offsets.tolist(), strict=True))
        return [KEYLESS if key is None else model[key] for key in self.keys]


def make(
    entries: int,
    *,
    identity: Literal["md5", "siphash"] = "md5",
    part: int = 0,
    part_count: int = 1,
) -> OffsetMap:
    """Return an exact map of `entries` entries."""
    memory = exact(bytes(entries * 24))
    return OffsetMap(
        memory,
        load_factor=1.0,
        identity=identity,
        exact=True,
        part=part,
        part_count=part_count,
        secret=SECRET,
    )


# Few keys, so that many are equal, and several pairs have the same hash.
KEYS = st.lists(
    st.one_of(
        st.sampled_from([FIRST, SECOND, b"", None]),
        st.sampled_from([FIRST + b"x", SECOND + b"x"]),
        st.integers(0, 30).map(b"%d".__mod__),
    ),
    max_size=120,
)


@settings(max_examples=examples(60))
@given(keys=KEYS, cut=st.integers(0, 120), own=st.booleans())
def test_exact_map_any_keys_equals_a_dictionary(
    keys: list[bytes | None], cut: int, own: bool
) -> None:
    """Colliding keys have separate entries, within one call and over several."""
    records = Records(keys, first_offset=1000)
    offset_map = make(len(set(keys)) or 1)
    offset_map.mark(bytearray(20), 1000)
    first_rows = min(cut, len(keys))
    assert (first_rows, OK) == records.put(offset_map, end=first_rows)
    assert (len(keys), OK) == records.put(offset_map, start=first_rows)
    assert len(set(keys) - {None}) == len(offset_map)
    assert records.latest() == records.get(offset_map, own=own)
    marks = np.empty(len(keys), np.uint8)
    assert offset_map.latest_run(records.offsets, marks)
    assert (records.offsets == records.latest()).tolist() == marks.astype(bool).tolist()


def test_exact_map_of_published_collision_keeps_both() -> None:
    """The identity is MD5, under which one of the keys would be lost in a map that is not exact."""
    records = Records([FIRST, SECOND, FIRST, SECOND])
    offset_map = make(2)
    assert (4, OK) == records.put(offset_map)
    assert [2, 3, 2, 3] == records.get(offset_map)


def test_exact_map_of_runs_longer_than_a_block_equals_a_dictionary() -> None:
    """Each block is compared with the entries of the blocks before."""
    keys: list[bytes | None] = [b"%d" % (number % 3000) for number in range(10_000)]
    keys[5000] = keys[9999] = FIRST
    keys[5001] = keys[4000] = SECOND
    records = Records(keys)
    offset_map = make(3002, identity="md5")
    assert (10_000, OK) == records.put(offset_map)
    assert records.latest() == records.get(offset_map)


def test_exact_map_compares_only_equal_hashes() -> None:
    """New keys, and rows of one block, are not compared by the callback."""
    records = Records([b"%d" % (number % 100) for number in range(4000)])
    offset_map = make(100)
    records.put(offset_map)
    assert [] == records.compared_rows
    again = Records([*records.keys, b"new"])
    again.put(offset_map)
    # One comparison for each row with a hash that the map has from an earlier block.
    assert 4000 == len(again.compared_rows)
    assert {*range(3900, 4000)} == {offset for offset, _row in again.compared_rows}


def test_exact_map_does_not_compare_a_record_with_itself() -> None:
    """The latest record of a key is not compared; another record is compared once."""
    records = Records([b"a", b"b", b"a"])
    offset_map = make(2)
    records.put(offset_map)
    records.compared_rows.clear()
    assert [2, 1, 2] == records.get(offset_map)
    assert [(2, 0)] == records.compared_rows


def test_exact_map_absent_key_with_a_stored_hash_is_absent() -> None:
    """An equal hash alone is not a match."""
    records = Records([FIRST])
    offset_map = make(1)
    records.put(offset_map)
    other = Records([FIRST, SECOND])
    assert [0, ABSENT] == other.get(offset_map)
    assert FULL == offset_map.put(SECOND, 5, same_keys=lambda offsets, rows: [False])
    assert 0 == offset_map.get(FIRST, same_keys=lambda offsets, rows: [True])


def test_exact_map_full_reports_its_row() -> None:
    """As in any map, the rows before it are stored."""
    records = Records([FIRST, b"a", FIRST, SECOND, FIRST])
    offset_map = make(2)
    assert (3, FULL) == records.put(offset_map)
    assert 2 == offset_map.latest_offset
    assert [2, 1, 2, ABSENT, 2] == records.get(offset_map)


def test_exact_map_of_a_part_ignores_keys_of_other_parts() -> None:
    """Keys of another part are not compared."""
    records = Records([b"%d" % number for number in range(500)])
    parts = [make(500, part=part, part_count=2) for part in range(2)]
    for offset_map in parts:
        assert (500, OK) == records.put(offset_map)
    found = [records.get(offset_map) for offset_map in parts]
    for row, answers in enumerate(zip(*found, strict=True)):
        assert {row, ELSEWHERE} == set(answers)
    assert [] == records.compared_rows


def test_exact_map_offsets_that_do_not_rise_are_refused() -> None:
    """The map finds rows of the same block by their offsets."""
    columns = KeyColumns.of([b"a", b"b"])
    for offsets in ([5, 5], [5, 4]):
        with pytest.raises(ValueError, match=r"offsets must rise, and row 1 has [54]"):
            make(2).put_run(
                columns.data,
                columns.positions,
                columns.sizes,
                np.array(offsets, np.int64),
                same_keys=lambda offsets, rows: [],
            )


def test_exact_map_callback_result_of_wrong_size_raises() -> None:
    """The callback returns one bool per comparison."""
    offset_map = make(1)
    offset_map.put(b"a", 1, same_keys=lambda offsets, rows: [])
    with pytest.raises(ValueError, match="same_keys must return 1 bools, got"):
        offset_map.put(b"a", 2, same_keys=lambda offsets, rows: [True, True])
    assert 1 == offset_map.get(b"a", same_keys=lambda offsets, rows: [True])


def test_exact_map_callback_error_is_raised_and_keeps_the_map() -> None:
    """If the log cannot be read, the map is unchanged."""

    def fail(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> list[bool]:
        raise OSError("no disk")

    offset_map = make(2)
    offset_map.put(b"a", 1, same_keys=fail)
    with pytest.raises(OSError, match="no disk"):
        offset_map.put(b"a", 2, same_keys=fail)
    assert 1 == offset_map.get(b"a", same_keys=lambda offsets, rows: [True])
    assert 1 == offset_map.latest_offset


def test_exact_map_key_outside_the_bytes_is_refused() -> None:
    """The same error as in a map that is not exact."""
    columns = np.array([3], np.int64), np.array([1], np.int32)
    with pytest.raises(IndexError, match="outside the 3 bytes given"):
        make(1).put_run(
            exact(b"abc"), *columns, np.zeros(1, np.int64), same_keys=lambda offsets, rows: []
        )
    with pytest.raises(IndexError, match="outside the 3 bytes given"):
        make(1).get_run(
            exact(b"abc"), *columns, np.zeros(1, np.int64), same_keys=lambda offsets, rows: []
        )


def test_map_needs_same_keys_only_if_exact() -> None:
    """A callback for a map that is not exact raises, and so does a missing one."""
    with pytest.raises(TypeError, match="same_keys must be given"):
        make(1).get(b"a")
    with pytest.raises(TypeError, match="for exact maps"):
        OffsetMap(bytearray(48), secret=SECRET).get(b"a", same_keys=lambda offsets, rows: [])
