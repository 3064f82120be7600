"""librdkafka and aiokafka against the gateway, and the same against a real broker."""

from __future__ import annotations

import pytest

from .clients import (
    CLIENTS,
    CODECS,
    FIRST_TIMESTAMP_MS,
    Client,
    ClientError,
    Sent,
    as_consumed,
    sent,
)
from .servers import Server

OFFSET_OUT_OF_RANGE = 1
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_each_codec_are_read_by_every_client(
    server: Server, client: Client, topic: str, codec: str
) -> None:
    """Keys, values, nulls, headers and timestamps, in the order of their offsets."""
    records = sent(60)
    assert list(range(60)) == client.produce(server.address, topic, records, codec=codec)
    for reader in CLIENTS:
        assert as_consumed(records) == reader.consume(server.address, topic, 60)


@pytest.mark.parametrize("acks", [0, 1])
def test_records_with_less_acknowledgement_are_stored(
    server: Server, client: Client, topic: str, acks: int
) -> None:
    """With acks 0 there is no answer; the next request of the connection has its own."""
    records = sent(30)
    offsets = client.produce(server.address, topic, records, acks=acks)
    assert ([-1] * 30 if acks == 0 else list(range(30))) == offsets
    assert as_consumed(records) == client.consume(server.address, topic, 30)


def test_idempotent_producers_share_a_partition(server: Server, client: Client, topic: str) -> None:
    """Each has a separate producer id, whose sequence begins with 0."""
    for first in (0, 20, 40):
        offsets = client.produce(server.address, topic, sent(20, first), is_idempotent=True)
        assert list(range(first, first + 20)) == offsets
    assert as_consumed(sent(60)) == client.consume(server.address, topic, 60)


def test_consumer_starts_at_an_offset_and_at_a_time(
    server: Server, client: Client, topic: str
) -> None:
    """Within a batch; a time between two records finds the later one, a late time none."""
    records = sent(50)
    client.produce(server.address, topic, records)
    assert as_consumed(records)[33:] == client.consume(server.address, topic, 17, start=33)
    for number, expected in ((0, 0), (1, 1), (330, 33), (331, 34), (490, 49), (491, None)):
        moment = FIRST_TIMESTAMP_MS + number
        assert expected == client.offset_for_time(server.address, topic, moment)


def test_watermarks_are_start_and_end(server: Server, client: Client, topic: str) -> None:
    """Of an empty partition, and of one with records."""
    assert (0, 0) == client.watermarks(server.address, topic)
    client.produce(server.address, topic, sent(5))
    assert (0, 5) == client.watermarks(server.address, topic)


def test_committed_offsets_and_records_outlive_a_restart(
    server: Server, client: Client, topic: str
) -> None:
    """A group has the last offset that it committed, for every client; others have none."""
    client.produce(server.address, topic, sent(20))
    group, other = f"group-{topic}", f"other-{topic}"
    assert client.committed(server.address, group, topic) is None
    for offset in (3, 7):
        client.commit(server.address, group, topic, offset)
    server.restart()
    for reader in CLIENTS:
        assert 7 == reader.committed(server.address, group, topic)
        assert reader.committed(server.address, other, topic) is None
    assert list(range(20, 30)) == client.produce(server.address, topic, sent(10, 20))
    assert as_consumed(sent(30)) == client.consume(server.address, topic, 30)


def test_offset_out_of_range_is_an_error(server: Server, client: Client, topic: str) -> None:
    """Beyond the end; the end itself is not."""
    client.produce(server.address, topic, sent(5))
    with pytest.raises(ClientError) as caught:
        client.consume(server.address, topic, 1, start=1000)
    assert OFFSET_OUT_OF_RANGE == caught.value.code


def test_topics_that_cannot_be_made_have_their_errors(
    server: Server, client: Client, topic: str
) -> None:
    """A name that is used, a name that is none, a number of partitions that is none."""
    for name, partitions, expected in (
        (topic, 1, TOPIC_ALREADY_EXISTS),
        ("not a topic", 1, INVALID_TOPIC),
        ("..", 1, INVALID_TOPIC),
        ("x" * 250, 1, INVALID_TOPIC),
        (f"{topic}-none", 0, INVALID_PARTITIONS),
    ):
        with pytest.raises(ClientError) as caught:
            client.create_topic(server.address, name, partitions)
        assert expected == caught.value.code


def test_record_that_is_too_large_is_refused_and_the_next_one_stored(
    server: Server, client: Client, topic: str
) -> None:
    """The limit is `max.message.bytes` of the topic, a mebibyte and 12 bytes by default."""
    large = Sent(None, b"x" * (2 << 20), FIRST_TIMESTAMP_MS)
    with pytest.raises(ClientError) as caught:
        client.produce(server.address, topic, [large])
    assert MESSAGE_TOO_LARGE == caught.value.code
    assert [0] == client.produce(server.address, topic, sent(1))
