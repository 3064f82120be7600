"""`kafkalog convert`: exit status and two forms of output of the library calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import kafkalog
from kafkalog import LogConfig
from kafkalog.cli.app import app
from tests.support.damage import batch_positions, flip
from tests.support.golden import unchanged
from tests.support.golden_old import old_data_directory
from tests.support.logs import numbered

OLD = old_data_directory("kafka-2.8")


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["convert", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def parsed(result: Result) -> Any:
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def test_convert_target_is_written_and_savings_are_reported(tmp_path: Path) -> None:
    """The source is only read."""
    with unchanged(OLD / "mixed-0"):
        result = run(OLD / "mixed-0", tmp_path / "mixed-0", "-c", "zstd")
    assert 0 == result.exit_code, result.output
    assert "mixed-0" in result.output
    assert "saved" in result.output
    with kafkalog.open_log(tmp_path / "mixed-0", read_only=True) as log:
        assert 315 == len(list(log.records()))
        assert {2} == {batch.header.magic for batch in log.batches()}


def test_convert_data_directory_has_a_line_for_each_partition(tmp_path: Path) -> None:
    """The checkpoints are copied, too."""
    result = run(OLD, tmp_path / "data")
    assert 0 == result.exit_code, result.output
    for directory in OLD.iterdir():
        if directory.is_dir():
            assert directory.name in result.output
    assert "copied as they are: cleaner-offset-checkpoint" in result.output


def test_convert_json_is_one_object(tmp_path: Path) -> None:
    """The object has every number of the report."""
    found = parsed(run(OLD / "v1-gzip-0", tmp_path / "a-0", "--json", "--no-verify"))
    assert {"logs", "copied", "left_out", "not_done"} == set(found)
    assert [] == found["not_done"]
    log = found["logs"][0]
    assert (0, 206, False) == (log["log_start_offset"], log["log_end_offset"], log["verified"])
    assert log["complete"]
    assert 206 == log["report"]["records_converted"]
    assert log["saved_bytes"] == log["source_bytes"] - log["result_bytes"]
    assert [] == log["left_out"]


def damaged(directory: Path) -> Path:
    with kafkalog.open_log(directory, config=LogConfig()) as log:
        for number in range(5):
            log.append(numbered(number * 10, 10))
    path = next(directory.glob("*.log"))
    flip(path, batch_positions(path)[2] + 70)
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    return directory


def test_convert_damaged_log_is_refused(tmp_path: Path) -> None:
    """Status 3; the error names the place, and no file is left."""
    source = damaged(tmp_path / "a-0")
    result = run(source, tmp_path / "b-0")
    assert 3 == result.exit_code
    assert "00000000000000000000.log" in result.stderr
    assert not (tmp_path / "b-0").exists()


def test_convert_skipped_damage_is_reported_with_status_1(tmp_path: Path) -> None:
    """In both forms of output."""
    source = damaged(tmp_path / "a-0")
    result = run(source, tmp_path / "b-0", "--on-corrupt", "skip")
    assert 1 == result.exit_code
    assert "left out:" in result.output
    assert "offsets 20 to 29" in result.output
    result = run(source, tmp_path / "c-0", "--on-corrupt", "skip", "--json")
    assert 1 == result.exit_code
    left = json.loads(result.stdout)["logs"][0]["left_out"]
    assert [(20, 30, False)] == [(x["first_offset"], x["next_offset"], x["kept"]) for x in left]


def test_convert_in_place_reports_by_segment_and_codec(
    tmp_path: Path,
) -> None:
    """The same exit status and the same two forms of output."""
    source = tmp_path / "a-0"
    with kafkalog.open_log(source, config=LogConfig()) as log:
        for number in range(4):
            log.append(numbered(number * 50, 50))
            log.roll()
    result = run(source, "--in-place", "-c", "gzip")
    assert 0 == result.exit_code, result.output
    for line in ("segment", "codec", "gzip", "none"):
        assert any(found.split()[:1] == [line] for found in result.output.splitlines()), line
    for base in (0, 50, 100, 150):
        assert any(found.split()[:1] == [str(base)] for found in result.output.splitlines())
    found = parsed(run(source, "--in-place", "--json"))["logs"][0]
    assert found["source"] == found["target"] == str(source)
    assert [False] * 5 == [segment["converted"] for segment in found["segments"]]
    assert {"gzip": found["result_bytes"]} == found["report"]["result_bytes_by_codec"]
    with kafkalog.open_log(source, read_only=True) as log:
        assert 200 == len(list(log.records()))


@pytest.mark.parametrize("as_json", [False, True])
def test_convert_in_place_after_an_error_reports_finished_logs(
    tmp_path: Path, *, as_json: bool
) -> None:
    """Status 2, with the finished and the unfinished logs."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\n")
    for name in ("a-0", "b-0", "c-0"):
        with kafkalog.open_log(data / name) as log:
            log.append(numbered(0, 50))
            log.append(numbered(50, 50))
    path = next((data / "b-0").glob("*.log"))
    flip(path, batch_positions(path)[0] + 70)
    result = run(data, "--in-place", "-c", "gzip", *(["--json"] if as_json else []))
    assert 3 == result.exit_code
    assert str(path) in result.stderr
    if as_json:
        found = json.loads(result.stdout)
        assert ["b-0", "c-0"] == found["not_done"]
        assert "CorruptRecordError" == found["error"]
        assert str(path) in found["message"]
        assert [str(data / "a-0")] == [log["source"] for log in found["logs"] if log["complete"]]
    else:
        lines = result.stdout.splitlines()
        assert any(line.split()[:1] == ["a-0"] for line in lines)
        assert "not done: b-0, c-0" in lines


