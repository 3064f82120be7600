/* Mappings of files whose pages may fail, and the process's answer to SIGBUS.
 *
 * A page of a mapped file that cannot be had (a sector that gives no data, a file that somebody has
 * cut) is told by SIGBUS, which ends a process. The handler here asks a table whether the address
 * is in one of our mappings. Then it marks that mapping, puts a page of zeros in the place of the
 * one that is lost, and the reader goes on; who takes a result from those bytes looks at the marks
 * first. Any other SIGBUS goes to whoever had the signal before, as if nobody stood between.
 *
 * The handler takes no lock and asks for no memory: it walks the table, stores with atomic
 * operations, and calls mmap. Entries come and go beside it. Each has a sequence number that is odd
 * while the entry changes; what was read of it counts only where the number was even, and the same
 * before and behind. The entry of the mapping that a thread faults in does not change, since the
 * thread holds the mapping. Blocks of the table are never given back.
 *
 * The mark is set before the zeros are there: who reads zeros finds the mark.
 *
 * A forked child has the handler, the table and the mappings. Several threads may fault at once, in
 * the same page, too. */

#define _GNU_SOURCE
#include "mapping_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_ENTRIES 128

struct kafkalog_mapping {
    _Atomic(uint64_t) sequence;
    _Atomic(uintptr_t) start;      /* 0: the entry is free */
    _Atomic(uintptr_t) end;
    _Atomic(uintptr_t) lost_start; /* addresses; UINTPTR_MAX and 0 where nothing was lost */
    _Atomic(uintptr_t) lost_end;
    _Atomic(void *) owner;
};

typedef struct block {
    struct kafkalog_mapping entries[BLOCK_ENTRIES];
    _Atomic(struct block *) next;
} block;

typedef struct disposition {
    struct sigaction action;
    int is_first; /* what the process had before we came: nothing of ours is behind it */
} disposition;

static block first_block;
static _Atomic(uintptr_t) page_size;
static _Atomic(disposition *) previous;
static _Atomic(disposition *) original;
/* The thread that passes a signal on, while it does. */
static _Atomic(uintptr_t) passing_thread;

int64_t kafkalog_guard_losses = 0;

/* ---- what the handler does ---- */

/* Take a copy of an entry that nobody was changing; 0 where it is free or was. */
static int look_at(struct kafkalog_mapping *entry, uintptr_t *start, uintptr_t *end)
{
    uint64_t before = atomic_load_explicit(&entry->sequence, memory_order_acquire);
    if (before & 1)
        return 0;
    *start = atomic_load_explicit(&entry->start, memory_order_acquire);
    *end = atomic_load_explicit(&entry->end, memory_order_acquire);
    atomic_thread_fence(memory_order_acquire);
    return *start != 0 && atomic_load_explicit(&entry->sequence, memory_order_relaxed) == before;
}

static struct kafkalog_mapping *entry_of(uintptr_t address)
{
    uintptr_t start, end;
    for (block *each = &first_block; each != NULL; each = atomic_load(&each->next))
        for (int slot = 0; slot < BLOCK_ENTRIES; slot++)
            if (look_at(&each->entries[slot], &start, &end) && start <= address && address < end)
                return &each->entries[slot];
    return NULL;
}

static void mark(struct kafkalog_mapping *entry, uintptr_t start, uintptr_t end)
{
    uintptr_t known = atomic_load(&entry->lost_start);
    while (start < known && !atomic_compare_exchange_weak(&entry->lost_start, &known, start))
        ;
    known = atomic_load(&entry->lost_end);
    while (end > known) {
        if (atomic_compare_exchange_weak(&entry->lost_end, &known, end)) {
            if (known == 0)
                __atomic_add_fetch(&kafkalog_guard_losses, 1, __ATOMIC_SEQ_CST);
            break;
        }
    }
}

/* Put zeros in the place of the page with an address; 0 where it is none of ours. */
static int replace_page(uintptr_t address)
{
    uintptr_t size = atomic_load(&page_size);
    uintptr_t page = address & ~(size - 1);
    struct kafkalog_mapping *entry = entry_of(address);
    if (entry == NULL)
        return 0;
    mark(entry, page, page + size);
    return mmap((void *)page, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
           != MAP_FAILED;
}

/* Let the default end the process: at once, or when the faulting access is made again. */
static void end_process(int number, const siginfo_t *info)
{
    struct sigaction by_default;
    memset(&by_default, 0, sizeof(by_default));
    by_default.sa_handler = SIG_DFL;
    sigemptyset(&by_default.sa_mask);
    sigaction(number, &by_default, NULL);
    if (info->si_code <= 0)
        raise(number);
}

/* Do what was done with the signal before this handler came. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    uintptr_t thread = (uintptr_t)pthread_self();
    const disposition *next = atomic_load(&previous);
    /* A handler may give the signal back to the one before it, which is this one, and raise it
     * again, as Python's faulthandler does: then only what was there at first is left. */
    if (atomic_load(&passing_thread) == thread)
        next = atomic_load(&original);
    if (next == NULL) {
        end_process(number, info);
        return;
    }
    const struct sigaction *action = &next->action;
    int is_handler =
        (action->sa_flags & SA_SIGINFO) != 0
        || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
    if (!is_handler) {
        /* Ignored, it still ends a process that cannot go on. */
        if (action->sa_handler != SIG_IGN || info->si_code > 0)
            end_process(number, info);
        return;
    }
    uintptr_t nobody = 0;
    int is_outermost = atomic_compare_exchange_strong(&passing_thread, &nobody, thread);
    if (action->sa_flags & SA_SIGINFO)
        action->sa_sigaction(number, info, context);
    else
        action->sa_handler(number);
    if (is_outermost)
        atomic_store(&passing_thread, 0);
}

