"""The everyday verbs `ls`, `cat`, `tail`, `grep`: output, JSON, exit statuses, signals, pipes."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafkalog import LogManager, Record, open_log
from kafkalog.cli import EVERYDAY, everyday
from kafkalog.cli.app import app
from kafkalog.cli.units import parse_size, parse_time, size_text, time_text
from kafkalog.errors import ConfigError
from tests.support.damage import batch_positions, flip, log_file
from tests.support.golden import CLEAN, copy_partition, data_directory, unchanged
from tests.support.golden_old import old_data_directory

TOOL = Path(sys.executable).with_name("kafkalog")
VERBS = ("ls", "cat", "tail", "grep")
BROKERS = ("kafka-0.8.2", "kafka-0.9.0", "kafka-0.10.2", "kafka-2.8")
DATA = data_directory(CLEAN)


def run(*arguments: object, width: int | None = None) -> tuple[int, str, str]:
    """Run the command in this process; return its status and its two outputs."""
    environment = {"COLUMNS": "" if width is None else str(width)}
    result = CliRunner().invoke(app, list(map(str, arguments)), env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.stdout, result.stderr


def objects(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    """Run the command with --json; return the object of each line."""
    found, output, _ = run(*arguments, "--json")
    assert found == status
    return [json.loads(line) for line in output.splitlines()]


def call_of(verb: str, path: object) -> tuple[object, ...]:
    """Return the arguments of a verb for a path."""
    return ("grep", "1", path) if verb == "grep" else (verb, path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a topic of two partitions, and one with a single record."""
    directory = tmp_path / "data"
    with LogManager([directory]) as manager:
        manager.create_topic("orders", 2, {"retention.ms": "-1"})
        manager.create_topic("notes", 1)
        for number in range(20):
            record = Record(
                key=b"k%d" % (number % 3),
                value=b'{"id":%d}' % number,
                headers=[("trace", b"t%d" % number)],
                timestamp_ms=1_000_000_000_000 + number,
            )
            manager.log("orders", number % 2).append([record])
        manager.log("notes").append([Record(value=b"a\nb\tc\x1b[2J\\\xff", timestamp_ms=0)])
    return directory


def test_everyday_verbs_are_those_of_the_table() -> None:
    """The command looks at names only before it imports the table."""
    assert tuple(everyday.VERBS) == EVERYDAY == VERBS


# ----------------------------------------------------------------------------- golden directories


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("broker", [CLEAN, *BROKERS])
def test_verb_reads_the_directory_of_a_broker(verb: str, broker: str) -> None:
    """Text of at most 80 columns, JSON of the same rows, no damage; not a byte is changed."""
    directory = DATA if broker == CLEAN else old_data_directory(broker)
    with unchanged(directory):
        status, output, error = run(*call_of(verb, directory), width=80)
        found = objects(*call_of(verb, directory))
    lines = output.splitlines()
    assert (status, error) == (0, "")
    assert max(map(len, lines)) <= 80
    assert len(found) == len(lines) - (1 if verb == "ls" else 0)
    assert {each["kind"] for each in found} == {"partition" if verb == "ls" else "record"}


@pytest.mark.parametrize("verb", VERBS)
def test_verb_reports_damage_and_continues(verb: str, tmp_path: Path) -> None:
    """File, position and offsets on standard error, an object with --json, status 1."""
    directory = copy_partition(CLEAN, "plain-small-0", tmp_path / "plain-small-0")
    path = max(directory.glob("*.log")) if verb in ("ls", "tail") else log_file(directory)
    position = batch_positions(path)[-3]
    if verb == "ls":
        path.write_bytes(path.read_bytes()[: position + 20])
    else:
        flip(path, position + 70)
    status, output, error = run(*call_of(verb, directory))
    assert status == 1
    assert output
    assert str(path) in error
    assert str(position) in error.replace(",", "")
    found = [
        each for each in objects(*call_of(verb, directory), status=1) if each["kind"] == "damage"
    ]
    assert [(each["path"], each["position"]) for each in found] == [(str(path), position)]


