"""Checks before data directories go from a manager to a broker: `doctor --handover`.

They run in addition to the other checks, and find what the broker's controller compares and what
the broker would lose. Everything is read: the headers of all batches of all logs, the topics
`__consumer_offsets` and `__transaction_state`, and the small files. No writer must run at the same
time.

Thread-safety: functions of a check context, of which they change only `unseen`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog.clients.internal_topics import CONSUMER_OFFSETS, PARTITION_COUNT, TRANSACTION_STATE
from kafkalog.clients.offset_records import decode_key, decode_value
from kafkalog.clients.transaction_records import TransactionState
from kafkalog.clients.transaction_records import decode_key as decode_transaction_key
from kafkalog.clients.transaction_records import decode_value as decode_transaction_value
from kafkalog.clock import SystemClock
from kafkalog.config import LogConfig
from kafkalog.doctor.check_context import CheckContext
from kafkalog.doctor.findings import Finding, Severity, named
from kafkalog.doctor.survey import PartitionSurvey
from kafkalog.errors import CorruptRecordError, CorruptStateError, KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    CLUSTER_METADATA_TOPIC,
    DURABLE_OFFSETS,
    LEADER_EPOCH_CHECKPOINT,
    MAX_OFFSET,
    PARTITION_METADATA,
    SESSION_NOTE,
    SYNC_JOURNAL,
    TOPIC_OVERRIDES,
    DirectoryState,
    FileState,
)
from kafkalog.layout import MAGIC_V2
from kafkalog.log.batch_walk import CrcCheck, WalkDamage, WalkRange, walk_source
from kafkalog.log.judging import RELATIVE_OFFSET_MAX
from kafkalog.log.opening import open_log
from kafkalog.log.segment import open_segment
from kafkalog.log.segment_types import make_context
from kafkalog.state.checkpoints import LeaderEpochCheckpoint
from kafkalog.state.commit_journal import journal_number

__all__ = ["HandOver", "examine_handover"]

_SETTINGS: Final = LogConfig()

_LOWER: Final = "`kafkalog lower-epochs DIRECTORY...`, with all data directories"
_CLOSE: Final = "open all directories with a manager, get a producer of it once, and close it"

_LEFTOVERS: Final = {
    FileState.SWAP: (
        Severity.ERROR,
        "an exchange of segments did not end; a broker ends it by its own rules",
    ),
    FileState.COVERED: (
        Severity.ERROR,
        "segments that a compaction was replacing; a broker ignores the mark, and serves them",
    ),
    FileState.CLEANED: (Severity.WARNING, "a broker removes them, as the next opening here does"),
    FileState.DELETED: (Severity.WARNING, "a broker removes them, as the next opening here does"),
    FileState.TEMPORARY: (Severity.WARNING, "a small file that was being replaced"),
}


@dataclass(frozen=True, slots=True)
class HandOver:
    """
    The broker that takes the directories over.

    Attributes:
        highest_epoch: a lower bound of the leader epochs that its controller gives the partitions;
            0 for topics that it just made.
        offsets_partitions: its `offsets.topic.num.partitions`.
        transaction_partitions: its `transaction.state.log.num.partitions`.
    """

    highest_epoch: int = 0
    offsets_partitions: int = PARTITION_COUNT
    transaction_partitions: int = PARTITION_COUNT


@dataclass(slots=True)
class _Facts:
    """Facts from the headers of a log's batches."""

    highest_epoch: int = -1
    old_batches: int = 0
    overflows: list[Path] = field(default_factory=list)

    def count(self, columns: BatchColumns, count: int, base: int, path: Path) -> None:
        """Add the first `count` batches of columns, which are of one segment."""
        if not count:
            return
        is_new = columns.magic[:count] >= MAGIC_V2
        self.old_batches += int(count - is_new.sum())
        if is_new.any():
            highest = int(columns.leader_epoch[:count][is_new].max())
            self.highest_epoch = max(self.highest_epoch, highest)
        is_far = int(columns.last_offset[:count].max()) - base > RELATIVE_OFFSET_MAX
        if is_far and path not in self.overflows:
            self.overflows.append(path)


