"""Partition directories that a real broker serves without having written them.

A broker accepts a directory only under the topic id that its metadata log knows, and no client can
choose one. So the broker makes the topics first, is stopped, and the foreign files are put under
its own `partition.metadata`. The stopped data directory is kept as a template for each set of
topics: the next broker with the same topics starts from a copy of it, 5 s sooner.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .broker import Broker, format_directory
from .clients import TopicPlan, create_topics
from .kafka_maven import KafkaInstall

__all__ = ["LOGS_ONLY", "WITH_INDEXES", "BrokerTemplates", "put_partition"]

# Files that a broker is given: the log alone (it rebuilds the rest), or all others as well.
LOGS_ONLY = (".log",)
WITH_INDEXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
LEADER_EPOCHS = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class BrokerTemplates:
    """
    Stopped data directories with topics already made, one for each set of topics asked for.

    Thread-safety: none; one per pytest session (each xdist worker has its own).
    """

    def __init__(self, install: KafkaInstall, directory: Path) -> None:
        self._install = install
        self._directory = directory
        self._made: dict[str, Path] = {}

    def broker(self, target: Path, plans: Sequence[TopicPlan]) -> Broker:
        """Return a stopped broker on a fresh copy, in `target`, in which the topics exist."""
        key = repr([(plan.name, plan.partitions, sorted(plan.settings.items())) for plan in plans])
        if key not in self._made:
            self._made[key] = self._make(plans)
        shutil.copytree(self._made[key], target)
        return Broker(self._install, target)

    def _make(self, plans: Sequence[TopicPlan]) -> Path:
        directory = self._directory / f"template-{len(self._made)}"
        # Remains of an attempt that failed.
        shutil.rmtree(directory, ignore_errors=True)
        format_directory(self._install, directory)
        if plans:
            with Broker(self._install, directory) as broker:
                create_topics(broker.address, plans)
        return directory


def put_partition(
    broker: Broker,
    name: str,
    source: Path,
    *,
    suffixes: Sequence[str] = LOGS_ONLY,
    log_start_offset: int | None = None,
) -> Path:
    """
    Replace what the stopped broker has in partition `name` by the files of `source`.

    Args:
        suffixes: which segment files go along; with indexes the leader epochs go as well.
        log_start_offset: where reading begins, if above the first segment's base.

    Returns: the partition directory the broker will serve.
    """
    target = broker.directory / name
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    names = [path.name for path in source.iterdir() if path.suffix in suffixes]
    if ".index" in suffixes and (source / LEADER_EPOCHS).exists():
        names.append(LEADER_EPOCHS)
    for file_name in names:
        shutil.copyfile(source / file_name, target / file_name)
    if log_start_offset is not None:
        add_checkpoint(broker.directory / "log-start-offset-checkpoint", name, log_start_offset)
    return target


def forget_clean_shutdown(broker: Broker) -> None:
    """Make the next start a start after a crash: the broker reads and indexes everything."""
    (broker.directory / CLEAN_SHUTDOWN).unlink()


def add_checkpoint(path: Path, name: str, offset: int) -> None:
    """Add or replace one partition's line in an offset checkpoint file of the data directory."""
    entries = read_checkpoint(path)
    entries[name] = offset
    lines = [f"{topic} {number} {entries[f'{topic}-{number}']}" for topic, number in split(entries)]
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def read_checkpoint(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in rows}


def split(entries: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name.rpartition("-")[0], name.rpartition("-")[2]) for name in entries]
