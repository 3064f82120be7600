/* Lets the n-th system call of a kind fail, in a process that has this library preloaded.
 *
 * Only calls on files below a folder count (failing_watch); the process itself says, by way of
 * failing_arm, which call fails and how, and asks failing_seen how many there were. Calls through
 * the dynamic symbols of the C library are caught, from Python and from compiled code alike.
 *
 * Kinds, as bits: 1 writes, 2 syncs, 4 opens, 8 renames and links, 16 removals, 32 truncations,
 * 64 reads, 128 new directories, 256 mappings.
 * Ways: 0 the error, once; 1 the error from then on; 2 half of a write or read, with no error;
 * 3 half of a write, then the error; others as 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, OPEN = 4, RENAME = 8, REMOVE = 16, TRUNCATE = 32, READ = 64,
       FOLDER = 128, MAP = 256 };
enum { ONCE, FOREVER, SHORT, HALF };
enum { FILES = 65536 };

static char folder[4096];
static size_t folder_size;
static unsigned char watched[FILES];
static int armed_kinds, armed_error, armed_way, failing;
static long remaining, seen;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

void failing_watch(const char *path)
{
    strncpy(folder, path, sizeof folder - 1);
    folder_size = strlen(folder);
}

void failing_arm(int kinds, long number, int error, int way)
{
    pthread_mutex_lock(&guard);
    armed_kinds = kinds, armed_error = error, armed_way = way;
    remaining = number, seen = 0, failing = 0;
    pthread_mutex_unlock(&guard);
}

long failing_seen(void) { return seen; }
int failing_happened(void) { return failing; }

static int is_below(const char *path)
{
    return folder_size && path && !strncmp(path, folder, folder_size);
}

static int is_watched(int file) { return file >= 0 && file < FILES && watched[file]; }

/* Returns 0 for a call that goes on, 1 for one that fails, 2 for one that does half. */
static int judge(int kind)
{
    int verdict = 0;
    pthread_mutex_lock(&guard);
    if (armed_kinds & kind) {
        seen++;
        if (failing && armed_way == FOREVER)
            verdict = 1;
        else if (failing == 1 && armed_way == HALF && kind == WRITE)
            verdict = 1, failing = 2;
        else if (!failing && --remaining == 0) {
            failing = 1;
            verdict = (armed_way == SHORT || armed_way == HALF) && (kind == WRITE || kind == READ)
                          ? 2 : 1;
        }
    }
    pthread_mutex_unlock(&guard);
    if (verdict == 1)
        errno = armed_error;
    return verdict;
}

#define REAL(name, type) \
    static __typeof__(type) real; \
    if (!real) \
        real = (type)dlsym(RTLD_NEXT, #name)

#define ON_FILE(result, name, kind, parameters, arguments) \
    result name parameters \
    { \
        REAL(name, result(*) parameters); \
        if (is_watched(file) && judge(kind)) \
            return (result)-1; \
        return real arguments; \
    }

#define ON_PATH(name, kind, parameters, arguments) \
    int name parameters \
    { \
        REAL(name, int(*) parameters); \
        if (is_below(path) && judge(kind)) \
            return -1; \
        return real arguments; \
    }

#define BYTES(name, kind, pointer, place) \
    ssize_t name(int file, pointer data, size_t size, place at) \
    { \
        REAL(name, ssize_t(*)(int, pointer, size_t, place)); \
        int verdict = is_watched(file) ? judge(kind) : 0; \
        if (verdict == 1) \
            return -1; \
        if (verdict == 2 && size > 1) \
            size /= 2; \
        return real(file, data, size, at); \
    }

static ssize_t half_of(int file, const struct iovec *parts, off_t at, int writes)
{
    size_t size = parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len;
    REAL(pwrite, ssize_t(*)(int, const void *, size_t, off_t));
    if (writes)
        return real(file, parts[0].iov_base, size, at);
    static ssize_t (*reads)(int, void *, size_t, off_t);
    if (!reads)
        reads = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    return reads(file, parts[0].iov_base, size, at);
}

#define PARTS(name, kind, extra, extra_name) \
    ssize_t name(int file, const struct iovec *parts, int count, off_t at extra) \
    { \
        REAL(name, ssize_t(*)(int, const struct iovec *, int, off_t extra)); \
        int verdict = is_watched(file) ? judge(kind) : 0; \
        if (verdict == 1) \
            return -1; \
        if (verdict == 2 && count > 0) \
            return half_of(file, parts, at, kind == WRITE); \
        return real(file, parts, count, at extra_name); \
    }
#define COMMA ,

BYTES(pwrite, WRITE, const void *, off_t)
BYTES(pwrite64, WRITE, const void *, off64_t)
BYTES(pread, READ, void *, off_t)
BYTES(pread64, READ, void *, off64_t)
PARTS(pwritev, WRITE, , )
PARTS(pwritev64, WRITE, , )
PARTS(preadv, READ, , )
PARTS(preadv64, READ, , )
PARTS(pwritev2, WRITE, COMMA int flags, COMMA flags)
PARTS(pwritev64v2, WRITE, COMMA int flags, COMMA flags)
PARTS(preadv2, READ, COMMA int flags, COMMA flags)
PARTS(preadv64v2, READ, COMMA int flags, COMMA flags)

/* No power is cut here: a sync that does not fail has nothing to do, and takes no time. */
int fsync(int file)
{
    REAL(fsync, int (*)(int));
    return is_watched(file) ? (judge(SYNC) ? -1 : 0) : real(file);
}

int fdatasync(int file)
{
    REAL(fdatasync, int (*)(int));
    return is_watched(file) ? (judge(SYNC) ? -1 : 0) : real(file);
}

ON_FILE(int, ftruncate, TRUNCATE, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, TRUNCATE, (int file, off64_t size), (file, size))
ON_PATH(rename, RENAME, (const char *path, const char *to), (path, to))
ON_PATH(unlink, REMOVE, (const char *path), (path))
ON_PATH(rmdir, REMOVE, (const char *path), (path))
ON_PATH(mkdir, FOLDER, (const char *path, mode_t mode), (path, mode))

static int opened(const char *path, int file)
{
    if (file >= 0 && file < FILES)
        watched[file] = (unsigned char)is_below(path);
    return file;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name, int (*)(const char *, int, ...)); \
        va_list rest; \
        va_start(rest, flags); \
        int mode = va_arg(rest, int); \
        va_end(rest); \
        if (is_below(path) && judge(OPEN)) \
            return -1; \
        return opened(path, real(path, flags, mode)); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        REAL(name, int (*)(int, const char *, int, ...)); \
        va_list rest; \
        va_start(rest, flags); \
        int mode = va_arg(rest, int); \
        va_end(rest); \
        if (is_below(path) && judge(OPEN)) \
            return -1; \
        return opened(path, real(at, path, flags, mode)); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int file)
{
    REAL(close, int (*)(int));
    if (file >= 0 && file < FILES)
        watched[file] = 0;
    return real(file);
}

#define MAPS(name, place) \
    void *name(void *start, size_t size, int protection, int flags, int file, place at) \
    { \
        REAL(name, void *(*)(void *, size_t, int, int, int, place)); \
        if (is_watched(file) && judge(MAP)) \
            return MAP_FAILED; \
        return real(start, size, protection, flags, file, at); \
    }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)
