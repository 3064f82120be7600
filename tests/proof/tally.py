"""Counts of a writer's operations before its end, and of those that the end interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.proof.shared_events import Event

__all__ = ["tally"]


def tally(events: Iterable[Event]) -> Counter[str]:
    """
    Return how often each thing was done, and acknowledged, in the life of one writer.

    What began and had not ended counts as an end "during" it, once per process.
    """
    counts: Counter[str] = Counter()
    under_way: Counter[str] = Counter()
    for event in events:
        name = event[0]
        if name == "kind":
            counts[event[1]] += 1
        elif name == "form":
            _, form, magic, codec = event
            counts[f"appends by {form}"] += 1
            counts[f"appends in format v{magic}"] += 1
            counts[f"appends with compression.type={codec}"] += 1
        elif name == "begin":
            under_way[event[1]] += 1
        elif name == "end":
            under_way[event[1]] -= 1
        else:
            for counted in _counted(event):
                counts[counted] += 1
    for name, number in under_way.items():
        if number > 0:
            counts[f"ends during: {name}"] += 1
    return counts


def _counted(event: Event) -> Iterable[str]:
    """Yield what an acknowledgement counts as."""
    name = event[0]
    if name == "ack":
        yield "appends acknowledged"
        if event[-1]:
            yield "appends acknowledged as durable"
    elif name == "flush":
        yield "durable offsets reported"
    elif name == "produced":
        yield "batches of idempotent producers"
    elif name in ("commit", "abort") and event[-1]:
        yield "transactions committed" if name == "commit" else "transactions aborted"
    elif name == "position" and len(event) > 4:
        yield "positions of groups within transactions"
    elif name == "positioned":
        yield "positions of groups committed"
    elif name == "sink" and event[-1]:
        yield "commits of the Spark sink"
    elif name == "topic" and event[2] in ("asked", "gone"):
        yield "topics requested" if event[2] == "asked" else "topics deleted"