def test_convert_existing_target_is_refused(tmp_path: Path) -> None:
    """Status 3."""
    (tmp_path / "b-0").mkdir()
    result = run(OLD / "mixed-0", tmp_path / "b-0")
    assert 3 == result.exit_code
    assert "exists" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either the directory"),
        (("x", "--in-place"), "either the directory"),
        (("--in-place", "--no-verify"), "verify must be True"),
        (("x", "--on-corrupt", "maybe"), "must be raise or skip"),
        (("x", "-c", "brotli"), "codec must be"),
        (("x", "-c", "producer"), "must be keep, none"),
        (("x", "--level", "3"), "level"),
        (("x", "-c", "gzip", "--level", "99"), "99"),
    ],
)
def test_convert_wrong_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    """Status 2, and no file is made."""
    monkeypatch.chdir(tmp_path)
    result = run(OLD / "v1-plain-0", *arguments)
    assert 2 == result.exit_code
    assert message in result.output
    assert [] == list(tmp_path.iterdir())


def test_estimate_log_shows_every_codec_and_writes_nothing(tmp_path: Path) -> None:
    """Ratio and speed of each codec; an output directory is not needed."""
    with unchanged(OLD / "wide-0"):
        result = run(OLD / "wide-0", "--estimate")
    assert 0 == result.exit_code, result.output
    for word in ("wide-0", "gzip", "snappy", "lz4", "zstd", "ratio", "MB/s"):
        assert word in result.output


def test_estimate_data_directory_json_has_each_partition() -> None:
    """Each entry has one codec and its level."""
    found = parsed(run(OLD, "--estimate", "--json", "-c", "zstd", "--level", "1"))
    assert {str(path) for path in OLD.iterdir() if path.is_dir()} == set(found)
    log = found[str(OLD / "wide-0")]
    assert {"none", "zstd"} == set(log["codecs"])
    zstd = log["codecs"]["zstd"]
    assert 1 == zstd["level"]
    assert 0 < zstd["ratio"] < 1
    assert zstd["expected_bytes"] < log["log_bytes"]
    assert zstd["compress_bytes_per_s"] > 0


def test_estimate_empty_directory_is_refused(tmp_path: Path) -> None:
    """Status 3."""
    assert 3 == run(tmp_path / "missing-0", "--estimate").exit_code
