"""Followers in separate processes, with writers of every kind: complete, equal, in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from kafkalog import Record, open_log
from tests.concurrency import follower_programs

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "tests.concurrency.follower_programs"
END = follower_programs.END.decode()
FOLLOWERS = 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="followers wait for inotify")


class Program:
    """A running program, whose lines a test reads and answers."""

    def __init__(self, name: str, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", PROGRAM, name, str(directory), *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def output(self) -> IO[str]:
        """Its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        """Return the next line."""
        return self.output.readline().strip()

    def go_on(self) -> None:
        """Answer with a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Close its standard input, and let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.output.read()
        self.output.close()
        assert 0 == self.process.wait(120)

    def kill(self) -> list[str]:
        """Kill it; return the lines that it had written and that were not read."""
        self.process.send_signal(signal.SIGKILL)
        rest = self.output.read()
        self.output.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        return rest.splitlines()


class Followers:
    """Programs that follow the same directory with the same options."""

    def __init__(self, directory: Path, count: int, **options: Any) -> None:
        arguments = json.dumps({"ends": 1, **options})
        self.programs = [Program("follow", directory, arguments) for _ in range(count)]
        for program in self.programs:
            assert ["ready"] == json.loads(program.line())

    def events(self) -> Iterator[list[Any]]:
        """Yield the events of each follower, which ends by itself."""
        for program in self.programs:
            # Its standard input stays open until it has seen the end.
            events = [json.loads(line) for line in program.output]
            program.end()
            yield events


class Seen:
    """Records that a follower has seen of each partition: its events applied in order."""

    def __init__(self, events: list[Any]) -> None:
        self.records: dict[str, dict[int, str]] = defaultdict(dict)
        self.lost: list[tuple[int, int]] = []
        self.changes: list[tuple[str, str]] = []
        self.positions: dict[str, Any] = {}
        next_offsets: dict[str, int] = {}
        for kind, *values in events:
            if kind == "records":
                name, records = values
                for offset, value in records:
                    assert offset >= next_offsets.get(name, 0), (name, offset)
                    next_offsets[name] = offset + 1
                    self.records[name][offset] = value
            elif kind == "lost":
                name, requested, resumed = values
                assert requested >= next_offsets.get(name, 0)
                self.lost.append((requested, resumed))
                next_offsets[name] = resumed
                for offset in [each for each in self.records[name] if each >= resumed]:
                    del self.records[name][offset]
            elif kind == "positions":
                (self.positions,) = values
            else:
                self.changes.append((kind, values[0]))
                next_offsets[values[0]] = 0


def content(directory: Path) -> dict[int, str]:
    """Return the records of a log."""
    with open_log(directory, read_only=True) as log:
        return {record.offset: (record.value or b"").decode() for record in log.records()}


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
def test_twenty_followers_of_rolling_logs_are_complete_and_equal(
    tmp_path: Path, durable: bool
) -> None:
    """Two partitions over many segments of 64 KB; those that poll see the same."""
    directory = tmp_path / "data"
    writer = Program("roll", directory, "2000")
    assert "ready" == writer.line()
    followers = Followers(directory, FOLLOWERS, ends=2, durable=durable)
    writer.go_on()
    segments = int(writer.line().split()[1])
    assert segments > 3
    found = [Seen(events) for events in followers.events()]
    writer.end()
    expected = {f"t-{number}": content(directory / f"t-{number}") for number in range(2)}
    for seen in found:
        assert expected == seen.records
        assert [] == seen.lost


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_followers_of_truncations_have_every_record_that_stayed(
    tmp_path: Path, seed: int, durable: bool
) -> None:
    """Records that are appended after a truncation are seen; the removed range is reported."""
    directory = tmp_path / "data"
    writer = Program("truncate", directory, str(seed))
    assert "ready" == writer.line()
    followers = Followers(directory, 4, durable=durable)
    writer.go_on()
    final = dict(json.loads(writer.line()))
    for events in followers.events():
        seen = Seen(events).records["t-0"]
        assert final == {offset: value for offset, value in seen.items() if offset in final}
    writer.end()


def test_followers_of_a_compacted_log_have_the_last_value_of_each_key(tmp_path: Path) -> None:
    """Records may be removed before they are seen, as for a consumer; all others are seen."""
    directory = tmp_path / "data"
    writer = Program("compact", directory)
    assert "ready" == writer.line()
    followers = Followers(directory, 4)
    writer.go_on()
    final = dict(json.loads(writer.line()))
    for events in followers.events():
        seen = Seen(events)
        assert final.items() <= seen.records["t-0"].items()
        assert [] == seen.lost
    writer.end()


def test_followers_of_a_log_with_retention_miss_only_what_they_report(tmp_path: Path) -> None:
    """Each record from the log start on was seen, or is in a range that was lost."""
    directory = tmp_path / "data"
    writer = Program("retain", directory)
    assert "ready" == writer.line()
    followers = Followers(directory, 4)
    writer.go_on()
    assert int(writer.line().split()[1]) > 0
    for events in followers.events():
        seen = Seen(events)
        offsets = set(seen.records["t-0"])
        for first, following in seen.lost:
            assert first < following
            offsets.update(range(first, following))
        # The log start when the follower began, which may be after the first deletions.
        assert set(range(min(offsets), 6_001)) == offsets
    writer.end()


@pytest.mark.parametrize("durable", [False, True])
def test_topic_that_is_made_again_is_read_from_its_start(tmp_path: Path, durable: bool) -> None:
    """Each incarnation is removed and added; no record of one is taken for one of another."""
    directory = tmp_path / "data"
    writer = Program("recreate", directory)
    assert "ready" == writer.line()
    followers = Followers(directory, 3, durable=durable)
    writer.go_on()
    for turn in range(8):
        assert f"made {turn}" == writer.line()
        for program in followers.programs:
            seen: list[str] = []
            while len(seen) < 20:
                kind, *values = json.loads(program.line())
                if kind == "records":
                    seen += [value for _offset, value in values[1]]
                else:
                    assert kind in ("added", "removed")
            assert [f"{turn} {number}" for number in range(20)] == seen
        writer.go_on()
    if durable:
        writer.end()
    for events in followers.events():
        assert END == Seen(events).records["t-0"][0]
    if not durable:
        writer.end()


def test_killed_writer_that_starts_again_is_followed(tmp_path: Path) -> None:
    """Five kills: records continue, none is missed, repeated or reported as lost."""
    directory = tmp_path / "data"
    writer = Program("kill", directory, "0", "no")
    assert "ready 0" == writer.line()
    followers = Followers(directory, 3)
    watched = followers.programs[0]
    before: list[str] = []
    for turn in range(5):
        before.append(watched.line())
        writer.kill()
        writer = Program("kill", directory, "0", "end" if turn == 4 else "no")
        assert writer.line().startswith("ready")
    lines = [*before, *watched.output]
    watched.end()
    writer.end()
    expected = content(directory / "t-0")
    followers.programs.remove(watched)
    for events in ([json.loads(line) for line in lines], *followers.events()):
        seen = Seen(events)
        assert expected == seen.records["t-0"]
        assert [] == seen.lost


def test_durable_follower_shows_nothing_above_the_last_sync(tmp_path: Path) -> None:
    """Every record that was shown is below an offset that the writer has synced, over kills."""
    directory = tmp_path / "data"
    writer = Program("kill", directory, "0", "yes")
    assert "ready 0" == writer.line()
    followers = Followers(directory, 2, durable=True)
    synced = 0
    for _turn in range(3):
        # Followers that are late on a busy machine must have begun.
        begun = [program.line() for program in followers.programs]
        lines = [writer.line() for _sync in range(30)]
        lines += writer.kill()
        # The last sync may have been shown before the writer could report it.
        synced = max(int(line.split()[1]) for line in lines if line.startswith("durable")) + 7
        for first, program in zip(begun, followers.programs, strict=True):
            offsets = _offsets_in([first, *program.kill()])
            assert offsets
            assert max(offsets) < synced
        writer = Program("kill", directory, "0", "yes")
        assert writer.line().startswith("ready")
        followers = Followers(directory, 2, durable=True)
    writer.kill()
    for program in followers.programs:
        program.kill()


def _offsets_in(lines: list[str]) -> list[int]:
    """Return the offsets that a follower has shown."""
    found = []
    for line in lines:
        if line.endswith("]"):
            kind, *values = json.loads(line)
            if kind == "records":
                found += [offset for offset, _value in values[1]]
    return found


def test_positions_continue_in_another_follower(tmp_path: Path) -> None:
    """Also after a truncation between the two, which the leader epoch of a position shows."""
    directory = tmp_path / "data"
    with open_log(directory / "t-0") as log:
        log.append([Record(value=b"%d" % number) for number in range(5)])
        log.append([Record(value=END.encode())])
    (first,) = Followers(directory, 1).events()
    positions = Seen(first).positions
    assert {"t-0": [6, 0]} == positions
    with open_log(directory / "t-0") as log:
        log.truncate_to(5)
        for number in range(5, 9):
            log.append([Record(value=b"fresh %d" % number)])
        log.append([Record(value=END.encode())])
    (second,) = Followers(directory, 1, start=positions).events()
    seen = Seen(second)
    assert [(6, 5)] == seen.lost
    assert {**{number: f"fresh {number}" for number in range(5, 9)}, 9: END} == seen.records["t-0"]


def append_raw(target: Path, data: bytes, *, is_torn: bool = False) -> None:
    """Append bytes as a broker does: no lock, no file of kafkalog; at once, or in two writes."""
    file = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    half = len(data) // 2 if is_torn else 0
    os.write(file, data[:half])
    os.write(file, data[half:])
    os.close(file)


def test_writer_without_a_page_is_followed(tmp_path: Path) -> None:
    """Plain bytes of a log, batch by batch, over a roll; durable ones with the recovery point."""
    source = tmp_path / "source-0"
    batches: list[tuple[int, bytes]] = []
    with open_log(source) as log:
        for number in range(40):
            log.append([Record(value=b"%d" % number)])
        log.append([Record(value=END.encode())])
        batches = [(batch.base_offset, bytes(batch.data)) for batch in log.batches(0)]
    directory = tmp_path / "data"
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\n", "ascii")
    segment = partition / f"{0:020d}.log"
    append_raw(segment, b"")
    every, durable = Followers(directory, 2), Followers(directory, 2, durable=True)
    for offset, data in batches:
        if offset == 25:
            segment = partition / f"{25:020d}.log"
        append_raw(segment, data, is_torn=bool(offset % 3))
    expected = content(source)
    for events in every.events():
        assert expected == Seen(events).records["t-0"]
    for recovery_point in (10, 41):
        checkpoint = directory / "recovery-point-offset-checkpoint"
        fresh = checkpoint.with_suffix(".tmp")
        fresh.write_text(f"0\n1\nt 0 {recovery_point}\n", "ascii")
        fresh.replace(checkpoint)
        for program in durable.programs:
            values: list[str] = []
            while len(values) < (10 if recovery_point == 10 else 31):
                kind, _name, records = json.loads(program.line())
                assert kind == "records"
                values += [value for _offset, value in records]
            assert list(expected.values())[recovery_point - len(values) : recovery_point] == values
    for program in durable.programs:
        program.end()


def test_data_directory_that_is_replaced_is_followed(tmp_path: Path) -> None:
    """It may not exist at first, and be removed as a whole later."""
    directory = tmp_path / "data"
    followers = Followers(directory, 2)
    for turn in range(2):
        with open_log(directory / "t-0") as log:
            log.append([Record(value=b"%d" % turn)])
        for program in followers.programs:
            events: list[Any] = []
            while not any(event[0] == "records" for event in events):
                events.append(json.loads(program.line()))
            assert ["records", "t-0", [[0, str(turn)]]] == events[-1]
        shutil.rmtree(directory)
        for program in followers.programs:
            assert ["removed", "t-0"] == json.loads(program.line())
    for program in followers.programs:
        program.end()
