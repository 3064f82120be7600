"""`kafkalog dump` on damaged copies: damage is a line with its position, and the rest is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafkalog._core import crc32c
from kafkalog.cli.app import app
from tests.support.golden import CLEAN, BatchFact, Manifest, copy_partition, data_directory

PARTITION = "plain-small-0"
FIRST_LOG = f"{0:020}.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of an uncompressed golden partition with dense indexes."""
    return copy_partition(CLEAN, PARTITION, tmp_path / PARTITION)


@pytest.fixture(scope="module")
def facts() -> list[BatchFact]:
    """Batches of that partition's first segment."""
    return [fact for fact in Manifest(CLEAN, PARTITION).batches() if fact.segment == FIRST_LOG]


def run(*arguments: str | Path) -> tuple[int, list[str], str]:
    """Run the command; return exit status, lines of output, text of standard error."""
    result = CliRunner().invoke(app, ["dump", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.stdout.splitlines(), result.stderr


def objects(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run the command with --json on something damaged; return the objects."""
    status, lines, _ = run("--json", *arguments)
    assert 1 == status
    return [json.loads(line) for line in lines]


def damages(found: list[dict[str, Any]]) -> list[tuple[int | None, int, str]]:
    return [
        (each["position"], each["size_bytes"], each["reason"])
        for each in found
        if each["kind"] == "damage"
    ]


def shown_batches(found: list[dict[str, Any]]) -> list[int]:
    return [each["base_offset"] for each in found if each["kind"] == "batch"]


def change(path: Path, edit: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def flip(path: Path, position: int, mask: int = 1) -> None:
    def edit(data: bytearray) -> None:
        data[position] ^= mask

    change(path, edit)


@pytest.mark.parametrize(
    ("byte", "reason"),
    [(70, "CRC"), (16, "MAGIC"), (11, None), (8, None), (23, None)],
)
def test_dump_batch_with_flipped_bit_shows_all_other_batches(
    directory: Path, facts: list[BatchFact], byte: int, reason: str | None
) -> None:
    """A value, the magic, the length's low and high byte, the last offset's delta."""
    victim = facts[3]
    flip(directory / FIRST_LOG, victim.position + byte, 0x40)

    found = objects(directory / FIRST_LOG)

    expected = [fact.base_offset for fact in facts if fact is not victim]
    assert expected == shown_batches(found)
    [(position, size, named)] = damages(found)
    assert (victim.position, victim.batch_size) == (position, size)
    assert reason in (None, named)
    [damage] = [each for each in found if each["kind"] == "damage"]
    assert victim.base_offset == damage["first_offset"]
    assert victim.last_offset + 1 == damage["next_offset"]


@pytest.mark.parametrize(("byte", "witness"), [(0, 3), (6, 4), (7, 4)])
def test_dump_batch_with_flipped_offset_is_shown_and_reported(
    directory: Path, facts: list[BatchFact], byte: int, witness: int
) -> None:
    """No CRC covers an offset: the break of the order is reported, and no batch is left out."""
    victim = facts[3]
    flip(directory / FIRST_LOG, victim.position + byte, 0x10 if byte == 7 else 0x40)

    found = objects(directory / FIRST_LOG)

    shown = shown_batches(found)
    assert len(facts) == len(shown)
    assert [fact.base_offset for fact in facts if fact is not victim] == shown[:3] + shown[4:]
    assert (facts[witness].position, 0, "OFFSET_ORDER") in damages(found)


def test_dump_text_of_damage_is_one_line(directory: Path, facts: list[BatchFact]) -> None:
    """The line begins with DAMAGE; the summary on standard error counts it."""
    flip(directory / FIRST_LOG, facts[3].position + 70)

    status, lines, errors = run(directory / FIRST_LOG)

    expected = (
        f"DAMAGE position: {facts[3].position} size: {facts[3].batch_size} reason: CRC "
        f"firstOffset: {facts[3].base_offset} nextOffset: {facts[3].last_offset + 1} "
    )
    assert 1 == status
    assert [True] == [line.startswith(expected) for line in lines if "DAMAGE" in line]
    assert f"1 damaged range, {facts[3].batch_size} bytes" in errors


@pytest.mark.parametrize("missing", [1, 11, 100])
def test_dump_torn_tail_shows_the_whole_batches(
    directory: Path, facts: list[BatchFact], missing: int
) -> None:
    """A truncated last batch is one damaged range up to the end of the file."""
    change(directory / FIRST_LOG, lambda data: data.__delitem__(slice(-missing, None)))

    found = objects(directory / FIRST_LOG)

    last = facts[-1]
    assert [fact.base_offset for fact in facts[:-1]] == shown_batches(found)
    assert [(last.position, last.batch_size - missing, "TRUNCATED")] == damages(found)


def test_dump_garbage_tail_is_damage_and_zeros_are_not(
    directory: Path, facts: list[BatchFact]
) -> None:
    """Garbage is distinguished from preallocated, unused space."""
    log = directory / FIRST_LOG
    size = log.stat().st_size
    change(log, lambda data: data.extend(bytes(5000)))
    status, lines, _ = run(log)
    assert 0 == status
    assert f"ZEROS position: {size} size: 5000" == lines[-1]

    change(log, lambda data: data.extend(b"x" * 300))
    found = objects(log)
    assert [fact.base_offset for fact in facts] == shown_batches(found)
    assert [(size, 5300)] == [each[:2] for each in damages(found)]


def test_dump_hole_across_batches_is_one_range(directory: Path, facts: list[BatchFact]) -> None:
    """Five hundred zeros: the affected batches are left out, the rest is shown."""
    start = facts[3].position + 5

    def edit(data: bytearray) -> None:
        data[start : start + 500] = bytes(500)

    change(directory / FIRST_LOG, edit)
    gone = [fact for fact in facts[3:] if fact.position < start + 500]

    found = objects(directory / FIRST_LOG)

    assert [fact.base_offset for fact in facts if fact not in gone] == shown_batches(found)
    end = gone[-1].position + gone[-1].batch_size
    assert [(gone[0].position, end - gone[0].position)] == [each[:2] for each in damages(found)]


def test_dump_unreadable_records_are_one_damage(directory: Path, facts: list[BatchFact]) -> None:
    """A correct CRC over a record that runs past its batch: the next batch is shown, too."""
    victim = facts[3]

    def edit(data: bytearray) -> None:
        batch = memoryview(data)[victim.position : victim.position + victim.batch_size]
        batch[61:63] = b"\xfe\x7f"
        batch[17:21] = crc32c.value(batch[21:]).to_bytes(4)

    change(directory / FIRST_LOG, edit)

    found = objects("-r", directory / FIRST_LOG)

    assert [fact.base_offset for fact in facts] == shown_batches(found)
    assert [(victim.position, victim.batch_size)] == [each[:2] for each in damages(found)]
    offsets = [each["offset"] for each in found if each["kind"] == "record"]
    gone = range(victim.base_offset, victim.last_offset + 1)
    assert [number for number in range(facts[-1].last_offset + 1) if number not in gone] == offsets


def test_dump_unknown_control_record_is_shown_by_number(tmp_path: Path) -> None:
    """A marker of an unknown type, and a marker that is too short."""
    directory = copy_partition(CLEAN, "transactions-0", tmp_path / "transactions-0")
    [first, second] = [
        fact for fact in Manifest(CLEAN, "transactions-0").batches() if fact.is_control
    ][:2]

    def edit(data: bytearray) -> None:
        for fact, byte in ((first, 0x63), (second, 0x06)):
            batch = memoryview(data)[fact.position : fact.position + fact.batch_size]
            # Length, attributes, two deltas, size of the key, its version; then the type.
            batch[68:70] = bytes([0, byte])
            batch[17:21] = crc32c.value(batch[21:]).to_bytes(4)

    change(directory / FIRST_LOG, edit)

    status, lines, _ = run("-r", directory / FIRST_LOG)

    assert 1 == status
    assert any(
        line.startswith(f"| offset: {first.base_offset} ")
        and line.endswith("controlType: UNKNOWN(99)")
        for line in lines
    )
    assert any("reason: CONTROL_RECORD" in line for line in lines)


def test_dump_offset_index_entries_are_compared_with_the_log(directory: Path) -> None:
    """An entry into a batch, one out of order, an odd end: all reported, the rest is shown."""
    index = directory / f"{0:020}.index"
    whole = Manifest(CLEAN, PARTITION).summary.segments[0].offset_index

    def edit(data: bytearray) -> None:
        data[12:16] = (1305).to_bytes(4)
        data[24:28] = (2).to_bytes(4)
        data.extend(b"abc")

    change(index, edit)

    found = objects(index)

    assert [(8, 8, "INDEX_ENTRY"), (24, 8, "INDEX_ENTRY"), (176, 3, "TRUNCATED")] == damages(found)
    assert [pair for slot, pair in enumerate(whole) if slot not in (1, 3)] == [
        (each["offset"], each["position"]) for each in found if each["kind"] == "offset_index_entry"
    ]


def test_dump_random_index_ends_without_an_exception(directory: Path) -> None:
    """For any bytes each entry is either shown or reported as damage."""
    data = bytes((number * 197 + 13) % 256 for number in range(8 * 12 * 5))
    for name in (f"{0:020}.index", f"{0:020}.timeindex"):
        (directory / name).write_bytes(data)
        found = objects(directory / name)
        entries = [each for each in found if each["kind"] != "file"]
        assert len(data) == sum(
            each.get("size_bytes", 8 if name.endswith(".index") else 12) for each in entries
        )


def test_dump_index_without_its_log_shows_entries(directory: Path) -> None:
    """Entries without a log to compare with are not damage."""
    (directory / FIRST_LOG).unlink()

    status, lines, _ = run(directory / f"{0:020}.index")

    assert 0 == status
    assert "offset: 10 position: 728" == lines[1]


def test_dump_truncated_transaction_index_reports_the_end(tmp_path: Path) -> None:
    """The whole entries are shown, the truncated one is not."""
    directory = copy_partition(CLEAN, "transactions-0", tmp_path / "transactions-0")
    index = directory / f"{0:020}.txnindex"
    change(index, lambda data: data.__delitem__(slice(-20, None)))
    flip(index, 1)

    found = objects(index)

    count = len(Manifest(CLEAN, "transactions-0").summary.segments[0].aborted_transactions)
    assert count - 2 == len([each for each in found if each["kind"] == "aborted_transaction"])
    assert [(0, 34, "INDEX_ENTRY"), (34 * (count - 1), 14, "TRUNCATED")] == damages(found)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda data: data.__setitem__(20, data[20] ^ 1), (2, 4, "CRC")),
        (lambda data: data.__delitem__(slice(-3, None)), (6, 4, "ENTRY_COUNT")),
        (lambda data: data.__delitem__(slice(5, None)), (0, 5, "TRUNCATED")),
        (lambda data: data.__setitem__(1, 7), (0, 10 + 46 * 4, "VERSION")),
    ],
)
def test_dump_damaged_snapshot_is_reported(
    tmp_path: Path, edit: Callable[[bytearray], None], expected: tuple[int, int, str]
) -> None:
    """A flipped bit, a truncated end, a truncated head, an unknown version."""
    directory = copy_partition(CLEAN, "transactions-0", tmp_path / "transactions-0")
    snapshot = directory / f"{350:020}.snapshot"
    change(snapshot, edit)

    assert expected in damages(objects(snapshot))


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        (
            "recovery-point-offset-checkpoint",
            b"0\n3\na 0 5\nb zero 6\nc 0 7\n",
            [{"topic": "a", "partition": 0, "offset": 5}, {"topic": "c", "offset": 7}],
        ),
        ("leader-epoch-checkpoint", b"0\n9\n0 0\n2 5\n", [{"epoch": 0}, {"epoch": 2}]),
        ("partition.metadata", b"version: 0\ntopic_id: short", [{"topic_id": "short"}]),
        ("meta.properties", b"version=7\nnode.id=1\n", [{"name": "node.id", "value": "1"}]),
        ("quorum-state", b"{", []),
    ],
)
def test_dump_damaged_small_file_shows_its_valid_lines(
    tmp_path: Path, name: str, content: bytes, shown: list[dict[str, Any]]
) -> None:
    """The reader's error, and every line that has the right form."""
    path = tmp_path / name
    path.write_bytes(content)

    found = objects(path)

    assert ["STATE_FILE"] == [reason for _, _, reason in damages(found)]
    for expected in shown:
        assert any(expected.items() <= each.items() for each in found)


@pytest.mark.parametrize("name", ["notes.txt", "0.log", "00000000000000000000.log.orig"])
def test_dump_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    """Contents are not guessed for a name that is not of a log's file."""
    path = tmp_path / name
    path.write_bytes(b"hello")

    status, lines, errors = run(path)

    assert (3, []) == (status, lines)
    assert str(path) in errors


def test_dump_path_without_a_log_is_refused(tmp_path: Path) -> None:
    """An empty directory, and a path that does not exist."""
    for path in (tmp_path, tmp_path / "nothing-there"):
        status, _, errors = run(path)
        assert 3 == status
        assert str(path) in errors


def test_dump_directory_skips_unknown_files(directory: Path) -> None:
    """Other programs' files in a partition directory are not shown."""
    (directory / "notes.txt").write_text("mine")
    (directory / "00000000000000000000.log.broken").write_bytes(b"cut bytes")

    status, lines, _ = run(directory)

    assert 0 == status
    assert not [line for line in lines if "notes" in line or "broken" in line]


def test_dump_broken_file_shows_its_whole_batches(directory: Path, facts: list[BatchFact]) -> None:
    """A file of truncated bytes, given as an argument, is searched for batches like any other."""
    content = (directory / FIRST_LOG).read_bytes()
    path = directory / f"{FIRST_LOG}.{facts[3].position + 9}.broken"
    path.write_bytes(content[facts[3].position + 9 : facts[6].position])

    found = objects(path)

    assert [fact.base_offset for fact in facts[4:6]] == shown_batches(found)
    assert [(0, facts[3].batch_size - 9)] == [each[:2] for each in damages(found)]


def test_dump_empty_log_has_no_batches(tmp_path: Path) -> None:
    """A segment without any batch is whole."""
    directory = copy_partition(CLEAN, "empty-0", tmp_path / "empty-0")

    status, lines, errors = run(directory / FIRST_LOG)

    assert 0 == status
    assert [f"Dumping {directory / FIRST_LOG}", "Log starting offset: 0"] == lines
    assert "1 file, 0 batches" in errors


def test_dump_closed_pipe_ends_without_an_error() -> None:
    """`kafkalog dump ... | head -1`: no traceback, though megabytes were to follow."""
    command = [sys.executable, "-m", "kafkalog", "dump", "-r", str(data_directory(CLEAN))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert 0 == process.wait(60)
    assert b"" == errors
