"""Keys of an exact offset map: each finds its own entry among those of one hash.

The map has no keys, so the caller is asked whether the record at a stored offset has the key of a
row: for all rows of a block at once, and again for each entry of the same hash with another key.
Rows of one block are compared with each other directly, since their keys are in memory.

Thread-safety: none; one caller at a time.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from kafkalog._core.key_hash cimport HASH_SIZE
from kafkalog._core.offset_table cimport (
    LOOK_UP_PATIENCE,
    OFFSET_ABSENT,
    KeyBlock,
    KeyRows,
    MapEntry,
    OffsetTable,
    find_slot,
    insert_entry,
    is_in_part,
    load_block,
    load_entry,
    grow_table,
    raise_offset,
)
from kafkalog._core.status cimport STATUS_OFFSET_ORDER, STATUS_OK


cdef int _hash_kernel(
    const OffsetTable* table,
    const KeyRows* rows,
    int64_t* row,
    int64_t end,
    int64_t* keyed_rows,
    uint64_t* hashes,
    int64_t* count,
) noexcept nogil:
    """List the rows of an exact run that have a key of this part, with their hashes."""
    cdef KeyBlock block
    cdef int64_t i
    cdef int64_t first = row[0]
    cdef int status
    count[0] = 0
    while row[0] < end:
        status = load_block(table, rows, row, end, &block)
        if status != STATUS_OK:
            return status
        for i in range(block.count):
            if is_in_part(table, block.hashes[2 * i + 1]):
                keyed_rows[count[0]] = block.rows[i]
                memcpy(&hashes[2 * count[0]], &block.hashes[2 * i], HASH_SIZE)
                count[0] += 1
    if rows.offsets != NULL:
        for row[0] in range(first + 1, end):
            if rows.offsets[row[0]] <= rows.offsets[row[0] - 1]:
                return STATUS_OFFSET_ORDER
    row[0] = end
    return STATUS_OK


cdef void _candidates_kernel(
    const OffsetTable* table,
    const uint64_t* hashes,
    const int64_t* pending,
    int64_t count,
    const int64_t* others,
    int64_t* candidates,
) noexcept nogil:
    """For each pending key, the offset of the next entry with its hash, after the refused ones."""
    cdef MapEntry entry
    cdef int64_t i
    cdef uint64_t slot = 0
    for i in range(count):
        if find_slot(
            table, &hashes[2 * pending[i]], others[pending[i]], LOOK_UP_PATIENCE, &slot
        ):
            load_entry(table, slot, &entry)
            candidates[i] = <int64_t>(entry.offset_plus_one - 1)
        else:
            candidates[i] = OFFSET_ABSENT


cdef inline int64_t _row_of(
    const KeyRows* rows, int64_t start, int64_t end, int64_t offset
) noexcept nogil:
    """Return the row of an offset; offsets rise. -1 if there is none."""
    cdef int64_t low = start
    cdef int64_t high = end
    cdef int64_t middle
    while low < high:
        middle = low + (high - low) // 2
        if rows.offsets[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low if low < end and rows.offsets[low] == offset else -1


cdef inline bint _is_same_key(const KeyRows* rows, int64_t row, int64_t other) noexcept nogil:
    cdef int32_t size = rows.sizes[row]
    return size == rows.sizes[other] and memcmp(
        rows.data + rows.positions[row], rows.data + rows.positions[other], <size_t>size
    ) == 0


cdef int _exact_put_kernel(
    OffsetTable* table,
    const KeyRows* rows,
    int64_t start,
    const int64_t* keyed_rows,
    const uint64_t* hashes,
    const int64_t* others,
    const int64_t* known_offsets,
    int64_t count,
    int64_t* reached,
) noexcept nogil:
    """
    Put rows whose keys were compared with all that the map held before row `start`.

    A known offset means that the entry after `others` of the same hash belongs to the key; ABSENT,
    that none of these does, and that the following entries came after `start`: their keys are in
    memory. Entries of one hash never change their order, and new ones are put after the last.
    """
    cdef MapEntry entry
    cdef int64_t i, row, skip, earlier
    cdef int status
    cdef uint64_t slot = 0
    cdef const uint64_t* words
    for i in range(count):
        row = keyed_rows[i]
        words = &hashes[2 * i]
        skip = others[i]
        while find_slot(table, words, skip, 0, &slot):
            if known_offsets[i] != OFFSET_ABSENT:
                break
            load_entry(table, slot, &entry)
            earlier = _row_of(rows, start, row, <int64_t>(entry.offset_plus_one - 1))
            if earlier >= 0 and _is_same_key(rows, row, earlier):
                break
            skip += 1
        else:
            if table.count >= table.crowded_count:
                status = grow_table(table)
                if status != STATUS_OK:
                    reached[0] = row
                    return status
                find_slot(table, words, skip, 0, &slot)
            insert_entry(table, words, rows.offsets[row], slot)
            continue
        raise_offset(table, slot, rows.offsets[row])
    return STATUS_OK


# ---- the rows ----


cdef class ExactRows:
    """
    The keys of some rows, and for each the entry that is its own among those of its hash.

    Attributes: `rows`, those that have a key of this part; `hashes`, two words each; `others`, how
    many entries of the hash belong to other keys; `offsets`, what the key's own entry holds, or
    ABSENT.
    """

    def __cinit__(self):
        self._rows = np.empty(EXACT_ROWS, np.int64)
        self._hashes = np.empty(2 * EXACT_ROWS, np.uint64)
        self._others = np.empty(EXACT_ROWS, np.int64)
        self._offsets = np.empty(EXACT_ROWS, np.int64)
        self.rows = &self._rows[0]
        self.hashes = &self._hashes[0]
        self.others = &self._others[0]
        self.offsets = &self._offsets[0]

    cdef int load(
        self, const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end
    ) noexcept:
        """Take rows up to the end, EXACT_ROWS at most; `row` is the position of a bad one."""
        cdef int status
        with nogil:
            status = _hash_kernel(
                table, rows, row, end, self.rows, self.hashes, &self.count
            )
        return status

    cdef int put(
        self, OffsetTable* table, const KeyRows* rows, int64_t start, int64_t* row
    ) noexcept:
        """Put the resolved rows, from `start` on; `row` is the first that does not fit."""
        cdef int status
        with nogil:
            status = _exact_put_kernel(
                table,
                rows,
                start,
                self.rows,
                self.hashes,
                self.others,
                self.offsets,
                self.count,
                row,
            )
        return status

    cdef object resolve(self, const OffsetTable* table, const int64_t* own_offsets, same_keys):
        """Find the entries, asking about all keys of one round at once."""
        rows = np.asarray(self._rows)[:self.count]
        others = np.asarray(self._others)[:self.count]
        offsets = np.asarray(self._offsets)[:self.count]
        others[:] = 0
        offsets[:] = OFFSET_ABSENT
        pending = np.arange(self.count)
        while len(pending) > 0:
            candidates = self._candidates(table, pending)
            there = candidates != OFFSET_ABSENT
            pending, candidates = pending[there], candidates[there]
            same = self._call_same_keys(own_offsets, candidates, rows[pending], same_keys)
            offsets[pending[same]] = candidates[same]
            pending = pending[~same]
            others[pending] += 1

    cdef object _candidates(self, const OffsetTable* table, const int64_t[::1] pending):
        candidates = np.empty(pending.shape[0], np.int64)
        cdef int64_t[::1] view = candidates
        _candidates_kernel(
            table, self.hashes, &pending[0], pending.shape[0], self.others, &view[0]
        )
        return candidates

    cdef object _call_same_keys(
        self, const int64_t* own_offsets, object candidates, const int64_t[::1] rows, same_keys
    ):
        """Return which candidates are the rows' keys, as bools; not asking about own offsets."""
        cdef Py_ssize_t i
        cdef const int64_t[::1] offsets = candidates
        same = np.zeros(rows.shape[0], np.bool_)
        cdef uint8_t[::1] flags = same.view(np.uint8)
        if own_offsets != NULL:
            for i in range(rows.shape[0]):
                flags[i] = own_offsets[rows[i]] == offsets[i]
        ask = ~same
        if ask.any():
            answer = np.asarray(same_keys(candidates[ask], np.asarray(rows)[ask]), np.bool_)
            if answer.shape != (np.count_nonzero(ask),):
                raise ValueError(
                    f"same_keys must return {np.count_nonzero(ask)} bools, "
                    f"got shape {answer.shape}"
                )
            same[ask] = answer
        return same
