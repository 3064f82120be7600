"""Options that Spark's Kafka source does not have, and the parser of all options."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import (
    ConfigError,
    CorruptRecordError,
    KafkaLogError,
    LogLockedError,
    LogStorageError,
)
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, coded_errors, of_engine
from kafkalog.spark.options import OPTIONS, ReadOptions, StreamLimits, WriteOptions, options_for
from kafkalog.spark.options.option import Option

PATH = {"path": "/data"}


def code_of(options: dict[str, str], *, streaming: bool = False) -> tuple[ErrorCode, str]:
    """Return code and message of the refused options of a read."""
    with pytest.raises(KafkaLogSparkError) as caught:
        ReadOptions.parse(options, streaming=streaming)
    return caught.value.code, str(caught.value)


def test_path_missing_is_refused_with_advice() -> None:
    """A table of the catalog passes no options; the message names a statement that does."""
    code, message = code_of({})
    assert ErrorCode.OPTION_MISSING == code
    assert "CREATE TEMPORARY VIEW" in message
    with pytest.raises(KafkaLogSparkError, match="OPTION_MISSING"):
        WriteOptions.parse({})


def test_paths_json_or_commas_are_several_directories() -> None:
    """`load([a, b])` arrives as JSON; a file URI is its path."""
    assert ("/a", "/b,c") == ReadOptions.parse({"paths": '["/a", "/b,c"]'}).paths
    assert ("/a", "/b") == ReadOptions.parse({"paths": "/a,/b"}).paths
    assert ("/a b",) == ReadOptions.parse({"path": "file:///a%20b"}).paths
    assert ErrorCode.UNSUPPORTED == code_of({"path": "s3://bucket/x"})[0]
    assert ErrorCode.OPTION_CONFLICT == code_of({"path": "/a", "paths": "/b"})[0]
    assert ErrorCode.OPTION_INVALID == code_of({"path": "/a\0b"})[0]
    for wrong in ("[]", "[1]", '["/a"', '{"a": 1}x,'):
        assert ErrorCode.OPTION_INVALID == code_of({"paths": wrong})[0]


def test_unknown_option_is_refused_with_the_nearest_name() -> None:
    """A typing error must not change the rows that are read."""
    code, message = code_of({**PATH, "startingOffset": "latest"})
    assert ErrorCode.OPTION_UNKNOWN == code
    assert "did you mean startingOffsets?" in message
    assert code_of({**PATH, "zzz": "1"}) == (
        ErrorCode.OPTION_UNKNOWN,
        '[KAFKALOG.OPTION_UNKNOWN] unknown option \'zzz\' {"option": "zzz"}',
    )


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("slip", "meant"),
    [("maxOffsetPerTrigger", "maxOffsetsPerTrigger"), ("endingOffset", "endingOffsets")],
)
def test_unknown_option_is_compared_with_those_of_batches_and_streams(
    slip: str, meant: str, streaming: bool
) -> None:
    """The schema of a stream is requested before the source knows its use."""
    code, message = code_of({**PATH, slip: "1"}, streaming=streaming)
    assert (ErrorCode.OPTION_UNKNOWN, True) == (code, f"did you mean {meant}?" in message)


def test_unknown_option_not_strict_is_listed_as_ignored() -> None:
    """`strictOptions=false` applies at any position among the options."""
    options = ReadOptions.parse({"zzz": "1", "STRICTOPTIONS": "false", **PATH})
    assert ("zzz: unknown option",) == options.ignored


def test_option_of_another_kind_of_query_is_refused_by_name() -> None:
    """A sink option has no meaning for a read, and is not reported as unknown."""
    code, message = code_of({**PATH, "txnAppId": "a"})
    assert ErrorCode.OPTION_INVALID == code
    assert "txnAppId is for a write, and this is a batch read" in message


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.default is not None])
def test_default_of_every_option_is_a_valid_value(option: Option) -> None:
    """Also with blanks around it and in capitals."""
    text = f" {option.default} "
    shouted = text if option.kind == "text" else text.upper()
    assert option.parse(option.default or "") == option.parse(shouted)


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.kind not in ("text", "names", "json")]
)
def test_invalid_value_of_every_kind_is_refused_with_its_rule(option: Option) -> None:
    """Values that no kind accepts."""
    for wrong in ("", "?", "-1", "9" * 40, "1e3", "\u0661"):
        with pytest.raises(KafkaLogSparkError) as caught:
            option.parse(wrong)
        assert f"{option.name} = '{wrong}': must be {option.rule}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("64k", 65536), ("64KB", 65536), ("1 m", 2**20), ("1g", 2**30), ("7b", 7)],
)
def test_split_bytes_unit_is_a_power_of_1024(text: str, size: int) -> None:
    """As in Spark's sizes."""
    assert size == ReadOptions.parse({**PATH, "splitBytes": text}).split_bytes


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250", 250), ("30s", 30_000), ("2 min", 120_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_orphan_age_unit_is_a_time(text: str, ms: int) -> None:
    """As in Spark's times; without a unit, milliseconds."""
    assert ms == WriteOptions.parse({**PATH, "orphanAge": text}).orphan_age_ms


def test_arrow_batch_bytes_above_a_gibibyte_is_refused() -> None:
    """Offsets in an Arrow batch have 32 bits."""
    assert 2**30 == ReadOptions.parse({**PATH, "arrowBatchBytes": "1g"}).arrow_batch_bytes
    assert ErrorCode.OPTION_INVALID == code_of({**PATH, "arrowBatchBytes": "1025m"})[0]


