"""The latest offset of every key, 24 bytes a key, in memory that the caller owns.

SkimpyOffsetMap in Kafka: what compaction knows of the dirty part of a log. Keys are fed straight
from the columns that decoders fill (RecordColumns), many in one call and none as a Python object.

A key is identified by a 128-bit hash (key_hash.pyx): two keys of one hash are one key, unless the
map is exact. An exact map stores no keys either: if a hash is in the map already, it asks the
caller whether the record at the stored offset has the same key. So exactness costs nothing for a
new key, and a read of the log for a known one.

If the keys need more memory, a pass may take one part of them, selected by the hash, and the next
pass another (`part`, `part_count`).

A later pass over the same records need not look up their keys again: a mark, one bit for each
offset, shows whether a record is the latest of its key (`mark`, `latest_run`).

The map uses the part of its memory that its keys need. A new key that does not fit is refused by a
status; the entries of the map stay valid, and known keys can still be updated.

Thread-safety: none; one caller at a time.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalog._core.exact_rows cimport EXACT_ROWS, ExactRows
from kafkalog._core.key_hash cimport IDENTITY_MD5, SECRET_SIZE, identity_of
from kafkalog._core.mapping cimport check_read
from kafkalog._core.offset_table cimport (
    ENTRY_SIZE,
    LOOK_UP_PATIENCE,
    OFFSET_ABSENT,
    OFFSET_ELSEWHERE,
    OFFSET_KEYLESS,
    KeyBlock,
    KeyRows,
    MapEntry,
    OffsetTable,
    empty_table,
    find_near_home,
    find_slot,
    home_of,
    insert_entry,
    is_in_part,
    load_block,
    load_entry,
    grow_table,
    prefetch_slot,
    raise_offset,
)
from kafkalog._core.status cimport (
    STATUS_FIELD_LENGTH,
    STATUS_NO_MEMORY,
    STATUS_OFFSET_DELTA,
    STATUS_OFFSET_ORDER,
    STATUS_OK,
)

cdef enum:
    # Rows for some ten microseconds.
    NOGIL_ROWS_MIN = 256

ABSENT = OFFSET_ABSENT
ELSEWHERE = OFFSET_ELSEWHERE
KEYLESS = OFFSET_KEYLESS
ENTRY_BYTES = ENTRY_SIZE

_SLOTS_MAX = 2**32 - 1


# ---- kernels ----


cdef inline void _prefetch_block(const OffsetTable* table, const KeyBlock* block) noexcept nogil:
    cdef int64_t i
    for i in range(block.count):
        prefetch_slot(table, home_of(table, block.hashes[2 * i]))


cdef int put_kernel(
    OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end
) noexcept nogil:
    """Put rows until the end or a new key that does not fit; `row` is then the first unused."""
    cdef KeyBlock block
    cdef int64_t next_row = row[0]
    cdef int64_t i
    cdef uint64_t slot = 0
    cdef const uint64_t* words
    cdef int status
    while row[0] < end:
        status = load_block(table, rows, &next_row, end, &block)
        if status != STATUS_OK:
            row[0] = next_row
            return status
        _prefetch_block(table, &block)
        for i in range(block.count):
            words = &block.hashes[2 * i]
            if not is_in_part(table, words[1]):
                continue
            # Most keys of a log that is worth compacting are known: the place of a new key is
            # searched for separately.
            if find_near_home(table, words, &slot) or find_slot(
                table, words, 0, LOOK_UP_PATIENCE, &slot
            ):
                raise_offset(table, slot, rows.offsets[block.rows[i]])
                continue
            if table.count >= table.crowded_count:
                status = grow_table(table)
                if status != STATUS_OK:
                    row[0] = block.rows[i]
                    return status
            find_slot(table, words, 0, 0, &slot)
            insert_entry(table, words, rows.offsets[block.rows[i]], slot)
        row[0] = next_row
    return STATUS_OK


cdef int get_kernel(
    const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end, int64_t* found
) noexcept nogil:
    """Look up rows; `found` counts from the first."""
    cdef KeyBlock block
    cdef MapEntry entry
    cdef int64_t start = row[0]
    cdef int64_t first
    cdef int64_t i
    cdef uint64_t slot = 0
    cdef int status
    while row[0] < end:
        first = row[0]
        status = load_block(table, rows, row, end, &block)
        if status != STATUS_OK:
            return status
        _prefetch_block(table, &block)
        for i in range(first - start, row[0] - start):
            found[i] = OFFSET_KEYLESS
        for i in range(block.count):
            if not is_in_part(table, block.hashes[2 * i + 1]):
                found[block.rows[i] - start] = OFFSET_ELSEWHERE
            elif find_near_home(table, &block.hashes[2 * i], &slot) or find_slot(
                table, &block.hashes[2 * i], 0, LOOK_UP_PATIENCE, &slot
            ):
                load_entry(table, slot, &entry)
                found[block.rows[i] - start] = <int64_t>(entry.offset_plus_one - 1)
            else:
                found[block.rows[i] - start] = OFFSET_ABSENT
    return STATUS_OK


cdef bint latest_kernel(
    const OffsetTable* table,
    const int64_t* offsets,
    int64_t count,
    int64_t latest_offset,
    uint8_t* latest,
) noexcept nogil:
    """Copy the marks of some offsets; False where one has none."""
    cdef uint64_t number
    cdef uint64_t end = table.mark_count
    cdef uint64_t bound = <uint64_t>latest_offset + 1 - <uint64_t>table.first_marked
    cdef int64_t i
    if latest_offset < table.first_marked:
        return False
    if bound < end:
        end = bound
    for i in range(count):
        number = <uint64_t>offsets[i] - <uint64_t>table.first_marked
        if number >= end:
            return False
        latest[i] = (table.marks[number >> 3] >> (number & 7)) & 1
    return True


cdef int64_t entries_kernel(
    const OffsetTable* table,
    uint64_t* slot,
    int64_t* firsts,
    int64_t* seconds,
    int64_t* offsets,
    int64_t limit,
) noexcept nogil:
    """Copy what is in the slots until the last one or `limit` entries; `slot` is then the next."""
    cdef MapEntry entry
    cdef int64_t count = 0
    while count < limit and slot[0] < table.slot_count:
        load_entry(table, slot[0], &entry)
        slot[0] += 1
        if entry.offset_plus_one != 0:
            firsts[count] = <int64_t>entry.first
            seconds[count] = <int64_t>entry.second
            offsets[count] = <int64_t>(entry.offset_plus_one - 1)
            count += 1
    return count


# ---- entry points ----


cdef KeyRows _rows_of(
    const uint8_t[::1] data, const int64_t[::1] positions, const int32_t[::1] sizes,
    const int64_t[::1] offsets, int64_t start, int64_t end,
) except *:
    cdef KeyRows rows
    cdef Py_ssize_t count = positions.shape[0]
    rows.data = NULL
    rows.positions = NULL
    rows.sizes = NULL
    rows.offsets = NULL
    rows.data_size = data.shape[0]
    if sizes.shape[0] != count or (offsets is not None and offsets.shape[0] != count):
        raise ValueError(f"sizes and offsets must be as many as positions, {count}")
    if start < 0 or end < start or end > count:
        raise IndexError(f"rows must be in 0 to {count}, got {start} to {end}")
    if start == end:
        return rows
    rows.data = &data[0] if rows.data_size > 0 else <const uint8_t*>&positions[0]
    rows.positions = &positions[0]
    rows.sizes = &sizes[0]
    if offsets is not None:
        rows.offsets = &offsets[0]
    return rows


cdef class OffsetMap:
    """
    Latest offsets by key, in the caller's memory.

    Args:
        memory: writable bytes, whole entries of which are used; the map keeps it exported, and no
            other code may write to it. Below 96 GiB.
        load_factor: share of the entries that may be used, above 0 and at most 1.
        identity: "md5" as Kafka, or "siphash", keyed with a secret.
        exact: whether keys of one hash are compared; every call then takes `same_keys`.
        secret, part, part_count: as for `clear`.

    `same_keys(offsets, rows)` gets two int64 arrays of one size and returns as many bools: whether
    the record at each offset has the key of that row of the call. It is asked about many at once,
    and not about rows of the same call that lie near.

    Attributes:
        exact: as given.
        latest_offset: the highest offset that the map has taken into account; -1 for none.

    Thread-safety: none; one caller at a time. Runs release the GIL.
    """

    def __cinit__(
        self,
        uint8_t[::1] memory not None,
        *,
        double load_factor=0.9,
        str identity not None="md5",
        bint exact=False,
        secret,
        part=0,
        part_count=1,
    ):
        cdef Py_ssize_t slots = memory.shape[0] // ENTRY_SIZE
        if not 0.0 < load_factor <= 1.0:
            raise ValueError(f"load_factor must be above 0 and at most 1, got {load_factor}")
        if slots > _SLOTS_MAX:
            raise ValueError(
                f"memory must be at most {_SLOTS_MAX * ENTRY_SIZE} bytes, "
                f"got {memory.shape[0]}"
            )
        self._table.usable = <uint64_t>(<double>slots * load_factor)
        if self._table.usable < 1:
            raise ValueError(
                f"memory must hold an entry of {ENTRY_SIZE} bytes, "
                f"got {memory.shape[0]} bytes at load factor {load_factor}")
        self._memory = memory
        self._table.entries = &memory[0]
        self._table.slot_limit = <uint64_t>slots
        self._table.hasher.identity = identity_of(identity)
        self.exact = exact
        self.clear(secret=secret, part=part, part_count=part_count)

    def clear(self, *, const uint8_t[::1] secret not None, part=0, part_count=1):
        """
        Forget all keys, and begin another pass.

        Args:
            secret: 16 bytes, drawn for each pass: a writer of keys must not be able to guess it.
                Only the passes over parts of the same keys share one.
            part, part_count: part of the keys that the map takes, selected by hash and secret.
        """
        if secret.shape[0] != SECRET_SIZE:
            raise ValueError(f"a secret must have {SECRET_SIZE} bytes, got {secret.shape[0]}")
        if not 0 <= part < part_count or part_count > _SLOTS_MAX:
            raise ValueError(
                f"part must be below part_count, at most {_SLOTS_MAX}, got {part} of {part_count}"
            )
        cdef OffsetTable* table = &self._table
        cdef uint64_t multiplier = 0
        memcpy(table.hasher.secret, &secret[0], SECRET_SIZE)
        memcpy(&multiplier, &secret[0], 8)
        table.multiplier = multiplier | 1
        table.part = part
        table.part_count = part_count
        table.mark_count = 0
        self.latest_offset = -1
        empty_table(table)

    def __len__(self):
        return <Py_ssize_t>self._table.count

    def __repr__(self):
        kind = ("md5" if self._table.hasher.identity == IDENTITY_MD5 else "siphash")
        return f"OffsetMap({len(self)} of {self.usable} keys, {kind}{', exact' * self.exact})"

    @property
    def slots(self):
        """Entries that the memory holds."""
        return self._table.slot_limit

    @property
    def usable(self):
        """Keys that the map takes."""
        return self._table.usable

    def advance_to(self, int64_t offset):
        """Record that all offsets up to this one were put: the following have no key."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def mark(self, uint8_t[::1] marks not None, int64_t first_offset):
        """
        Keep, of the records from an offset on, which are their keys' latest. The map must be empty.

        Args:
            marks: writable bytes, a bit for an offset; the map keeps them exported and clears them.
                Records after the last bit have no marks.
            first_offset: offset of the first bit.
        """
        if self._table.count > 0 or first_offset < 0:
            raise ValueError(
                "marks must be set on an empty map with a first_offset of 0 or more, "
                f"got {first_offset} on {len(self)} keys"
            )
        self._marks = marks
        self._table.first_marked = first_offset
        self._table.mark_count = 8 * <uint64_t>marks.shape[0]
        if marks.shape[0] > 0:
            self._table.marks = &marks[0]
            memset(&marks[0], 0, <size_t>marks.shape[0])

    def latest_run(self, const int64_t[::1] offsets not None, uint8_t[::1] latest not None):
        """
        Return for records whether each is the latest of its key, if all of them have marks.

        Records without a key, and records that were not put, are not. A map of a part of the keys
        returns nothing.

        Args:
            offsets: of the records.
            latest: gets 1 or 0 for each.

        Returns:
            False if a record has no mark, or none yet; `latest` is then undefined.
        """
        cdef int64_t count = offsets.shape[0]
        cdef bint is_complete
        if latest.shape[0] < count:
            raise ValueError(f"latest must have {count} rows, got {latest.shape[0]}")
        if self._table.mark_count == 0 or self._table.part_count > 1:
            return False
        if count == 0:
            return True
        with nogil:
            is_complete = latest_kernel(
                &self._table, &offsets[0], count, self.latest_offset, &latest[0]
            )
        return is_complete

    def entries(
        self,
        int64_t[::1] firsts not None,
        int64_t[::1] seconds not None,
        int64_t[::1] offsets not None,
        *,
        Py_ssize_t slot=0,
    ):
        """
        Copy entries into columns, in no order, from a slot on until the columns are full.

        Args:
            firsts, seconds: get the halves of the keys' hashes.
            offsets: gets the keys' latest offsets.
            slot: 0, or where an earlier call has ended; nothing may be put between the calls.

        Returns:
            (slot, rows): the next slot, and how many entries were copied: none after the last.
        """
        cdef int64_t limit = min(firsts.shape[0], seconds.shape[0], offsets.shape[0])
        cdef int64_t count
        cdef uint64_t reached = <uint64_t>slot
        if slot < 0:
            raise IndexError(f"slot not found: {slot}")
        if limit == 0:
            return slot, 0
        with nogil:
            count = entries_kernel(
                &self._table, &reached, &firsts[0], &seconds[0], &offsets[0], limit
            )
        return <Py_ssize_t>reached, count

    def put(self, const uint8_t[::1] key not None, int64_t offset, *, same_keys=None):
        """Put one key; returns STATUS_OK or STATUS_FULL. Arguments as for `put_run`."""
        positions = np.zeros(1, np.int64)
        sizes = np.array([key.shape[0]], np.int32)
        offsets = np.array([offset], np.int64)
        return self.put_run(key, positions, sizes, offsets, same_keys=same_keys)[1]

    def get(self, const uint8_t[::1] key not None, *, same_keys=None):
        """Return the latest offset of a key, ABSENT or ELSEWHERE."""
        found = np.empty(1, np.int64)
        positions = np.zeros(1, np.int64)
        sizes = np.array([key.shape[0]], np.int32)
        self.get_run(key, positions, sizes, found, same_keys=same_keys)
        return int(found[0])

    def put_run(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] positions not None,
        const int32_t[::1] sizes not None,
        const int64_t[::1] offsets not None,
        *,
        Py_ssize_t start=0,
        end=None,
        same_keys=None,
    ):
        """
        Put the keys of rows `start` to `end`; rows without a key, or of another part, are passed.

        A key that the map has keeps the later of both offsets. `latest_offset` becomes the highest
        offset of the rows consumed.

        Args:
            data: the bytes that positions count from.
            positions, sizes: of the keys; sizes below 0 are null.
            offsets: of the records; in an exact map they must rise.
            same_keys: see the class; only for an exact map, which needs it.

        Returns:
            (first unused row, status): STATUS_FULL if that row's key is new and does not fit.

        Raises:
            IndexError: a key is outside `data`. Rows before it may be in the map.
            ValueError: an offset is negative, or does not rise.
        """
        cdef int64_t stop = positions.shape[0] if end is None else end
        cdef KeyRows rows = _rows_of(data, positions, sizes, offsets, start, stop)
        self._check_mode(same_keys)
        if start == stop:
            return start, STATUS_OK
        reached, status = (
            self._put_exact(&rows, start, stop, same_keys)
            if self.exact
            else self._put_rows(&rows, start, stop)
        )
        check_read(rows.data, rows.data_size)
        if reached > start:
            self.advance_to(np.max(offsets[start:reached]))
        return reached, status

    def get_run(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] positions not None,
        const int32_t[::1] sizes not None,
        int64_t[::1] found not None,
        *,
        const int64_t[::1] offsets=None,
        Py_ssize_t start=0,
        end=None,
        same_keys=None,
    ):
        """
        Look up the keys of rows `start` to `end`.

        Args:
            data, positions, sizes, same_keys: as for `put_run`.
            found: gets for each row the latest offset of its key, ABSENT, ELSEWHERE (a key of
                another part) or KEYLESS; the first is for row `start`. All three are below 0.
            offsets: in an exact map, offsets of the records: an entry with the offset of a row is
                that record, and `same_keys` is not called.
        """
        cdef int64_t stop = positions.shape[0] if end is None else end
        cdef KeyRows rows = _rows_of(data, positions, sizes, offsets, start, stop)
        cdef int64_t row = start
        cdef int64_t count = stop - start
        cdef int status
        self._check_mode(same_keys)
        if found.shape[0] < count:
            raise ValueError(f"found must have {count} rows, got {found.shape[0]}")
        if count == 0:
            return
        if self.exact:
            self._get_exact(&rows, start, stop, found, same_keys)
            check_read(rows.data, rows.data_size)
            return
        rows.offsets = NULL
        if count < NOGIL_ROWS_MIN:
            status = get_kernel(&self._table, &rows, &row, stop, &found[0])
        else:
            with nogil:
                status = get_kernel(&self._table, &rows, &row, stop, &found[0])
        check_read(rows.data, rows.data_size)
        self._refuse(status, &rows, row)

    def _check_mode(self, same_keys):
        if self.exact != (same_keys is not None):
            raise TypeError(
                "same_keys must be given for an exact map"
                if self.exact
                else "same_keys is for exact maps")

    cdef int _refuse(self, int status, const KeyRows* rows, int64_t row) except -1:
        if status == STATUS_FIELD_LENGTH:
            raise IndexError(
                f"the key of row {row}, {rows.sizes[row]} bytes at {rows.positions[row]}, "
                f"is outside the {rows.data_size} bytes given")
        if status == STATUS_NO_MEMORY:
            raise MemoryError("the map could not grow, and is not to be used any more")
        if status == STATUS_OFFSET_DELTA:
            raise ValueError(
                f"offset of row {row} must be at most 2^63-2 and not negative, "
                f"got {rows.offsets[row]}"
            )
        if status == STATUS_OFFSET_ORDER:
            raise ValueError(f"offsets must rise, and row {row} has {rows.offsets[row]}")
        return 0

    cdef tuple _put_rows(self, const KeyRows* rows, int64_t start, int64_t end):
        cdef int64_t row = start
        cdef int status
        if end - start < NOGIL_ROWS_MIN:
            status = put_kernel(&self._table, rows, &row, end)
        else:
            with nogil:
                status = put_kernel(&self._table, rows, &row, end)
        self._refuse(status, rows, row)
        return row, status

    cdef tuple _put_exact(
        self, const KeyRows* rows, int64_t start, int64_t end, object same_keys
    ):
        cdef ExactRows block = ExactRows()
        cdef int64_t row, stop
        cdef int status
        while start < end:
            row = start
            stop = min(end, start + EXACT_ROWS)
            status = block.load(&self._table, rows, &row, stop)
            self._refuse(status, rows, row)
            block.resolve(&self._table, NULL, same_keys)
            status = block.put(&self._table, rows, start, &row)
            self._refuse(status, rows, row)
            if status != STATUS_OK:
                return row, status
            start = stop
        return end, STATUS_OK

    cdef object _get_exact(
        self, const KeyRows* rows, int64_t start, int64_t end, int64_t[::1] found, object same_keys
    ):
        cdef ExactRows block = ExactRows()
        cdef int64_t first = start
        cdef int64_t row, stop, i
        cdef int status
        for row in range(start, end):
            found[row - first] = OFFSET_KEYLESS if rows.sizes[row] < 0 else OFFSET_ELSEWHERE
        while start < end:
            row = start
            stop = min(end, start + EXACT_ROWS)
            status = block.load(&self._table, rows, &row, stop)
            self._refuse(status, rows, row)
            block.resolve(&self._table, rows.offsets, same_keys)
            for i in range(block.count):
                found[block.rows[i] - first] = block.offsets[i]
            start = stop
