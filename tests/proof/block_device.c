/* A disk in one file of a FUSE file system, which fails and records as it is asked.
 *
 *     block_device MOUNTPOINT SIZE_BYTES [FUSE options]
 *
 * MOUNTPOINT/disk is the disk, held in memory; put a loop device on it. MOUNTPOINT/control takes
 * one command with each write:
 *
 *     heal                     reads and writes work again
 *     writes PATTERN           writes that hold these bytes give EIO, and change nothing
 *     reads POSITION SIZE      reads that touch this range give EIO
 *     record PATH              from here on every write and flush goes to this file as well
 *     stop                     nothing is recorded any more
 *
 * A recorded entry is three little-endian 64-bit numbers (kind 0: write, 1: flush; position; size)
 * and, of a write, its bytes. Reading MOUNTPOINT/control gives how many reads and writes failed.
 *
 * One thread only (-s): the order of the record is the order of the disk.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { PATTERN_MAX = 256 };

static char *disk;
static int64_t disk_size;
static char pattern[PATTERN_MAX];
static size_t pattern_size;
static int64_t bad_position, bad_size;
static long failed_reads, failed_writes;
static FILE *record;

static int is_disk(const char *path) { return !strcmp(path, "/disk"); }
static int is_control(const char *path) { return !strcmp(path, "/control"); }

static void note(uint64_t kind, uint64_t position, uint64_t size, const char *data)
{
    uint64_t head[3] = {kind, position, size};
    if (!record)
        return;
    fwrite(head, sizeof head, 1, record);
    if (data)
        fwrite(data, 1, size, record);
    fflush(record);
}

static int disk_getattr(const char *path, struct stat *facts, struct fuse_file_info *file)
{
    (void)file;
    memset(facts, 0, sizeof *facts);
    if (!strcmp(path, "/")) {
        facts->st_mode = S_IFDIR | 0755;
        facts->st_nlink = 2;
        return 0;
    }
    if (!is_disk(path) && !is_control(path))
        return -ENOENT;
    facts->st_mode = S_IFREG | 0600;
    facts->st_nlink = 1;
    facts->st_size = is_disk(path) ? disk_size : 64;
    return 0;
}

static int disk_readdir(const char *path, void *entries, fuse_fill_dir_t fill, off_t at,
                        struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
    (void)at, (void)file, (void)flags;
    if (strcmp(path, "/"))
        return -ENOENT;
    fill(entries, "disk", NULL, 0, 0);
    fill(entries, "control", NULL, 0, 0);
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *file)
{
    if (!is_disk(path) && !is_control(path))
        return -ENOENT;
    file->direct_io = 1;
    return 0;
}

static int disk_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
    (void)path, (void)size, (void)file;
    return 0;
}

static int disk_read(const char *path, char *target, size_t size, off_t at,
                     struct fuse_file_info *file)
{
    (void)file;
    if (is_control(path)) {
        char text[64] = {0};
        snprintf(text, sizeof text, "%ld %ld\n", failed_reads, failed_writes);
        if (at >= (off_t)sizeof text)
            return 0;
        if (size > sizeof text - (size_t)at)
            size = sizeof text - (size_t)at;
        memcpy(target, text + at, size);
        return (int)size;
    }
    if (at >= disk_size)
        return 0;
    if ((int64_t)size > disk_size - at)
        size = (size_t)(disk_size - at);
    if (bad_size && at < bad_position + bad_size && bad_position < at + (int64_t)size) {
        failed_reads++;
        return -EIO;
    }
    memcpy(target, disk + at, size);
    return (int)size;
}

static void obey(const char *command)
{
    if (!strncmp(command, "writes ", 7)) {
        pattern_size = strlen(command + 7);
        memcpy(pattern, command + 7, pattern_size);
    } else if (!strncmp(command, "reads ", 6)) {
        long long position = 0, size = 0;
        sscanf(command + 6, "%lld %lld", &position, &size);
        bad_position = position;
        bad_size = size;
    } else if (!strcmp(command, "heal")) {
        pattern_size = 0;
        bad_size = 0;
    } else if (!strncmp(command, "record ", 7)) {
        record = fopen(command + 7, "wb");
    } else if (!strcmp(command, "stop") && record) {
        fclose(record);
        record = NULL;
    }
}

static int disk_write(const char *path, const char *data, size_t size, off_t at,
                      struct fuse_file_info *file)
{
    (void)file;
    if (is_control(path)) {
        char command[PATTERN_MAX] = {0};
        if (size >= sizeof command)
            return -EINVAL;
        memcpy(command, data, size);
        obey(command);
        return (int)size;
    }
    if (at >= disk_size)
        return -ENOSPC;
    if ((int64_t)size > disk_size - at)
        size = (size_t)(disk_size - at);
    if (pattern_size && memmem(data, size, pattern, pattern_size)) {
        failed_writes++;
        return -EIO;
    }
    note(0, (uint64_t)at, size, data);
    memcpy(disk + at, data, size);
    return (int)size;
}

static int disk_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    (void)data_only, (void)file;
    if (is_disk(path))
        note(1, 0, 0, NULL);
    return 0;
}

static void *disk_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->attr_timeout = config->entry_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = disk_init,
    .getattr = disk_getattr,
    .readdir = disk_readdir,
    .open = disk_open,
    .truncate = disk_truncate,
    .read = disk_read,
    .write = disk_write,
    .fsync = disk_fsync,
};

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: block_device MOUNTPOINT SIZE_BYTES [FUSE options]\n");
        return 2;
    }
    disk_size = strtoll(arguments[2], NULL, 10);
    disk = mmap(NULL, (size_t)disk_size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (disk == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    memmove(arguments + 2, arguments + 3, sizeof(char *) * (size_t)(count - 2));
    return fuse_main(count - 1, arguments, &operations, NULL);
}
