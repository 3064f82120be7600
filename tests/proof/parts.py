"""The registry: every part of the proof whose module is there, in the order of the page."""

from __future__ import annotations

from tests.proof import needs
from tests.proof.block_faults import fuse_library
from tests.proof.harness import Part

__all__ = ["PARTS"]

_WORKLOAD = (
    "Two workloads. Single logs: one to three logs, up to three threads each, appends of records,"
    " lists, columns, encoded batches, files, through an appender, as a follower with leader epochs"
    " and as idempotent producers; formats v0, v1 and v2, every codec, written and durable; rolls,"
    " preallocation, retention, deletion, both truncations, compaction with tombstones, conversion"
    " in place, closing and opening with other settings. Managers: one or two data directories,"
    " topics of one to eight partitions, producers, transactions of two ids in turn"
    " over several partitions, group positions alone and within transactions, a topic deleted"
    " and created again under the same name, the cleaner, checkpoints every 20 ms, retention, and"
    " commits of the Spark sink.\n\n"
    "After each start the files are read by a reader of the proof's own and by the library, which"
    " must agree. Then: nothing acknowledged is lost or has moved, no acknowledged offset has other"
    " content, nothing is there that was not written, what was lost once or deleted never comes"
    " back, transactions are whole or not there and only those that were to be committed, the"
    " latest values of keys survive compaction, a duplicate is recognized, leader epochs are those"
    " of the batches, positions of groups and rows of the sink are kept, and opening never"
    " raises. Some rounds go without a check, so that what one end has left meets the next.\n\n"
)

PARTS: tuple[Part, ...] = (
    Part(
        "power-cuts",
        "Power cuts",
        _WORKLOAD
        + "A loop device has ext4 or XFS on it. The file system's own shutdown call cuts the power:"
        " what was not flushed is gone. It is mounted again and opened, or cut once more while it"
        " recovers, closes or starts. In half of the cuts a few random files are synced just"
        " before, so that later writes survive where earlier ones do not. What was acknowledged"
        " before the call began is evidence; what came later was only asked for. A control without"
        " kafkalog runs at the same time, a plain write and fdatasync: where the answer of its"
        " fdatasync came during the cut its bytes may be gone, which the kernel decides.",
        "tests.proof.power_cuts",
        (needs.linux, needs.loop_devices),
        gate_seconds=60,
    ),
    Part(
        "kills",
        "Kills",
        _WORKLOAD
        + "SIGKILL ends the process at a random moment, three times in ten within 40 ms of its"
        " start. A kill loses nothing that was written, so every acknowledgement counts.",
        "tests.proof.kills",
        (needs.linux,),
        gate_seconds=45,
    ),
    Part(
        "mutations",
        "Mutated directories",
        "Partitions of brokers 0.8.2 to 4.1 and of this library are changed at random: bits, "
        "numbers, cuts, foreign bytes, holes of gigabytes, names, strays, links, FIFOs, sockets, "
        "folders; and so are data directories of a broker and of a manager of this library: "
        "checkpoints with numbers that are well-formed and wrong, identities, markers, topic ids, "
        "names of directories. Errors are typed, time and memory bounded, nothing outside is "
        "written; what is served at an offset was there before; every whole entry is served or its "
        "loss reported; a second opening answers as the first.",
        "tests.proof.mutations",
        gate_seconds=45,
        inputs=("mutated directories", "mutated data directories"),
    ),
    Part(
        "fuzzing",
        "Fuzzing under AddressSanitizer",
        "Every entry that takes bytes, state files and whole directories among them, is given "
        "inputs that are changed at random, in a build with AddressSanitizer and UBSan: nothing "
        "but the library's own errors, no access outside of a buffer, results equal to those of "
        "slow reference codecs. The gate does it in its step of the sanitizers.",
        "tests.proof.fuzzing",
        needs=(needs.gcc,),
        inputs=("inputs",),
    ),
    Part(
        "block-faults",
        "Block faults",
        "A block device through FUSE fails writes of chosen bytes below ext4 and XFS, then works "
        "again; the log is opened and acknowledges more; then the power is cut, the file system "
        "unmounted in order, or the page cache emptied. Reads of a block fail and work again. "
        "Everything that was acknowledged is there, at its offset, and errors are typed. Writes "
        "and flushes of the mixed workloads are recorded as well, and images made of them: all up "
        "to a flush, and any of the later blocks; each is mounted and judged as after a cut.",
        "tests.proof.block_faults",
        needs=(needs.linux, needs.fuse, needs.loop_devices, fuse_library),
        gate_seconds=30,
    ),
    Part(
        "failing-calls",
        "The n-th system call fails",
        "A preloaded library lets the n-th call on the files of a log fail (EIO once and from then "
        "on, ENOSPC, half a write and then ENOSPC, EDQUOT from then on, EINTR, short writes and "
        "reads), for every n of appends, rolls, flushes, truncations, deletions, retention, close, "
        "open, recovery, compaction, conversion, topics, checkpoints and transactions. Errors are "
        "typed, reads work, what was acknowledged is there after the next opening, transactions "
        "are whole; short and interrupted calls have no effect.",
        "tests.proof.failing_calls",
        needs=(needs.linux, needs.gcc),
        gate_seconds=40,
    ),
    Part(
        "relays",
        "Relays with a real broker",
        "Library and Apache Kafka (4.1.2 and 3.9.1, with a broker's default settings and two data "
        "directories) take the same directories from each other, stopped in order or killed at "
        "random moments of appends, compaction, transactions and checkpoints, of conversions in "
        "place, truncations, deletions of records and of a topic by either side; logs of brokers "
        "0.8.2 to 2.8 in formats v0 and v1 are put into some topics; groups and transactional "
        "producers continue across the hand-overs. Everything that was acknowledged is served by "
        "both, transactions are whole, latest values and positions are kept, what was deleted "
        "stays deleted, nothing else appears, and the broker's log reports no damage.",
        "tests.proof.relays",
        needs=(needs.java,),
    ),
    Part(
        "loader-relays",
        "Relays with an emulated loader",
        "The relays above without Java: a compacted log is appended to, rolled and compacted by a "
        "process of this library that is killed at a random moment, and then by an emulation that "
        "treats files of unfinished work as the loader of Kafka 4 does, appends and cleans. After "
        "each leg the latest values are right for the library and for a reader of headers.",
        "tests.proof.loader_relays",
        needs=(needs.linux,),
        gate_seconds=20,
    ),
)
