"""Producers with and without transactions, a group's positions, and processes that are killed.

The model has the committed records with their offsets, and the group's position. Readers of
committed records must see just them, up to the first open transaction; and all of them once the
next process has begun, which aborts open transactions.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalog import LogConfig, TopicPartition
from kafkalog.clients.delivery import Delivery
from kafkalog.clients.group_offsets import GroupOffsets
from kafkalog.clients.producer import Producer
from tests.support.log_sources import Logs
from tests.support.simulated_disk import SimulatedDisk

NAMES = ("a", "b")
GROUP = "group"
INPUT = TopicPartition("input", 0)
PARTITIONS = st.integers(0, 1)
CONFIG = LogConfig(
    segment_bytes=700, segment_index_bytes=128, message_timestamp_after_max_ms=2**63 - 1
)


class ClientsMachine(RuleBasedStateMachine):
    """Steps of a manager's clients, one after another."""

    def __init__(self) -> None:
        super().__init__()
        disk = SimulatedDisk()
        disk.make_durable(Path("/data"))
        self.logs = Logs(Path("/data"), filesystem=disk, config=CONFIG)
        self.logs.create_topic("orders", 2)
        self.offsets = GroupOffsets(self.logs)
        self.committed: list[dict[int, bytes]] = [{}, {}]
        self.position = (-1, -1)
        self.serial = 0
        self.begin_process()

    def begin_process(self) -> None:
        """Make new clients, whose state comes from the disk only."""
        self.clients = self.logs.clients()
        self.plain = self.clients.producer()
        self.producers: dict[str, Producer] = {}
        self.sent: dict[str, list[tuple[Delivery, bytes]]] = {}
        self.moved: dict[str, list[tuple[int, int]]] = {}

    def number(self) -> int:
        self.serial += 1
        return self.serial

    def took_place(self, sent: list[tuple[Delivery, bytes]]) -> None:
        for delivery, value in sent:
            where = delivery.result(0)
            self.committed[where.partition][where.offset] = value

    @rule(partition=PARTITIONS)
    def send_plain(self, partition: int) -> None:
        value = b"plain %d" % self.number()
        delivery = self.plain.send("orders", value, partition=partition)
        self.plain.flush()
        self.took_place([(delivery, value)])

    @rule()
    def commit_position(self) -> None:
        number = self.number()
        with self.clients.consumer(GROUP) as consumer:
            consumer.commit({INPUT: number})
        self.position = max(self.position, (number, number))

    @rule(name=st.sampled_from(NAMES))
    def begin(self, name: str) -> None:
        if name not in self.producers:
            self.producers[name] = self.clients.producer(transactional_id=name)
        if name not in self.sent:
            self.producers[name].begin_transaction()
            self.sent[name], self.moved[name] = [], []

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), partition=PARTITIONS, count=st.integers(1, 4))
    def send(self, data: st.DataObject, partition: int, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        for _ in range(count):
            value = b"%s %d" % (name.encode(), self.number())
            delivery = self.producers[name].send("orders", value, partition=partition)
            self.sent[name].append((delivery, value))
        self.producers[name].flush()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_position(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        number = self.number()
        self.producers[name].send_offsets_to_transaction({INPUT: number}, GROUP)
        self.producers[name].flush()
        self.moved[name].append((number, number))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        sent, moved = self.sent.pop(name), self.moved.pop(name)
        if commits:
            self.producers[name].commit_transaction()
            self.took_place(sent)
            self.position = max([self.position, *moved])
        else:
            self.producers[name].abort_transaction()

    @rule(reopens=st.booleans())
    def end_process(self, reopens: bool) -> None:
        """No client is closed; the logs may be reopened."""
        if reopens:
            self.logs.close()
        self.begin_process()
        for log in self.all_logs():
            assert log.list_transactions() == []
        for number, expected in enumerate(self.committed):
            assert expected == self.seen(number)

    @rule()
    def roll(self) -> None:
        for log in self.all_logs():
            log.roll()

    def all_logs(self) -> list:  # type: ignore[type-arg]
        return [self.logs.log(t, n) for t, ns in self.logs.topics().items() for n in ns]

    def seen(self, partition: int) -> dict[int, bytes | None]:
        records = self.logs.log("orders", partition).records(isolation="read_committed")
        return {record.offset: record.value for record in records}

    @invariant()
    def committed_records_are_seen_up_to_what_is_open(self) -> None:
        for number, expected in enumerate(self.committed):
            end = self.logs.log("orders", number).last_stable_offset
            assert {o: v for o, v in expected.items() if o < end} == self.seen(number)
            if not self.sent:
                assert all(offset < end for offset in expected)

    @invariant()
    def position_is_the_one_that_was_committed_last(self) -> None:
        found = self.offsets.committed(GROUP).get(INPUT)
        assert self.position[1] == (-1 if found is None else found.offset)

    def teardown(self) -> None:
        self.logs.close()


TestClients = ClientsMachine.TestCase
TestClients.settings = settings(max_examples=25, stateful_step_count=25)