def test_view_other_than_records_is_refused_for_a_stream() -> None:
    """Segments cannot be streamed."""
    assert "segments" == ReadOptions.parse({**PATH, "view": "segments"}).view
    code, message = code_of({**PATH, "view": "segments"}, streaming=True)
    assert ErrorCode.OPTION_CONFLICT == code
    assert "a stream has records, no segments" in message


def test_option_names_ignore_case() -> None:
    """Spark passes them in lower case."""
    names = [each.name for each in options_for("batch")]
    assert len(names) == len({name.lower() for name in names})
    options = {"PATH": "/data", "arrowbatchrows": "5", "columnnameofcorruptrecord": "Bad"}
    parsed = ReadOptions.parse(options)
    assert (5, "Bad") == (parsed.arrow_batch_rows, parsed.corrupt_column)


def test_columns_option_keeps_its_order() -> None:
    """It is the projection, because Spark passes none to a source."""
    assert ("value", "offset") == ReadOptions.parse({**PATH, "columns": "value, offset"}).columns
    assert ReadOptions.parse(PATH).columns is None


def test_transaction_options_must_be_set_together() -> None:
    """Only one of them would seem idempotent without being so."""
    options = WriteOptions.parse({**PATH, "txnAppId": "etl", "txnVersion": "7"})
    assert ("etl", 7) == (options.app_id, options.version)
    for half in ({"txnAppId": "etl"}, {"txnVersion": "7"}):
        with pytest.raises(KafkaLogSparkError, match="txnAppId and txnVersion come together"):
            WriteOptions.parse({**PATH, **half})


def test_options_of_spark_are_accepted_by_a_sink() -> None:
    """A streaming query passes its checkpoint location to the sink."""
    options = {**PATH, "checkpointLocation": "/c", "queryName": "q"}
    assert () == WriteOptions.parse(options).ignored


@given(st.dictionaries(st.sampled_from([each.name for each in OPTIONS]), st.text(max_size=20)))
def test_any_text_is_parsed_or_refused_with_a_code(options: dict[str, str]) -> None:
    """No other error is raised."""
    for parse in (ReadOptions.parse, WriteOptions.parse):
        try:
            parsed = parse({**PATH, **options})
        except KafkaLogSparkError as error:
            assert f"[KAFKALOG.{error.code}] " in str(error)
        else:
            assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_default_limits_can_be_pickled() -> None:
    """Workers receive plain data."""
    assert StreamLimits() == pickle.loads(pickle.dumps(StreamLimits()))


def test_error_pickled_keeps_code_and_detail() -> None:
    """Errors go from worker to driver, some as objects."""
    error = KafkaLogSparkError(ErrorCode.DATA_LOSS, "gone", topic="t", position=7, path="/x")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(error), error.code, error.detail) == (str(copy), copy.code, copy.detail)
    assert ("/x", 7, None) == (copy.path, copy.position, copy.base_offset)
    assert '[KAFKALOG.DATA_LOSS] gone {"topic": "t", "position": 7, "path": "/x"}' == str(error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptRecordError("bad", path="/l", position=3), ErrorCode.CORRUPT_BATCH),
        (LogLockedError("busy"), ErrorCode.LOCKED),
        (LogStorageError("disk"), ErrorCode.STORAGE),
        (ConfigError("no such setting"), ErrorCode.OPTION_INVALID),
    ],
)
def test_engine_error_gets_its_code(error: KafkaLogError, code: ErrorCode) -> None:
    """The text has class, message and position; an error with a code is not changed."""
    shown = of_engine(error, topic="t")
    assert code == shown.code
    assert f"{type(error).__name__}: {error}" == shown.message
    assert (error.path, error.position, "t") == (shown.path, shown.position, shown.detail["topic"])
    assert shown is of_engine(shown)


def test_coded_errors_adds_a_code() -> None:
    """Engine errors get theirs, disk errors STORAGE; an existing code is kept."""
    loss = KafkaLogSparkError(ErrorCode.DATA_LOSS, "gone")
    cases: list[tuple[Exception, ErrorCode, dict[str, object]]] = [
        (LogLockedError("busy"), ErrorCode.LOCKED, {"error": "LogLockedError", "topic": "t"}),
        (
            FileNotFoundError(2, "gone", "/x"),
            ErrorCode.STORAGE,
            {"error": "FileNotFoundError", "path": "/x", "topic": "t"},
        ),
        (loss, ErrorCode.DATA_LOSS, {}),
    ]
    for error, code, detail in cases:
        with pytest.raises(KafkaLogSparkError) as caught, coded_errors(topic="t"):
            raise error
        assert (code, detail) == (caught.value.code, caught.value.detail)
        assert caught.value is loss or caught.value.__cause__ is error
    with pytest.raises(ZeroDivisionError), coded_errors():
        _ = 1 // 0


def test_import_of_options_and_plan_does_not_load_pyspark() -> None:
    """`import kafkalog` does not load it either, nor pyarrow."""
    program = (
        "import sys, kafkalog, kafkalog.spark, kafkalog.spark.options, kafkalog.spark.plan\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & sys.modules.keys()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (0, b"") == (ran.returncode, ran.stderr)
