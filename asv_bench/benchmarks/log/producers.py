"""Cost of idempotence for an append, and of its replay for a start."""

from __future__ import annotations

from ..common import load

APPENDS = 1_000


class ProducerAppends:
    """A thousand appends of one batch each, checked and committed, without the writing."""

    params = (1, 100)
    param_names = ("producers",)

    def setup(self, producers):
        """Let every producer be known."""
        (states,) = load("kafkalog.state.producers", "ProducerStates")
        (checks,) = load("kafkalog.state.producers", "ProducerChecks")
        self.checks = checks.SEQUENCES
        self.states = states()
        self.sequence = 0
        self.time_append(producers)

    def time_append(self, producers):
        """Batches of ten records, producers by turns, always the next sequence."""
        states, checks = self.states, self.checks
        offset = states.end_offset
        for number in range(APPENDS):
            producer_id = number % producers
            sequence = self.sequence + 10 * (number // producers)
            append = states.begin_append(checks)
            append.add_data(producer_id, 0, sequence, offset, offset + 9, 1, False)
            append.commit()
            offset += 10
            states.advance_to(offset)
        self.sequence = self.sequence + 10 * (APPENDS // producers)


class ReplayProducers:
    """The batches of a scanned segment brought into the state."""

    params = ((1_000, 10_000), (0, 10))
    param_names = ("batches", "batches_per_transaction")

    def setup(self, batches, batches_per_transaction):
        """Build the batches, ten producers by turns, and scan them."""
        (builder_type,) = load("kafkalog._core.builder", "BatchBuilder")
        columns_type, scan = load("kafkalog._core.batch", "BatchColumns", "scan_batches")
        (self.states,) = load("kafkalog.state.producers", "ProducerStates")
        (self.replay,) = load("kafkalog.log.producer_replay", "replay_batches")
        builder = builder_type()
        builder.append(None, b"value", 1)
        marker = builder_type()
        marker.append(b"\0\0\0\0", bytes(6), 1)
        parts = []
        for number in range(batches):
            producer_id, turn = number % 10, number // 10
            ends = bool(batches_per_transaction) and turn % batches_per_transaction == (
                batches_per_transaction - 1
            )
            header = {"base_offset": number, "producer_id": producer_id, "producer_epoch": 0}
            if ends:
                parts.append(bytes(marker.finish(transactional=True, control=True, **header)))
            else:
                transactional = batches_per_transaction > 0
                header |= {"base_sequence": turn, "transactional": transactional}
                parts.append(bytes(builder.finish(**header)))
        self.data = memoryview(b"".join(parts))
        self.columns = columns_type(batches)
        scan(self.data, columns=self.columns)

    def time_replay(self, batches, batches_per_transaction):
        """Into an empty state."""
        self.replay(self.states(), self.data, self.columns)
