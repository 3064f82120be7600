"""Options of Spark's Kafka source, with a test for each: its values and its meaning.

Names, defaults and meanings are the same, with the exceptions in the documentation.
"""

from __future__ import annotations

import logging

import pytest

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options import (
    EARLIEST,
    LATEST,
    Position,
    ReadOptions,
    TopicSelection,
    WriteOptions,
)

PATH = {"path": "/data"}


def batch(**options: str) -> ReadOptions:
    """Return the options of a batch read."""
    return ReadOptions.parse({**PATH, **options})


def stream(**options: str) -> ReadOptions:
    """Return the options of a stream."""
    return ReadOptions.parse({**PATH, **options}, streaming=True)


def refused(code: ErrorCode, options: dict[str, str], *, streaming: bool = False) -> str:
    """Return the message of the refused options."""
    with pytest.raises(KafkaLogSparkError) as caught:
        ReadOptions.parse({**PATH, **options}, streaming=streaming)
    assert code == caught.value.code
    return str(caught.value)


def test_bootstrap_servers_any_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Options of Kafka's consumer are ignored; a process warns once."""
    # No other test names this option: a process warns once of the same options.
    options = {**PATH, "kafka.bootstrap.servers": "h:9092", "kafka.ssl.warned.once": "x"}
    with caplog.at_level(logging.WARNING):
        first = ReadOptions.parse(options)
        ReadOptions.parse(options)
    assert ("/data",) == first.paths
    assert 2 == len(first.ignored)
    assert 1 == len(caplog.records)


def test_assign_selects_partitions() -> None:
    """Invalid JSON or partitions are refused."""
    expected = TopicSelection("assign", partitions=(("a", 0), ("a", 2), ("b", 1)))
    assert expected == batch(assign='{"a": [0, 2], "b": [1]}').topics
    assert not batch(assign='{"a": [0]}').topics.takes("a", 1)
    for wrong in ("[]", "{}", '{"a": 0}', '{"a": []}', '{"a": [-1]}', '{"a": [true]}', '{"": [0]}'):
        refused(ErrorCode.OPTION_INVALID, {"assign": wrong})


def test_subscribe_selects_topics() -> None:
    """Names separated by commas."""
    assert TopicSelection("subscribe", topics=("a", "b")) == batch(subscribe=" a, b,a").topics
    for wrong in ("", ",", "a,,b", "a b"):
        refused(ErrorCode.OPTION_INVALID, {"subscribe": wrong})


def test_subscribe_pattern_matches_whole_names() -> None:
    """It is a regular expression of Python."""
    topics = batch(subscribePattern="ev.*[0-9]").topics
    assert [True, False, False] == [topics.matches_topic(name) for name in ("ev1", "ev1x", "xev1")]
    refused(ErrorCode.OPTION_INVALID, {"subscribePattern": "("})


def test_selection_absent_is_all_topics_and_several_are_refused() -> None:
    """At most one of the three options."""
    assert TopicSelection("all") == batch().topics
    message = refused(ErrorCode.OPTION_CONFLICT, {"subscribe": "a", "assign": '{"a": [0]}'})
    assert "subscribe and assign exclude each other" in message


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("EARLIEST", EARLIEST),
        ("latest", LATEST),
        ("latest-100", Position("latest", 100)),
    ],
)
def test_starting_offsets_word_is_a_position(text: str, position: Position) -> None:
    """Words in any case; `latest-100` is an extension."""
    assert position == stream(startingOffsets=text).starting.default


def test_starting_offsets_absent_are_earliest_in_batch_latest_in_stream() -> None:
    """As in Kafka's source."""
    assert (EARLIEST, LATEST) == (batch().starting.default, stream().starting.default)


def test_starting_offsets_json_sets_offsets() -> None:
    """-2 is the earliest, -1 the latest, which a batch refuses as its start."""
    text = '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}'
    expected = {("a", 0): Position("offset", 23), ("a", 1): EARLIEST, ("b", 0): LATEST}
    assert expected == stream(startingOffsets=text).starting.partitions
    assert stream(startingOffsets=text).starting.default is None
    for wrong in (text, "latest", "soon", "23", "latest-", "latest--1", "[1]", '{"a": 1}', "{}"):
        refused(ErrorCode.OFFSET_INVALID, {"startingOffsets": wrong})
    for wrong in ('{"a": {"0": -3}}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"01": 1}}'):
        refused(ErrorCode.OFFSET_INVALID, {"startingOffsets": wrong}, streaming=True)
    # `latest-100` is a valid start, because it selects records.
    assert Position("latest", 5) == batch(startingOffsets="latest-5").starting.default


