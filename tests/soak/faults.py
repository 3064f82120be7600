"""Bad input of a soak: each kind, the answers that it must get, and the metric that shows it.

A fault returns when the services work as before, or records a problem. One runs at a time; the
numbered clients of both services send during all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Awaitable, Callable

from tests.soak.numbered import RECORD_BYTES
from tests.soak.stage import Outcome, Service, Stage
from tests.soak.web import GONE, NumberedClient, exchange

__all__ = ["Fault", "chosen_faults"]

# Longest time for an answer that refuses something, and for the work to continue afterwards.
REFUSAL_SECONDS = 10.0
RECOVERY_SECONDS = 60.0
FLOOD_CLIENTS = 48
VANISHING_CLIENTS = 15
SIZE_LIMIT = 4096

Fault = Callable[[Stage, Outcome], Awaitable[None]]


async def _refuse(
    service: Service,
    outcome: Outcome,
    name: str,
    expected: int,
    body: bytes = b"x",
    *,
    path: str = "/topics/events",
    headers: dict[str, str] | None = None,
    length: int | None = -1,
) -> None:
    """Send a request that must be refused with a status in time."""
    answer = await exchange(service.port, "POST", path, body, headers=headers, length=length)
    outcome.answer(f"{name}: {answer.status}", answer.seconds)
    outcome.expect(
        answer.status == expected and answer.seconds < REFUSAL_SECONDS,
        f"{name} at {service.name}: {expected} expected, got {answer.status} after"
        f" {answer.seconds:.1f} s: {answer.body[:200]!r}",
    )


async def _continue(service: Service, outcome: Outcome) -> None:
    """Check that a numbered request is acknowledged."""
    begun = time.monotonic()
    is_delivered = await service.probe.deliver(3, RECOVERY_SECONDS)
    outcome.expect(is_delivered, f"{service.name} acknowledges nothing after the fault")
    outcome.answer("a request afterwards: 200" if is_delivered else "a request afterwards: none")
    outcome.longest = max(outcome.longest, time.monotonic() - begun)


async def oversized_requests(stage: Stage, outcome: Outcome) -> None:
    """Bodies and records above the limits, and bodies without a length."""
    for service in stage.services:
        await _refuse(service, outcome, "body of 3 MiB", 413, b"x" * 65536, length=3 << 20)
        await _refuse(service, outcome, "body without a length", 400, b"", length=None)
    # The buffer of the other service may be smaller than the event.
    await _refuse(stage.ingest, outcome, "event of 1 MiB", 400, b"x" * (1 << 20))
    answer = await stage.embedded.act("send_huge", outcome)
    outcome.expect(answer == "RecordTooLargeError", f"a record of 3 MiB: {answer}")
    await _continue(stage.embedded, outcome)


async def malformed_requests(stage: Stage, outcome: Outcome) -> None:
    """A cut body, an unknown topic, a gap in the numbers of a client, numbers that are none."""
    binary = {"Content-Type": "application/octet-stream"}
    for service in stage.services:
        # Of a client that is unknown any number is accepted.
        await _continue(service, outcome)
        await _refuse(service, outcome, "truncated event", 400, b"\0\0\0\x09abc", headers=binary)
        await _refuse(service, outcome, "unknown topic", 404, path="/topics/none")
        gap = {"Producer": service.probe.name, "Sequence": str(service.probe.acknowledged + 7)}
        await _refuse(service, outcome, "gap in the sequence", 503, headers=gap)
        wrong = {"Producer": "nobody-knows", "Sequence": "many"}
        await _refuse(service, outcome, "sequence of letters", 400, headers=wrong)
        await _continue(service, outcome)


async def flood(stage: Stage, outcome: Outcome) -> None:
    """Many times the memory of the producer at once: the rest is refused, nothing is queued."""
    service = stage.embedded
    if not service.others:
        names = [f"flood-{number}" for number in range(FLOOD_CLIENTS)]
        service.others += [NumberedClient(name, service.port, 0) for name in names]
    # A numbered request is one batch, which must fit a segment.
    count = stage.pace.segment_bytes // 2 // RECORD_BYTES
    tasks = [asyncio.create_task(each.post(count)) for each in service.others]
    peak: float | None = 0.0
    for _ in range(3):
        await asyncio.sleep(0.02)
        peak = max(peak or 0, await service.metric("kafkalog_producer_buffer_used_bytes") or 0)
    statuses = await asyncio.gather(*tasks)
    for status in statuses:
        outcome.answer(f"request of a flood: {status}")
    outcome.longest = max(each.longest for each in service.others)
    outcome.expect(set(statuses) <= {200, 429}, f"statuses of a flood: {set(statuses)}")
    outcome.expect(429 in statuses, "no request of a flood was refused")
    outcome.show("kafkalog_producer_buffer_used_bytes", peak, is_shown=bool(peak))
    await _continue(service, outcome)


async def vanishing_clients(stage: Stage, outcome: Outcome) -> None:
    """Connections that end within a request, or before its answer; the requests are repeated."""
    for service in stage.services:
        for share in (0.5, 1.0):
            await asyncio.gather(
                *(service.probe.vanish(9, share) for _ in range(VANISHING_CLIENTS))
            )
            outcome.answers["connections that ended early"] += VANISHING_CLIENTS
            is_delivered = await service.probe.deliver(9, RECOVERY_SECONDS)
            outcome.answer("repeated request: 200" if is_delivered else "repeated request: none")
            outcome.expect(is_delivered, f"{service.name} does not take the repeated request")
        name = "kafkalog_producer_buffer_used_bytes"
        used, is_free = await service.wait_for(name, lambda value: value == 0, RECOVERY_SECONDS)
        outcome.show(name, used, is_shown=is_free)


async def slow_clients(stage: Stage, outcome: Outcome) -> None:
    """Bodies that come in pieces, and answers that are read in pieces."""
    for service in stage.services:
        slow = [service.probe.post(9, pause=stage.pace.hold / 40)]
        readers = [
            exchange(service.port, "GET", "/metrics", pause=stage.pace.hold / 100) for _ in range(4)
        ]
        found = await asyncio.gather(*readers)
        for status in (*await asyncio.gather(*slow), *(each.status for each in found)):
            outcome.answer(f"slow request: {status}")
            outcome.expect(status == 200, f"a slow request got {status}")
        await _continue(service, outcome)


async def slow_readers(stage: Stage, outcome: Outcome) -> None:
    """A reader that holds bytes of deleted segments, and a group that retention overtakes."""
    service, pinned = stage.embedded, "kafkalog_pinned_bytes"
    size = stage.pace.segment_bytes
    # The slow group has a fetch of up to 1 MiB, also of segments that are deleted.
    before = await service.metric(pinned) or 0
    await service.act("hold", outcome)
    seconds = stage.pace.retention_ms / 1000 + RECOVERY_SECONDS
    peak, is_pinned = await service.wait_for(
        pinned, lambda found: found > before + 6 * size, seconds
    )
    outcome.show(pinned, peak, is_shown=is_pinned)
    await service.act("release", outcome)
    left, is_freed = await service.wait_for(
        pinned, lambda found: found < (peak or 0) - 4 * size, RECOVERY_SECONDS
    )
    outcome.expect(is_freed, f"{pinned} is {left} after the release, and was {peak}")
    lag = await service.metric("kafkalog_group_lag_records", 'group="audit"')
    outcome.show("kafkalog_group_lag_records", lag, is_shown=bool(lag))


async def closed_loop(stage: Stage, outcome: Outcome) -> None:
    """An event loop that is closed with calls in flight; another loop repeats them."""
    name = "kafkalog_producers"
    before = await stage.embedded.metric(name)
    answer = await stage.embedded.act("close_loop", outcome)
    outcome.expect(answer == "sent by another loop", f"after a closed loop: {answer}")
    value, is_same = await stage.embedded.wait_for(
        name, lambda found: found == before, RECOVERY_SECONDS
    )
    outcome.show(name, value, is_shown=is_same)


async def fork(stage: Stage, outcome: Outcome) -> None:
    """A fork of the service, whose child uses the manager and its producer."""
    answer = await stage.embedded.act("fork", outcome)
    outcome.expect(answer == "ForkedLogError", f"the child of a fork: {answer}")
    await _continue(stage.embedded, outcome)


async def full_disk(stage: Stage, outcome: Outcome) -> None:
    """No free block for some seconds: 507 at once, `health` and metrics show it, then 200."""
    service = stage.random.choice(stage.services)
    end, seen = time.monotonic() + RECOVERY_SECONDS, 0.0
    try:
        while time.monotonic() < (seen + stage.pace.hold if seen else end):
            # Retention frees blocks.
            await asyncio.to_thread(service.volume.fill)
            begun = time.monotonic()
            status = await service.probe.post(9)
            outcome.answer(f"request: {status}", time.monotonic() - begun)
            outcome.expect(status in (200, 507), f"status {status} on a full disk")
            if status == 507 and not seen:
                seen = time.monotonic()
                health = await service.get("/health")
                outcome.answer(f"health: {health.status}", health.seconds)
                outcome.expect(health.status == 503, "health is 200 on a full disk")
                free = await service.metric("kafkalog_disk_free_bytes")
                is_low = free is not None and free < stage.pace.segment_bytes
                outcome.show("kafkalog_disk_free_bytes", free, is_shown=is_low)
            await asyncio.sleep(0.2)
        outcome.expect(bool(seen), f"{service.name}: no 507 on a full disk")
    finally:
        service.volume.free()
    await _continue(service, outcome)
    await _become_healthy(service, outcome)


async def file_size_limit(stage: Stage, outcome: Outcome) -> None:
    """A limit of the size of files, instead of a full disk: 503 up to a restart without it."""
    service, name = stage.ingest, "kafkalog_producer_failures_total"
    pid = service.program.pid
    assert pid is not None
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (SIZE_LIMIT, limits[1]))
    status = await _probe_until_refused(service, outcome)
    outcome.expect(status == 503, f"status {status} with a limit of the size of files")
    failures = await service.metric(name)
    outcome.show(name, failures, is_shown=bool(failures))
    _, seconds = await service.program.end()
    outcome.answer("ingest ended", seconds)
    await _restart(service, outcome)


async def _probe_until_refused(service: Service, outcome: Outcome) -> int:
    """Send requests until one is answered with an error; return its status."""
    end, status = time.monotonic() + RECOVERY_SECONDS, 200
    while status in (200, GONE) and time.monotonic() < end:
        begun = time.monotonic()
        status = await service.probe.post(9)
        outcome.answer(f"request: {status}", time.monotonic() - begun)
    return status


async def _become_healthy(service: Service, outcome: Outcome) -> None:
    """Wait until `health` has no reason that concerns the disk's space or state."""
    end = time.monotonic() + RECOVERY_SECONDS
    while True:
        answer = await service.get("/health")
        text = answer.body.decode().lower()
        is_past = "space" not in text and "full" not in text and "free" not in text
        if answer.status == 200 or is_past or time.monotonic() > end:
            break
        await asyncio.sleep(0.2)
    outcome.answer(f"health afterwards: {answer.status}", answer.seconds)
    outcome.expect(answer.status == 200 or is_past, f"health afterwards: {text[:300]}")


