"""Logs of brokers 0.8.2 to 2.8 for a relay: put into its directories, and what they hold.

What they hold is read from their manifests, which Kafka's own classes have made.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.interop.foreign import LOGS_ONLY, WITH_INDEXES, add_checkpoint
from tests.proof.relay_history import COMPACTED, History, text_of
from tests.support.golden_old import OldManifest

__all__ = ["put_old_logs"]

# Both formats, alone and mixed, with every codec, times of the broker, a start within a batch.
LOGS = (
    ("kafka-0.8.2", "codecs-0"),
    ("kafka-0.9.0", "snappy-0"),
    ("kafka-0.9.0", "wide-0"),
    ("kafka-0.10.2", "mixed-0"),
    ("kafka-0.10.2", "mixed-back-0"),
    ("kafka-0.10.2", "lat-gzip-0"),
    ("kafka-0.10.2", "ts-switch-0"),
    ("kafka-0.10.2", "v0-plain-0"),
    ("kafka-0.10.2", "retention-0"),
    ("kafka-2.8", "mixed-small-0"),
    ("kafka-2.8", "mixed-back-0"),
    ("kafka-2.8", "v1-lz4-0"),
    ("kafka-2.8", "v1-from-old-0"),
    ("kafka-2.8", "deleted-records-v1-0"),
)
COMPACTED_LOGS = (
    ("kafka-0.8.2", "compact-plain-0"),
    ("kafka-0.9.0", "compact-codecs-0"),
    ("kafka-0.10.2", "compact-mixed-0"),
    ("kafka-0.10.2", "compact-v0-gzip-0"),
    ("kafka-0.10.2", "compact-lz4-0"),
    ("kafka-2.8", "compact-mixed-0"),
    ("kafka-2.8", "compact-v1-snappy-0"),
)
CHOICES = {"old": LOGS, "cut": LOGS, "oldest": COMPACTED_LOGS}


def put_old_logs(
    directories: Sequence[Path], drawn: random.Random, history: History
) -> dict[str, str]:
    """Fill partitions that a stopped broker has made; return what each topic got."""
    chosen = {}
    for topic, choices in CHOICES.items():
        broker, partition = drawn.choice(choices)
        suffixes = drawn.choice((LOGS_ONLY, WITH_INDEXES))
        manifest = OldManifest(broker, partition)
        target = next(each / f"{topic}-0" for each in directories if (each / f"{topic}-0").is_dir())
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in manifest.directory.iterdir():
            if path.suffix in suffixes:
                shutil.copyfile(path, target / path.name)
        start = manifest.summary.log_start_offset
        add_checkpoint(target.parent / "log-start-offset-checkpoint", f"{topic}-0", start)
        _record_manifest(history, topic, manifest, start)
        chosen[topic] = f"{broker}/{partition}"
    return chosen


def _record_manifest(history: History, topic: str, manifest: OldManifest, start: int) -> None:
    for each in manifest.records():
        key, value = text_of(each.key), text_of(each.value, each.value_sha256)
        if topic in COMPACTED:
            history.latest[topic][key] = [value]
        elif each.offset >= start:
            history.stored[topic, 0][each.offset] = value
            if topic == "old":
                history.keys.setdefault((topic, 0), {})[each.offset] = f"{each.timestamp_ms}:{key}"
    if topic not in COMPACTED:
        history.starts[topic, 0] = {start}