def examine_handover(
    check_context: CheckContext, filesystem: FileSystem, broker: HandOver
) -> Iterator[Finding]:
    """Yield the reasons against a hand-over, and its side effects."""
    yield from _check_closed(check_context)
    yield from _check_identities(check_context)
    yield from _check_leftovers(check_context)
    yield from _check_states(check_context)
    yield from _check_moves(check_context)
    yield from _check_journal(check_context)
    yield from _check_own_files(check_context)
    yield from _check_internal_topics(check_context, broker)
    if any(survey.lock_holder is not None for survey in check_context.surveys):
        return
    yield from _check_batches(check_context, filesystem, broker)
    yield from _check_positions(check_context, filesystem, broker)
    yield from _check_transactions(check_context, filesystem)


def _logs(check_context: CheckContext) -> Iterator[PartitionSurvey]:
    for _survey, partition in check_context.partitions():
        if partition.name.topic_partition.topic != CLUSTER_METADATA_TOPIC:
            yield partition


def _topics(check_context: CheckContext) -> dict[str, list[PartitionSurvey]]:
    topics: dict[str, list[PartitionSurvey]] = defaultdict(list)
    for partition in _logs(check_context):
        topics[partition.name.topic_partition.topic].append(partition)
    return topics


def _finding(
    severity: Severity, check: str, seen: str, matters: str, remedy: str, paths: list[Path]
) -> Finding:
    return Finding(severity, f"handover.{check}", seen, matters, remedy, tuple(paths))


def _check_closed(check_context: CheckContext) -> Iterator[Finding]:
    for survey in check_context.surveys:
        if survey.lock_holder is not None:
            yield _finding(
                Severity.ERROR,
                "lock",
                f"process {survey.lock_holder} has {survey.state_directory} locked",
                "a broker does not start at the same time, and what it writes is not examined",
                "close it, and examine the directory again",
                [survey.state_directory],
            )
        elif not survey.has_marker:
            yield _finding(
                Severity.ERROR,
                "unclean",
                f"{survey.state_directory} has no {CLEAN_SHUTDOWN_MARKER}",
                "a broker recovers every log by its own rules: it cuts whole batches after damage,"
                " and believes indexes below the recovery point",
                _CLOSE,
                [survey.state_directory],
            )


def _check_identities(check_context: CheckContext) -> Iterator[Finding]:
    for survey in check_context.surveys:
        if survey.meta is None and not survey.is_partition:
            yield _finding(
                Severity.ERROR,
                "meta.properties",
                f"{survey.path} has no meta.properties that can be used",
                "a broker does not start on it",
                "open it with a manager that has the broker's cluster_id and node_id",
                [survey.path],
            )
    without = [each.path for each in _logs(check_context) if each.topic_id is None]
    if without:
        yield _finding(
            Severity.ERROR,
            "topic_ids",
            f"{len(without)} partitions ({named([path.name for path in without])}) have no topic id"
            f" in {PARTITION_METADATA}",
            "a broker makes them -stray, and creates new ones instead",
            "copy the files that the broker made for these topics",
            without,
        )


def _check_leftovers(check_context: CheckContext) -> Iterator[Finding]:
    for state, (severity, matters) in _LEFTOVERS.items():
        found = [path for each in _logs(check_context) for path in each.in_state(state)]
        if found:
            yield _finding(
                severity,
                "leftovers",
                f"{len(found)} files {state.value} ({named([path.name for path in found])})",
                matters,
                _CLOSE,
                found,
            )


def _check_states(check_context: CheckContext) -> Iterator[Finding]:
    found = [
        partition.path
        for survey in check_context.surveys
        for partition in survey.partitions
        if partition.name.state is not DirectoryState.LIVE
    ]
    if found:
        yield _finding(
            Severity.WARNING,
            "directories",
            f"{len(found)} directories ({named([path.name for path in found])}) are not live"
            " partitions",
            "a broker removes -delete, continues with -future, and leaves -stray as they are",
            "remove what is not needed, or move it out of the data directory",
            found,
        )


def _check_moves(check_context: CheckContext) -> Iterator[Finding]:
    notes = [path for survey in check_context.surveys for path in survey.moves]
    if notes:
        yield _finding(
            Severity.ERROR,
            "moves",
            f"{len(notes)} notes of moves that have not ended ({named([e.name for e in notes])})",
            "a broker does not know them: it takes any of two copies, or refuses both",
            _CLOSE,
            notes,
        )