async def read_only_disk(stage: Stage, outcome: Outcome) -> None:
    """The kernel makes the file system read-only; it is repaired, and the service restarted."""
    service = stage.ingest
    await asyncio.to_thread(service.volume.make_read_only)
    status = await _probe_until_refused(service, outcome)
    outcome.expect(status == 503, f"status {status} on a read-only disk")
    health = await service.get("/health")
    outcome.answer(f"health: {health.status}", health.seconds)
    outcome.expect(health.status == 503, "health is 200 on a read-only disk")
    online, is_offline = await service.wait_for(
        "kafkalog_directory_online", lambda value: value == 0, RECOVERY_SECONDS
    )
    outcome.show("kafkalog_directory_online", online, is_shown=is_offline)
    for program in (service.follower, service.program):
        _, seconds = await program.end()
        outcome.answer(f"{program.name.split(' ')[0]} ended", seconds)
    await asyncio.to_thread(service.volume.repair)
    await _restart(service, outcome)
    await service.follower.start()


async def _restart(service: Service, outcome: Outcome) -> None:
    seconds = await service.start()
    outcome.answer("started", seconds)
    await _continue(service, outcome)


async def kill(stage: Stage, outcome: Outcome) -> None:
    """SIGKILL, and a start that recovers."""
    # Without any record since its start, the directory would still be clean.
    await _continue(stage.ingest, outcome)
    await stage.ingest.program.end(signal.SIGKILL)
    await _restart(stage.ingest, outcome)
    name = "kafkalog_recoveries_total"
    recovered = await stage.ingest.metric(name, 'result="recovered"')
    outcome.show(name, recovered, is_shown=bool(recovered))


