"""Checks of the content of directories: leftovers, unknown files, owners, dates, names.

Thread-safety: pure functions of a context.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalog.doctor.check_context import CheckContext, size_text
from kafkalog.doctor.findings import Advice, Finding, Severity, named
from kafkalog.doctor.survey import LOST_AND_FOUND, DirectorySurvey, PartitionSurvey
from kafkalog.files.machine import Ownership
from kafkalog.files.names import (
    CLUSTER_METADATA_TOPIC,
    COMMIT_JOURNAL,
    DATA_DIRECTORY_FILES,
    DURABLE_OFFSETS,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    MOVE_NOTE,
    PARTITION_METADATA,
    REMOTE_INDEX_CACHE,
    SESSION_NOTE,
    SYNC_JOURNAL,
    TOPIC_OVERRIDES,
    DirectoryState,
    FileKind,
    FileState,
    is_misnamed_segment,
    temporary_path,
    topics_collide,
)
from kafkalog.state.commit_journal import UNAPPLIED, journal_number

__all__ = [
    "check_broken_bytes",
    "check_clock",
    "check_collisions",
    "check_directory_states",
    "check_indexes",
    "check_journal",
    "check_links",
    "check_moves",
    "check_owners",
    "check_unfinished_work",
    "check_unknown_files",
]

# Largest difference accepted between the clocks of two machines that share a disk.
CLOCK_TOLERANCE_MS: Final = 60_000
# Message format 2, which is written here, is of 2017.
FIRST_BELIEVABLE_MS: Final = 1_483_228_800_000
WORLD_WRITABLE: Final = 0o002

_BOOTSTRAP: Final = "bootstrap.checkpoint"
_STATE_FILES: Final = frozenset({LOCK_FILE, *DATA_DIRECTORY_FILES})
_OF_A_DATA_DIRECTORY: Final = _STATE_FILES | {
    REMOTE_INDEX_CACHE,
    TOPIC_OVERRIDES,
    SESSION_NOTE,
    DURABLE_OFFSETS,
    _BOOTSTRAP,
}
_OF_A_PARTITION: Final = frozenset(
    {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SYNC_JOURNAL, DURABLE_OFFSETS}
)

_SET_ASIDE: Final = {
    DirectoryState.DELETE: Advice(
        Severity.NOTE,
        "deleted directories use {size}; a manager or broker that opens this removes them",
        "",
    ),
    DirectoryState.STRAY: Advice(
        Severity.WARNING,
        "a broker did not recognize them and renamed them: they use {size}, and are neither"
        " removed nor served",
        "inspect them with `kafkalog dump`; then remove them, or rename them to TOPIC-PARTITION",
    ),
    DirectoryState.FUTURE: Advice(
        Severity.NOTE,
        "copies being moved to another disk use {size}; without the broker that was moving them"
        " the moves do not end",
        "",
    ),
}

_UNFINISHED: Final = {
    FileState.CLEANED: "output of a compaction or conversion that was interrupted; the next opening"
    " removes it",
    FileState.SWAP: "output of a compaction or conversion that was interrupted while it took the"
    " place of older segments; the next opening completes that where they are whole and cover"
    " those, and sets them aside as .broken otherwise",
    FileState.COVERED: "names the segments that a compaction was replacing when it was interrupted;"
    " it counts only with the `.swap` files that it names, and the next opening removes it",
    FileState.DELETED: "segments whose file.delete.delay.ms was not over; the next opening removes"
    " them",
    FileState.TEMPORARY: "a small file that was being replaced, and is what it was; the next"
    " opening or replacement removes this",
}


def check_unfinished_work(context: CheckContext) -> Iterator[Finding]:
    """Report leftovers of compactions, deletions and replacements of files."""
    for survey in context.surveys:
        if survey.lock_holder is not None:
            continue  # it is the work of that process, and may not be unfinished at all
        for state, matters in _UNFINISHED.items():
            found = [path for each in survey.partitions for path in each.in_state(state)]
            if state is FileState.TEMPORARY:
                found += [survey.path / name for name in survey.files if _is_temporary(name)]
                found += [
                    each.path / name
                    for each in survey.partitions
                    for name in each.files
                    if name not in each.segments and _is_temporary(name)
                ]
            if found:
                yield Finding(
                    Severity.NOTE,
                    "files.unfinished",
                    f"{len(found)} files {state.value} ({named(_names(found))})",
                    matters,
                    "",
                    tuple(found),
                )


def _is_temporary(name: str) -> bool:
    return name.endswith(FileState.TEMPORARY.value)


def check_broken_bytes(context: CheckContext) -> Iterator[Finding]:
    """Report files with bytes that a recovery has cut off."""
    found = [
        (path, each.files[path.name].size_bytes)
        for survey in context.surveys
        for each in survey.partitions
        for path in each.in_state(FileState.BROKEN)
    ]
    if found:
        paths = [path for path, _ in found]
        yield Finding(
            Severity.WARNING,
            "files.broken",
            f"{len(found)} files .broken with {size_text(sum(size for _, size in found))}"
            f" ({named(_names(paths))})",
            "bytes that a recovery cut off the end of a log, kept for inspection",
            f"kafkalog dump {shlex.quote(str(paths[0]))}; then remove them",
            tuple(paths),
        )


def check_directory_states(context: CheckContext) -> Iterator[Finding]:
    """Report partition directories that are deleted, stray or being moved."""
    for survey in context.surveys:
        for state, advice in _SET_ASIDE.items():
            found = [each for each in survey.partitions if each.name.state is state]
            if found:
                size = size_text(sum(each.size_bytes for each in found))
                yield Finding(
                    advice.severity,
                    f"partitions{state.value}",
                    f"{len(found)} directories {state.value}"
                    f" ({named([str(each.name.topic_partition) for each in found])})",
                    advice.matters.format(size=size),
                    advice.remedy,
                    tuple(each.path for each in found),
                )


def check_collisions(context: CheckContext) -> Iterator[Finding]:
    """Report topics whose names differ only in '.' and '_'."""
    topics = {partition.name.topic_partition.topic for _, partition in context.partitions()}
    alike = defaultdict(list)
    for topic in sorted(topics):
        alike[topic.replace(".", "_")].append(topic)
    for found in alike.values():
        if len(found) > 1 and topics_collide(found[0], found[1]):
            yield Finding(
                Severity.WARNING,
                "topics.collision",
                f"the topics {' and '.join(found)} differ by '.' and '_' only",
                "metrics have one name for them, and a broker does not create the second one",
                "copy one of them to a topic with another name",
            )


def check_unknown_files(context: CheckContext) -> Iterator[Finding]:
    """Report files and directories of no known kind."""
    for survey in context.surveys:
        names = _with_temporary(_OF_A_DATA_DIRECTORY)
        unknown = [
            survey.path / name
            for name in survey.files
            if name not in names and not name.startswith((MOVE_NOTE, COMMIT_JOURNAL))
        ]
        directories = [path for path in unknown if survey.files[path.name].is_directory]
        if directories:
            yield Finding(
                Severity.WARNING,
                "files.unknown",
                f"directories that are not partitions: {named(_names(directories))}",
                "they are ignored here; a broker does not start on them",
                _how_to_move(survey, directories),
                tuple(directories),
            )
        files = [path for path in unknown if path not in directories]
        for partition in survey.partitions:
            if partition.name.topic_partition.topic != CLUSTER_METADATA_TOPIC:
                files += _unknown_files_in(survey, partition)
        misnamed = [path for path in files if is_misnamed_segment(path.name)]
        if misnamed:
            yield Finding(
                Severity.WARNING,
                "files.misnamed",
                f"{len(misnamed)} files have names like segments, but are not segments"
                f" ({named(_names(misnamed))})",
                "no segment has such a name: their records are not served",
                f"kafkalog dump {shlex.quote(str(misnamed[0]))}; then give them the name of their"
                " first offset in 20 digits, or remove them",
                tuple(misnamed),
            )
        files = [path for path in files if path not in misnamed]
        if files:
            yield Finding(
                Severity.NOTE,
                "files.unknown",
                f"{len(files)} files of no known kind ({named(_names(files))})",
                "they are ignored, and never removed",
                "",
                tuple(files),
            )


def _how_to_move(survey: DirectorySurvey, directories: list[Path]) -> str:
    if any(path.name == LOST_AND_FOUND for path in directories):
        return f"give the logs a directory below {survey.path}: it is where a disk is mounted"
    return f"mv {shlex.quote(str(directories[0]))} to another place"


def _unknown_files_in(survey: DirectorySurvey, partition: PartitionSurvey) -> list[Path]:
    names = _with_temporary(
        _OF_A_PARTITION | (_STATE_FILES if survey.is_partition else frozenset())
    )
    return [
        partition.path / name
        for name in partition.files
        if name not in partition.segments and name not in names and not _is_temporary(name)
    ]


def _with_temporary(names: frozenset[str]) -> frozenset[str]:
    return names | {temporary_path(Path(name)).name for name in names}


def check_indexes(context: CheckContext) -> Iterator[Finding]:
    """Report missing indexes, and indexes without a segment."""
    missing = []
    for _survey, partition in context.partitions():
        logs = partition.live_sizes(FileKind.LOG)
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            indexes = partition.live_sizes(kind)
            missing += [
                partition.path / f"{base:020d}{kind.value}"
                for base, size in logs.items()
                if size and base not in indexes
            ]
    if missing:
        yield Finding(
            Severity.NOTE,
            "indexes.missing",
            f"{len(missing)} indexes are missing ({named(_names(missing))})",
            "the first look-up that needs one reads its whole segment, and rebuilds it",
            "",
            tuple(missing),
        )


def check_moves(context: CheckContext) -> Iterator[Finding]:
    """Report moves of partitions between data directories that have not ended."""
    moves: dict[str, list[Path]] = defaultdict(list)
    for survey in context.surveys:
        # While a manager has the directories open, moves may be in progress.
        if survey.lock_holder is None:
            for path, note in survey.moves.items():
                moves[str(note.partition)].append(path)
    if moves:
        yield Finding(
            Severity.WARNING,
            "moves.unfinished",
            f"{len(moves)} partitions ({named(sorted(moves))}) were being moved to another data"
            " directory when a manager was interrupted",
            "the notes have the valid one of two copies; a broker does not read them, and may"
            " serve the old copy",
            "open all data directories with one manager: it ends the moves, or undoes them",
            tuple(path for paths in moves.values() for path in paths),
        )


def check_journal(context: CheckContext) -> Iterator[Finding]:
    """Report commit journals that were not applied."""
    for survey in context.surveys:
        found = [survey.path / name for name in survey.files if name.startswith(COMMIT_JOURNAL)]
        left = [path for path in found if journal_number(path.name) is not None]
        if left and survey.lock_holder is None and not survey.has_marker:
            yield Finding(
                Severity.ERROR,
                "journal.unapplied",
                f"a commit journal of a writer that did not stop in order ({named(_names(left))})",
                "it may have durable records that the logs lack: a broker that starts here does not"
                " serve them, and a later recovery does not bring them back where it has written",
                f"kafkalog recover {shlex.quote(str(survey.path))}",
                tuple(left),
            )
        refused = [path for path in found if path.name.endswith(UNAPPLIED)]
        if refused:
            yield Finding(
                Severity.WARNING,
                "journal.refused",
                f"{len(refused)} files of a commit journal that could not be applied"
                f" ({named(_names(refused))})",
                "they may have durable records that no log has; the manager that kept them has"
                " logged the reason",
                "remove them when the records are not needed",
                tuple(refused),
            )


def check_links(context: CheckContext) -> Iterator[Finding]:
    """Report partition directories that are symbolic links."""
    links = [
        partition.path
        for survey in context.surveys
        for partition in survey.partitions
        if partition.is_link
    ]
    if links:
        yield Finding(
            Severity.ERROR,
            "files.links",
            f"{len(links)} partition directories are symbolic links"
            f" ({named([path.name for path in links])})",
            "they are not opened for writing here: a link may lead anywhere. A broker follows them",
            f"replace the link by the directory itself: rm {shlex.quote(str(links[0]))};"
            f" mv TARGET {shlex.quote(str(links[0]))}",
            tuple(links),
        )


def check_owners(context: CheckContext) -> Iterator[Finding]:
    """
    Report what this process cannot use, what another user owns, and what every user may change.
    """
    for survey in context.surveys:
        paths = list(_all_paths(survey))
        looked = {path: owner for path in paths if (owner := _ownership(context, path))}
        unusable = [path for path, owner in looked.items() if not owner.is_usable]
        top = looked.get(survey.path)
        if unusable:
            yield Finding(
                Severity.ERROR,
                "files.permissions",
                f"this process may not read and write {len(unusable)} of {len(looked)} files"
                f" ({named(_names(unusable))})",
                "logs that hold them cannot be opened for writing (LogPermissionError)",
                f"chown -R $(id -u) {shlex.quote(str(survey.path))}   (as root)",
                tuple(unusable),
            )
        others = [path for path, owner in looked.items() if top and owner.user_id != top.user_id]
        if top and others:
            yield Finding(
                Severity.WARNING,
                "files.owner",
                f"{len(others)} files have another owner than user {top.user_id} of {survey.path}"
                f" ({named(_names(others))})",
                "another user has written here, root perhaps: the next writer may be refused",
                f"chown -R {top.user_id} {shlex.quote(str(survey.path))}",
                tuple(others),
            )
        exposed = [path for path, owner in looked.items() if owner.mode & WORLD_WRITABLE]
        if exposed:
            yield Finding(
                Severity.WARNING,
                "files.world_writable",
                f"every user may change {len(exposed)} of {len(looked)} files"
                f" ({named(_names(exposed))})",
                "a program that writes here without the lock destroys logs unnoticed",
                f"chmod -R o-w {shlex.quote(str(survey.path))}",
                tuple(exposed),
            )


def _all_paths(survey: DirectorySurvey) -> Iterator[Path]:
    yield survey.path
    yield from (survey.path / name for name in survey.files if name != LOST_AND_FOUND)
    for partition in survey.partitions:
        if partition.path != survey.path:
            yield partition.path
        yield from (partition.path / name for name in partition.files)


def check_clock(context: CheckContext) -> Iterator[Finding]:
    """Report if the clock and the dates of files disagree."""
    if context.now_ms < FIRST_BELIEVABLE_MS:
        yield Finding(
            Severity.ERROR,
            "clock.now",
            f"the clock is at {context.now_ms} ms after 1970",
            "records get that time, and retention and look-ups by time use it",
            "set the clock (timedatectl set-ntp true) before anything is written",
        )
        return
    limit_ms = context.now_ms + CLOCK_TOLERANCE_MS
    late = [
        (facts.modified_ms, partition.path / name)
        for _survey, partition in context.partitions()
        for name, facts in partition.files.items()
        if facts.modified_ms > limit_ms
    ]
    if late:
        ahead_s = (max(late)[0] - context.now_ms) // 1000
        yield Finding(
            Severity.WARNING,
            "clock.future_files",
            f"{len(late)} files have dates in the future, the latest by {ahead_s} s"
            f" ({named(_names([path for _, path in late]))})",
            "the clock goes back, or was wrong when they were written; a segment without"
            " timestamps is kept by retention.ms until that date is old",
            "set the clock (timedatectl set-ntp true); touch the files if it is right now",
            tuple(path for _, path in late),
        )


def _ownership(context: CheckContext, path: Path) -> Ownership | None:
    try:
        return context.machine.ownership(path)
    except FileNotFoundError:
        return None  # gone since the survey
    except OSError as error:
        context.skip(f"the owner of {path}: {error.strerror or error}")
        return None


def _names(paths: list[Path]) -> list[str]:
    """Return names that distinguish files of different partitions."""
    return [f"{path.parent.name}/{path.name}" for path in paths]
