"""Conversion of a log on the disk to another codec, verified, into a new directory."""

from __future__ import annotations

import itertools

from ..common import InDirectory, fill, load

LOG_BYTES = 8 * 1024 * 1024
VALUE_BYTES = 100


class ConvertLog(InDirectory):
    """A log of 8 MiB in one segment. Its files are synced, so this measures the disk as well."""

    params = (True, False)
    param_names = ("verify",)
    number = 1

    def setup(self, verify):
        """Write the log."""
        self.convert, codecs = load("kafkalog", "convert_log", "Codec")
        self.codec = codecs["LZ4"]
        open_log = load("kafkalog").open_log
        self.source = self.make_directory() / "source-0"
        with open_log(self.source) as log:
            fill(log, LOG_BYTES, VALUE_BYTES)
        self.targets = itertools.count()

    def time_convert(self, verify):
        """To lz4."""
        target = self.directory / f"target-{next(self.targets)}"
        self.convert(self.source, target, codec=self.codec, verify=verify)
