"""Fail if `docs/configuration.md` is not what the code of the settings says.

python ci/check_config_docs.py            compare
python ci/check_config_docs.py --write    make it anew
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
    PRODUCERS,
    CleanerConfig,
    ManagerConfig,
)
from kafkalog.settings import LONG_MAX, OWN_PREFIX, Setting, settings_of  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Made by ci/check_config_docs.py from the code of the settings: change it there. -->

A log takes a `LogConfig`, a manager of many logs a `ManagerConfig`. Names, types, defaults and
ranges are Kafka 4.1's; what differs is listed [below](#differences-from-kafka). An unknown key, a
wrong type or a value out of range is a `ConfigError` that names the key, the value and the rule,
and the nearest known key.

## Settings of a log

The fields of `LogConfig` are Kafka's topic settings, dots turned into underscores; keys of
kafkalog's own begin with `kafkalog.`, which the field names leave out.

```python
from kafkalog import LogConfig

config = LogConfig(segment_bytes=16 << 20, compression_type="zstd")
config = LogConfig.from_properties({"segment.bytes": "16777216", "compression.type": "zstd"})
config = config.replace(retention_ms=-1)
config = config.with_overrides({"retention.ms": "-1"})
```

A config never changes; a log is given another one: `log.reconfigure(new)`, while it is open. That
returns, as `old.change_to(new)` does before, which keys differ and when their new values count: at
once, for segments that begin from then on, or after the log was closed and opened again. The last
column of the tables says it of each key.
"""

INTRODUCTIONS = {
    BEHAVIOUR: "What is kept, for how long, and what an append may hold.",
    PERFORMANCE: "The same records in other files, batches or memory.",
    DIRECTORIES: "Where logs are, and how they are opened and closed.",
    BACKGROUND: "What is done from time to time.",
    PRODUCERS: "How long the manager remembers who wrote.",
    BATCHES: "How records become batches, and how much may be on its way.",
    DELIVERY: "When a record counts as delivered, and what happens when it cannot be.",
    CONSUMING: "Where to read, what, and how much at a time.",
    CLEANER: "`ManagerConfig.cleaner`: a `CleanerConfig`, whose fields leave out `log.cleaner.`.",
}

SYNONYMS = """\
### What a broker calls them

A broker's settings are the defaults of its topics, under other names. Where there are several the
first one that is given counts. Keys that begin with `kafkalog.` are called the same everywhere. A
broker's `log.retention.*` must be -1 or at least 1, though a topic may say 0; any negative time is
taken for -1.
"""

MANAGER = """\
## Settings of a manager

The fields of `ManagerConfig` are Kafka's broker settings, dots turned into underscores. The
defaults of all topics are in its field `log`.

```python
from kafkalog import ManagerConfig

config = ManagerConfig(log_retention_check_interval_ms=60_000, log=LogConfig(retention_ms=-1))
config = ManagerConfig.from_properties({"log.retention.hours": "24", "log.cleaner.threads": "2"})
```

What single topics say otherwise is kept apart, in a `TopicConfigs`, so that a change of the
defaults reaches every topic in what it does not say itself:

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

`None` takes a change back. Changed defaults lie over the config that a manager is given, now and
later, as a broker's dynamic settings lie over its `server.properties`; `manager.config` shows what
counts. They take a broker's names, of several for one setting the first (`log.roll.ms`, not
`log.roll.hours`), and none whose new value waits for opening again.
"""

CLIENTS = """\
## Settings of producers and consumers

Keyword arguments of `manager.producer(...)` and `manager.consumer(group, ...)`, and fields of the
`ProducerConfig` and `ConsumerConfig` that these show as `config`. A value counts for a client from
its beginning to its end. [What they do](clients.md).
"""