async def stop_in_order(stage: Stage, outcome: Outcome) -> None:
    """SIGTERM under load: the journal is empty and gone, the next start finds a clean stop."""
    service = stage.ingest
    status, seconds = await service.program.end()
    outcome.answer(f"ended with status {status}", seconds)
    outcome.problems.extend(unclean(service))
    await _restart(service, outcome)


def unclean(service: Service) -> list[str]:
    """Return what a data directory has, or lacks, after a stop in order."""
    data, found = service.volume.data, []
    if not (data / ".kafka_cleanshutdown").exists():
        found.append(f"{service.name}: no .kafka_cleanshutdown after a stop in order")
    with contextlib.suppress(FileNotFoundError):
        journals = [each.name for each in data.iterdir() if "journal" in each.name]
        if journals:
            found.append(f"{service.name}: {journals} after a stop in order")
    return found


FAULTS: tuple[Fault, ...] = (
    oversized_requests,
    malformed_requests,
    flood,
    vanishing_clients,
    slow_clients,
    slow_readers,
    closed_loop,
    fork,
    kill,
    stop_in_order,
)
# Faults of a file system, which need root, and of a folder.
DISK_FAULTS: tuple[Fault, ...] = (full_disk, read_only_disk)
FOLDER_FAULTS: tuple[Fault, ...] = (file_size_limit,)


def chosen_faults(*, is_bounded: bool) -> tuple[Fault, ...]:
    """Return the faults of a run: with those of a file system if it is bounded."""
    return FAULTS + (DISK_FAULTS if is_bounded else FOLDER_FAULTS)
