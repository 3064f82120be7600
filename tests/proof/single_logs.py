"""The workload with single logs: everything a `Log` can do, from several threads, until it ends.

Run in a separate process, which is killed or loses its disk. What would be wrong if it ran during
appends (truncations, a follower's appends, a conversion, closing) has the log alone; all else runs
side by side.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from kafkalog import LogConfig, compact_log, convert_log, open_log
from kafkalog.errors import (
    CorruptRecordError,
    KafkaLogError,
    LogCleaningAbortedError,
    OutOfOrderSequenceError,
)
from tests.proof.appending import FORMS, OLD_FORMS, Appending, SharedLock, raw_batch
from tests.proof.contents import Spec, content
from tests.proof.oracle import Oracle, Stream
from tests.proof.shared_events import SharedEvents

__all__ = ["config_of", "new_specs", "write_logs"]

RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "4.1"}
CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
NEVER = 2**63 - 1
# Operations besides appends, and how often one is chosen. Compaction becomes retention where a log
# is not compacted.
KINDS = {
    "flush": 4, "durable": 2, "roll": 4, "delete_records": 2, "retain": 2, "truncate": 4,
    "restart": 1, "compact": 4, "reopen": 2, "convert": 2,
}  # fmt: skip
KINDS_TEXT = {
    "flush": "flushes",
    "durable": "reads of the durable offset",
    "roll": "rolls",
    "delete_records": "delete_records",
    "retain": "retention that deleted segments",
    "truncate": "truncate_to",
    "restart": "truncate_fully_and_start_at",
    "compact": "compactions",
    "reopen": "logs closed and opened again",
    "convert": "conversions in place that rewrote segments",
}


def new_specs(random: Random) -> list[Spec]:
    """Draw the logs of a new disk."""
    found = []
    for number in range(random.choice((1, 2, 3))):
        magic = random.choice((2, 2, 2, 2, 1, 0))
        compact = random.random() < 0.35
        keys = random.choice((5, 40)) if compact else random.choice((0, 0, 9))
        tombstones = compact and magic == 2
        found.append(Spec(f"log-{number}", keys, tombstones, compact, magic))
    return found


def config_of(spec: Spec, random: Random) -> LogConfig:
    """Draw settings for one time that a log is open."""
    codecs = CODECS if spec.magic == 2 else CODECS[:-1]
    fields: dict[str, Any] = {
        "segment_bytes": random.choice((20_000, 20_000, 60_000)),
        "segment_index_bytes": random.choice((120, 10_000)),
        "index_interval_bytes": random.choice((100, 4096)),
        "compression_type": random.choice(codecs),
        "preallocate": random.random() < 0.3,
        "preallocate_zero_bytes": random.choice((0, 0, 8192)),
        "flush_messages": random.choice((NEVER, NEVER, 1, 20)),
        "flush_ms": random.choice((NEVER, NEVER, 5)),
        "file_delete_delay_ms": random.choice((0, 20, 60_000)),
        "batch_bytes": random.choice((1_000, 65_536)),
        "retention_ms": -1,
        "message_format_version": RELEASES[spec.magic],
        "cleanup_policy": ("compact",) if spec.compact else ("delete",),
        "delete_retention_ms": random.choice((0, 86_400_000)),
    }
    if not spec.compact:
        fields["retention_bytes"] = random.choice((-1, 5_000, 30_000))
    return LogConfig(**fields)


class LogWriter:
    """Works on one log until the process ends."""

    def __init__(
        self, shared: SharedEvents, root: Path, oracle: Oracle, number: int, spec: Spec, seed: int
    ) -> None:
        self.shared = shared
        self.number = number
        self.spec = spec
        self.random = Random(seed)
        self.directory = root / spec.directory
        self.gate = SharedLock()
        stream = oracle.streams.get(number)
        self.again = [] if stream is None else list(resendable(stream))
        self.incoming = root
        self.limit = 0

    def run(self, numbers: Iterator[int]) -> None:
        """Open the log, and let threads append to it."""
        self.appending = Appending(self.shared, numbers, self.number, self.spec, self.incoming)
        self.open()
        self.send_again()
        threads = [
            threading.Thread(target=guarded, args=(self.shared, self.append, self.random.random()))
            for _ in range(self.random.choice((0, 1, 2)))
        ]
        for thread in threads:
            thread.start()
        self.append(self.random.random(), maintains=True)

    def open(self) -> None:
        """Open the log with settings of this time."""
        self.config = config_of(self.spec, self.random)
        self.shared.add("begin", "opening")
        self.log = open_log(self.directory, config=self.config)
        self.shared.add("end", "opening")
        self.shared.add("flush", self.number, self.log.durable_offset)
        self.shared.add("kind", "openings")

    def send_again(self) -> None:
        """Send batches of idempotent producers a second time: they have to be recognized."""
        for operation, producer, count, first in self.again[:8]:
            contents = [content(self.spec, self.number, operation, index) for index in range(count)]
            try:
                info = self.log.append_batches(raw_batch(contents, producer_id=producer))
            except OutOfOrderSequenceError as error:
                self.shared.add("wrong", "a duplicate is not recognized", f"{first}: {error}")
                continue
            if not info.is_duplicate or info.first_offset != first:
                text = f"{self.directory.name}: operation {operation} at {first}: {info}"
                self.shared.add("wrong", "a duplicate is not recognized", text)
            self.shared.add("kind", "duplicates sent again")

    def append(self, seed: float, *, maintains: bool = False) -> None:
        """Append in every form; the maintaining thread does everything else as well."""
        random = Random(seed)
        forms = FORMS if self.spec.magic == 2 else OLD_FORMS
        for _ in range(400):
            form = random.choice(forms)
            if maintains and random.random() < 0.35:
                self.maintain(random)
                continue
            if form == "follower":
                if maintains:
                    with self.gate.alone():
                        self.appending.append(self.log, form, random)
                continue
            with self.gate.shared():
                self.appending.append(self.log, form, random)
            if random.random() < 0.2:
                time.sleep(random.random() * 0.003)

    def maintain(self, random: Random) -> None:
        """Do one thing that is no append."""
        kind = random.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "compact" and not self.spec.compact:
            kind = "retain"
        self.shared.add("begin", kind)
        done = False
        with contextlib.suppress(LogCleaningAbortedError):
            done = getattr(self, f"_{kind}")(random) is not False
        self.shared.add("end", kind)
        if done:
            self.shared.add("kind", KINDS_TEXT.get(kind, kind))

    def _flush(self, random: Random) -> None:
        self.shared.add("flush", self.number, self.log.flush())

    def _durable(self, random: Random) -> None:
        self.shared.add("flush", self.number, self.log.durable_offset)

    def _roll(self, random: Random) -> None:
        self.log.roll()

    def _delete_records(self, random: Random) -> None:
        offset = random.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.shared.add("delete", self.number, offset)
        self.log.delete_records(offset)
        self.shared.add("deleted", self.number, offset)

    def _retain(self, random: Random) -> bool:
        with self.gate.alone():
            self.shared.add("delete", self.number, self.log.log_end_offset)
            deleted = self.log.apply_retention()
            self.shared.add("settled", self.number, self.log.log_start_offset)
        return bool(deleted)

    def _truncate(self, random: Random) -> bool:
        with self.gate.alone():
            start = self.log.log_start_offset
            firsts = [each for each in self.appending.firsts[-30:] if each >= start]
            if not firsts:
                return False
            first = random.choice(firsts)
            offset = first + random.choice((0, 0, 1))
            self.shared.add("truncate", self.number, first)
            self.log.truncate_to(offset)
            self.shared.add("truncated", self.number, offset)
            # Appends that replace the others begin elsewhere.
            self.appending.firsts = [each for each in firsts if each < first]
        return True

    def _restart(self, random: Random) -> None:
        with self.gate.alone():
            offset = max(0, self.log.log_end_offset + random.choice((-7, 0, 0, 50)))
            self.shared.add("truncate", self.number, 0)
            self.shared.add("delete", self.number, offset)
            self.log.truncate_fully_and_start_at(offset)
            self.appending.firsts = []
            self.shared.add("truncated", self.number, 0)
            self.shared.add("settled", self.number, offset)

    def _compact(self, random: Random) -> None:
        # A truncation may take the record that superseded another; the other is gone then.
        self.appending.firsts.clear()
        compact_log(self.log, include_active=random.random() < 0.7)

    def _reopen(self, random: Random) -> None:
        with self.gate.alone():
            end = self.log.log_end_offset
            self.log.close()
            self.shared.add("flush", self.number, end)
            self.open()

    def _convert(self, random: Random) -> bool:
        with self.gate.alone():
            self.log.close()
            # "producer" keeps the codec of each batch.
            codec = random.choice(CODECS[1:] if self.spec.magic == 2 else CODECS[1:-1])
            config = self.config.replace(compression_type=codec)
            try:
                found = convert_log(self.directory, in_place=True, config=config)
            except CorruptRecordError:
                # A torn batch without a promise is below whole ones; the log reports it, too.
                self.open()
                sum(1 for _record in self.log.records(on_corrupt="skip"))
                if not any(each.size_bytes for each in self.log.corrupt_ranges()):
                    raise
                return False
            # Batches are others now, and a truncation within one takes all of it.
            self.appending.firsts.clear()
            self.open()
        return any(each.was_converted for each in found.segments)


def resendable(stream: Stream) -> Iterator[tuple[int, int, int, int]]:
    """
    Yield (operation, producer, count, first offset) of producers' durable last batches.

    Not of those that a deletion may have taken: a producer is known as long as its segment stays.
    """
    there = set(stream.must.values())
    for number in sorted(stream.operations, reverse=True):
        each = stream.operations[number]
        if each.produced is None or each.first is None or each.first < stream.may_delete_below:
            continue
        if all((number, index) in there for index in range(each.count)):
            yield number, each.produced[0], each.count, each.first


def guarded(shared: SharedEvents, work: Any, *arguments: Any) -> None:
    """Run something; an error is wrong where it comes before the power is cut."""
    try:
        work(*arguments)
    except LogCleaningAbortedError:
        pass
    except KafkaLogError as error:
        shared.add("wrong", f"a writer met {type(error).__name__}", traceback.format_exc()[-2500:])
    except BaseException as error:  # noqa: BLE001 - a bare error is what is looked for
        shared.add("wrong", f"a writer met a bare {type(error).__name__}", traceback.format_exc())


def write_logs(shared: SharedEvents, root: Path, oracle: Oracle, seed: int, first: int) -> None:
    """Work on all logs of a disk until something ends this process."""
    logging.disable(logging.CRITICAL)
    numbers = itertools.count(first)
    random = Random(seed)
    writers = []
    for number, spec in enumerate(new_specs(Random(oracle.seed))):
        if number not in oracle.streams:
            shared.add("stream", number, asdict(spec))
        writers.append(LogWriter(shared, root, oracle, number, spec, random.getrandbits(32)))
    threads = [
        threading.Thread(target=guarded, args=(shared, writer.run, numbers)) for writer in writers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(60)
