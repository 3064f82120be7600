"""Jobs over log directories, on a real Spark: what they leave is what the engine itself would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import kafkalog.spark
from kafkalog import LogConfig, LogManager, Record, compact_log, open_log
from kafkalog.cli.app import app
from kafkalog.spark import jobs
from kafkalog.spark.errors import KafkaLogSparkError
from tests.support import golden
from tests.support.compacted_logs import RETENTION_MS, fill
from tests.support.damage import flip, log_file
from tests.support.manual_time import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW_MS = 1_700_000_000_000
POLICY = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "delete.retention.ms": str(RETENTION_MS),
    "file.delete.delay.ms": "0",
}
CONFIG = LogConfig.from_properties(POLICY)

Row = tuple[str, int, int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a data directory: transactions, tombstones, codecs, and a part that was cleaned."""
    data = tmp_path_factory.mktemp("pristine") / "data"
    clock = ManualClock(NOW_MS)
    for seed, name in enumerate(("orders-0", "orders-1", "users-0")):
        with open_log(data / name, config=CONFIG, clock=clock) as log:
            fill(log, clock.now_ms, batch_count=40, seed=seed)
            compact_log(log, include_active=True)
            clock.advance(2 * RETENTION_MS)
            fill(log, clock.now_ms, batch_count=40, seed=seed + 10)
    return data


@pytest.fixture
def data(pristine: Path, tmp_path: Path) -> Path:
    """Return a copy, with the times of its files."""
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def clock_later() -> ManualClock:
    return ManualClock(NOW_MS + 10 * RETENTION_MS)


def served(data: Path) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """Return what committed readers get of each partition."""
    found = {}
    for directory in sorted(path for path in data.iterdir() if path.is_dir()):
        with open_log(directory, config=CONFIG, read_only=True) as log:
            found[directory.name] = [
                (record.offset, record.key, record.value)
                for record in log.records(isolation="read_committed")
            ]
    return found


def segments(data: Path) -> dict[str, bytes]:
    """Return the logs of all segments."""
    return {str(path.relative_to(data)): path.read_bytes() for path in data.glob("*/*.log")}


def latest(data: Path, *, tombstones: bool) -> set[Row]:
    """Find the latest records of keys by a slow and obvious search."""
    rows: set[Row] = set()
    for name, records in served(data).items():
        topic, _, partition = name.rpartition("-")
        by_key = {key: (offset, value) for offset, key, value in records if key is not None}
        rows |= {
            (topic, int(partition), offset, key, value)
            for key, (offset, value) in by_key.items()
            if tombstones or value is not None
        }
    return rows


