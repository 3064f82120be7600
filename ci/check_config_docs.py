"""Check that `docs/configuration.md` has the settings of the code.

python ci/check_config_docs.py            compare
python ci/check_config_docs.py --write    write it
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from generated import compare_or_write  # noqa: E402

from kafkalog.broker_keys import (  # noqa: E402
    FAMILIES_WITHOUT_USE,
    LOG_KEYS,
    SINGLE_KEYS_WITHOUT_USE,
    BrokerKey,
)
from kafkalog.clients.config import (  # noqa: E402
    BATCHES,
    CONSUMING,
    DELIVERY,
    ConsumerConfig,
    ProducerConfig,
)
from kafkalog.config import BEHAVIOUR, KEYS_WITHOUT_USE, PERFORMANCE, LogConfig  # noqa: E402
from kafkalog.manager_config import (  # noqa: E402
    BACKGROUND,
    CLEANER,
    DIRECTORIES,
    HEALTH,
    PRODUCERS,
    CleanerConfig,
    HealthConfig,
    ManagerConfig,
)
from kafkalog.settings import LONG_MAX, OWN_PREFIX, Setting, settings_of  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Made by ci/check_config_docs.py from the code of the settings: change it there. -->

A log has a `LogConfig`, a manager of many logs a `ManagerConfig`. Names, types, defaults and ranges
are Kafka 4.1's, with a few [differences](#differences-from-kafka). An unknown key, a wrong type or
a value out of range is a `ConfigError` with the key, the value and the rule, and the nearest known
key.

## Settings of a log

The fields of `LogConfig` are Kafka's topic settings, with underscores for dots. Keys that Kafka
does not have begin with `kafkalog.`, which the field names leave out.

```python
from kafkalog import LogConfig

config = LogConfig(segment_bytes=16 << 20, compression_type="zstd")
config = LogConfig.from_properties({"segment.bytes": "16777216", "compression.type": "zstd"})
config = config.replace(retention_ms=-1)
config = config.with_overrides({"retention.ms": "-1"})
```

A config is immutable. `log.reconfigure(new)` gives an open log another one. It returns the changed
keys and when each takes effect; `old.change_to(new)` returns the same before. A value takes effect
at once, for segments that begin after the change, or after the log was reopened. The last column of
the tables has the effect of each key.
"""

INTRODUCTIONS = {
    BEHAVIOUR: "Retention, compaction, and limits of appends.",
    PERFORMANCE: "The same records in other files, batches or memory.",
    DIRECTORIES: "Directories of logs, opening and closing.",
    BACKGROUND: "Periodic tasks.",
    PRODUCERS: "How long the manager keeps the state of producers.",
    BATCHES: "Batches of records, and limits of unwritten data.",
    DELIVERY: "When a record is delivered, and what happens after a failure.",
    CONSUMING: "Positions, selection and sizes of reads.",
    CLEANER: "`ManagerConfig.cleaner`: a `CleanerConfig`, whose fields leave out `log.cleaner.`.",
    HEALTH: "`ManagerConfig.health`: a `HealthConfig`, whose fields leave out `kafkalog.health.`. "
    "[Metrics](metrics.md) has the rules.",
}

SYNONYMS = """\
### Names of a broker

A broker's settings are the defaults of its topics, under other names. Of several names the first
one in the table has priority. Keys that begin with `kafkalog.` have one name everywhere. A broker's
`log.retention.*` must be -1 or at least 1, though a topic may have 0; any negative time is read as
-1.
"""

