"""`kafkalog dump` on directories of Kafka 0.8.2 to 2.8: outer entries and inner messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafkalog.cli.app import app
from kafkalog.records.codecs import Codec
from tests.cli.test_dump_golden import by_file, encoded, objects, of_kind, run, shortened
from tests.golden_directories.old_facts import PARTITIONS, manifest_of
from tests.support.golden import CODECS, unchanged
from tests.support.manifest_old import TIMESTAMP_TYPE_NAMES, OldEntryFact, OldRecordFact
from tests.support.old_logs import Chapter, chapters_of, write_chapters
from tests.support.reference_messages import Message, encode_message


def entry_object(entry: OldEntryFact) -> dict[str, Any]:
    """Return the fields of an outer entry of magic 0 or 1 in the dump."""
    first = entry.records[0]
    return {
        "position": entry.position,
        "size_bytes": entry.size_bytes,
        "base_offset": None if entry.is_wrapper else entry.offset,
        "last_offset": entry.offset,
        "record_count": None if entry.is_wrapper else 1,
        "max_timestamp": -1 if first.wrapper_timestamp is None else first.wrapper_timestamp,
        "timestamp_type": TIMESTAMP_TYPE_NAMES[first.timestamp_type],
        "codec": CODECS[entry.codec],
        "magic": entry.magic,
        "crc": entry.crc,
        "leader_epoch": None,
        "producer_id": None,
        "base_sequence": None,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
    }


def record_object(record: OldRecordFact) -> tuple[Any, ...]:
    """Return the fields of a record in the dump; of a long value its hash."""
    own_crc = record.crc if record.inner_crc is None else record.inner_crc
    return (
        record.offset,
        record.timestamp_ms,
        TIMESTAMP_TYPE_NAMES[record.timestamp_type],
        encoded(record.key),
        encoded(record.value) if record.value_sha256 is None else record.value_sha256,
        [[name, encoded(value)] for name, value in record.headers],
        own_crc if record.magic < 2 else None,
    )


@pytest.mark.parametrize(("broker", "partition"), PARTITIONS)
def test_dump_json_old_directory_equals_the_manifest(broker: str, partition: str) -> None:
    """Outer entries and inner records with separate checksums, and no damage."""
    manifest = manifest_of(broker, partition)
    with unchanged(manifest.directory):
        files = by_file(objects("--records", manifest.directory))
    segments = {segment.log_name for segment in manifest.summary.segments}
    found = [each for name in sorted(segments) for each in files[name]]

    shown = [each for each in of_kind("batch", found) if each["record_count"] != 0]
    for entry, batch in zip(manifest.entries(), shown, strict=True):
        assert (entry.position, entry.magic, entry.crc) == (
            batch["position"],
            batch["magic"],
            batch["crc"],
        )
        if entry.magic < 2:
            expected = entry_object(entry)
            assert expected == {name: batch[name] for name in expected}
    records = [shortened(record) for record in of_kind("record", found)]
    names = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "crc")
    for fact, record in zip(manifest.records(), records, strict=True):
        assert record_object(fact) == tuple(record.get(name) for name in names)
    for segment in manifest.summary.segments:
        stem = segment.log_name.removesuffix(".log")
        assert list(segment.offset_index) == [
            (each["offset"], each["position"]) for each in files[f"{stem}.index"]
        ]


def test_dump_text_of_old_messages_has_the_form_of_kafkas_tool(tmp_path: Path) -> None:
    """An outer entry has its own offset, a message its checksum and the tool's brace."""
    chapters = chapters_of([(0, Codec.NONE, 1), (1, Codec.GZIP, 2)])
    path = write_chapters(tmp_path, chapters)
    first, second = (int.from_bytes(each.data[12:16]) for each in chapters)
    size, timestamp = len(chapters[0].data), chapters[1].facts[1][1]
    expected = f"""\
offset: 0 position: 0 NoTimestampType: -1 size: {size} magic: 0 compresscodec: none \
crc: {first} isvalid: true
| offset: 0 NoTimestampType: -1 keySize: 2 valueSize: 8 isValid: true crc: {first}}} \
key: k0 payload: value 0;
offset: 2 position: {size} CreateTime: {timestamp} size: {len(chapters[1].data)} magic: 1 \
compresscodec: gzip crc: {second} isvalid: true"""
    lines = run("-r", path)
    assert expected.splitlines() == lines[2:5]
    assert lines[6].startswith(f"| offset: 2 CreateTime: {chapters[1].facts[1][1]} keySize: 2 ")


def test_dump_unreadable_wrapper_is_one_damage_line(tmp_path: Path) -> None:
    """The checksum of the wrapper is correct, and the dump continues."""
    before, behind = chapters_of([(0, Codec.GZIP, 2), (1, Codec.NONE, 1)])
    broken = encode_message(Message(1, 1, Codec.GZIP, 0, None, b"no gzip stream"))
    path = write_chapters(tmp_path, [before, Chapter(broken, 1, 1, ()), behind])
    result = CliRunner().invoke(app, ["dump", "-r", str(path)])
    assert 1 == result.exit_code
    lines = result.stdout.splitlines()
    damages = [line for line in lines if line.startswith("DAMAGE")]
    assert [f"DAMAGE position: {len(before.data)} size: {len(broken)}"] == [
        line.partition(" reason")[0] for line in damages if "CorruptRecordError" in line
    ]
    assert not any("firstOffset" in line for line in damages)
    assert lines[-1].startswith("| offset: 2 CreateTime")
