"""The table of an offset map, as kernels see it: entries of 24 bytes in the caller's memory.

An entry is the 16 bytes of a key's hash and the key's latest offset plus one, so that zeros are an
empty slot for every hash. Entries are at their initial slot or after it, in the order of their
initial slots (Robin Hood linear probing): a search ends at the first entry that is nearer to its
initial slot than the requested entry would be, so that an absent key costs no more than a present
one, even in a nearly full table.

The table begins small, at the beginning of the memory, and takes more of it as keys come: of a log
that is worth compacting they are a fraction of the records, and a table that fits the caches is
asked in a third of the time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.key_hash cimport KeyBytes, KeyHasher
from kafkalog._core.prefetch cimport prefetch


cdef enum:
    ENTRY_SIZE = 24
    LINE_SIZE = 64

    # Keys that are hashed together, and whose slots are then asked for before the first is needed.
    BLOCK_KEYS = 128

    # Steps of a look-up before it computes the distance of entries from their initial slots: in a
    # table filled to 0.9, 92 -> 70 ns for a present key.
    LOOK_UP_PATIENCE = 4

    # Entries that are compared with a hash at once: those of the prefetched lines.
    NEAR_SLOTS = 4

    # Slots of an empty table, where there is memory for more.
    FIRST_SLOTS = 64

    # Results of a look-up without an offset.
    OFFSET_ABSENT = -1
    OFFSET_ELSEWHERE = -2              # the key belongs to another part of a pass
    OFFSET_KEYLESS = -3


cdef struct MapEntry:
    uint64_t first                     # the hash, two halves
    uint64_t second
    uint64_t offset_plus_one                     # offset + 1; 0: empty


cdef struct OffsetTable:
    uint8_t* entries
    uint64_t slot_count                # that the table has now; below 2^32
    uint64_t slot_limit                # that the memory holds
    uint64_t usable                    # entries that may be used, at most slot_limit
    uint64_t count                     # entries used
    uint64_t crowded_count             # as many as these slots should take; `usable` of all slots
    uint64_t multiplier                # odd, of the secret: so chosen hashes share no initial slot
    uint64_t part
    uint64_t part_count
    uint8_t* marks                     # a bit for each offset from `first_marked` on
    int64_t first_marked
    uint64_t mark_count                # bits; 0: nothing is marked
    KeyHasher hasher


# Keys and offsets as columns; sizes below 0 are null keys.
cdef struct KeyRows:
    const uint8_t* data
    int64_t data_size
    const int64_t* positions
    const int32_t* sizes
    const int64_t* offsets             # NULL for look-ups


# Keys of a block: those that are not null, hashed.
cdef struct KeyBlock:
    KeyBytes[BLOCK_KEYS] keys
    int64_t[BLOCK_KEYS] rows
    uint64_t[2 * BLOCK_KEYS] hashes
    int64_t count


cdef int load_block(
    const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end, KeyBlock* block
) noexcept nogil


cdef void empty_table(OffsetTable* table) noexcept nogil
cdef int grow_table(OffsetTable* table) noexcept nogil


cdef inline uint64_t scaled(uint64_t number, uint64_t multiplier, uint64_t limit) noexcept nogil:
    """Return a number below `limit` (below 2^32) that depends on all bits of `number`."""
    return (((number * multiplier) >> 32) * limit) >> 32


cdef inline bint is_in_part(const OffsetTable* table, uint64_t second) noexcept nogil:
    if table.part_count == 1:
        return True
    return scaled(second, table.multiplier, table.part_count) == table.part


cdef inline uint64_t home_of(const OffsetTable* table, uint64_t first) noexcept nogil:
    return scaled(first, table.multiplier, table.slot_count)


cdef inline void load_entry(
    const OffsetTable* table, uint64_t slot, MapEntry* entry
) noexcept nogil:
    memcpy(entry, table.entries + slot * ENTRY_SIZE, ENTRY_SIZE)


cdef inline void store_entry(
    const OffsetTable* table, uint64_t slot, const MapEntry* entry
) noexcept nogil:
    memcpy(table.entries + slot * ENTRY_SIZE, entry, ENTRY_SIZE)


cdef inline void prefetch_slot(const OffsetTable* table, uint64_t slot) noexcept nogil:
    """Prefetch the line of a slot and the next: an entry may span both, or be after its slot."""
    cdef const uint8_t* entry = table.entries + slot * ENTRY_SIZE
    prefetch(entry)
    prefetch(entry + LINE_SIZE)


cdef inline uint64_t next_slot(const OffsetTable* table, uint64_t slot) noexcept nogil:
    return slot + 1 if slot + 1 < table.slot_count else 0


cdef inline uint64_t distance_of(
    const OffsetTable* table, const MapEntry* entry, uint64_t slot
) noexcept nogil:
    """Return the distance of an entry from its initial slot."""
    cdef uint64_t home = home_of(table, entry.first)
    return slot - home if slot >= home else slot + table.slot_count - home


cdef inline bint find_slot(
    const OffsetTable* table,
    const uint64_t* hash_words,
    int64_t skip,
    uint64_t patience,
    uint64_t* slot,
) noexcept nogil:
    """
    Find the entry of a hash, the one after `skip` others of the same hash.

    Returns True and its slot, or False and, without patience, the slot where it would have to be
    put. Patience is the number of steps before the first check whether the hash can still follow:
    for look-ups, which mostly end before. Ends after as many steps as there are slots, for any
    content of them.
    """
    cdef MapEntry entry
    cdef uint64_t distance = 0
    slot[0] = home_of(table, hash_words[0])
    while distance < table.slot_count:
        load_entry(table, slot[0], &entry)
        if entry.offset_plus_one == 0:
            return False
        if entry.first == hash_words[0] and entry.second == hash_words[1]:
            if skip == 0:
                return True
            skip -= 1
        elif distance >= patience and distance_of(table, &entry, slot[0]) < distance:
            return False
        slot[0] = next_slot(table, slot[0])
        distance += 1
    return False


cdef inline bint find_near_home(
    const OffsetTable* table, const uint64_t* hash_words, uint64_t* slot
) noexcept nogil:
    """
    Find the entry of a hash among the first few from its initial slot, without a branch for each.

    False has no meaning: the caller continues with `find_slot`. The distance of an entry cannot be
    predicted, and each wrong guess of the processor would cost as much as four entries.
    """
    cdef uint64_t home = home_of(table, hash_words[0])
    cdef const uint8_t* entry = table.entries + home * ENTRY_SIZE
    cdef uint64_t count = NEAR_SLOTS
    cdef uint64_t found = count
    cdef MapEntry candidate
    cdef uint64_t i
    cdef uint64_t word = 0
    if home + count > table.slot_count:
        return False
    for i in range(1, count + 1):
        memcpy(&word, entry + (count - i) * ENTRY_SIZE, 8)
        found = count - i if word == hash_words[0] else found
    if found == count:
        return False
    slot[0] = home + found
    load_entry(table, slot[0], &candidate)
    return candidate.second == hash_words[1] and candidate.offset_plus_one != 0


cdef inline void change_mark(
    const OffsetTable* table, uint64_t offset, bint is_latest
) noexcept nogil:
    """Mark whether a record is the latest of its key, if its offset has a mark."""
    cdef uint64_t number = offset - <uint64_t>table.first_marked
    cdef uint8_t bit = <uint8_t>(1 << (number & 7))
    if number < table.mark_count:
        if is_latest:
            table.marks[number >> 3] |= bit
        else:
            table.marks[number >> 3] &= <uint8_t>~bit


cdef inline void insert_entry(
    OffsetTable* table, const uint64_t* hash_words, int64_t offset, uint64_t slot
) noexcept nogil:
    """Put a new entry at the slot that find_slot gave; a slot must be free. What follows moves."""
    cdef MapEntry carried
    cdef MapEntry found
    carried.first = hash_words[0]
    carried.second = hash_words[1]
    carried.offset_plus_one = <uint64_t>offset + 1
    table.count += 1
    change_mark(table, <uint64_t>offset, True)
    while carried.offset_plus_one != 0:
        load_entry(table, slot, &found)
        store_entry(table, slot, &carried)
        carried = found
        slot = next_slot(table, slot)


cdef inline void raise_offset(
    const OffsetTable* table, uint64_t slot, int64_t offset
) noexcept nogil:
    """Let the entry of a slot have the later of two offsets."""
    cdef uint8_t* offset_bytes = table.entries + slot * ENTRY_SIZE + 16
    cdef uint64_t offset_plus_one = 0
    memcpy(&offset_plus_one, offset_bytes, 8)
    if offset_plus_one <= <uint64_t>offset:
        change_mark(table, offset_plus_one - 1, False)
        change_mark(table, <uint64_t>offset, True)
        offset_plus_one = <uint64_t>offset + 1
        memcpy(offset_bytes, &offset_plus_one, 8)
