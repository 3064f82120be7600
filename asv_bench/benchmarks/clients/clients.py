"""Producers and consumers of a manager: a record at a time, and a transaction."""

from __future__ import annotations

from ..common import InDirectory, keys_and_values, load

RECORDS = 10_000
TRANSACTIONS = 10


class _Managed(InDirectory):
    """A manager with one topic, and records to send."""

    def begin(self, partitions, value_bytes):
        """Make the manager; InDirectory closes what is called `log`."""
        (manager,) = load("kafkalog", "LogManager")
        if not hasattr(manager, "producer"):
            raise NotImplementedError("this version has no producers")
        self.log = manager([self.make_directory()])
        self.log.create_topic("records", partitions)
        self.keys, self.values = keys_and_values(RECORDS, value_bytes)


class SendRecords(_Managed):
    """Ten thousand records, a future for each, written when a batch is full."""

    params = ((1, 12), (100, 1024))
    param_names = ("partitions", "value_bytes")

    def setup(self, partitions, value_bytes):
        """Begin a producer."""
        self.begin(partitions, value_bytes)
        self.producer = self.log.producer()

    def time_send(self, partitions, value_bytes):
        """Partitions chosen by key."""
        send = self.producer.send
        for key, value in zip(self.keys, self.values, strict=True):
            send("records", value, key=key)
        self.producer.flush()


class PollRecords(_Managed):
    """Ten thousand records of twelve partitions, by polls of five hundred, values touched."""

    def setup(self):
        """Fill the topic."""
        self.begin(12, 100)
        with self.log.producer() as producer:
            for key, value in zip(self.keys, self.values, strict=True):
                producer.send("records", value, key=key)
        self.consumer = self.log.consumer()
        self.consumer.subscribe("records")

    def time_poll(self):
        """From the start to the end."""
        self.consumer.seek_to_beginning()
        while found := self.consumer.poll():
            for records in found.values():
                for record in records:
                    record.value


class CommitTransactions(_Managed):
    """Ten transactions of one record and one position: this measures the disk."""

    def setup(self):
        """Begin a transactional producer."""
        self.begin(1, 100)
        (self.partition,) = load("kafkalog", "TopicPartition")
        self.producer = self.log.producer(transactional_id="benchmark")

    def time_commit(self):
        """Two partitions: five syncs each."""
        for number in range(TRANSACTIONS):
            with self.producer.transaction():
                self.producer.send("records", self.values[number])
                self.producer.send_offsets_to_transaction(
                    {self.partition("input", 0): number}, "group"
                )