def test_starting_timestamp_number_or_ago_is_a_position() -> None:
    """Milliseconds since 1970 for all partitions; a negative duration is an extension."""
    assert Position("timestamp", 1700) == batch(startingTimestamp="1700").starting.default
    assert Position("ago", 600_000) == stream(startingTimestamp="-10m").starting.default
    for wrong in ("-1", "yesterday", "1.5", "-10x", ""):
        code = ErrorCode.OFFSET_INVALID if wrong else ErrorCode.OPTION_INVALID
        refused(code, {"startingTimestamp": wrong})


def test_starting_offsets_by_timestamp_json_sets_times() -> None:
    """Times of single partitions."""
    spec = batch(startingOffsetsByTimestamp='{"a": {"0": 17, "1": 0}}').starting
    expected = {("a", 0): Position("timestamp", 17), ("a", 1): Position("timestamp", 0)}
    assert (None, expected) == (spec.default, spec.partitions)
    refused(ErrorCode.OFFSET_INVALID, {"startingOffsetsByTimestamp": '{"a": {"0": -1}}'})
    refused(ErrorCode.OPTION_INVALID, {"startingOffsetsByTimestamp": "earliest"})


def test_starting_options_combined_use_the_timestamp_first() -> None:
    """Precedence: one time for all, then times of partitions, then offsets."""
    offsets, times = '{"a": {"0": 1}}', '{"a": {"0": 2}}'
    all_three = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert {("a", 0): Position("timestamp", 2)} == batch(**all_three).starting.partitions
    spec = batch(**all_three, startingTimestamp="3").starting
    assert ("startingTimestamp", Position("timestamp", 3)) == (spec.option, spec.default)
    ending = batch(
        endingOffsets=offsets, endingOffsetsByTimestamp=times, endingTimestamp="3"
    ).ending
    assert Position("timestamp", 3) == ending.default


def test_starting_strategy_word_is_error_or_latest() -> None:
    """The rule for a time later than every record."""
    assert "error" == batch().starting.when_missing
    spec = batch(startingOffsetsByTimestampStrategy="LATEST").starting
    assert "latest" == spec.when_missing
    refused(ErrorCode.OPTION_INVALID, {"startingOffsetsByTimestampStrategy": "skip"})


def test_ending_offsets_earliest_is_refused() -> None:
    """An end is the latest offset, a number, or -1; a stream has none."""
    assert LATEST == batch().ending.default
    text = '{"a": {"0": 23, "1": -1}}'
    expected = {("a", 0): Position("offset", 23), ("a", 1): LATEST}
    assert expected == batch(endingOffsets=text).ending.partitions
    refused(ErrorCode.OFFSET_INVALID, {"endingOffsets": "earliest"})
    refused(ErrorCode.OFFSET_INVALID, {"endingOffsets": '{"a": {"0": -2}}'})
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        message = refused(ErrorCode.OPTION_INVALID, {name: "latest"}, streaming=True)
        assert f"{name} is for a batch read, and this is a stream" in message


def test_ending_timestamps_later_than_all_records_are_latest() -> None:
    """All records are before that time, for any strategy."""
    options = batch(endingTimestamp="5", startingOffsetsByTimestampStrategy="error")
    assert ("latest", Position("timestamp", 5)) == (
        options.ending.when_missing,
        options.ending.default,
    )
    spec = batch(endingOffsetsByTimestamp='{"a": {"0": 17}}').ending
    assert ("latest", {("a", 0): Position("timestamp", 17)}) == (spec.when_missing, spec.partitions)


def test_fail_on_data_loss_false_resumes_at_earliest() -> None:
    """`onDataLoss` is more exact, and must not contradict it."""
    assert ("fail", "fail") == (batch().on_data_loss, stream(failOnDataLoss="true").on_data_loss)
    assert "earliest" == stream(failOnDataLoss="FALSE").on_data_loss
    assert "latest" == stream(onDataLoss="latest").on_data_loss
    assert "latest" == stream(failOnDataLoss="false", onDataLoss="latest").on_data_loss
    for switch, finer in (("true", "latest"), ("false", "fail")):
        options = {"failOnDataLoss": switch, "onDataLoss": finer}
        refused(ErrorCode.OPTION_CONFLICT, options)


