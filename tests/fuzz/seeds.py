"""Seeds of the corpora: small batches of real brokers, hostile cases of Kafka and of kafkalog.

`python -m tests.fuzz.seeds` rewrites them; other files, found by a fuzzer, are kept.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import sys
from collections.abc import Iterator

from tests.fuzz.targets import CORPUS
from tests.support import golden, reference, reference_codecs
from tests.support.message_cases import MIXED as MIXED_MESSAGES
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, header_for
from tests.support.reference_messages import encode_messages, encode_set
from tests.support.reference_records import Entry, encode

__all__ = ["seeds"]

# Largest run of a seed, without the choices at its front.
SIZE_MAX = 1500


def _runs() -> Iterator[bytes]:
    """Yield small runs of batches of every magic, sound and damaged."""
    for case in golden.vectors("batches")["batches"][::4]:
        yield bytes.fromhex(case["hex"])
    for case in golden.vectors("invalid")["cases"][::3]:
        yield bytes.fromhex(case["hex"])
    for case in golden.vectors("legacy")["sets"][::4]:
        yield bytes.fromhex(case["hex"])
    mixed = header_for(MIXED)
    yield reference.encode_batch(mixed, MIXED_PAYLOAD)
    for codec in (1, 2, 3, 4):
        stream = reference_codecs.compress(codec, MIXED_PAYLOAD)
        yield reference.encode_batch(header_for(MIXED, attributes=codec), stream)
    yield keyed_run()


def keyed_run() -> bytes:
    """Return batches with repeated keys, for a cleaning."""
    run, offset = b"", 0
    for number in range(4):
        entries = [
            Entry(delta, delta, b"k%d" % (delta * number % 3), b"v" if delta % 2 else None)
            for delta in range(4)
        ]
        run += reference.encode_batch(header_for(entries, base_offset=offset), encode(entries))
        offset += 4
    return run


def _with_times() -> bytes:
    """Return batches of one record, some with a later timestamp than the next ones."""
    run = b""
    for offset, delta in enumerate((0, 7, 3, -5, 2000, 1)):
        header = header_for([Entry(0)], base_offset=offset, max_timestamp=1_700_000_000_000 + delta)
        run += reference.encode_batch(header, encode([Entry(0, delta, b"key", b"value")]))
    return run


def _wrappers() -> Iterator[bytes]:
    for magic in (0, 1):
        messages = MIXED_MESSAGES[magic] if isinstance(MIXED_MESSAGES, dict) else MIXED_MESSAGES
        yield encode_messages(list(messages)[:5])
        for codec in (1, 2, 3):
            yield encode_set(list(messages)[:5], codec=codec)


def _indexes() -> Iterator[bytes]:
    yield b"".join(struct.pack(">ii", 3 * slot, 100 * slot) for slot in range(1, 9))
    yield b"".join(struct.pack(">qi", 1000 + 7 * slot, 3 * slot) for slot in range(1, 9))
    yield bytes(48)


def _replies() -> Iterator[bytes]:
    run = keyed_run()
    one = struct.pack(">ih", 2 + len(run), 0) + run
    yield one
    yield struct.pack(">ih", 2 + 2 * len(one), 0) + one + one
    yield struct.pack(">ih", -1, 3)


def _compressed() -> Iterator[tuple[str, bytes]]:
    """Yield plain batches that the targets compress, in all codecs; some are then damaged."""
    for run in (keyed_run(), reference.encode_batch(header_for(MIXED), MIXED_PAYLOAD)):
        for codec in range(1, 5):
            packed = bytes([1, codec, 4, codec, codec % 4 + 1, 0]) + run
            damaged = bytes([7, codec, codec, codec, codec, 1, 0, 70, 64]) + run
            for tail in (packed, damaged):
                yield "compressed-rows", bytes([1, 15, 255, codec, 0, 0, 0, codec % 3]) + tail
                yield "compressed-rows", bytes([1, 0, 49, codec, 2, 2, 4, 0]) + tail
                yield "compressed-runs", bytes([3, 0, 0]) + tail
                yield "compressed-runs", bytes([1, 4, 3]) + tail
                if codec == reference_codecs.ZSTD:
                    # Decompressed by a library that kernels call.
                    yield "compressed-rows", bytes([17, 15, 255, codec, 0, 0, 0, 0]) + tail
                    yield "compressed-runs", bytes([7, 0, 0]) + tail
            lie = bytes([1, 0, 100]) + MIXED_PAYLOAD[:100]
            front = bytes([9, 15, 255, codec, 0, 0, 0, 0, len(lie)])
            yield "compressed-rows", front + lie + packed


def _state_files() -> Iterator[bytes]:
    """Yield one small file of every kind, most of them from brokers."""
    data = golden.data_directory(golden.CLEAN)
    transactions = data / "transactions-0"
    contents = [
        (data / "recovery-point-offset-checkpoint").read_bytes()[:400],
        (data / "epochs-0" / "leader-epoch-checkpoint").read_bytes(),
        (data / "meta.properties").read_bytes(),
        (transactions / "partition.metadata").read_bytes(),
        (data / ".kafka_cleanshutdown").read_bytes(),
        b"generation=1\norders/cleanup.policy=compact\n",
        min((path.read_bytes() for path in transactions.glob("*.snapshot")), key=len),
        struct.pack(">8sBBH8sq", b"klsyncs1", 1, 1, 0, bytes(8), 100),
        max((path.read_bytes() for path in transactions.glob("*.txnindex")), key=len)[:136],
    ]
    yield from (bytes([kind, 1]) + content for kind, content in enumerate(contents))
    for kind, name in ((9, "__transaction_state"), (10, "__consumer_offsets")):
        for record in itertools.islice(golden.Manifest(golden.CLEAN, f"{name}-0").records(), 12):
            yield bytes([kind, 1]) + (record.key or b"")
            yield bytes([kind, 0]) + (record.value or b"")
    yield bytes([11, 0]) + bytes([4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 7])
    yield bytes([12, 0]) + b"[" * 1900
    entry = {"transaction": {"kind": "query", "name": "q", "version": 1}, "epoch": 1}
    yield bytes([12, 0]) + json.dumps({"format": 1, **entry, "created_ms": 1}).encode()


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield (target, input) of every seed."""
    yield from _compressed()
    yield from (("state-files", content) for content in _state_files())
    runs = [run for run in _runs() if len(run) <= SIZE_MAX]
    for run in runs:
        yield "scan", b"\x02" + struct.pack(">q", 5) + run
        yield "decode", b"\x04" + run
        yield "rows", bytes([8, 0x0F, 0xFF, 0, 0, 0, 0]) + run
    for run in [*runs[::3], keyed_run()]:
        yield "row-runs", bytes([2, 0x0F, 0xFF, 0, 0, 0]) + run
        yield "row-runs", bytes([0, 0x01, 0x3F, 2, 2, 1]) + run
        yield "look-ups", bytes([4, 3]) + bytes([0xFF, 0xFF, 0, 0]) + run
        yield "cleaning-runs", bytes([1, 9, 0]) + bytes(8) + run
    for run in [*runs[::4], *_wrappers(), keyed_run()]:
        if len(run) <= SIZE_MAX:
            # CRCs valid, after the end of an empty log, two segment sizes, an entry per batch.
            yield "follower-runs", bytes([1, 0, 0, 0, 1, 1, 0, 0]) + run
            yield "appends", bytes([1, 0, 0, 0, 0, 0, 9, 3, 2, 1, 0, 0]) + run
    for run in (
        keyed_run(),
        _with_times(),
        reference.encode_batch(header_for(MIXED), MIXED_PAYLOAD),
    ):
        yield "follower-runs", bytes([0, 0, 0, 0, 0, 0, 0, 2]) + run
        yield "follower-runs", bytes([0, 4, 0, 9, 1, 1, 2, 3]) + run
        for flags, codec, origin in ((3, 0, 0), (5, 0, 0), (1, 1, 0), (1, 2, 0), (1, 3, 2)):
            yield "appends", bytes([flags, 0, codec, origin, 0, 0, 9, 3, 0, 2, 0, 2]) + run
            yield "appends", bytes([flags, 3, codec, origin, 0, 0, 9, 3, 0, 1, 2, 0]) + run
    for run in [*_wrappers(), *runs[-6:]]:
        yield "compressed", b"\x03" + run
        yield "messages", b"\x02\x01\x00" + bytes(8) + run
        yield "messages", b"\x00\x00\x00" + bytes(8) + run
    for run in (keyed_run(), reference.encode_batch(header_for(MIXED), MIXED_PAYLOAD)):
        for flags in range(8):
            yield "cleaning", bytes([flags, flags, flags % 4, 1, 0, 9]) + run
        for size in (20, 60, 255):
            yield "reader", bytes([0, size, 0, 3]) + run
    for index in _indexes():
        yield "indexes", b"\x00" + struct.pack(">i", 10_000) + b"\x00\x09" + index
        yield "indexes", b"\x01" + struct.pack(">i", 10_000) + b"\x01\x00\x09" + index
        yield "index-entries", b"\x02\x01" + index
    for reply in _replies():
        yield "replies", b"\x07" + reply
    for layout in range(9):
        pattern = bytes((7 * number + layout) % 64 for number in range(200))
        yield "arrow", bytes([4, 1, 1, 15, layout, 3, 0xFF, 0x5A]) + pattern
        yield "row-corruptions", bytes([layout % 8, 0x0F, 0xFF, layout, 0, 0, 40]) + pattern


def main() -> int:
    """Write all seeds to the corpora."""
    for name, data in seeds():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
