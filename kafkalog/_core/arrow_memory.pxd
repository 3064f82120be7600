"""Memory of growing Arrow columns, which their consumer frees.

Plain C memory: freed by any thread, with or without the GIL, before and after Python. A fresh
page costs eight times a warm one, so what comes back is kept for the next batch, by the pool that
it came from. A pool lives as long as its owner or any of its blocks does, and has a limit.

No thread waits for another: a slot of a pool changes hands by one atomic exchange.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkalog._core.status cimport STATUS_NO_MEMORY, STATUS_OK

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef extern from *:
    """
    #define kafkalog_add(number, more) __atomic_add_fetch((number), (more), __ATOMIC_ACQ_REL)
    #define kafkalog_exchange(slot, block) __atomic_exchange_n((slot), (block), __ATOMIC_ACQ_REL)

    static inline int kafkalog_fill(void **slot, void *block)
    {
        void *empty = NULL;
        return __atomic_compare_exchange_n(slot, &empty, block, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED);
    }
    """
    int64_t atomic_add "kafkalog_add" (int64_t* number, int64_t more) noexcept nogil
    void* exchange "kafkalog_exchange" (void** slot, void* block) noexcept nogil
    bint fill_slot "kafkalog_fill" (void** slot, void* block) noexcept nogil


cdef enum:
    ALIGNMENT = 64                     # recommended by Arrow
    POOL_SLOTS = 32

    # A block is taken that is no more than so many times too large, or by so many bytes.
    SURPLUS_TIMES = 4
    SURPLUS_BYTES = 64 * 1024


cdef struct MemoryPool:
    int64_t references                 # its owner's, and one a block that is out
    int64_t kept_bytes
    int64_t kept_bytes_max
    void* slots[POOL_SLOTS]            # blocks that came back, or NULL


# Header before a block, in ALIGNMENT separate bytes.
cdef struct BlockHead:
    int64_t capacity
    MemoryPool* pool                   # NULL: it goes back to the system


cdef struct Octets:
    uint8_t* data
    int64_t size                       # bytes in use
    int64_t capacity
    int64_t hint                       # capacity to begin with: what was needed last time
    MemoryPool* pool                   # NULL: none


cdef inline MemoryPool* new_pool(int64_t kept_bytes_max) noexcept nogil:
    """Return a pool with one reference; NULL without memory."""
    cdef MemoryPool* pool = <MemoryPool*>calloc(1, sizeof(MemoryPool))
    if pool != NULL:
        pool.references = 1
        pool.kept_bytes_max = kept_bytes_max
    return pool


cdef inline void drop_pool(MemoryPool* pool) noexcept nogil:
    """Give a reference back; with the last one goes all that was kept."""
    cdef int slot
    if pool == NULL or atomic_add(&pool.references, -1) > 0:
        return
    for slot in range(POOL_SLOTS):
        free(pool.slots[slot])
    free(pool)


cdef inline bint keep_block(MemoryPool* pool, BlockHead* head) noexcept nogil:
    """Put a block into a pool; return False if the pool is full."""
    cdef int slot
    if atomic_add(&pool.kept_bytes, head.capacity) <= pool.kept_bytes_max:
        for slot in range(POOL_SLOTS):
            if fill_slot(&pool.slots[slot], head):
                return True
    atomic_add(&pool.kept_bytes, -head.capacity)
    return False


cdef inline BlockHead* reuse_block(MemoryPool* pool, int64_t capacity) noexcept nogil:
    """Return a block of the pool that is large enough, and not by far too large; NULL for none."""
    cdef BlockHead* head
    cdef int slot
    for slot in range(POOL_SLOTS):
        head = <BlockHead*>exchange(&pool.slots[slot], NULL)
        if head == NULL:
            continue
        atomic_add(&pool.kept_bytes, -head.capacity)
        if capacity <= head.capacity <= SURPLUS_TIMES * capacity + SURPLUS_BYTES:
            return head
        if not keep_block(pool, head):
            free(head)
    return NULL


cdef inline uint8_t* new_block(MemoryPool* pool, int64_t* capacity) noexcept nogil:
    """Return at least so many bytes, and how many they are; NULL without memory."""
    cdef BlockHead* head = NULL
    capacity[0] = max((capacity[0] + ALIGNMENT - 1) & ~<int64_t>(ALIGNMENT - 1), ALIGNMENT)
    if pool != NULL:
        head = reuse_block(pool, capacity[0])
    if head == NULL:
        head = <BlockHead*>aligned_alloc(ALIGNMENT, <size_t>(ALIGNMENT + capacity[0]))
        if head == NULL:
            return NULL
        head.capacity = capacity[0]
        head.pool = pool
    if pool != NULL:
        atomic_add(&pool.references, 1)
    capacity[0] = head.capacity
    return <uint8_t*>head + ALIGNMENT


cdef inline void free_block(void* data) noexcept nogil:
    """Give a block back, or nothing where it is NULL."""
    cdef BlockHead* head
    cdef MemoryPool* pool
    if data == NULL:
        return
    head = <BlockHead*>(<uint8_t*>data - ALIGNMENT)
    pool = head.pool
    if pool == NULL or not keep_block(pool, head):
        free(head)
    drop_pool(pool)


cdef inline int reserve(Octets* octets, int64_t more) noexcept nogil:
    """Reserve `more` bytes after those in use; the data may move."""
    cdef int64_t needed = octets.size + more
    cdef int64_t capacity
    cdef uint8_t* data
    if needed <= octets.capacity and octets.data != NULL:
        return STATUS_OK
    capacity = max(needed, octets.hint) if octets.data == NULL else max(needed, 2 * octets.capacity)
    data = new_block(octets.pool, &capacity)
    if data == NULL:
        return STATUS_NO_MEMORY
    if octets.size > 0:
        memcpy(data, octets.data, <size_t>octets.size)
    free_block(octets.data)
    octets.data = data
    octets.capacity = capacity
    return STATUS_OK


cdef inline void* detach_block(Octets* octets) noexcept nogil:
    """Return the memory, for which the caller calls `free_block`, and begin with none."""
    cdef void* data = octets.data
    octets.hint = octets.size + octets.size // 8
    octets.data = NULL
    octets.size = 0
    octets.capacity = 0
    return data


cdef inline void discard(Octets* octets) noexcept nogil:
    free_block(octets.data)
    octets.data = NULL
    octets.size = 0
    octets.capacity = 0