FILES = """\
## The file of a broker

`read_server_properties("server.properties")` takes the file of a real broker as it is, in the
syntax of Java's properties files: comments, joined lines, escapes, ISO-8859-1. It returns the
`ManagerConfig` in `config`, and in `ignored` every line that does not count with its number and the
reason: network, security and the cluster mean nothing here; one key twice, where the last counts;
`log.retention.hours` beside `log.retention.ms`. What such a line says is not kept, for it may be a
password.

A key that looks like one of logs and is none (`log.retension.ms`) is a `ConfigFileError` with file,
line and the nearest known key. `ManagerConfig.from_properties`, whose keys come from code and not
from a broker, refuses every key that means nothing here.
"""

DIFFERENCES = """\
## Differences from Kafka

- `segment.bytes` may be as small as 14; Kafka 4.1 asks for 1 MiB. Embedded logs are often small.
  So may `log.segment.bytes`.
- `message.format.version` is gone from Kafka 4, whose logs are all v2; here old formats are still
  written where it says so.
- An integer and `1.0` are not the same here: `LogConfig(segment_ms=1.0)` is an error.
- `log.dirs` is a list, empty where nothing is said: a manager is given its directories. Kafka has
  a text that it parts by commas, and a directory below the system's temporary one by default.
- `log.flush.scheduler.interval.ms` and `replica.high.watermark.checkpoint.interval.ms` are at least
  1: Kafka sets no bound, and runs the task once where its period is not above 0.
- `log.cleaner.hash.algorithm` is ours: a broker tells keys by their MD5, whatever they are.
- With `log.cleaner.threads` = 0 nothing is compacted unless somebody asks for it; Kafka allows the
  value and divides by it. There are never more threads than logs to be compacted.
- `log.cleaner.io.max.bytes.per.second` below 1 counts as 1. The limit holds in every moment, where
  Kafka looks every 300 ms; and it counts for `LogManager.compact`, too.
- The cleaner's first round comes after `log.initial.task.delay.ms`, as all background work does;
  Kafka's comes at once.
- `num.recovery.threads.per.data.dir`, `background.threads` and `log.cleaner.threads` may be changed
  to any number; Kafka lets them be halved or doubled at the most.
- A broker changes every topic setting while it runs; here some wait for the next segment or for
  opening again, as the tables say.
- A producer has no `acks`: `wait` says whether a record counts when it is written or when it is on
  the disk. It tries again what a full disk refused, nothing else, and that as long as
  `delivery.timeout.ms` lasts, so there is no `retries`.
- `enable.auto.commit` is `false`; Kafka's consumers commit by themselves.
- `transactional.id` is empty, and not null, where there are no transactions.
- `auto.offset.reset` has no `by_duration`; `Consumer.seek_to_time` does it.
- A broker passes over a key that it does not know; here it is an error, in a file of a broker where
  it looks like one of logs.

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
    lines += ["| key | field | type | default | range | unit | a new value counts |"]
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
    """Return one name of a broker, with its default where the topic has another."""
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
    """Return the lists of keys that mean nothing here."""
    lines = ["Topic settings of Kafka that are refused, because they would do nothing:", ""]
    lines += [f"- `{key}`: {reason}." for key, reason in KEYS_WITHOUT_USE.items()]
    lines += ["", "So are these of a broker, and those whose names begin as shown with `*`:", ""]
    lines += [f"- `{key}`: {reason}." for key, reason in SINGLE_KEYS_WITHOUT_USE.items()]
    lines += [f"- `{key}*`: {reason}." for key, reason in FAMILIES_WITHOUT_USE.items()]
    return lines


def page() -> str:
    """Return the whole page."""
    lines = [HEAD, *table(LogConfig, BEHAVIOUR), *table(LogConfig, PERFORMANCE), *synonyms()]
    lines.append(MANAGER)
    for group in (DIRECTORIES, BACKGROUND, PRODUCERS):
        lines += table(ManagerConfig, group)
    lines += [*table(CleanerConfig, CLEANER), CLIENTS]
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
