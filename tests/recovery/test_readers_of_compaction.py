"""Readers at every moment of a cleaning: in the same process, in another, new and old.

The cleaning is stopped at each of its calls to the disk, and a reader checks: the order, the state
and the head are unchanged, no record comes back, and readers of old segments continue.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import islice

import pytest

from kafkalog import Log, open_log
from tests.support.compacted_logs import Scene
from tests.support.compaction_rules import Served, state_of
from tests.support.crash_rig import PLACES, LogSetup
from tests.support.model import record_fact

EVERY_PLACE = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)


class LookAtEachCall(list[tuple[str, str]]):
    """A history of calls that runs a check before each changing call."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._check = look
        self._is_looking = False

    def append(self, call: tuple[str, str]) -> None:
        super().append(call)
        if not self._is_looking and call[0] in ("rename", "unlink", "create", "sync_directory"):
            self._is_looking = True
            try:
                self._check()
            finally:
                self._is_looking = False


def read_only(scene: Scene) -> Log:
    """Open the log as another process does."""
    return open_log(
        scene.place.directory,
        config=scene.log.config,
        read_only=True,
        clock=scene.clock,
        filesystem=scene.disk,
    )


def clean_while(scene: Scene, look: Callable[[], None]) -> None:
    """Clean, and remove the old files, with a check at each call."""
    calls = LookAtEachCall(look)
    scene.disk.history = calls
    scene.cleaner().clean(scene.log, scene.span)
    scene.scheduler.advance(scene.log.config.file_delete_delay_ms)
    scene.disk.history = None
    assert len(calls) > 50
    look()


@EVERY_PLACE
def test_reader_during_a_cleaning_in_the_same_process_sees_legal_states(place: LogSetup) -> None:
    """Removed records do not come back."""
    scene = Scene.made(place)
    clean_while(scene, scene.look)
    assert scene.seen.offsets < scene.before.offsets
    scene.release()


@EVERY_PLACE
@pytest.mark.parametrize("is_new", [True, False], ids=["opened each time", "opened before"])
def test_reader_during_a_cleaning_in_another_process_sees_legal_states(
    place: LogSetup, is_new: bool
) -> None:
    """A reader lists files between renames: never a hole, never a duplicate record."""
    scene = Scene.made(place)
    reader = read_only(scene)

    def look() -> None:
        nonlocal reader
        if is_new:
            reader.close()
            reader = read_only(scene)
        now = Served.of(reader)
        scene.verify(now)
        scene.seen = now

    clean_while(scene, look)
    assert Served.of(scene.log) == scene.seen
    reader.close()
    scene.release()


@EVERY_PLACE
@pytest.mark.parametrize("begun", [0, 1, 7, 20])
@pytest.mark.parametrize("is_other", [False, True], ids=["same process", "another process"])
def test_reader_begun_before_a_cleaning_continues_to_the_final_state(
    place: LogSetup, begun: int, is_other: bool
) -> None:
    """The reader continues in order, in old or new segments, and ends with the final state."""
    scene = Scene.made(place)
    reader = read_only(scene) if is_other else scene.log
    records = reader.records(isolation="read_committed")
    found = [record_fact(record) for record in islice(records, begun)]
    held = next(iter(reader.batches()))
    data = bytes(held.data)
    scene.clean()
    scene.scheduler.advance(scene.log.config.file_delete_delay_ms)
    gc.collect()
    found += [record_fact(record) for record in records]
    assert data == bytes(held.data)
    offsets = [fact.offset for fact in found]
    assert sorted(set(offsets)) == offsets
    facts = {fact.offset: fact for fact in scene.before.records}
    assert all(facts[fact.offset] == fact for fact in found)
    folded: dict[bytes, bytes] = {}
    for fact in found:
        assert fact.key is not None
        folded.pop(fact.key, None)
        if fact.value is not None:
            folded[fact.key] = fact.value
    if begun == 0:
        assert state_of(scene.before) == folded
    else:
        # Tombstones of records read before may have expired: the reader took longer than they stay.
        assert state_of(scene.before).items() <= folded.items()
    if is_other:
        reader.close()
    scene.release()
