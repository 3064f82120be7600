"""Reads of a log whose files lose pages: errors with file and position, and no crash.

The kernel reports a file that another process cuts like a page that a disk cannot read: by a
signal. So these tests need no failing disk.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lost_pages import run_program

# A log of 8,000 records in two batches of each size; the codec, the action and its end vary.
PREFACE = """
import os, socket, sys
import kafkalog
from kafkalog import KafkaLogError, LogConfig, LogStorageError, Record
from tests.support.lost_pages import FailingDisk

directory, codec, read_only = sys.argv[1], sys.argv[2], sys.argv[3] == "reader"
config = LogConfig(segment_bytes=64 << 20, compression_type=codec)
with kafkalog.open_log(directory, config=config) as log:
    for start in range(0, 8000, 100):
        log.append([Record(key=b"%06d" % n, value=os.urandom(64) * 2, timestamp_ms=10**12 + n)
                    for n in range(start, start + 100)])
segment = os.path.join(directory, "0" * 20 + ".log")
disk = FailingDisk(segment) if sys.argv[4] == "fail" else None
log = kafkalog.open_log(directory, config=config, read_only=read_only)

def cut(): os.truncate(segment, 3 * 4096)

def fail(): disk.fail(3 * 4096)

def tell(action):
    try:
        action()
    except LogStorageError as error:
        print("storage", error.errno, error.path == segment, (error.position or 0) >= 3 * 4096)
    except KafkaLogError as error:
        print(type(error).__name__)
    else:
        print("fine")
"""

READS = {
    "records": "reading = log.records(0); next(reading); {how}(); tell(lambda: list(reading))",
    "values": "held = list(log.records(0)); {how}(); tell(lambda: [each.value for each in held])",
    "batches": (
        "reading = log.batches(0); next(reading); {how}();"
        " tell(lambda: [batch.tuples() for batch in reading])"
    ),
    "held batch": (
        "held = list(log.batches(7000)); {how}(); tell(lambda: [batch.lists() for batch in held])"
    ),
    "get": "log.get(5000); log.get(7000); {how}(); tell(lambda: log.get(7001).value)",
    "get_many": "log.get(7000); {how}(); tell(lambda: log.get_many(range(0, 8000, 50)))",
    "read": "fetched = log.read(5000, 1 << 20); {how}(); tell(lambda: bytes(fetched.data))",
    "read again": (
        "fetched = log.read(5000, 1 << 20); fetched.data; {how}(); bytes(fetched.data[-9000:]);"
        " tell(lambda: fetched.data)"
    ),
    "fetched records": (
        "fetched = log.read(5000, 1 << 20); {how}();"
        " tell(lambda: [record.value for record in fetched.records()])"
    ),
    "time": (
        "log.offset_for_timestamp(10**12); {how}();"
        " tell(lambda: log.offset_for_timestamp(10**12 + 7000))"
    ),
    "times": (
        "log.offset_for_timestamp(10**12 + 7000); {how}();"
        " tell(lambda: log.offsets_for_timestamps([10**12 + n for n in range(5000, 7999)]))"
    ),
    "scan": "reading = iter(log.scan()); next(reading); {how}(); tell(lambda: list(reading))",
    "scan as views": (
        "reading = iter(log.scan(binary_type='binary_view', batch_rows=100)); next(reading);"
        " {how}(); tell(lambda: list(reading))"
    ),
    "numpy": "log.get(7999); {how}(); tell(lambda: log.scan().to_numpy())",
}


def read(directory: Path, action: str, how: str, codec: str, role: str) -> str:
    """Run one of the reads while the file loses its pages; return its result."""
    said = run_program(PREFACE + READS[action].format(how=how), directory, codec, role, how)
    assert len(said) == 1
    return said[0]


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
@pytest.mark.parametrize("action", READS)
def test_read_on_a_failing_disk_raises_with_file_and_position(
    tmp_path: Path, action: str, codec: str
) -> None:
    """DUR-3: with every read API and codec: LogStorageError, EIO, the place; never damage."""
    said = read(tmp_path / "t-0", action, "fail", codec, "writer")
    # Bytes that were decompressed before the disk failed are in memory.
    assert said == "storage 5 True True" or (said == "fine" and codec == "zstd"), said
    if codec == "uncompressed":
        assert said != "fine"


@pytest.mark.parametrize("role", ["writer", "reader"])
@pytest.mark.parametrize("action", READS)
def test_read_of_a_cut_file_raises_a_typed_error(tmp_path: Path, action: str, role: str) -> None:
    """DUR-3: a file that another process cut is not a failure of the disk."""
    said = read(tmp_path / "t-0", action, "cut", "uncompressed", role)
    assert said in (
        "storage None True True",
        "storage None True False",
        "CorruptRecordError",
        "OffsetOutOfRangeError",
        "fine",
    )


@pytest.mark.parametrize(("fetch", "how"), [("pass", "cut"), ("fetched.data", "fail")])
def test_send_of_lost_bytes_raises_a_typed_error(tmp_path: Path, fetch: str, how: str) -> None:
    """DUR-5: a socket never gets zeros from memory, and the error is not one of the socket."""
    body = """