def _check_journal(check_context: CheckContext) -> Iterator[Finding]:
    found = [
        survey.path / name
        for survey in check_context.surveys
        for name in survey.files
        if journal_number(name) is not None
    ]
    if found:
        yield _finding(
            Severity.ERROR,
            "journal",
            f"{len(found)} files of a commit journal ({named([path.name for path in found])})",
            "a broker does not know them, and does not serve records that they alone have",
            _CLOSE,
            found,
        )


def _check_own_files(check_context: CheckContext) -> Iterator[Finding]:
    found = [
        survey.path / name
        for survey in check_context.surveys
        for name in (TOPIC_OVERRIDES, SESSION_NOTE, DURABLE_OFFSETS)
        if name in survey.files
    ]
    found += [
        each.path / SYNC_JOURNAL for each in _logs(check_context) if SYNC_JOURNAL in each.files
    ]
    if found:
        yield _finding(
            Severity.NOTE,
            "own_files",
            f"{len(found)} files ({named(sorted({path.name for path in found}))}) belong to"
            " kafkalog alone",
            "a broker ignores them: settings of topics have to be given to it once more",
            "",
            found,
        )


def _check_internal_topics(check_context: CheckContext, broker: HandOver) -> Iterator[Finding]:
    topics = _topics(check_context)
    requirements = {
        CONSUMER_OFFSETS: (broker.offsets_partitions, "offsets.topic.num.partitions"),
        TRANSACTION_STATE: (broker.transaction_partitions, "transaction.state.log.num.partitions"),
    }
    for topic, (count, setting) in requirements.items():
        partitions = topics.get(topic, [])
        numbers = sorted(each.name.topic_partition.partition for each in partitions)
        if partitions and numbers != list(range(count)):
            yield _finding(
                Severity.ERROR,
                "internal_topics",
                f"{topic} has {len(numbers)} partitions, up to number {numbers[-1]}; the broker"
                f" looks for a name in one of {count}",
                "it finds neither the positions of groups nor the transactional ids that are"
                " elsewhere",
                f"set {setting}={len(numbers)} at the broker, and make the topic there with as"
                " many",
                [each.path for each in partitions],
            )


def _check_batches(
    check_context: CheckContext, filesystem: FileSystem, broker: HandOver
) -> Iterator[Finding]:
    above: list[Path] = []
    old: list[Path] = []
    overflows: list[Path] = []
    for partition in _logs(check_context):
        facts = _facts_of(check_context, filesystem, partition)
        if max(facts.highest_epoch, _listed_epoch(filesystem, partition)) > broker.highest_epoch:
            above.append(partition.path)
        if facts.old_batches:
            old.append(partition.path)
        overflows += facts.overflows
    if above:
        yield _finding(
            Severity.ERROR,
            "leader_epochs",
            f"{len(above)} partitions ({named([path.name for path in above])}) have leader epochs"
            f" above {broker.highest_epoch}",
            "a broker removes later entries of leader-epoch-checkpoint, and clients that read"
            " such a batch wait for a leader with its epoch",
            f"{_LOWER}; or --epoch, if the controller's is higher",
            above,
        )
    if overflows:
        yield _finding(
            Severity.ERROR,
            "offsets",
            f"{len(overflows)} segments ({named([path.name for path in overflows])}) have offsets"
            " that do not fit 32 bits above their base offset",
            "a broker splits them, or does not open the log",
            "`kafkalog convert --in-place` rewrites them, in segments that fit",
            overflows,
        )
    if old:
        yield _finding(
            Severity.WARNING,
            "formats",
            f"{len(old)} partitions ({named([path.name for path in old])}) have batches of message"
            " format 0 or 1",
            "brokers from 4.0 on read them and write none; their clients from 4.0 on may not",
            "`kafkalog convert --in-place` writes them in format 2",
            old,
        )


def _listed_epoch(filesystem: FileSystem, partition: PartitionSurvey) -> int:
    try:
        entries = LeaderEpochCheckpoint(filesystem, partition.path / LEADER_EPOCH_CHECKPOINT).read(
            rising=False
        )
    except (CorruptStateError, KafkaLogError):
        return -1  # the check of damaged files reports it
    return max((entry.epoch for entry in entries), default=-1)