@pytest.mark.parametrize("verb", VERBS)
def test_verb_continues_after_a_partition_that_cannot_be_read(verb: str, data: Path) -> None:
    """A FIFO, a link and a directory instead of a segment; a file with a partition's name."""
    for name in ("a-0", "b-0", "c-0"):
        (data / name).mkdir()
    segment = f"{0:020}.log"
    os.mkfifo(data / "a-0" / segment)
    (data / "b-0" / segment).symlink_to(data / "nowhere")
    (data / "c-0" / segment).mkdir()
    (data / "d-0").write_bytes(b"")
    (data / "e-0").symlink_to(data / "nowhere")
    status, output, error = run(*call_of(verb, data))
    assert status == (1 if verb == "ls" else 3)
    assert "orders-1" in output
    assert [str(data / name) in error for name in ("a-0", "b-0", "c-0")] == [True] * 3
    assert "d-0" not in output + error
    found = objects(*call_of(verb, data), status=status)
    failures = [each for each in found if each.get("kind") == "damage" or "error" in each]
    assert len(failures) == 3


# ---------------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize("verb", VERBS)
def test_verb_of_a_missing_path_suggests_a_name(verb: str, data: Path) -> None:
    """Status 3, the nearest name, an object with --json; nothing is created."""
    before = sorted(data.parent.rglob("*"))
    for path, nearest in (
        (data.parent / "dato", str(data)),
        (data / "order-0", "orders-0"),
        (f"order@{data}", "orders"),
    ):
        status, _, error = run(*call_of(verb, path))
        assert (status, nearest in error) == (3, True), error
        (found,) = objects(*call_of(verb, path), status=3)
        assert nearest in found["message"]
    assert sorted(data.parent.rglob("*")) == before


def test_path_that_fails_does_not_hide_the_others(data: Path) -> None:
    """The rest is shown, and the status is 3."""
    for verb in ("ls", "cat", "grep"):
        status, output, error = run(*call_of(verb, data / "nowhere"), data / "orders-1")
        assert status == 3
        assert "nowhere" in error
        assert output.count("\n") >= 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat",),
        ("cat", "--from", "x", "."),
        ("cat", "--from", "-1", "."),
        ("cat", "--last", "-1", "."),
        ("cat", "--since", "yesterday", "."),
        ("cat", "--since", "9" * 30, "."),
        ("cat", "--key", "hex:xyz", "."),
        ("cat", "--as", "xml", "."),
        ("tail", "-n", "-1", "."),
        ("grep", "x"),
        ("grep", "", "."),
        ("grep", "-E", "(", "."),
        ("grep", "-C", "-1", "x", "."),
        ("ls", "--min-size", "much"),
        ("ls", "--sort", "colour"),
        ("ls", "--no-such-option"),
    ],
    ids=" ".join,
)
def test_wrong_argument_exits_with_2(arguments: tuple[str, ...]) -> None:
    """Before anything is read."""
    status, output, error = run(*arguments)
    assert (status, output) == (2, "")
    assert error


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_fits_80_columns(verb: str) -> None:
    """The command lists the verb, and the verb's own help has its exit statuses."""
    assert f" {verb} " in run("--help")[1]
    status, output, _ = run(verb, "--help", width=80)
    assert status == 0
    assert max(map(len, output.splitlines())) <= 80
    assert "Exit status: 0" in output
    assert run(verb, "-h", width=80)[1] == output


# --------------------------------------------------------------------------------------------- ls


def test_ls_sorts_filters_and_sums(data: Path) -> None:
    """Names, sizes, topics; settings of the directory."""
    found = objects("ls", data)
    assert [each["topic"] for each in found] == ["notes", "orders", "orders"]
    assert found[1]["settings"] == {"retention.ms": "-1"}
    assert [each["end_offset"] for each in found] == [1, 10, 10]
    sizes = [each["size_bytes"] for each in objects("ls", data, "--sort", "size")]
    assert sizes == sorted(sizes, reverse=True)
    sizes = [each["size_bytes"] for each in objects("ls", data, "--sort", "size", "-r")]
    assert sizes == sorted(sizes)
    assert len(objects("ls", data, "--topic", "ord*")) == 2
    assert len(objects("ls", data, "--min-size", "500")) == 2
    assert objects("ls", data, "--damaged") == []
    topics = objects("ls", data, "--topics")
    assert [(each["topic"], each["offset_count"]) for each in topics] == [
        ("notes", 1),
        ("orders", 20),
    ]
    assert "TOPIC" in run("ls", data, "--topics")[1]