left, right = socket.socketpair()
left.setblocking(False)
log.get(7000)
fetched = log.read(100, 1 << 20)
{fetch}
{how}()
tell(lambda: fetched.send_to(left))
"""
    program = PREFACE + body.format(fetch=fetch, how=how)
    said = run_program(program, tmp_path / "t-0", "uncompressed", "writer", how)
    assert said == ["storage None True False" if how == "cut" else "storage 5 True True"]


def test_recovery_with_a_bad_page_cuts_nothing(tmp_path: Path) -> None:
    """DUR-3: recovery raises while the disk fails; later it finds all, without a corrupt range."""
    said = run_program(
        PREFACE
        + """
log.close()
for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", ".kafkalog_syncs"):
    if os.path.exists(os.path.join(directory, name)):
        os.unlink(os.path.join(directory, name))
before = {name: os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory)}
fail()
for _ in range(2):
    tell(lambda: kafkalog.open_log(directory, config=config))
after = {name: os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory)}
print(all(after.get(name) == before[name] for name in before if name.startswith("0")))
disk.work()
with kafkalog.open_log(directory, config=config) as log:
    found = len(list(log.records()))
    print(log.log_end_offset, found, log.corrupt_ranges(), log.recovery_report.cut)
""",
        tmp_path / "t-0",
        "uncompressed",
        "writer",
        "fail",
    )
    assert said[:2] == ["storage 5 True True"] * 2
    assert said[2:] == ["True", "8000 8000 () ()"]


def test_index_with_a_bad_page_is_not_rebuilt(tmp_path: Path) -> None:
    """DUR-3: the read raises, and the index file stays."""
    said = run_program(
        PREFACE
        + """
log.close()
fine = LogConfig(index_interval_bytes=100, segment_bytes=64 << 20)
log = kafkalog.open_log(directory, config=fine)
for start in range(2000):
    log.append([Record(value=b"x" * 200, timestamp_ms=10**12 + 9000)])
log.roll()
log.append([Record(value=b"behind")])
index = segment.replace(".log", ".index")
log.close()
content = open(index, "rb").read()
disk = FailingDisk(index)
disk.fail(0)
log = kafkalog.open_log(directory, config=config)
for _ in range(2):
    try:
        log.get(9000)
    except LogStorageError as error:
        print(error.errno, error.path == index, open(index, "rb").read() == content)
disk.work()
print(log.get(9000).offset)
""",
        tmp_path / "t-0",
        "uncompressed",
        "writer",
        "fail",
    )
    assert said == ["5 True True", "5 True True", "9000"]


def test_read_after_the_disk_recovers_is_right(tmp_path: Path) -> None:
    """DUR-3: on the same handle, which does not use the lost mappings again."""
    said = run_program(
        PREFACE
        + """
log.get(7000)
fail()
tell(lambda: [record.value for record in log.records(6000)])
disk.work()
tell(lambda: [log.get(offset).value for offset in range(5000, 8000, 10)])
print(len(list(log.records())), len(log.read(7000, 1 << 20).data) > 0)
""",
        tmp_path / "t-0",
        "uncompressed",
        "writer",
        "fail",
    )
    assert said == ["storage 5 True True", "fine", "8000 True"]


def test_data_directory_with_failing_disk_goes_offline_alone(tmp_path: Path) -> None:
    """DUR-3: the manager's other data directory stays online."""
    said = run_program(
        """
import os, sys
import kafkalog
from kafkalog import LogStorageError, Record
from tests.support.lost_pages import FailingDisk
paths = [sys.argv[1] + "/a", sys.argv[1] + "/b"]
for path in paths: os.mkdir(path)
manager = kafkalog.LogManager(paths)
manager.create_topic("t", 2)
logs = [manager.log("t", number) for number in range(2)]
disk = FailingDisk(os.path.join(logs[0].directory, "0" * 20 + ".log"))
for log in logs:
    for start in range(100):
        log.append([Record(value=b"x" * 1000) for _ in range(10)])
    log.get(999)
disk.fail(3 * 4096)
try:
    list(logs[0].records())
except LogStorageError as error:
    print(error.errno)
health = manager.health()
print([each.is_online for each in health.directories], health.is_healthy)
other = manager.log("t", 1)
print(len(list(other.records())), other.append([Record(value=b"y")]).first_offset)
manager.close()
""",
        tmp_path,
    )
    assert said[0] == "5"
    assert said[1] in ("[False, True] False", "[True, False] False")
    assert said[2] == "1000 1000"
