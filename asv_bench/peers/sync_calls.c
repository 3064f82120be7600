/* Counts the calls by which a process, that has this library preloaded, waits for its disk.
 *
 * fsync, fdatasync, syncfs, sync_file_range, msync with MS_SYNC, and writes to files that were
 * opened with O_SYNC or O_DSYNC. Calls through the dynamic symbols of the C library are counted, of
 * every thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 65536 };

static long count;
static unsigned char is_synced[FILES];

long sync_calls(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

static void add(void) { __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED); }

static void note(int file, int flags)
{
    if (file >= 0 && file < FILES)
        is_synced[file] = (flags & O_DSYNC) != 0;
}

static void add_write(int file)
{
    if (file >= 0 && file < FILES && is_synced[file])
        add();
}

#define NEXT(name) \
    static __typeof__(&name) next; \
    if (!next) \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int fsync(int file)
{
    NEXT(fsync);
    add();
    return next(file);
}

int fdatasync(int file)
{
    NEXT(fdatasync);
    add();
    return next(file);
}

int syncfs(int file)
{
    NEXT(syncfs);
    add();
    return next(file);
}

int sync_file_range(int file, off64_t start, off64_t size, unsigned flags)
{
    NEXT(sync_file_range);
    /* Without a wait it only starts to write. */
    if (flags & SYNC_FILE_RANGE_WAIT_AFTER)
        add();
    return next(file, start, size, flags);
}

int msync(void *start, size_t size, int flags)
{
    NEXT(msync);
    if (flags & MS_SYNC)
        add();
    return next(start, size, flags);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        NEXT(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        int file = next(path, flags, mode); \
        note(file, flags); \
        return file; \
    }

OPEN(open)
OPEN(open64)

ssize_t write(int file, const void *data, size_t size)
{
    NEXT(write);
    add_write(file);
    return next(file, data, size);
}

#define PWRITE(name, position_type) \
    ssize_t name(int file, const void *data, size_t size, position_type position) \
    { \
        NEXT(name); \
        add_write(file); \
        return next(file, data, size, position); \
    }

PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, position_type) \
    ssize_t name(int file, const struct iovec *parts, int part_count, position_type position) \
    { \
        NEXT(name); \
        add_write(file); \
        return next(file, parts, part_count, position); \
    }

PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define PWRITEV2(name, position_type) \
    ssize_t name(int file, const struct iovec *parts, int part_count, position_type position, \
                 int flags) \
    { \
        NEXT(name); \
        add_write(file); \
        return next(file, parts, part_count, position, flags); \
    }

PWRITEV2(pwritev2, off_t)
PWRITEV2(pwritev64v2, off64_t)

ssize_t writev(int file, const struct iovec *parts, int part_count)
{
    NEXT(writev);
    add_write(file);
    return next(file, parts, part_count);
}
