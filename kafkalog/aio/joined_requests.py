"""Requests that are written together: the records of several tasks as one call of the producer.

Of 64 requests of 10 records each over 100 partitions, every partition gets one batch instead of
one share of each request, and the producer is called once. A request has a future of its
records (`SentMany.split`): it waits for no partition that it has no records for.

Thread-safety: none; the pump's thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafkalog.aio.mailbox import LoopMailbox
from kafkalog.aio.requests import Request, SendMany
from kafkalog.clients.producer import Producer
from kafkalog.pace import Pace

__all__ = ["groups_of", "notify_together", "run_together"]

# Limits of the records of one call: to check and distribute them takes a fraction of a millisecond.
RECORDS_MAX: Final = 1000
BYTES_MAX: Final = 1 << 20


def groups_of(requests: Sequence[Request]) -> Iterator[Request | list[Request]]:
    """Yield requests in order; those that follow each other and may be joined, as a list."""
    group: list[Request] = []
    topic = ""
    record_count = size_bytes = 0
    for request in requests:
        work = request.work
        own_topic = work.joinable_topic if isinstance(work, SendMany) else None
        if not isinstance(work, SendMany) or own_topic is None:
            if group:
                yield group
                group = []
            yield request
            continue
        record_count += work.record_count
        size_bytes += work.size_bytes
        if group and (own_topic != topic or record_count > RECORDS_MAX or size_bytes > BYTES_MAX):
            yield group
            group = []
        if not group:
            topic, record_count, size_bytes = own_topic, work.record_count, work.size_bytes
        group.append(request)
    if group:
        yield group


def run_together(requests: Sequence[Request], producer: Producer, pace: Pace) -> Sequence[Request]:
    """
    Begin requests that may be joined; an error is that of their tasks.

    Args:
        requests: a group of `groups_of`.
        producer: the producer.
        pace: paused between two pieces of work.

    Returns:
        the requests that `notify_together` is to be called for, after the commit.
    """
    begun = [(request, work) for request in requests if (work := request.begin()) is not None]
    works = [work for _request, work in begun if isinstance(work, SendMany)]
    if not works:
        return []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for work in works:
        keys += work.only_part.keys or ()
        values += work.only_part.values
    try:
        prepared = producer.prepare_many(works[0].topic, keys, values)
    except Exception:  # noqa: BLE001 - each request raises its own
        for request, _work in begun:
            request.run_begun(producer, pace)
        return []
    try:
        sent = producer.write_prepared(prepared, pace.step)
    except BaseException as error:
        for request, _work in begun:
            request.fail(error)
        if not isinstance(error, Exception):
            raise
        return []
    parts = sent.split([work.record_count for work in works])
    for work, part in zip(works, parts, strict=True):
        work.take(part)
    return [request for request, _work in begun]


def notify_together(requests: Sequence[Request], pace: Pace) -> None:
    """Notify the tasks of requests of `run_together`, now or when their records are in the log."""
    done: defaultdict[LoopMailbox, list[Callable[[], object]]] = defaultdict(list)
    for request in requests:
        if request.notify_unless_done():
            done[request.mailbox].append(request.finish)
        pace.step()
    for mailbox, finishes in done.items():
        mailbox.post_all(finishes)
