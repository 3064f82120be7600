"""Readers at every moment of a cleaning: in the same process, in another one, new and long there.

The cleaning is stopped at each of its calls to the disk, and somebody looks: the order, the state
and the head are what they were, nothing comes back, and who holds old segments reads on.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import islice

import pytest

from kafkalog import Log, open_log
from tests.support.compacted_logs import Scene
from tests.support.compaction_rules import Served, state_of
from tests.support.crash_rig import PLACES, Place
from tests.support.model import record_fact

ROOMS = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)


class LookAtEachCall(list[tuple[str, str]]):
    """A history of calls that lets somebody look before each that changes something."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look
        self._is_looking = False

    def append(self, call: tuple[str, str]) -> None:
        super().append(call)
        if not self._is_looking and call[0] in ("rename", "unlink", "create", "sync_directory"):
            self._is_looking = True
            try:
                self._look()
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
    """Clean, and remove the old files, with somebody who looks."""
    calls = LookAtEachCall(look)
    scene.disk.history = calls
    scene.cleaner().clean(scene.log, scene.span)
    scene.scheduler.advance(scene.log.config.file_delete_delay_ms)
    scene.disk.history = None
    assert len(calls) > 50
    look()


@ROOMS
def test_reader_in_the_same_process_sees_legal_states_only(place: Place) -> None:
    """What is gone stays gone."""
    scene = Scene.made(place)
    clean_while(scene, scene.look)
    assert scene.seen.offsets < scene.before.offsets
    scene.let_go()


@ROOMS
@pytest.mark.parametrize("is_new", [True, False], ids=["opened each time", "opened before"])
def test_reader_in_another_process_sees_legal_states_only(place: Place, is_new: bool) -> None:
    """It lists files while they get their names: never a hole, never a record twice."""
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
    scene.let_go()


@ROOMS
@pytest.mark.parametrize("begun", [0, 1, 7, 20])
@pytest.mark.parametrize("is_other", [False, True], ids=["same process", "another process"])
def test_reader_that_is_half_way_reads_on(place: Place, begun: int, is_other: bool) -> None:
    """It goes on in order, in the old segments or the new ones, and ends with the final state."""
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
    known = {fact.offset: fact for fact in scene.before.records}
    assert all(known[fact.offset] == fact for fact in found)
    folded: dict[bytes, bytes] = {}
    for fact in found:
        assert fact.key is not None
        folded.pop(fact.key, None)
        if fact.value is not None:
            folded[fact.key] = fact.value
    if begun == 0:
        assert state_of(scene.before) == folded
    else:
        # Of what it had read before, tombstones may be over: it took longer than they wait.
        assert state_of(scene.before).items() <= folded.items()
    if is_other:
        reader.close()
    scene.let_go()