def test_min_partitions_and_max_records_are_hints() -> None:
    """Positive numbers, None by default."""
    assert (None, None) == (batch().min_partitions, batch().max_records_per_partition)
    options = batch(minPartitions="7", maxRecordsPerPartition="1000")
    assert (7, 1000) == (options.min_partitions, options.max_records_per_partition)
    for name in ("minPartitions", "maxRecordsPerPartition"):
        for wrong in ("0", "-1", "x", "1.0"):
            refused(ErrorCode.OPTION_INVALID, {name: wrong})


def test_trigger_limits_are_read_for_a_stream() -> None:
    """With Kafka's default delay."""
    assert (None, None, None, 900_000) == (
        stream().limits.max_offsets_per_trigger,
        stream().limits.min_offsets_per_trigger,
        stream().limits.max_bytes_per_trigger,
        stream().limits.max_trigger_delay_ms,
    )
    limits = stream(
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="30s",
        maxBytesPerTrigger="64m",
    ).limits
    assert (10, 5, 30_000, 64 * 1024**2) == (
        limits.max_offsets_per_trigger,
        limits.min_offsets_per_trigger,
        limits.max_trigger_delay_ms,
        limits.max_bytes_per_trigger,
    )
    options = {"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "5"}
    refused(ErrorCode.OPTION_CONFLICT, options, streaming=True)


def test_trigger_limits_are_ignored_for_a_batch() -> None:
    """With a warning, as in Kafka's source."""
    names = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
    assert [f"{name}: only a stream applies it" for name in names] == list(
        batch(**dict.fromkeys(names, "1")).ignored
    )


def test_include_headers_default_is_false() -> None:
    """For reads and writes."""
    assert (False, True) == (batch().include_headers, batch(includeHeaders="true").include_headers)
    assert WriteOptions.parse({**PATH, "includeHeaders": "true"}).include_headers
    refused(ErrorCode.OPTION_INVALID, {"includeHeaders": "yes"})


@pytest.mark.parametrize("name", ["groupIdPrefix", "kafka.group.id"])
def test_consumer_group_option_is_ignored(name: str) -> None:
    """No consumer is created; `groupId` publishes progress."""
    options = ReadOptions.parse({**PATH, name: "g", "groupId": "mine"}, streaming=True)
    assert ("mine", 1) == (options.group_id, len(options.ignored))
    assert options.ignored[0].startswith(f"{name}: ")


@pytest.mark.parametrize(
    "name",
    ["kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"],
)
def test_fetch_retries_are_ignored_for_io_retries(name: str) -> None:
    """No polling; `io.retries` is the number of retries for files."""
    options = ReadOptions.parse({**PATH, name: "9"})
    assert (3, 1) == (options.retries, len(options.ignored))
    assert 5 == ReadOptions.parse({**PATH, "io.retries": "5"}).retries


@pytest.mark.parametrize("name", ["kafka.isolation.level", "isolationLevel"])
def test_isolation_level_is_applied(name: str) -> None:
    """With Kafka's prefix and without; the two must not contradict each other."""
    options = ReadOptions.parse({**PATH, name: "read_committed"})
    assert ("read_committed", ()) == (options.isolation, options.ignored)
    assert "read_uncommitted" == batch().isolation
    refused(ErrorCode.OPTION_INVALID, {name: "serializable"})
    other = {"kafka.isolation.level": "read_committed", "isolationLevel": "read_uncommitted"}
    refused(ErrorCode.OPTION_CONFLICT, other)


def test_sink_topic_and_partitioner_are_those_of_kafka() -> None:
    """The partitioner is murmur2 by default; a partitioner class is ignored."""
    options = WriteOptions.parse({**PATH, "topic": "out", "kafka.partitioner.class": "X"})
    assert ("out", "murmur2", 1) == (options.topic, options.partitioner, len(options.ignored))
    assert "explicit" == WriteOptions.parse({**PATH, "partitioner": "explicit"}).partitioner
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_INVALID"):
        WriteOptions.parse({**PATH, "topic": "no topic"})
