"""Memory of a scan over a log much larger than it: what is allocated, and what is mapped.

Each scan runs in a separate process, so that nothing else is measured. Pages of mapped files count
as resident too, although they belong to the page cache and are freed on demand: they are counted
separately.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from ..common import InDirectory, keys_and_values, load, sizes

VALUE_BYTES = 1000
SEGMENT_BYTES = 64 << 20
CHUNK_RECORDS = 1000

# Numbers in kilobytes: before the scan, its maximum, after it, and with the log closed.
SCAN = """
import json, sys
from kafkalog import open_log

def resident():
    with open("/proc/self/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return [int(lines[name].split()[0]) for name in ("RssAnon", "RssFile")]

rows = 0
with open_log(sys.argv[1], read_only=True) as log:
    rest = most = resident()
    for batch in log.scan():
        rows += len(batch)
        most = [max(pair) for pair in zip(most, resident())]
    del batch
    behind = resident()
print(json.dumps([rows, rest, most, behind, resident()]))
"""


class ScanOfLargeLog(InDirectory):
    """A log of two gibibytes, every column of it."""

    params = (
        sizes((2 << 30,), (48 << 20,)),
        ("v2", "v2 lz4", "v2 zstd", "v2 snappy", "v2 gzip", "v1", "v1 lz4", "v0"),
    )
    param_names = ("log_bytes", "stored")
    timeout = 600

    def setup(self, log_bytes, stored):
        """Append the same records again and again."""
        open_log, config_class = load("kafkalog", "open_log", "LogConfig")
        version, _, codec = stored.partition(" ")
        settings = {"segment_bytes": SEGMENT_BYTES, "compression_type": codec or "uncompressed"}
        if version != "v2":
            if not hasattr(config_class, "message_magic"):
                raise NotImplementedError("before old formats")
            settings["message_format_version"] = {"v1": "0.10.2", "v0": "0.9.0"}[version]
        self.path = self.make_directory() / "large-0"
        keys, values = keys_and_values(CHUNK_RECORDS, VALUE_BYTES)
        self.appended = 0
        with open_log(self.path, config=config_class(**settings)) as log:
            for _ in range(max(1, log_bytes // (CHUNK_RECORDS * (VALUE_BYTES + 16)))):
                log.append_columns(keys, values, timestamps=np.arange(CHUNK_RECORDS))
                self.appended += CHUNK_RECORDS

    def measure(self):
        """Scan in another process; return kilobytes before, at most, after, and closed."""
        result = subprocess.run(
            [sys.executable, "-c", SCAN, str(self.path)], capture_output=True, check=True
        )
        rows, *numbers = json.loads(result.stdout)
        assert rows == self.appended
        return numbers

    def track_anonymous_memory(self, log_bytes, stored):
        """Most memory that the scan allocated."""
        rest, most, _, _ = self.measure()
        return 1024 * (most[0] - rest[0])

    def track_mapped_memory(self, log_bytes, stored):
        """Most pages of segments that were mapped and present."""
        rest, most, _, _ = self.measure()
        return 1024 * (most[1] - rest[1])

    def track_mapped_memory_left(self, log_bytes, stored):
        """Pages of segments that a closed log still holds: none, but for what was loaded late."""
        rest, _, _, closed = self.measure()
        return 1024 * (closed[1] - rest[1])

    track_anonymous_memory.unit = "bytes"  # type: ignore[attr-defined]
    track_mapped_memory.unit = "bytes"  # type: ignore[attr-defined]
    track_mapped_memory_left.unit = "bytes"  # type: ignore[attr-defined]