MANAGER = """\
## Settings of a manager

The fields of `ManagerConfig` are Kafka's broker settings, with underscores for dots. The defaults
of all topics are in its field `log`.

```python
from kafkalog import ManagerConfig

config = ManagerConfig(log_retention_check_interval_ms=60_000, log=LogConfig(retention_ms=-1))
config = ManagerConfig.from_properties({"log.retention.hours": "24", "log.cleaner.threads": "2"})
```

Settings of single topics are separate, in a `TopicConfigs`, so that a change of a default reaches
every topic without a setting for it:

```python
from kafkalog import TopicConfigs

topics = TopicConfigs(config.log, {"orders": {"retention.ms": "-1"}})
topics = topics.with_topic("orders", {"segment.bytes": "1048576", "retention.ms": None})
topics = topics.with_defaults(config.log.replace(compression_type="zstd"))
topics.config_of("orders")
```

Both can be changed while a manager runs, in all open logs and for every later start:

```python
from kafkalog import LogManager

with LogManager(["data"], config) as manager:
    manager.create_topic("orders", 3, {"segment.bytes": "1048576"})
    manager.reconfigure("orders", {"retention.ms": "-1", "segment.bytes": None})
    manager.reconfigure_defaults({"log.retention.ms": "3600000"})
```

`None` reverts a change. Changed defaults have priority over the config of a manager, now and after
a restart, as a broker's dynamic settings over its `server.properties`. `manager.config` has the
effective values. Changed defaults use a broker's names, and of several the first (`log.roll.ms`,
not `log.roll.hours`). Settings that need reopening are refused.
"""

CLIENTS = """\
## Settings of producers and consumers

These are keyword arguments of `manager.producer(...)` and `manager.consumer(group, ...)`, and
fields of the `ProducerConfig` and `ConsumerConfig` in their `config`. The values of a client never
change. See [producers and consumers](clients.md).
"""

FILES = """\
## The file of a broker

`read_server_properties("server.properties")` reads the unchanged file of a real broker, in the
syntax of Java's properties files: comments, joined lines, escapes, ISO-8859-1. It returns the
`ManagerConfig` in `config`. `ignored` has every ignored line with its number and the reason:
settings of network, security and the cluster; the first of two lines with one key;
`log.retention.hours` together with `log.retention.ms`. It does not have the value, which may be a
password.

An unknown key with a name like those of logs (`log.retension.ms`) is a `ConfigFileError` with file,
line and the nearest known key. `ManagerConfig.from_properties`, whose keys come from code and not
from a broker, refuses every key without an effect.
"""

DIFFERENCES = """\
## Differences from Kafka

- The minimum of `segment.bytes` and `log.segment.bytes` is 14; Kafka 4.1 requires 1 MiB. Embedded
  logs are often small.
- `message.format.version` was removed from Kafka 4, whose logs are all v2. kafkalog still writes
  the old formats that it names.
- An integer and `1.0` are different: `LogConfig(segment_ms=1.0)` is an error.
- `log.dirs` is a list, empty by default: the directories are an argument of a manager. Kafka has a
  text with commas, and by default a directory below the system's temporary one.
- `log.flush.scheduler.interval.ms` and `replica.high.watermark.checkpoint.interval.ms` are at least
  1: Kafka sets no bound, and runs the task once where its period is not above 0.
- `log.cleaner.hash.algorithm` exists only in kafkalog: a broker always compares keys by MD5.
- With `log.cleaner.threads` = 0 only `LogManager.compact` compacts; Kafka allows the value and
  divides by it. There are never more threads than logs to be compacted.
- `log.cleaner.io.max.bytes.per.second` below 1 counts as 1. The limit holds at every moment, and
  Kafka checks it every 300 ms. It applies to `LogManager.compact`, too.
- The cleaner's first round comes after `log.initial.task.delay.ms`, as all background work does;
  Kafka's comes at once.
- `num.recovery.threads.per.data.dir`, `background.threads` and `log.cleaner.threads` may be changed
  to any number; Kafka lets them be halved or doubled at the most.
- A broker changes every topic setting while it runs. In kafkalog some wait for the next segment or
  for reopening; see the tables.
- A producer has no `acks`: `wait` selects whether a record is delivered when it is written or when
  it is on the disk. A producer retries only writes that a full disk refused, until
  `delivery.timeout.ms` is over, so there is no `retries`.
- `enable.auto.commit` is `false`; Kafka's consumers commit automatically.
- `transactional.id` without transactions is empty, and not null.
- `auto.offset.reset` has no `by_duration`; `Consumer.seek_to_time` does it.
- A broker ignores an unknown key. In kafkalog it is an error; in a broker's file only a key with a
  name like those of logs.

"""


