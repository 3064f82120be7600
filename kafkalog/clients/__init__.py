"""Producers and consumers of the logs of one process.

clients.py              who has been made for a manager's logs, and what they share
closing.py              what a `with` does at its end
config.py               the settings of both, Kafka's names
source.py               what they need of a manager of logs
producer.py             the public face of writing: futures, back-pressure, transactions
partitioner.py          which partition a record goes to
accumulator.py          the records of one partition on their way into batches
producer_batch.py       one such batch
buffer_memory.py        how much may be on its way
delivery.py             the future of a record
consumer.py             the public face of reading: assignment, positions, waiting
fetching.py             records of one assigned partition
group_offsets.py        the positions of groups, in `__consumer_offsets`
offset_records.py       what is in there
transactions.py         who coordinates transactions, in `__transaction_state`
transaction_records.py  what is in there
internal_topics.py      Kafka's own topics: names, partitions, settings
"""
