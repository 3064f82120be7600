"""Choices of the unsynced operations that survive a crash, and the resulting contents.

The rules are in `tests.support.simulated_disk`; everything is deterministic by seed.

Thread-safety: pure functions; the disk's lock is held around every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.support.disk_images import (
    NameOperation,
    SimulatedFile,
    with_foundations,
    without_orphans,
)

__all__ = ["CrashChoice", "crash_choices", "survivors"]

ContentOf = Callable[[SimulatedFile], bytes]


@dataclass(frozen=True, slots=True)
class CrashChoice:
    """
    The unsynced operations that survive a crash; a failing test prints it, and `crash` repeats it.

    kind: nothing, all, names (no contents), contents (no names), zeros (names and lengths),
        prefix (the first `number` operations in order), torn (those, and a part of the next one),
        without (all but that next one, and what builds on it), only (that one, with the names
        that it needs), random (anything the fault model allows). `seed` decides torn and random.
    """

    kind: str
    number: int = 0
    seed: int = 0


def crash_choices(operation_count: int, limit: int, seed: int) -> Iterator[CrashChoice]:
    """
    Yield choices, more than `limit` of them, since some have the same outcome.

    Nothing and all come first, then one of each distinct kind, in an order that differs for each
    seed, so that a small limit takes other ones at other moments; then random ones.
    """
    yield CrashChoice("nothing")
    yield CrashChoice("all")
    random = Random(seed)
    chosen = [CrashChoice(kind) for kind in ("names", "contents", "zeros")]
    share = max(1, limit // 6)
    numbers: Sequence[int] = range(operation_count)
    if operation_count > share:
        numbers = random.sample(numbers, share)
    for number in numbers:
        chosen.append(CrashChoice("prefix", number))
        chosen.append(CrashChoice("torn", number, random.getrandbits(32)))
        chosen.append(CrashChoice("without", number))
        chosen.append(CrashChoice("only", number))
    random.shuffle(chosen)
    yield from chosen
    for _ in range(4 * limit):
        yield CrashChoice("random", 0, random.getrandbits(32))


def survivors(
    choice: CrashChoice, names: Sequence[NameOperation], files: Sequence[SimulatedFile]
) -> tuple[Sequence[NameOperation], ContentOf]:
    """
    Return the name operations that survive, and how to get a file's surviving content.

    Args:
        choice: what to keep.
        names: unsynced name operations, in order.
        files: the files with unsynced operations, in a stable order.
    """
    random = Random(choice.seed)
    match choice.kind:
        case "nothing":
            return [], lambda file: file.image_until(-1)
        case "all":
            return names, SimulatedFile.image_whole
        case "names":
            return names, lambda file: file.image_until(-1)
        case "contents":
            return [], SimulatedFile.image_whole
        case "zeros":
            return names, SimulatedFile.image_zero_filled
        case "prefix" | "torn":
            return _first_survivors(choice, names, files)
        case "without" | "only":
            return _single_survivors(choice, names, files)
        case "random":
            kept = random.choice((0.2, 0.5, 0.8))
            lucky = list(without_orphans(names, lambda _: random.random() < kept))
            contents = {id(file): _some_image(file, random) for file in files}
            return (
                lucky,
                lambda file: contents[id(file)] if id(file) in contents else file.image_whole(),
            )
    raise ValueError(f"unknown crash kind {choice.kind!r}")


def _first_survivors(
    choice: CrashChoice, names: Sequence[NameOperation], files: Sequence[SimulatedFile]
) -> tuple[Sequence[NameOperation], ContentOf]:
    sequences = _sequences(names, files)
    last = sequences[choice.number - 1] if 0 < choice.number <= len(sequences) else -1
    following = sequences[choice.number] if choice.number < len(sequences) else math.inf

    def content(file: SimulatedFile) -> bytes:
        if choice.kind == "torn":
            for operation in file.pending:
                if operation.sequence == following:
                    return file.image_torn(operation, Random(choice.seed))
        return file.image_until(last)

    return [operation for operation in names if operation.sequence <= last], content


def _single_survivors(
    choice: CrashChoice, names: Sequence[NameOperation], files: Sequence[SimulatedFile]
) -> tuple[Sequence[NameOperation], ContentOf]:
    """Let one operation be lost alone, or survive alone: whatever order was hoped for is broken."""
    sequences = _sequences(names, files)
    chosen = sequences[choice.number % len(sequences)] if sequences else -1
    operations = {
        id(file): operation
        for file in files
        for operation in file.pending
        if operation.sequence == chosen
    }
    if choice.kind == "without":
        kept = list(without_orphans(names, lambda change: change.sequence != chosen))
        return (
            kept,
            lambda file: (
                file.image_without(operations[id(file)])
                if id(file) in operations
                else file.image_whole()
            ),
        )
    shown = [file for file in files if id(file) in operations]
    needed = with_foundations(
        list(names),
        lambda change: change.sequence == chosen or any(map(change.names, shown)),
    )
    return (
        needed,
        lambda file: (
            file.image_only(operations[id(file)])
            if id(file) in operations
            else file.image_until(-1)
        ),
    )


def _sequences(names: Sequence[NameOperation], files: Sequence[SimulatedFile]) -> list[int]:
    return sorted(
        [change.sequence for change in names]
        + [operation.sequence for file in files for operation in file.pending]
    )


def _some_image(file: SimulatedFile, random: Random) -> bytes:
    """Return one of the contents that the fault model allows, from mild to wild."""
    match random.randrange(6):
        case 0:
            return file.image_until(-1)
        case 1:
            return file.image_whole()
        case 2:
            return file.image_until(random.choice(file.pending).sequence)
        case 3:
            return file.image_torn(random.choice(file.pending), random)
        case 4:
            return file.image_zero_filled()
        case _:
            return file.image_scattered(random)
