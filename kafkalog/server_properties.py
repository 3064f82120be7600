"""`server.properties`: a broker's file of settings, as a manager of logs reads it.

A real broker's file can be used unchanged. Lines without a meaning for logs (network, security, the
cluster) are ignored, and listed with the reason; their values are not kept, because some of them
are passwords. An unknown key that resembles a setting of logs is an error: a misspelt
`log.retention.ms` must not delete records that the user wants to keep.

Of two lines with the same key the last counts, and of several units of a time the finest; the other
lines are listed, too.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

import difflib
import errno
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from kafkalog.broker_keys import reason_without_use, resolve
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError, ConfigFileError
from kafkalog.files.atomic_files import read_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.java_properties import ENCODING, PropertiesSyntaxError, Property, parse_properties
from kafkalog.manager_config import LOG_DIR, MANAGER_CLASSES, ManagerConfig, used_keys
from kafkalog.settings import OWN_PREFIX, settings_of, unknown_name

__all__ = [
    "IgnoredProperty",
    "ServerProperties",
    "parse_server_properties",
    "read_server_properties",
]

_MAX_BYTES: Final = 16 * 1024 * 1024
# Prefixes of settings of logs: an unknown key with such a prefix is misspelt.
_LOG_BEGINNINGS: Final = (OWN_PREFIX, "log.", "producer.id.", "num.recovery.")
# Similarity from which a key counts as a misspelt known key.
_MISSPELT_RATIO: Final = 0.9


@dataclass(frozen=True, slots=True)
class IgnoredProperty:
    """
    An ignored line of the file. Its value is not kept: it may be a password.

    Attributes:
        key: key of the line.
        line: number of the line in the file, from 1.
        reason: reason why the line is ignored.
    """

    key: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """
    Content of a broker's file.

    Attributes:
        config: settings of a manager, with the defaults of all topics in `config.log`.
        ignored: the ignored lines, in their order.
    """

    config: ManagerConfig
    ignored: tuple[IgnoredProperty, ...]


def read_server_properties(
    path: str | PathLike[str], *, filesystem: FileSystem | None = None
) -> ServerProperties:
    """
    Return the settings of logs in a broker's `server.properties`.

    Raises:
        ConfigFileError: a line is wrong; the message has the file, the line, and the nearest known
            key if the key is unknown.
        LogStorageError: the file is missing, or cannot be read.
    """
    path = Path(path)
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_BYTES)
            if data is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except ValueError as error:
        raise ConfigFileError(str(error), path=path) from error
    return parse_server_properties(data.decode(ENCODING), path=path)


def parse_server_properties(
    text: str, *, path: str | PathLike[str] = "server.properties"
) -> ServerProperties:
    """
    Return the settings of logs in the text of a broker's `server.properties`.

    Args:
        text: content of the file.
        path: name of the file in messages.

    Raises:
        ConfigFileError: as `read_server_properties`.
    """
    try:
        pairs = parse_properties(text)
    except PropertiesSyntaxError as error:
        raise ConfigFileError(
            f"{path}:{error.line}: {error}", path=path, line=error.line
        ) from error
    last = {pair.key: pair for pair in pairs}
    ignored = [
        IgnoredProperty(pair.key, pair.line, f"given again in line {last[pair.key].line}")
        for pair in pairs
        if pair is not last[pair.key]
    ]
    used: dict[str, str] = {}
    for pair in last.values():
        reason = _reason_to_ignore(pair, path)
        if reason is None:
            used[pair.key] = pair.value
        else:
            ignored.append(IgnoredProperty(pair.key, pair.line, reason))
    config = _config(used, last, path)
    for key, stronger in _overruled(used).items():
        ignored.append(IgnoredProperty(key, last[key].line, f"{stronger} counts instead"))
    return ServerProperties(config, tuple(sorted(ignored, key=lambda each: each.line)))


def _reason_to_ignore(pair: Property, path: str | PathLike[str]) -> str | None:
    """Return why a line is ignored, None if it counts; raise for a misspelt key."""
    key = pair.key
    if key in used_keys():
        return None
    reason = reason_without_use(key)
    if reason is not None:
        return reason
    if key in {each.key for each in settings_of(LogConfig).values()}:
        return "a topic's name, which a broker ignores, too"
    misspelt = difflib.get_close_matches(key, used_keys(), n=1, cutoff=_MISSPELT_RATIO)
    if misspelt or key.startswith(_LOG_BEGINNINGS):
        error = unknown_name("setting", key, used_keys())
        raise ConfigFileError(f"{path}:{pair.line}: {error}", path=path, line=pair.line)
    return "not about logs"


def _config(
    used: dict[str, str], pairs: dict[str, Property], path: str | PathLike[str]
) -> ManagerConfig:
    """Return the config, or name the line that is wrong."""
    try:
        return ManagerConfig.from_properties(used)
    except ConfigError as error:
        # The first key of the message is wrong, or contradicts another one.
        message = str(error)
        line = next((pairs[key].line for key in used if message.startswith(f"{key} = ")), None)
        place = path if line is None else f"{path}:{line}"
        raise ConfigFileError(f"{place}: {message}", path=path, line=line) from error


def _overruled(used: dict[str, str]) -> dict[str, str]:
    """Return the keys that another key of the file overrules -> that key."""
    managers = {each.key for cls in MANAGER_CLASSES for each in settings_of(cls).values()}
    found = resolve(used).overruled
    if "log.dirs" in used and LOG_DIR in used:
        found = found | {LOG_DIR: "log.dirs"}
    # The flusher's period counts for the manager even if each log has its own.
    return {key: stronger for key, stronger in found.items() if key not in managers}
