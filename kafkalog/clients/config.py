"""Settings of producers and consumers, under Kafka's names.

Differences from Kafka are listed in `docs/configuration.md`. Thread-safety: immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kafkalog.codec_table import CODEC_NAMES
from kafkalog.errors import ConfigError
from kafkalog.settings import LONG_MAX, check_config, replace_fields, setting

__all__ = ["BATCHES", "CONSUMING", "DELIVERY", "ConsumerConfig", "ProducerConfig"]

BATCHES: Final = "Producers: batches and memory"
DELIVERY: Final = "Producers: delivery"
CONSUMING: Final = "Consumers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """
    Settings of a producer.

    Raises:
        ConfigError: a value is not of its key's type or out of its range.
    """

    batch_size: int = setting(
        "batch.size", "int", 16_384,
        "Size of the records of a partition in one batch, before compression. A larger record "
        "gets a separate batch.",
        group=BATCHES, effect="reopening", lower=1, unit="bytes",
    )  # fmt: skip
    linger_ms: int = setting(
        "linger.ms", "long", 5,
        "Time that a batch may wait for more records.",
        group=BATCHES, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    buffer_memory: int = setting(
        "buffer.memory", "long", 32 << 20,
        'Memory for unwritten batches: batches that are being filled, that wait for space on the '
        'disk, or, with wait="durable", for the sync.',
        group=BATCHES, effect="reopening", lower=1, unit="bytes",
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", "string", "none",
        "Codec of the batches. A topic's own setting has priority unless it is `producer`.",
        group=BATCHES, effect="reopening", choices=CODEC_NAMES,
    )  # fmt: skip
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys", "boolean", False,
        "Distribute records with a key like those without.",
        group=BATCHES, effect="reopening",
    )  # fmt: skip
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", "long", 300_000,
        "Time between two checks for new partitions of a topic; keys may then go to other "
        "partitions.",
        group=BATCHES, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    max_block_ms: int = setting(
        "max.block.ms", "long", 60_000,
        "Time that `send` waits for memory before it gives up with a BufferExhaustedError.",
        group=DELIVERY, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms", "int", 120_000,
        "Time after which a batch without space on the disk fails.",
        group=DELIVERY, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", "long", 100,
        "Time before such a batch is retried.",
        group=DELIVERY, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    enable_idempotence: bool = setting(
        "enable.idempotence", "boolean", True,
        "Number the batches, so that a retried batch is not stored twice. Logs of old message "
        "formats cannot store the numbers.",
        group=DELIVERY, effect="reopening",
    )  # fmt: skip
    transactional_id: str = setting(
        "transactional.id", "string", "",
        "Name of the producer's transactions, which are completed or aborted after a crash; empty "
        "for a producer without transactions.",
        group=DELIVERY, effect="reopening",
    )  # fmt: skip
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms", "int", 60_000,
        "Time after which a broker that takes the directory over aborts a transaction.",
        group=DELIVERY, effect="reopening", lower=1, unit="ms",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_config(self)
        if self.batch_size > self.buffer_memory:
            raise ConfigError(
                f"batch.size = {self.batch_size}: must not be above buffer.memory = "
                f"{self.buffer_memory}"
            )
        if self.transactional_id and not self.enable_idempotence:
            raise ConfigError("enable.idempotence = false: a transactional.id needs idempotence")

    def replace(self, **changes: Any) -> ProducerConfig:
        """Return a config with some fields changed; ConfigError as the constructor."""
        return replace_fields(self, changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """
    Settings of a consumer.

    Raises:
        ConfigError: a value is not of its key's type or out of its range.
    """

    auto_offset_reset: str = setting(
        "auto.offset.reset", "string", "latest",
        "First position without a committed position, or after the loss of its records: the log's "
        "start, its end, or an error (`none`).",
        group=CONSUMING, effect="reopening", choices=("earliest", "latest", "none"),
    )  # fmt: skip
    isolation_level: str = setting(
        "isolation.level", "string", "read_uncommitted",
        "Read records of open and aborted transactions, or only committed ones.",
        group=CONSUMING, effect="reopening", choices=("read_uncommitted", "read_committed"),
    )  # fmt: skip
    max_poll_records: int = setting(
        "max.poll.records", "int", 500,
        "Largest number of records of one `poll`.",
        group=CONSUMING, effect="reopening", lower=1, unit="records",
    )  # fmt: skip
    enable_auto_commit: bool = setting(
        "enable.auto.commit", "boolean", False,
        "Let `poll`, from time to time, and `close` commit the positions of earlier polls.",
        group=CONSUMING, effect="reopening",
    )  # fmt: skip
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", "int", 5_000,
        "Time between two such commits.",
        group=CONSUMING, effect="reopening", lower=0, unit="ms",
    )  # fmt: skip
    poll_interval_ms: int = setting(
        "kafkalog.poll.interval.ms", "long", 100,
        "Time between two checks of a log that another process writes, and of the topics for new "
        "partitions. An append in this process wakes a consumer at once.",
        group=CONSUMING, effect="reopening", lower=1, upper=LONG_MAX, unit="ms",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_config(self)

    def replace(self, **changes: Any) -> ConsumerConfig:
        """Return a config with some fields changed; ConfigError as the constructor."""
        return replace_fields(self, changes)
