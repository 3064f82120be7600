"""Tests of a broker's properties file: used keys, ignored and listed keys, and errors."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kafkalog.errors import ConfigFileError, LogStorageError
from kafkalog.manager_config import ManagerConfig
from kafkalog.server_properties import (
    IgnoredProperty,
    ServerProperties,
    parse_server_properties,
    read_server_properties,
)
from tests.support.simulated_disk import SimulatedDisk

# Similar to the file that comes with a broker.
TYPICAL = """\
# The role of this server.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
ssl.keystore.password=secret
num.network.threads=3
log.dirs=/var/lib/one,\\
         /var/lib/two

num.recovery.threads.per.data.dir=4
offsets.topic.replication.factor=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.retention.ms = 86400000
log.segment.bytes:1073741824
log.retention.check.interval.ms=300000
confluent.something=1
log.segment.bytes=536870912
"""


def test_parse_typical_file_gives_config_and_ignored_keys() -> None:
    """A real broker's file is accepted unchanged."""
    found = parse_server_properties(TYPICAL)
    config = found.config
    assert ("/var/lib/one", "/var/lib/two") == config.log_dirs
    assert 4 == config.num_recovery_threads_per_data_dir
    assert (86_400_000, 1 << 29) == (config.log.retention_ms, config.log.segment_bytes)
    assert [
        ("process.roles", 2, "not about logs"),
        ("node.id", 3, "not about logs"),
        ("listeners", 4, "not about logs"),
        ("ssl.keystore.password", 5, "kafkalog uses no network"),
        ("num.network.threads", 6, "not about logs"),
        ("offsets.topic.replication.factor", 11, "it belongs to a coordinator's own topics"),
        ("log.retention.hours", 13, "log.retention.ms counts instead"),
        ("log.segment.bytes", 15, "given again in line 18"),
        ("confluent.something", 17, "not about logs"),
    ] == [(each.key, each.line, each.reason) for each in found.ignored]


def test_parse_passwords_are_not_kept() -> None:
    """An ignored value may be a secret; reports of it go to logs."""
    found = parse_server_properties(TYPICAL)
    assert "secret" not in repr(found)
    assert b"secret" not in pickle.dumps(found)


def test_parse_empty_file_is_the_defaults() -> None:
    """Missing keys have Kafka's defaults."""
    assert ServerProperties(ManagerConfig(), ()) == parse_server_properties("# nothing\n")


@pytest.mark.parametrize(
    ("lines", "ignored"),
    [
        (["log.flush.scheduler.interval.ms=5", "log.flush.interval.ms=6"], []),
        (["log.dir=/a", "log.dirs=/b"], [("log.dir", 1, "log.dirs counts instead")]),
        (["log.dirs=/b"], []),
        (
            ["retention.ms=5"],
            [("retention.ms", 1, "a topic's name, which a broker ignores, too")],
        ),
        (["a=1", "a=2"], [("a", 1, "given again in line 2"), ("a", 2, "not about logs")]),
        (["log4j.logger.kafka=INFO"], [("log4j.logger.kafka", 1, "not about logs")]),
    ],
)
def test_parse_lists_keys_without_effect(
    lines: list[str], ignored: list[tuple[str, int, str]]
) -> None:
    """Only those: a key that the manager uses is not listed."""
    found = parse_server_properties("\n".join(lines))
    assert tuple(IgnoredProperty(*each) for each in ignored) == found.ignored


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a=1\nlog.retension.ms=5", 2, "unknown setting 'log.retension.ms'; did you mean log.r"),
        ("logs.retention.ms=5", 1, "did you mean log.retention.ms?"),
        ("log.quux=5", 1, "unknown setting 'log.quux'"),
        ("kafkalog.batch.byte=5", 1, "did you mean kafkalog.batch.bytes?"),
        ("message.max.byte=5", 1, "did you mean message.max.bytes?"),
        ("\n\nlog.roll.ms=soon", 3, "log.roll.ms = 'soon': must be an integer"),
        ("log.roll.ms=1\nlog.roll.ms=0", 2, "log.roll.ms = 0: segment.ms must be"),
        ("log.roll.hours=x\nlog.roll.ms=5", 1, "log.roll.hours = 'x': must be"),
        ("log.cleaner.threads=0x\n", 1, "log.cleaner.threads = '0x'"),
        ("log.dirs=/a\nlog.dirs=\\u00g", 2, "four hex digits"),
    ],
)
def test_parse_invalid_line_is_named(text: str, line: int, message: str) -> None:
    """File and line come first; a misspelt key of logs is not ignored."""
    with pytest.raises(ConfigFileError) as caught:
        parse_server_properties(text, path="conf/server.properties")
    assert line == caught.value.line
    assert "conf/server.properties" == caught.value.path
    assert str(caught.value).startswith(f"conf/server.properties:{line}: ")
    assert message in str(caught.value)


def test_parse_defaults_contradicting_a_line_name_the_file() -> None:
    """If the key at fault is not in the file, the file is named without a line."""
    with pytest.raises(
        ConfigFileError, match=r"^server\.properties: log\.cleaner\.dedupe"
    ) as caught:
        parse_server_properties("log.cleaner.threads=500")
    assert caught.value.line is None


def test_read_decodes_bytes_as_java(tmp_path: Path) -> None:
    """ISO-8859-1 and escapes; names of directories become those of a broker."""
    path = tmp_path / "server.properties"
    path.write_bytes(b"log.dirs=/d\xe4ta,/\\u0448\r\n")
    assert ("/d\xe4ta", "/\u0448") == read_server_properties(path).config.log_dirs


def test_read_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    """One typed error each, with the path."""
    path = tmp_path / "server.properties"
    with pytest.raises(LogStorageError, match=r"server\.properties") as missing:
        read_server_properties(path)
    assert str(path) == missing.value.path
    with path.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(ConfigFileError, match="size must be <="):
        read_server_properties(path)


def test_read_failing_disk_is_a_storage_error() -> None:
    """By the file system interface, as everywhere."""
    disk = SimulatedDisk()
    path = Path("/data/server.properties")
    disk.make_durable(path.parent)
    disk.open(path, create=True).close()
    disk.fail_at(1, only=frozenset({"pread"}))
    with pytest.raises(LogStorageError, match="reading failed"):
        read_server_properties(path, filesystem=disk)