def value_range(setting: Setting) -> str:
    """Return the range of a setting as a cell."""
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind == "boolean":
        return "`true`, `false`"
    if setting.lower is None:
        return "any"
    bound = (
        f"{setting.lower} and more"
        if setting.upper is None
        else f"{setting.lower} to {setting.upper}"
    )
    return bound if setting.extra is None else f"{bound}, or {setting.extra}"


def default_value(setting: Setting) -> str:
    """Return the default of a setting as a cell."""
    if setting.default == LONG_MAX:
        return "2^63-1"
    if setting.default == sys.float_info.max:
        return "no limit"
    text = setting.format(setting.default)
    return f"`{text}`" if text else "empty"


def table(config: type, group: str) -> list[str]:
    """Return the section of one group."""
    lines = [f"### {group}", "", INTRODUCTIONS[group], ""]
    lines += ["| key | field | type | default | range | unit | effect of a change |"]
    lines += ["|---|---|---|---|---|---|---|"]
    chosen = [each for each in settings_of(config).values() if each.group == group]
    for each in chosen:
        cells = [
            f"`{each.key}`",
            f"`{each.name}`",
            each.kind,
            default_value(each),
            value_range(each),
            each.unit,
            each.effect,
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    lines.append("")
    for each in chosen:
        lines.append(f"- `{each.key}`: {each.doc.replace(str(LONG_MAX), '2^63-1')}")
    lines.append("")
    return lines


def broker_name(key: BrokerKey) -> str:
    """Return one name of a broker, with its unit if the topic has another."""
    if key.factor == 1:
        return f"`{key.setting.key}`"
    return f"`{key.setting.key}` ({key.setting.unit})"


def synonyms() -> list[str]:
    """Return the table of brokers' names."""
    lines = [SYNONYMS, "| topic | broker |", "|---|---|"]
    for each in settings_of(LogConfig).values():
        if not each.key.startswith(OWN_PREFIX):
            names = ", ".join(map(broker_name, LOG_KEYS.get(each.name, ())))
            lines.append(f"| `{each.key}` | {names or 'none'} |")
    return [*lines, ""]


def without_use() -> list[str]:
    """Return the lists of keys without an effect."""
    lines = ["These topic settings of Kafka are refused, because they have no effect:", ""]
    lines += [f"- `{key}`: {reason}." for key, reason in KEYS_WITHOUT_USE.items()]
    lines += ["", "These of a broker are refused, too, and all names with a prefix before `*`:", ""]
    lines += [f"- `{key}`: {reason}." for key, reason in SINGLE_KEYS_WITHOUT_USE.items()]
    lines += [f"- `{key}*`: {reason}." for key, reason in FAMILIES_WITHOUT_USE.items()]
    return lines


def page() -> str:
    """Return the whole page."""
    lines = [HEAD, *table(LogConfig, BEHAVIOUR), *table(LogConfig, PERFORMANCE), *synonyms()]
    lines.append(MANAGER)
    for group in (DIRECTORIES, BACKGROUND, PRODUCERS):
        lines += table(ManagerConfig, group)
    lines += [*table(CleanerConfig, CLEANER), *table(HealthConfig, HEALTH), CLIENTS]
    for group in (BATCHES, DELIVERY):
        lines += table(ProducerConfig, group)
    lines += [
        *table(ConsumerConfig, CONSUMING),
        FILES,
        DIFFERENCES.rstrip("\n"),
        "",
        *without_use(),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compare or write the page."""
    return compare_or_write(PAGE, page, "check_config_docs.py")


if __name__ == "__main__":
    sys.exit(main())
