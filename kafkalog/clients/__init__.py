"""Producers and consumers of the logs of one process.

clients.py               makes producers and consumers, and holds the parts that they share
config.py                settings of both, with Kafka's names
source.py                the port to the logs that they need; a manager implements it
producer.py              sending: a facade over the next four
topic_table.py           topics, their partitions and accumulators
accumulator.py           batches of one partition, and the memory that batches may take
batch_sender.py          writing of batches that are full, due or retried; completion of futures
producer_transaction.py  transaction of a producer with a transactional id
producer_batch.py        one batch
delivery.py              the future of a record
consumer.py              reading: assignment, positions, waiting
fetching.py              records of one assigned partition
group_offsets.py         positions of groups, in `__consumer_offsets`
offset_records.py        formats of its records
transactions.py          sessions and the coordinator of transactions
transaction_states.py    states of transactional ids, in `__transaction_state`
transaction_end.py       markers of a transaction, and the record that completes it
decisions.py             decisions on transactions that a log may still need
transaction_records.py   formats of the records of `__transaction_state`
internal_topics.py       Kafka's own topics: names, partitions, settings
"""
