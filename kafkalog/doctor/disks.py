"""Checks of the mounts of directories and of their free space.

The rules about file systems follow from the assumptions of `docs/recovery.md` about a disk: a sync
puts bytes on stable storage, a rename is old or new, a lock excludes other processes.

Thread-safety: pure functions of a context.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.doctor.check_context import CheckContext, size_text
from kafkalog.doctor.findings import Advice, Finding, Severity
from kafkalog.files.machine import DiskSpace
from kafkalog.files.mounts import MOUNTS, Mount, find_mount, mount_keeps_errors
from kafkalog.files.names import FileKind

__all__ = ["check_file_system", "check_free_space", "check_inodes", "check_mount_options"]

MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NETWORK: Final = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "coda", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs3", "nfs4", "orangefs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs"),
    }
)
# Shared by several machines, each with its own cache and locks.
CLUSTERED: Final = frozenset({"gfs2", "ocfs2"})
FOREIGN: Final = frozenset({"exfat", "hfs", "hfsplus", "msdos", "ntfs", "ntfs3", "vfat"})

# Below these limits no file can be replaced, not even a checkpoint.
FREE_BYTES_MIN: Final = 16 << 20
FREE_INODES_MIN: Final = 1_000
SCARCE_PERCENT: Final = 5
# The default of ext4 is 5 s.
COMMIT_SECONDS_MAX: Final = 30


class _Rule(NamedTuple):
    """A mount option that causes a finding."""

    options: frozenset[str]
    severity: Severity
    matters: str
    remedy: str


_OPTION_RULES: Final = (
    _Rule(
        frozenset({"nobarrier", "barrier=0", "barrier=none"}),
        Severity.ERROR,
        "a sync returns before the disk has emptied its own cache: a power cut takes what was"
        " confirmed as durable, and renames in any order",
        "mount -o remount,barrier=1 {point}   (or take the option out of /etc/fstab)",
    ),
    _Rule(
        frozenset({"volatile", "fsync=volatile"}),
        Severity.ERROR,
        "syncs do nothing on this mount: a power cut takes what was confirmed as durable",
        "mount it without 'volatile'",
    ),
    _Rule(
        frozenset({"data=writeback"}),
        Severity.WARNING,
        "a file may have its new length before its bytes: after a power cut its end may hold what"
        " other files held before. Here that is a torn tail, which is cut; a broker's recovery cuts"
        " it too, but the .broken files contain old data of other files",
        "mount with data=ordered, the default, in /etc/fstab (not by a remount)",
    ),
    _Rule(
        frozenset({"data=journal"}),
        Severity.WARNING,
        "every byte is written twice, and a failed write-back is reported one sync too late: a"
        " recovery writes everything above the recovery point again",
        "mount with data=ordered, the default, in /etc/fstab (not by a remount)",
    ),
    _Rule(
        frozenset({"errors=continue"}),
        Severity.WARNING,
        "after an error in its own structure the file system continues, and may damage more",
        "mount -o remount,errors=remount-ro {point}",
    ),
    _Rule(
        frozenset({"sync", "dirsync"}),
        Severity.WARNING,
        "every write waits for the disk, even if no caller asked for it to be durable",
        "mount -o remount,async {point}",
    ),
    _Rule(
        frozenset({"strictatime"}),
        Severity.NOTE,
        "every read of a segment makes the file system note its time",
        "mount -o remount,noatime {point}",
    ),
)


def check_file_system(context: CheckContext) -> Iterator[Finding]:
    """Report known problems of the type of the file system."""
    for path, mount in _mounts(context):
        advice = _judged(mount)
        if advice is not None:
            seen = f"{path} is on {mount.kind} ({mount.source} on {mount.point})"
            yield Finding(
                advice.severity, "mount.type", seen, advice.matters, advice.remedy, (path,)
            )


def _judged(mount: Mount) -> Advice | None:
    kind, _, fuse = mount.kind.partition(".")
    move = "put the directory on ext4 or XFS, on a disk of this machine"
    if kind in MEMORY:
        return Advice(Severity.ERROR, "it is memory: all of it is gone with the next restart", move)
    if kind in NETWORK or kind in CLUSTERED:
        return Advice(
            Severity.WARNING,
            "locks, syncs and sparse files differ from those of a local disk: two writers may"
            " not see each other's lock, and a failed write-back may never be reported",
            move,
        )
    if kind in ("fuse", "fuseblk"):
        return Advice(
            Severity.WARNING,
            f"a program ({fuse or mount.source}) is between the kernel and the disk: what a"
            " sync or a lock means is up to it",
            move,
        )
    if kind in ("overlay", "aufs"):
        return Advice(
            Severity.WARNING,
            "this is the layer of a container: it goes when the container is removed, and the rules"
            " of the file system below it are not known",
            "mount a volume there: docker run -v /srv/data:DIRECTORY, or a persistent volume",
        )
    if kind in FOREIGN:
        return Advice(
            Severity.WARNING,
            "it has no journal or no sparse files, and may take two topics for one whose names"
            " differ in case only",
            move,
        )
    if kind == "ext2":
        return Advice(
            Severity.WARNING,
            "without a journal, names and lengths that a failed sync left are trusted"
            " until the machine is started again",
            move,
        )
    if not mount_keeps_errors(mount) and "data=journal" not in mount.options:
        return Advice(
            Severity.NOTE,
            "it is unknown whether it reports a failed write-back: after a kill, a recovery"
            " writes again all bytes above the recovery point",
            "",
        )
    return None


def check_mount_options(context: CheckContext) -> Iterator[Finding]:
    """Report mount options that break a guarantee or cost time."""
    for path, mount in _mounts(context):
        every = mount.flags | mount.options
        if "ro" in every:
            yield Finding(
                Severity.ERROR,
                "mount.read_only",
                f"{mount.point} is mounted read-only",
                "logs can be read (read_only=True), and nothing else; a disk that was made so by"
                " the kernel has had an error",
                f"check `dmesg`, check the disk, then: mount -o remount,rw {mount.point}",
                (path,),
            )
        for rule in _OPTION_RULES:
            found = sorted(rule.options & every)
            if found:
                yield Finding(
                    rule.severity,
                    "mount.options",
                    f"{mount.point} is mounted with {', '.join(found)}",
                    rule.matters,
                    rule.remedy.format(point=mount.point),
                    (path,),
                )
        commit = mount.option("commit")
        if commit is not None and commit.isdecimal() and int(commit) > COMMIT_SECONDS_MAX:
            yield Finding(
                Severity.WARNING,
                "mount.options",
                f"{mount.point} is mounted with commit={commit}",
                "names and lengths without a sync wait that many seconds for the disk: a power"
                " cut takes what was appended with wait='written' in that time",
                f"mount -o remount,commit=5 {mount.point}",
                (path,),
            )


def check_free_space(context: CheckContext) -> Iterator[Finding]:
    """Report if there is too little space for what a log does besides growing."""
    for paths, space, point in _disk_spaces(context):
        largest = max(
            (
                size
                for survey, partition in context.partitions()
                if survey.path in paths
                for size in partition.live_sizes(FileKind.LOG).values()
            ),
            default=0,
        )
        needed = max(2 * largest, space.total_bytes * SCARCE_PERCENT // 100)
        left = (
            f"{size_text(space.available_bytes)} left of {size_text(space.total_bytes)} on {point}"
        )
        if space.available_bytes < FREE_BYTES_MIN:
            yield Finding(
                Severity.ERROR,
                "disk.space",
                left,
                "appends fail with DiskFullError, and checkpoints cannot be replaced; reads work,"
                " and appends do again when there is space",
                "delete what is not needed, lower retention.bytes or retention.ms, or enlarge it",
                paths,
            )
        elif space.available_bytes < needed:
            yield Finding(
                Severity.WARNING,
                "disk.space",
                left,
                "truncations, compactions and conversions write a new segment next to the old one"
                f" (the largest here has {size_text(largest)}), and deleted segments keep their"
                " space for file.delete.delay.ms",
                f"keep {size_text(needed)} free: lower retention.bytes, or enlarge it",
                paths,
            )


def check_inodes(context: CheckContext) -> Iterator[Finding]:
    """Report if the file system can hold few more files."""
    for paths, space, point in _disk_spaces(context):
        if space.total_inodes == 0:
            continue  # it makes them as they are needed
        left = f"{space.available_inodes} inodes left of {space.total_inodes} on {point}"
        too_few = space.available_inodes < FREE_INODES_MIN
        if too_few or space.available_inodes * 100 < space.total_inodes * SCARCE_PERCENT:
            yield Finding(
                Severity.ERROR if too_few else Severity.WARNING,
                "disk.inodes",
                left,
                "every segment takes three files and more; without an inode a roll fails with"
                " DiskFullError, however many bytes are free",
                "larger segment.bytes, fewer partitions, or a file system made with more inodes"
                " (mkfs.ext4 -i)",
                paths,
            )


def _mounts(context: CheckContext) -> Iterator[tuple[Path, Mount]]:
    """Yield the mount of each directory."""
    table = context.machine.read(MOUNTS)
    for survey in context.surveys:
        mount = None if table is None else find_mount(os.path.realpath(survey.path), table)
        if mount is None:
            context.skip(f"the mount of {survey.path}")
        else:
            yield survey.path, mount


def _disk_spaces(context: CheckContext) -> Iterator[tuple[tuple[Path, ...], DiskSpace, str]]:
    """Yield the disk space of each file system once, with its directories and its mount point."""
    points = {path: mount.point for path, mount in _mounts(context)}
    together: dict[str, list[Path]] = {}
    for survey in context.surveys:
        together.setdefault(points.get(survey.path, str(survey.path)), []).append(survey.path)
    for point, paths in together.items():
        try:
            space = context.machine.disk_space(paths[0])
        except OSError as error:
            context.skip(f"the space on {point}: {error.strerror or error}")
        else:
            yield tuple(paths), space, point