static void handle(int number, siginfo_t *info, void *context)
{
    int error = errno;
    /* Above 0 the kernel has sent it, for an address; else another process, or raise. */
    if (info->si_code <= 0 || !replace_page((uintptr_t)info->si_addr))
        pass_on(number, info, context);
    errno = error;
}

/* ---- the table ---- */

int kafkalog_guard_install(void)
{
    struct sigaction present, ours;
    if (sigaction(SIGBUS, NULL, &present) != 0)
        return -1;
    if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == handle)
        return 0;
    disposition *met = malloc(sizeof(*met));
    if (met == NULL)
        return -1;
    met->action = present;
    met->is_first = atomic_load(&original) == NULL;
    atomic_store(&page_size, (uintptr_t)sysconf(_SC_PAGESIZE));
    if (met->is_first)
        atomic_store(&original, met);
    /* Never given back: a thread may be in the middle of passing a signal on. */
    atomic_store(&previous, met);
    memset(&ours, 0, sizeof(ours));
    ours.sa_sigaction = handle;
    /* Not deferred, so that a handler behind this one may raise it again. */
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, NULL);
}

/* Take a free entry, its number odd: it is changed now. */
static int claim(struct kafkalog_mapping *entry)
{
    uint64_t number = atomic_load(&entry->sequence);
    if ((number & 1) || atomic_load(&entry->start) != 0)
        return 0;
    if (!atomic_compare_exchange_strong(&entry->sequence, &number, number + 1))
        return 0;
    if (atomic_load(&entry->start) == 0)
        return 1;
    atomic_fetch_add(&entry->sequence, 1);
    return 0;
}

static struct kafkalog_mapping *free_entry(void)
{
    for (block *each = &first_block;; each = atomic_load(&each->next)) {
        for (int slot = 0; slot < BLOCK_ENTRIES; slot++)
            if (claim(&each->entries[slot]))
                return &each->entries[slot];
        if (atomic_load(&each->next) == NULL) {
            block *expected = NULL;
            block *made = calloc(1, sizeof(*made));
            if (made == NULL)
                return NULL;
            if (!atomic_compare_exchange_strong(&each->next, &expected, made))
                free(made);
        }
    }
}

kafkalog_mapping *kafkalog_guard_map(int descriptor, size_t size, void *owner)
{
    if (kafkalog_guard_install() != 0)
        return NULL;
    void *start = mmap(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (start == MAP_FAILED)
        return NULL;
    struct kafkalog_mapping *entry = free_entry();
    if (entry == NULL) {
        munmap(start, size);
        errno = ENOMEM;
        return NULL;
    }
    atomic_store(&entry->lost_start, UINTPTR_MAX);
    atomic_store(&entry->lost_end, 0);
    atomic_store(&entry->owner, owner);
    atomic_store(&entry->end, (uintptr_t)start + size);
    atomic_store(&entry->start, (uintptr_t)start);
    atomic_fetch_add(&entry->sequence, 1);
    return entry;
}

void kafkalog_guard_unmap(kafkalog_mapping *entry)
{
    uintptr_t start = atomic_load(&entry->start), end = atomic_load(&entry->end);
    int is_lost = atomic_load(&entry->lost_end) != 0;
    atomic_fetch_add(&entry->sequence, 1);
    atomic_store(&entry->owner, NULL);
    atomic_store(&entry->lost_end, 0);
    munmap((void *)start, end - start);
    atomic_store(&entry->start, 0);
    atomic_fetch_add(&entry->sequence, 1);
    if (is_lost)
        __atomic_sub_fetch(&kafkalog_guard_losses, 1, __ATOMIC_SEQ_CST);
}

const void *kafkalog_guard_start(const kafkalog_mapping *entry)
{
    return (const void *)atomic_load(&((kafkalog_mapping *)entry)->start);
}

int kafkalog_guard_lost(const kafkalog_mapping *mapping, size_t *first, size_t *end)
{
    kafkalog_mapping *entry = (kafkalog_mapping *)mapping;
    uintptr_t start = atomic_load(&entry->start);
    uintptr_t lost_end = atomic_load(&entry->lost_end);
    if (lost_end == 0)
        return 0;
    *first = atomic_load(&entry->lost_start) - start;
    *end = lost_end - start;
    return 1;
}

void *kafkalog_guard_find(const void *data, size_t size)
{
    uintptr_t first = (uintptr_t)data, start, end;
    if (size == 0)
        return NULL;
    for (block *each = &first_block; each != NULL; each = atomic_load(&each->next))
        for (int slot = 0; slot < BLOCK_ENTRIES; slot++) {
            struct kafkalog_mapping *entry = &each->entries[slot];
            if (atomic_load(&entry->lost_end) == 0 || !look_at(entry, &start, &end))
                continue;
            if (first < start || first >= end)
                continue;
            if (first < atomic_load(&entry->lost_end)
                && first + size > atomic_load(&entry->lost_start))
                return atomic_load(&entry->owner);
            return NULL;
        }
    return NULL;
}