def _facts_of(
    check_context: CheckContext, filesystem: FileSystem, partition: PartitionSurvey
) -> _Facts:
    """Read the headers of a log, up to the first damage of each segment."""
    facts, columns = _Facts(), BatchColumns(4096)
    context = make_context(filesystem, partition.path, _SETTINGS, SystemClock(), read_only=True)
    try:
        for base in partition.live_sizes():
            segment = open_segment(context, base)
            if not segment.size_bytes:
                continue
            damage: list[WalkDamage] = []
            for walked in walk_source(
                segment.file.source(segment.size_bytes),
                WalkRange(0, segment.size_bytes, base, MAX_OFFSET),
                columns,
                check_crc=CrcCheck.NEVER,
                # Every header counts, that with a false offset too.
                check_order=False,
                on_damage=damage.append,
            ):
                facts.count(columns, walked.count, base, segment.path)
            if damage:
                position = damage[0].position
                check_context.skip(f"{segment.path} from position {position} on, which is damaged")
    except (KafkaLogError, OSError) as error:
        check_context.skip(f"{partition.path}: {error}")
    finally:
        context.pool.close()
    return facts


def _check_positions(
    check_context: CheckContext, filesystem: FileSystem, broker: HandOver
) -> Iterator[Finding]:
    groups: dict[tuple[str, str, int], int] = {}

    def on_record(key: bytes | None, value: bytes | None) -> None:
        where = decode_key(key)
        if where is not None:
            epoch = None if value is None else decode_value(value).leader_epoch
            groups[where] = -1 if epoch is None else epoch

    paths = _read_topic(check_context, filesystem, CONSUMER_OFFSETS, on_record)
    above = sorted({group for (group, *_), epoch in groups.items() if epoch > broker.highest_epoch})
    if above:
        yield _finding(
            Severity.ERROR,
            "positions",
            f"{len(above)} groups ({named(above)}) are after records of leader epochs above"
            f" {broker.highest_epoch}",
            "a Java consumer that begins there waits for a leader with that epoch, and gets"
            " nothing",
            f"{_LOWER}; or --epoch, if the controller's is higher",
            paths,
        )


def _check_transactions(check_context: CheckContext, filesystem: FileSystem) -> Iterator[Finding]:
    states: dict[str, TransactionState] = {}

    def on_record(key: bytes | None, value: bytes | None) -> None:
        name = decode_transaction_key(key)
        if name is not None:
            states[name] = (
                TransactionState.EMPTY if value is None else decode_transaction_value(value).state
            )

    paths = _read_topic(check_context, filesystem, TRANSACTION_STATE, on_record)
    unfinished = sorted(name for name, state in states.items() if state.is_unfinished)
    if unfinished:
        yield _finding(
            Severity.ERROR,
            "transactions",
            f"{len(unfinished)} transactional ids ({named(unfinished)}) have a transaction that is"
            " not finished: " + ", ".join(sorted({states[name].name for name in unfinished})),
            "a broker finishes it only where its controller has __transaction_state with these"
            " topic ids; until then nothing after it is read by readers of committed records",
            _CLOSE,
            paths,
        )
    hanging: list[Path] = []
    for partition in _logs(check_context):
        if not partition.live_sizes():
            continue
        try:
            with open_log(partition.path, read_only=True, filesystem=filesystem) as log:
                if log.list_transactions():
                    hanging.append(partition.path)
        except KafkaLogError as error:
            check_context.skip(f"{partition.path}: {error}")
    if hanging:
        yield _finding(
            Severity.ERROR,
            "open_transactions",
            f"{len(hanging)} partitions ({named([path.name for path in hanging])}) have"
            " transactions without a marker",
            "a broker's coordinator that does not know them ends none: readers of committed"
            " records do not get beyond",
            f"{_CLOSE}; what still hangs is ended by `Log.abort_transaction(producer_id)`",
            hanging,
        )


def _read_topic(
    check_context: CheckContext,
    filesystem: FileSystem,
    topic: str,
    on_record: Callable[[bytes | None, bytes | None], None],
) -> list[Path]:
    """Pass keys and values of a topic to `on_record`, in order; return its directories."""
    partitions = [each for each in _topics(check_context).get(topic, []) if each.live_sizes()]
    for partition in partitions:
        try:
            with open_log(partition.path, read_only=True, filesystem=filesystem) as log:
                records = log.records(isolation="read_committed", on_corrupt="skip")
                for record in records:
                    on_record(record.key, record.value)
        except (CorruptRecordError, KafkaLogError) as error:
            check_context.skip(f"{partition.path}: {error}")
    return [each.path for each in partitions]
