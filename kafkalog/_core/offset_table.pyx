"""Insertion and look-up of keys in the table of an offset map, and the growth of the table.

Callers are the kernels of offset_map.pyx and exact_rows.pyx. The columns are not trusted: every key
must be within the given bytes, or its row is refused.

Thread-safety: pure functions.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from kafkalog._core.key_hash cimport hash_keys
from kafkalog._core.status cimport (
    STATUS_FIELD_LENGTH,
    STATUS_FULL,
    STATUS_NO_MEMORY,
    STATUS_OFFSET_DELTA,
    STATUS_OK,
)

cdef enum:
    GROWTH = 2

    # Of ten slots so many are used before the table grows: with nine, 51 -> 60 ns a key put.
    CROWDED_TENTHS = 7


# Entries that wait until the old table is gone: they have no free slot below what is left of it.
cdef struct PendingEntries:
    MapEntry* entries
    uint64_t count
    uint64_t capacity
    uint64_t home                      # highest of theirs in the new table, but for the first ones


cdef inline int _check_row(const KeyRows* rows, int64_t row) noexcept nogil:
    cdef int64_t size = rows.sizes[row]
    if size >= 0 and (
        rows.positions[row] < 0
        or size > rows.data_size
        or rows.positions[row] > rows.data_size - size
    ):
        return STATUS_FIELD_LENGTH
    if rows.offsets != NULL and (rows.offsets[row] < 0 or rows.offsets[row] == INT64_MAX):
        return STATUS_OFFSET_DELTA
    return STATUS_OK


cdef int load_block(
    const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end, KeyBlock* block
) noexcept nogil:
    """Hash the next keys, as many as a block holds; `row` is then the first row not looked at."""
    cdef int status
    block.count = 0
    while row[0] < end and block.count < BLOCK_KEYS:
        status = _check_row(rows, row[0])
        if status != STATUS_OK:
            return status
        if rows.sizes[row[0]] >= 0:
            block.keys[block.count].data = rows.data + rows.positions[row[0]]
            block.keys[block.count].size = <size_t>rows.sizes[row[0]]
            block.rows[block.count] = row[0]
            block.count += 1
        row[0] += 1
    hash_keys(&table.hasher, block.keys, <size_t>block.count, <uint8_t*>block.hashes)
    return STATUS_OK


# ---- growing ----


cdef inline void _set_slots(OffsetTable* table, uint64_t slot_count) noexcept nogil:
    table.slot_count = slot_count
    table.crowded_count = table.usable
    if slot_count < table.slot_limit:
        table.crowded_count = min(table.usable, slot_count * CROWDED_TENTHS // 10)


cdef void empty_table(OffsetTable* table) noexcept nogil:
    """Begin with no keys, in a few slots; memory and limits are set."""
    table.count = 0
    _set_slots(table, min(table.slot_limit, <uint64_t>FIRST_SLOTS))
    memset(table.entries, 0, <size_t>table.slot_count * ENTRY_SIZE)


cdef int _push_pending(PendingEntries* pending, const MapEntry* entry) noexcept nogil:
    cdef uint64_t capacity
    cdef void* larger
    if pending.count == pending.capacity:
        capacity = 2 * pending.capacity + FIRST_SLOTS
        larger = realloc(pending.entries, <size_t>(capacity * sizeof(MapEntry)))
        if larger == NULL:
            return STATUS_NO_MEMORY
        pending.entries = <MapEntry*>larger
        pending.capacity = capacity
    pending.entries[pending.count] = entry[0]
    pending.count += 1
    return STATUS_OK


cdef bint _insert_below(
    const OffsetTable* table, const MapEntry* entry, uint64_t limit
) noexcept nogil:
    """Put an entry after all of its initial slot; return False if no slot below the limit fits."""
    cdef MapEntry carried
    cdef MapEntry found
    cdef uint64_t home = home_of(table, entry.first)
    cdef uint64_t slot = home
    cdef uint64_t free_slot
    while slot < limit:
        load_entry(table, slot, &found)
        if found.offset_plus_one == 0 or home_of(table, found.first) > home:
            break
        slot += 1
    free_slot = slot
    while free_slot < limit:
        load_entry(table, free_slot, &found)
        if found.offset_plus_one == 0:
            break
        free_slot += 1
    if free_slot >= limit:
        return False
    carried = entry[0]
    while slot <= free_slot:
        load_entry(table, slot, &found)
        store_entry(table, slot, &carried)
        carried = found
        slot += 1
    return True


cdef void _insert_anywhere(const OffsetTable* table, const MapEntry* entry) noexcept nogil:
    """Put an entry after all of its initial slot; a slot is free."""
    cdef MapEntry carried = entry[0]
    cdef MapEntry found
    cdef uint64_t distance = 0
    cdef uint64_t slot = home_of(table, entry.first)
    while True:
        load_entry(table, slot, &found)
        if found.offset_plus_one == 0 or distance_of(table, &found, slot) < distance:
            break
        distance += 1
        slot = next_slot(table, slot)
    while carried.offset_plus_one != 0:
        load_entry(table, slot, &found)
        store_entry(table, slot, &carried)
        carried = found
        slot = next_slot(table, slot)


cdef int _rehash(OffsetTable* table, uint64_t old_count, PendingEntries* pending) noexcept nogil:
    """Let the entries of the old table, at the end of the new one, have their slots in that."""
    cdef MapEntry entry
    cdef MapEntry nothing
    cdef uint64_t first = table.slot_count - old_count
    cdef uint64_t wrapped, place, home
    cdef int status
    memset(&nothing, 0, sizeof(MapEntry))
    # Entries before their initial slot belong after all others.
    for place in range(first, table.slot_count):
        load_entry(table, place, &entry)
        if (
            entry.offset_plus_one == 0
            or scaled(entry.first, table.multiplier, old_count) <= place - first
        ):
            break
        store_entry(table, place, &nothing)
        status = _push_pending(pending, &entry)
        if status != STATUS_OK:
            return status
    wrapped = pending.count
    pending.home = 0
    for place in range(first + wrapped, table.slot_count):
        load_entry(table, place, &entry)
        if entry.offset_plus_one == 0:
            continue
        store_entry(table, place, &nothing)
        home = home_of(table, entry.first)
        # Entries of one hash keep their order: nothing goes before what waits.
        if pending.count > wrapped and home <= pending.home:
            status = _push_pending(pending, &entry)
        elif _insert_below(table, &entry, place + 1):
            continue
        else:
            pending.home = max(pending.home, home)
            status = _push_pending(pending, &entry)
        if status != STATUS_OK:
            return status
    for place in range(wrapped, pending.count):
        _insert_anywhere(table, &pending.entries[place])
    for place in range(wrapped):
        _insert_anywhere(table, &pending.entries[place])
    return STATUS_OK


cdef int grow_table(OffsetTable* table) noexcept nogil:
    """
    Let a crowded table have more slots: STATUS_FULL if there are none.

    The table is moved to the end of the larger one, and read from there entry by entry: initial
    slots rise from slot to slot, before and after, so that written entries stay below unread ones.
    The few exceptions are put after all others.

    After STATUS_NO_MEMORY the map must not be used any more.
    """
    cdef PendingEntries pending
    cdef uint64_t old_count = table.slot_count
    cdef uint64_t slot_count = min(GROWTH * old_count, table.slot_limit)
    cdef int status
    if table.count >= table.usable or slot_count == old_count:
        return STATUS_FULL
    memset(&pending, 0, sizeof(PendingEntries))
    _set_slots(table, slot_count)
    memmove(
        table.entries + (slot_count - old_count) * ENTRY_SIZE,
        table.entries,
        <size_t>(old_count * ENTRY_SIZE),
    )
    memset(table.entries, 0, <size_t>((slot_count - old_count) * ENTRY_SIZE))
    status = _rehash(table, old_count, &pending)
    free(pending.entries)
    return status
