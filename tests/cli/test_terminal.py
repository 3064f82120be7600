"""Output of the command: control characters of files are escaped, and pipes may close."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog import LogManager, Record
from kafkalog.cli.streams import EscapingStream, escape
from kafkalog.cli.terminal import SafeConsole

TOOL = Path(sys.executable).with_name("kafkalog")
EVIL = "\x1b[31m\x9b2J\x07\u202eEVIL\u2066\x7f"
BAD_BYTES = [each.encode() for each in ("\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066")]


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run the command with pipes, without a limit on its output."""
    return subprocess.run(
        [str(TOOL), *map(str, arguments)], capture_output=True, cwd=cwd, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory with control characters in names, keys, values and state files."""
    data = tmp_path_factory.mktemp("evil") / "data"
    with LogManager([data]) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = manager.log("t")
        text = EVIL.encode()
        log.append([Record(key=text, value=text, headers=[(EVIL, text)])] * 50)
        log.roll()
        log.append([Record(key=text, value=text)])
    (data / EVIL).mkdir()
    (data / f"{EVIL}-0").mkdir()
    (data / f"{EVIL}.log").write_bytes(b"")
    (data / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\n" + EVIL.encode() + b" 0 1\n")
    (data / "t-0" / "partition.metadata").write_bytes(
        b"version: 0\ntopic_id: " + EVIL.encode() + b"\n"
    )
    return data


VERBS: list[tuple[str, ...]] = [
    ("dump", "-r", "{data}"),
    ("dump", "-r", "--json", "{data}"),
    ("dump", "{data}/" + EVIL),
    ("doctor", "{data}"),
    ("doctor", "--json", "{data}"),
    ("ls", "{data}"),
    ("ls", "{data}", "--json"),
    ("ls", "{data}/" + EVIL),
    ("cat", "{data}"),
    ("cat", "{data}", "--json"),
    ("cat", "t@{data}", "--as", "json", "--key", EVIL),
    ("cat", EVIL + "@{data}"),
    ("tail", "{data}/t-0"),
    ("tail", "-f", "{data}/" + EVIL),
    ("grep", EVIL, "{data}", "-C", "1"),
    ("grep", "-E", EVIL + "[", "{data}"),
    ("grep", "--in", "headers", EVIL, "{data}", "--as", "text"),
    ("stat", "{data}"),
    ("stat", "--json", "{data}"),
    ("stat", "{data}/" + EVIL),
    ("plan", "{data}"),
    ("plan", "{data}/" + EVIL, "--set", "cleanup.policy=compact"),
    ("plan", "{data}/t-0", "--set", EVIL),
    ("explain", "{data}", "0"),
    ("explain", "{data}/" + EVIL, "0"),
    ("compact", "{data}/" + EVIL, "--set", "cleanup.policy=compact"),
    ("compact", "{data}", "--partition", EVIL),
    ("convert", "{data}", "--estimate"),
    ("convert", "{data}", "{data}/../new"),
    ("convert", "{data}", "{data}/../new2", "-c", EVIL),
    ("demo", "--golden", "{data}/" + EVIL, "--limit", "1"),
    ("spark", "stats", "{data}", "--options", EVIL),
    (EVIL,),
    ("stat", EVIL, EVIL),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda each: ascii(" ".join(each)))
def test_verbs_write_no_control_character_of_a_file(evil: Path, verb: tuple[str, ...]) -> None:
    """HOST-12: names, keys, values, contents and arguments, on both streams, in every verb."""
    done = run(*(each.replace("{data}", str(evil)) for each in verb))
    found = [each for each in BAD_BYTES if each in done.stdout + done.stderr]
    assert [] == found, (done.stdout + done.stderr)[-2000:]
    assert b"Traceback" not in done.stderr


def test_escape_plain_text_is_unchanged() -> None:
    """Letters of all languages, newlines and tabs."""
    assert "\u043a\u043b\u044e\u0447\t\u00e9\n\u65e5" == escape(
        "\u043a\u043b\u044e\u0447\t\u00e9\n\u65e5"
    )
    assert "\\x1b[2J\\x9b\\u202e\\ud800" == escape("\x1b[2J\x9b\u202e\ud800")


def test_safe_console_on_a_terminal_styles_but_escapes_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The console's own sequences are written, those in the text are not."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", EscapingStream(terminal))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = SafeConsole(highlight=False)
    console.print("text \x1b]0;title\x07", style="bold", markup=False)
    shown = terminal.getvalue()
    assert "\x1b[1m" in shown
    assert "\x1b]0" not in shown
    assert "\\x1b]0;title" in shown


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory without damage, with some pages to print."""
    data = tmp_path_factory.mktemp("healthy") / "data"
    with LogManager([data]) as manager:
        manager.create_topic("t", 3, {"cleanup.policy": "compact"})
        for number in range(3):
            log = manager.log("t", number)
            for _ in range(400):
                log.append([Record(key=b"k%d" % key, value=b"v" * 20) for key in range(5)])
            log.roll()
    return data


@pytest.mark.parametrize(
    "verb",
    [("dump", "-r"), ("stat",), ("stat", "--json"), ("plan",), ("convert", "--estimate")],
    ids=" ".join,
)
def test_verbs_closed_pipe_ends_with_0(healthy: Path, verb: tuple[str, ...]) -> None:
    """USE-7: `| head -1` with pipefail made a healthy log look damaged."""
    line = f'set -o pipefail; "{TOOL}" {" ".join(verb)} "{healthy}" | head -c 1 > /dev/null'
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


def test_exit_statuses_of_usage_and_failure_differ(healthy: Path, tmp_path: Path) -> None:
    """USE-7: 0 success, 1 findings, 2 usage, 3 failure."""
    assert 0 == run("stat", healthy).returncode
    assert 2 == run("stat").returncode
    assert 2 == run("plan", healthy, "--set", "no.such=1").returncode
    for verb in ("stat", "plan", "compact", "dump"):
        assert 3 == run(verb, tmp_path / "nowhere").returncode, verb


@pytest.mark.parametrize(
    "verb",
    [
        ("compact", "nowhere", "--set", "cleanup.policy=compact"),
        ("compact", "nowhere"),
        ("compact", "empty", "--set", "cleanup.policy=compact"),
        ("stat", "nowhere"),
        ("plan", "nowhere", "--set", "cleanup.policy=compact"),
        ("explain", "nowhere", "0", "--set", "cleanup.policy=compact"),
        ("convert", "nowhere", "new"),
        ("convert", "nowhere", "--estimate"),
        ("convert", "nowhere", "--in-place"),
    ],
    ids=" ".join,
)
def test_verbs_missing_path_fails_and_creates_nothing(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """USE-3: a mistyped path made a log there, and exited with 0."""
    (tmp_path / "empty").mkdir()
    done = run(*verb, cwd=tmp_path)
    assert 3 == done.returncode
    assert verb[1].encode() in done.stderr
    assert [] == list((tmp_path / "empty").iterdir())
    assert ["empty"] == [path.name for path in tmp_path.iterdir()]


def test_plan_without_a_terminal_writes_nothing_to_stderr(healthy: Path) -> None:
    """USE-10: cron sends a mail for an empty line."""
    assert b"" == run("plan", healthy).stderr
