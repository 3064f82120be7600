"""The verbs about compaction: `kafkalog compact`, `plan`, `explain` and `stat`.

Exit status: 0 success, 1 damage was found (stat), 2 wrong arguments or settings, 3 the command
failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kafkalog.cli.exits import EXIT_DAMAGE_FOUND, error_boundary

__all__ = ["compact", "explain", "plan", "stat"]

DirectoryArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="A partition directory, or a data directory.")
]
PartitionOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--partition", help="Only this partition of a data directory; repeatable."),
]
PropertiesOption: TypeAlias = Annotated[
    Path | None, typer.Option("--properties", help="A broker's server.properties.")
]
SettingOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the topic, as KEY=VALUE; repeatable."),
]
ActiveOption: TypeAlias = Annotated[
    bool, typer.Option("--include-active", help="The active segment too: it is rolled first.")
]
MemoryOption: TypeAlias = Annotated[
    int | None, typer.Option("--memory", min=1024, help="Bytes for the map of keys, 24 a key.")
]
HashOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--hash", help="Comparison of keys: siphash, exact or md5."),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="The result as one JSON object.")
]


def plan(
    directory: DirectoryArgument,
    partition: PartitionOption = None,
    include_active: ActiveOption = False,
    memory: MemoryOption = None,
    key_hash: HashOption = None,
    properties: PropertiesOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show what compaction would remove, with reasons, bytes, memory and time.

    Both passes are made, nothing is written, and a running broker is not disturbed.
    """
    from kafkalog.cli.compact.command import CompactRequest, run_plan
    from kafkalog.cli.compact.targets import TargetRequest
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.files.posix import PosixFileSystem

    targets = TargetRequest(directory, partition or (), properties, settings or (), key_hash)
    request = CompactRequest(targets, include_active, memory, as_json=as_json)
    with error_boundary(as_json=as_json):
        run_plan(SafeConsole(), SafeConsole(stderr=True), PosixFileSystem(), request)


def explain(
    directory: DirectoryArgument,
    offset: Annotated[int, typer.Argument(min=0, help="Of the record.")],
    partition: PartitionOption = None,
    include_active: ActiveOption = False,
    memory: MemoryOption = None,
    key_hash: HashOption = None,
    properties: PropertiesOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the compaction rule that keeps or removes a record.

    Nothing is written, and a running broker is not disturbed.
    """
    from kafkalog.cli.compact.command import CompactRequest, run_explain
    from kafkalog.cli.compact.targets import TargetRequest
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.files.posix import PosixFileSystem

    targets = TargetRequest(directory, partition or (), properties, settings or (), key_hash)
    request = CompactRequest(targets, include_active, memory, as_json=as_json)
    with error_boundary(as_json=as_json):
        run_explain(SafeConsole(), PosixFileSystem(), request, offset)


def stat(
    directory: DirectoryArgument,
    partition: PartitionOption = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Draw a picture into this HTML file.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of largest keys to show.")] = 10,
    hide_keys: Annotated[
        bool, typer.Option("--hide-keys", help="Show hashes instead of keys.")
    ] = False,
    memory: MemoryOption = None,
    properties: PropertiesOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the content of logs: segments, live and dead bytes, tombstones, the biggest keys.

    The picture is one file without scripts, and needs no network. Nothing else is written, and a
    running broker is not disturbed. The exit status is 1 if a log is damaged.
    """
    from kafkalog.cli.compact.targets import TargetRequest
    from kafkalog.cli.stat.command import StatRequest, run_stat
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.files.posix import PosixFileSystem

    targets = TargetRequest(directory, partition or (), properties, settings or ())
    request = StatRequest(targets, html, top, memory, hide_keys, as_json)
    with error_boundary(as_json=as_json):
        whole = run_stat(SafeConsole(), SafeConsole(stderr=True), PosixFileSystem(), request)
    if not whole:
        raise typer.Exit(EXIT_DAMAGE_FOUND)


def compact(
    directory: DirectoryArgument,
    partition: PartitionOption = None,
    include_active: ActiveOption = False,
    memory: MemoryOption = None,
    key_hash: HashOption = None,
    throttle: Annotated[
        float | None,
        typer.Option("--throttle", min=1, help="Bytes a second to read and write at most."),
    ] = None,
    properties: PropertiesOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Clean compacted logs now: keep the latest record of each key.

    Stop the writer first: each log is opened for writing, locked, and recovered if it has to be.
    Segments are replaced one by one, each atomically; a crash leaves the old or the new one.
    `kafkalog plan` shows the effect without writing.
    """
    from kafkalog.cli.compact.command import CompactRequest
    from kafkalog.cli.compact.compact_logs import run_compact
    from kafkalog.cli.compact.targets import TargetRequest
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.files.posix import PosixFileSystem

    targets = TargetRequest(directory, partition or (), properties, settings or (), key_hash)
    request = CompactRequest(targets, include_active, memory, throttle, as_json)
    with error_boundary(as_json=as_json):
        run_compact(SafeConsole(), SafeConsole(stderr=True), PosixFileSystem(), request)