def test_ls_of_two_directories_shows_which(data: Path) -> None:
    """One directory is shown only if there is space for it."""
    assert "DIRECTORY" not in run("ls", data, width=80)[1]
    (data.parent / "b").mkdir()
    (data / "notes-0").rename(data.parent / "b" / "notes-0")
    output = run("ls", data, data.parent / "b" / "notes-0", width=160)[1]
    assert str(data) in output
    assert str(data.parent / "b") in output


def test_ls_long_names_have_a_line_to_themselves(tmp_path: Path) -> None:
    """A cut name is of no use; the other columns stay in their places."""
    name = "t" * 200 + "-0"
    for each in (name, "short-0"):
        with open_log(tmp_path / each) as log:
            log.append([Record(value=b"v")])
    (tmp_path / "meta.properties").write_text("version=1\n")
    lines = run("ls", tmp_path, width=80)[1].splitlines()

    assert name in lines
    assert max(len(line) for line in lines if line != name) <= 80


# -------------------------------------------------------------------------------------------- cat


def test_cat_text_and_json_have_the_record(data: Path) -> None:
    """Escaped text on one line; exact bytes as JSON."""
    _, output, _ = run("cat", data / "notes-0")
    assert output == "       0\t1970-01-01T00:00:00.000Z\tnull\ta\\nb\\tc\\x1b[2J\\\\xff\n"
    (found,) = objects("cat", data / "notes-0")
    assert found["value"] == {"base64": "YQpiCWMbWzJKXP8="}
    assert (found["key"], found["timestamp_ms"], found["headers"]) == (None, 0, [])
    assert objects("cat", data / "notes-0", "--as", "hex")[0]["value"] == "610a6209631b5b324a5cff"
    assert objects("cat", data / "notes-0", "--as", "base64")[0]["value"] == "YQpiCWMbWzJKXP8="
    (found,) = objects("cat", data / "orders-1", "--max", "1", "--as", "json")
    assert (found["value"], found["key"]) == ({"id": 1}, "k1")
    assert found["headers"] == [["trace", "t1"]]


def test_cat_selects(data: Path) -> None:
    """Offsets, times, keys and partitions; partitions one after the other."""

    def ids(*arguments: object) -> list[int]:
        return [each["value"]["id"] for each in objects("cat", *arguments, "--as", "json")]

    topic = f"orders@{data}"
    assert ids(topic) == [*range(0, 20, 2), *range(1, 20, 2)]
    assert ids(topic, "--partition", "1", "--from", "8") == [17, 19]
    assert ids(topic, "--to", "2") == [0, 2, 1, 3]
    assert ids(topic, "--last", "1") == [18, 19]
    assert ids(topic, "--max", "11") == [*range(0, 20, 2), 1]
    assert ids(topic, "--key", "k0", "--last", "1") == [18, 15]
    assert ids(topic, "--key", "hex:6b30", "--max", "1") == [0]
    assert ids(topic, "--since", "1000000000018") == [18, 19]
    assert ids(topic, "--since", "2001-09-09T01:46:40.018", "--until", "1000000000019") == [18]
    assert ids(topic, "--since", "1s") == []
    assert ids(data / "orders", "--last", "1") == [18, 19]
    _, output, _ = run("cat", topic, "--last", "1")
    assert [line.split("\t")[0] for line in output.splitlines()] == ["orders-0", "orders-1"]


def test_numbers_beyond_any_offset_are_taken(data: Path) -> None:
    """As the end of the log, or as all records."""
    huge = 10**30
    path = data / "notes-0"
    assert objects("cat", path, "--from", huge) == []
    assert len(objects("cat", path, "--to", huge, "--last", huge, "--max", huge)) == 1
    assert len(objects("tail", path, "-n", huge)) == 1
    assert len(objects("grep", "a", path, "-C", huge, "--in", "value", "--in", "value")) == 1


def test_cat_long_lines_are_cut_at_the_terminal_only(tmp_path: Path) -> None:
    """A value of megabytes is one line of the width; --full and a pipe have all of it."""
    with open_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"x" * 500_000), Record(value="\u65e5".encode() * 100)])
    lines = run("cat", tmp_path / "t-0", width=80)[1].splitlines()
    assert len(lines[0]) == 80
    assert lines[0].endswith("...")
    assert 40 < len(lines[1]) < 80  # these characters take two columns
    assert len(run("cat", tmp_path / "t-0", "--full", width=80)[1]) > 500_000
    assert len(run("cat", tmp_path / "t-0")[1]) > 500_000