def test_compact_bytes_equal_those_of_the_engine(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    """All segments of all partitions except the active ones, with a report."""
    own = Path(shutil.copytree(data, tmp_path / "own"))
    seen: list[jobs.JobProgress] = []
    report = jobs.compact(
        spark, data, policy=POLICY, clock=clock_later(), task_bytes=4096, on_progress=seen.append
    )
    for directory in sorted(path for path in own.iterdir() if path.is_dir()):
        with open_log(directory, config=CONFIG, clock=clock_later()) as log:
            compact_log(log)

    assert report.status == "done"
    assert report.totals["compacted"] == 3
    assert report.totals["bytes_after"] < report.totals["bytes_before"]
    assert {"keys", "clean"} == {each.stage for each in seen}
    assert segments(own) == segments(data)


def test_compact_dry_run_changes_no_file(spark: SparkSession, data: Path) -> None:
    """It reports the plan."""
    before = segments(data)
    report = jobs.compact(
        spark, data, policy=POLICY, clock=clock_later(), dry_run=True, include_active=True
    )

    assert before == segments(data)
    assert report.status == "done"
    assert report.totals["records_kept"] < report.totals["records_read"]


def test_compact_locked_log_is_left_for_a_later_run(spark: SparkSession, data: Path) -> None:
    """An open directory stays with its owner; the report names it."""
    before = served(data)
    with open_log(data / "orders-0", config=CONFIG):
        report = jobs.compact(spark, data, policy=POLICY, clock=clock_later(), job_id="one")
    again = jobs.compact(spark, data, policy=POLICY, clock=clock_later(), job_id="two")

    assert "incomplete" == report.status
    assert "LogLockedError" in str(report) or "locked" in str(report)
    assert "done" == again.status
    kept = {name: set(records) for name, records in served(data).items()}
    assert all(kept[name] <= set(records) for name, records in before.items())


def test_compact_damaged_partition_is_reported_and_others_are_compacted(
    spark: SparkSession, data: Path
) -> None:
    """Damage is reported with its position, and stays."""
    path = min((data / "orders-1").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    report = jobs.compact(spark, data, policy=POLICY, clock=clock_later())

    assert "incomplete" == report.status
    assert 2 == report.totals["compacted"]
    bad = [each for each in report.partitions if each.get("error")]
    assert ["orders-1"] == [Path(each["directory"]).name for each in bad]
    assert path.name in bad[0]["error"]
    assert bytes(content) == path.read_bytes()


def test_job_finished_and_repeated_returns_the_same_report(spark: SparkSession, data: Path) -> None:
    """And the same id with other arguments is refused."""
    first = jobs.compact(spark, data, policy=POLICY, clock=clock_later(), job_id="once")
    before = segments(data)
    second = jobs.compact(spark, data, policy=POLICY, clock=clock_later(), job_id="once")

    assert first == second
    assert before == segments(data)
    with pytest.raises(KafkaLogSparkError, match="begun with other arguments: include_active"):
        jobs.compact(spark, data, policy=POLICY, include_active=True, job_id="once")


@pytest.mark.parametrize("tombstones", [False, True])
def test_snapshot_has_the_latest_record_of_each_key(
    spark: SparkSession, data: Path, tombstones: bool
) -> None:
    """Of committed records with a key, in every partition by itself."""
    frame = jobs.snapshot(spark, data, drop_tombstones=not tombstones, task_bytes=4096)
    rows = {
        (row.topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value))
        for row in frame.collect()
    }

    assert latest(data, tombstones=tombstones) == rows


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_import_of_an_export_restores_every_record_at_its_offset(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    """To Parquet and back: keys, values, offsets with their holes; a second import is refused."""
    options = {"isolationLevel": "read_committed"}
    report = jobs.export(spark, data, tmp_path / "out", options=options, include_headers=True)
    brought = jobs.import_(spark, tmp_path / "out", tmp_path / "back", codec="lz4")

    rows = sum(len(records) for records in served(data).values())
    assert "done" == report.status
    assert rows == report.totals["rows"] == brought.totals["rows"]
    assert served(data) == served(tmp_path / "back")
    with pytest.raises(KafkaLogSparkError, match=r"OFFSET_OUT_OF_RANGE.*nothing was written"):
        jobs.import_(spark, tmp_path / "out", tmp_path / "back", codec="lz4")


def test_export_files_are_partitioned_by_topic_and_day(spark: SparkSession, tmp_path: Path) -> None:
    """The manifest names every file, and a second run changes none."""
    day = 86_400_000
    with LogManager([tmp_path / "data"]) as manager:
        manager.create_topic("events")
        log = manager.log("events")
        log.append([Record(value=b"%d" % n, timestamp_ms=n * day // 2) for n in range(1, 7)])
    first = jobs.export(spark, tmp_path / "data", tmp_path / "out", job_id="one", codec="snappy")
    names = sorted(path.relative_to(tmp_path / "out") for path in _parquet(tmp_path / "out"))
    second = jobs.export(spark, tmp_path / "data", tmp_path / "out", job_id="two", codec="snappy")

    file = "events-0-00000000000000000000-00000000000000000006.parquet"
    dates = ("1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04")
    assert [Path("topic=events", f"date={date}", file) for date in dates] == names
    assert first.totals["rows"] == second.totals["rows"] == 6
    assert names == sorted(
        each.relative_to(tmp_path / "out") for each in _parquet(tmp_path / "out")
    )
    assert {"value": [b"1"]} == pq.ParquetFile(tmp_path / "out" / names[0]).read(
        ["value"]
    ).to_pydict()


def _parquet(out: Path) -> list[Path]:
    return list(out.glob("**/*.parquet"))


def test_reindex_restores_equal_indexes(spark: SparkSession, data: Path) -> None:
    """The damaged index is as before; nothing else changes."""
    with open_log(data / "users-0", config=CONFIG):
        pass
    indexes = sorted((data / "users-0").glob("*index"))
    good, logs = [path.read_bytes() for path in indexes], segments(data)
    for path, content in zip(indexes, good, strict=True):
        if path.suffix != ".txnindex":
            path.write_bytes(b"\xff" * len(content))
    report = jobs.reindex(spark, data, settings=POLICY, options={"subscribe": "users"})

    assert "done" == report.status
    assert any(good)
    assert good == [path.read_bytes() for path in indexes]
    assert logs == segments(data)


def test_stats_and_verify_cover_every_segment(spark: SparkSession, data: Path) -> None:
    """Counts are those of the logs; nothing is bad."""
    counted = {(row.topic, row.partition): row for row in jobs.stats(spark, data).collect()}
    rows = jobs.verify(spark, data, deep=True).collect()
    some = jobs.verify(spark, data, sample=0.5).collect()

    assert 3 == len(counted)
    files = {f"{row.topic}-{row.partition}": row.segments for row in counted.values()}
    assert files == {
        path.name: len(list(path.glob("*.log"))) for path in data.iterdir() if path.is_dir()
    }
    assert [(0, None)] * len(segments(data)) == [(row.bad, row.error) for row in rows]
    assert 0 < len(some) < len(rows)
    assert {(row.topic, row.segment) for row in some} < {(row.topic, row.segment) for row in rows}


# ---- the commands ----

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command in the session of the module, which stays open."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(kafkalog.spark, "start_session", lambda _master, **_settings: spark)
    return lambda *words: CliRunner().invoke(app, ["spark", *map(str, words)])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Make a log of eight keys, in two segments."""
    with open_log(tmp_path / "data" / "orders-0", config=LogConfig()) as log:
        for number in range(40):
            log.append([Record(key=b"%d" % (number % 8), value=b"%d" % number)])
            if number == 29:
                log.roll()
    return tmp_path / "data"


def test_commands_that_read_print_their_results(run: Run, small: Path, tmp_path: Path) -> None:
    """`stats` a line for each partition, `verify` for each bad segment, `snapshot` Parquet."""
    counted = run("stats", small, "--json")
    good = run("verify", small, "--deep")
    latest = run("snapshot", small, "--out", tmp_path / "latest")
    flip(log_file(small / "orders-0"), 90)
    bad = run("verify", small, "--json", "--option", "subscribe=orders")

    assert (0, 40) == (counted.exit_code, json.loads(counted.stdout)["records"]), counted
    assert (0, "") == (good.exit_code, good.stdout)
    assert "verify: 1 of 1 tasks" in good.stderr
    assert "2 segments, " in good.stderr and " 40 records: 0 segments are bad" in good.stderr
    assert 0 == latest.exit_code, latest.output
    assert "keys: 1 of 1 tasks" in latest.stderr
    rows = pq.read_table(tmp_path / "latest", columns=["offset"])
    assert list(range(32, 40)) == sorted(rows["offset"].to_pylist())
    assert (1, 1) == (bad.exit_code, json.loads(bad.stdout)["bad"])


def test_stats_timestamp_outside_the_calendar_is_printed(run: Run, tmp_path: Path) -> None:
    """USE-4: a broker accepts any number; it is printed up to the range of Spark's microseconds."""
    data = tmp_path / "data"
    shutil.copytree(golden.GOLDEN / "kafka-4.1" / "data" / "odd-0", data / "odd-0")
    counted = run("stats", data, "--json")
    assert counted.exit_code == 0, counted.output
    with open_log(data / "odd-0", read_only=True) as log:
        latest = max(record.timestamp_ms for record in log.records())
    assert latest > 253_402_300_800_000
    assert min(latest, (2**63 - 1) // 1000) == json.loads(counted.stdout)["maxTimestamp"]


def test_commands_that_write_print_a_report(run: Run, small: Path, tmp_path: Path) -> None:
    """`export`, `import`, `copy`, `reindex` and `compact` report their actions."""
    policy = ["--set", "cleanup.policy=compact"]
    out, back, copied = tmp_path / "out", tmp_path / "back", tmp_path / "copied"
    reports = [
        run("export", small, "--out", out, "--by", "topic", "--json"),
        run("import", out, back, "--json"),
        run("copy", small, "--out", copied, "--json"),
        run("reindex", small, "--json"),
        run("compact", small, *policy, "--dry-run", "--json"),
        run("compact", small, *policy, "--json"),
    ]

    assert [0] * 6 == [each.exit_code for each in reports], [each.output for each in reports]
    outputs = [json.loads(each.stdout) for each in reports]
    assert ["export", "import", "copy", "reindex", "compact", "compact"] == [
        each["job"] for each in outputs
    ]
    assert {"done"} == {each["status"] for each in outputs}
    assert "append: 1 of 1 tasks" in reports[1].stderr
    assert (40, 40) == (outputs[0]["totals"]["rows"], outputs[1]["totals"]["rows"])
    for place in (back, copied):
        with open_log(place / "orders-0", read_only=True) as log:
            assert list(range(40)) == [record.offset for record in log.records()]
    with open_log(small / "orders-0", read_only=True) as log:
        assert list(range(22, 40)) == [record.offset for record in log.records()]


def test_command_with_partitions_left_undone_exits_nonzero(run: Run, small: Path) -> None:
    """Status 1 and the reason where a log is held open; 3 where nothing could be begun."""
    with open_log(small / "orders-0"):
        locked = run("compact", small, "--set", "cleanup.policy=compact")
    missing = run("stats", small / "nothing")
    wrong = run("reindex", small, "--option", "subscrib=orders")

    assert 1 == locked.exit_code, locked.output
    assert "incomplete" in locked.stdout
    assert "locked" in locked.stdout
    assert 3 == missing.exit_code
    assert "PATH_NOT_FOUND" in missing.output
    assert (3, True) == (wrong.exit_code, "subscribe" in wrong.output)