@pytest.mark.parametrize("form", ["auto", "text", "hex", "base64"])
@pytest.mark.parametrize("name", ["text", "bytes", "mixed"])
def test_cat_large_values_are_written_whole(tmp_path: Path, form: str, name: str) -> None:
    """In pieces, whose edges are within characters; as small values are written."""
    part = {"text": "a\u65e5\n".encode(), "bytes": b"\xff\x00", "mixed": b"\t\xd0\xba\xff"}[name]
    large = b"x" + part * (2_000_000 // len(part))
    with open_log(tmp_path / "t-0", config={"max.message.bytes": 10_000_000}) as log:
        for value in (large, b"x" + part * 10):
            log.append([Record(key=b"k", value=value, headers=[("h", b"1")])])
    found, small = objects("cat", tmp_path / "t-0", "--as", form)
    value = found["value"]
    if form in ("auto", "text"):
        exact = large.decode() if name == "text" else base64.b64encode(large).decode()
        assert (value if name == "text" else value["base64"]) == exact
    else:
        assert value == (large.hex() if form == "hex" else base64.b64encode(large).decode())
    assert found.keys() == small.keys()
    first, second = run("cat", tmp_path / "t-0", "--as", form)[1].splitlines()
    shown, start = (line.split("\t")[3] for line in (first, second))
    assert first.split("\t")[4:] == second.split("\t")[4:]
    if name != "mixed" or form in ("hex", "base64"):
        assert shown.startswith(start.rstrip("=")[:-4])
    else:
        assert shown.startswith("x\\t\\xd0\\xba\\xff\\t")  # a large part is shown by bytes


def test_cat_json_that_no_parser_takes_is_text(tmp_path: Path) -> None:
    """NaN, infinity, other encodings and deep nesting."""
    values = [b"NaN", b"[1e999]", '{"a":1}'.encode("utf-16"), b"[" * 100_000, b'{"a":1.5}']
    with open_log(tmp_path / "t-0") as log:
        log.append([Record(value=value) for value in values])
    shown = [each["value"] for each in objects("cat", tmp_path / "t-0", "--as", "json")]
    assert shown[:2] == ["NaN", "[1e999]"]
    assert list(shown[2]) == ["base64"]
    assert shown[3:] == ["[" * 100_000, {"a": 1.5}]


# ------------------------------------------------------------------------------------------- grep


def test_grep_finds_counts_and_marks(data: Path) -> None:
    """In values, keys and headers; a number for each partition; a star in the context."""
    topic = f"orders@{data}"
    found = objects("grep", '"id":1', topic)
    assert [(each["partition"], each["offset"]) for each in found] == [
        *((0, offset) for offset in range(5, 10)),
        (1, 0),
        *((1, offset) for offset in range(5, 10)),
    ]
    assert all(each["is_match"] for each in found)
    assert run("grep", "--count", "K1", topic)[1] == "orders-0\t0\norders-1\t0\n"
    assert run("grep", "-c", "-i", "K1", topic)[1] == "orders-0\t3\norders-1\t4\n"
    counts = objects("grep", "-c", "-E", "^k[12]$", topic, "--in", "key")
    assert [each["count"] for each in counts] == [6, 7]
    assert len(objects("grep", "t7", topic, "--in", "headers")) == 1
    assert objects("grep", "t7", topic) == []
    _, output, _ = run("grep", "-C", "1", '"id":8}', topic, "--partition", "0")
    assert [line[0] for line in output.splitlines()] == [" ", "*", " "]


# ------------------------------------------------------------------------------------------- tail


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run the command in another process, whose output is a pipe."""
    process = subprocess.Popen(
        [str(TOOL), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": ""},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line of output."""
    assert process.stdout is not None
    return process.stdout.readline()


WRITER = """
import sys
from kafkalog import LogManager, Record
with LogManager([sys.argv[1]]) as manager:
    for line in sys.stdin:
        manager.log("orders", 1).append([Record(value=line.strip().encode())])
        print("written", flush=True)
"""


@contextmanager
def writer(data: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a writer in another process, which appends each line of its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()


def append(process: subprocess.Popen[str], text: str) -> None:
    """Let the writer append a record."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "written\n"


def test_tail_follows_a_writer_in_another_process_until_ctrl_c(data: Path) -> None:
    """The last records, then each new one; status 130 without a traceback."""
    with writer(data) as appender:
        append(appender, "before")
        before = {path for path in data.rglob("*") if not path.name.startswith(".kafkalog")}
        with started("tail", "-f", "-n", "1", f"orders@{data}", "--json") as process:
            assert [json.loads(line_of(process))["value"] for _ in range(2)] == [
                '{"id":18}',
                "before",
            ]
            for text in ("one", "two"):
                append(appender, text)
                assert json.loads(line_of(process))["value"] == text
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
            assert (process.returncode, error) == (130, "")
        assert objects("ls", f"orders@{data}")[1]["end_offset"] == 13
        assert objects("cat", data / "orders-1", "--last", "1")[0]["value"] == "two"
        assert {path for path in data.rglob("*") if not path.name.startswith(".kafkalog")} == before


def test_tail_ends_when_the_reader_is_gone(data: Path) -> None:
    """Also if no record comes: status 0."""
    with started("tail", "-f", f"orders@{data}") as process:
        assert line_of(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0


def test_tail_refuses_what_it_cannot_follow(tmp_path: Path) -> None:
    """A directory with another name; the last records are shown without -f."""
    with open_log(tmp_path / "log") as log:
        log.append([Record(value=b"v")])
    assert run("tail", tmp_path / "log")[0] == 0
    status, output, error = run("tail", "-f", tmp_path / "log")
    assert (status, output) == (2, "")
    assert "topic-partition" in error


@pytest.mark.parametrize("verb", VERBS)
def test_closed_pipe_ends_with_0(verb: str) -> None:
    """Without a message, also with pipefail."""
    call = " ".join(f"'{each}'" for each in call_of(verb, DATA))
    line = f"set -o pipefail; '{TOOL}' {call} --json | head -c 1 > /dev/null"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("verb", VERBS)
def test_everyday_verbs_import_neither_typer_nor_rich(verb: str) -> None:
    """An import of them takes longer than most work; `ls` does without NumPy, too."""
    code = (
        "import sys; from kafkalog.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "found = {'typer', 'rich', 'numpy'} & set(sys.modules)\n"
        "sys.stderr.write(','.join(sorted(found)))"
    )
    call = [sys.executable, "-c", code, *map(str, call_of(verb, DATA / "plain-1"))]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ("" if verb == "ls" else "numpy")


# ------------------------------------------------------------------------------------------ units


def test_sizes_and_times_as_text() -> None:
    """Three digits; UTC; numbers that no calendar has."""
    sizes = [0, 999, 1023, 1024, 1536, 10_000, 1_000_000, 2**30 - 1, 2**63 - 1]
    assert [size_text(each) for each in sizes] == [
        *("0", "999", "1023", "1.0K", "1.5K", "9.8K", "977K", "1.0G", "8.0E"),
    ]
    assert time_text(0) == "1970-01-01 00:00"
    assert time_text(1_700_000_000_123, has_seconds=True) == "2023-11-14T22:13:20.123Z"
    assert time_text(None) == time_text(-1) == "-"
    assert time_text(2**63 - 1) == str(2**63 - 1)


def test_sizes_and_times_from_text() -> None:
    """Units, durations, zones; ConfigError for the rest."""
    assert [parse_size(each) for each in ("7", "2k", "1.5M", "1GiB")] == [
        *(7, 2048, 3 << 19, 1 << 30),
    ]
    now_ms = 1_800_000_000_000
    assert parse_time("now", now_ms=now_ms) == now_ms
    assert now_ms - parse_time("1d2h3m4.5s6ms", now_ms=now_ms) == 93_784_506
    assert parse_time("2023-11-14T22:13:20.123Z", now_ms=now_ms) == 1_700_000_000_123
    assert parse_time("2023-11-14T23:13:20+01:00", now_ms=now_ms) == 1_700_000_000_000
    assert parse_time("2023-11-14", now_ms=now_ms) == 1_699_920_000_000
    assert parse_time("1700000000123", now_ms=now_ms) == 1_700_000_000_123
    assert parse_time("9999w", now_ms=now_ms) == 0
    for text in ("", "2", "2 days", "1960-01-01", "2023-13-01", "-2h", "9" * 20, "9" * 400 + "h"):
        with pytest.raises(ConfigError):
            parse_time(text, now_ms=now_ms)
    for text in ("", "-1", "1Q", "K", "9" * 400 + "E"):
        with pytest.raises(ConfigError):
            parse_size(text)
