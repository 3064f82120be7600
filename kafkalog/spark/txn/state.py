"""State of the sink in a data directory: its epoch, the present intent, committed transactions.

Plain files whose names begin with a dot, in the data directory itself, so that they move together
with its logs: a directory instead of them would keep a broker from starting. Each is replaced as a
whole, on the disk when the call returns.

  * `.kafkalog-sink-epoch`: rises with every session of a sink. A sink that finds another epoch than
    its own has lost the directory to another sink, as on a network file system that gave its lock
    away, and writes nothing more.
  * `.kafkalog-sink-intent.json`: there is at most one, as nothing is begun before it is finished.
  * `.kafkalog-sink-ledger-APP.json`: the latest version that an application has committed.
  * `.kafkalog-sink-ledger.json`: the writes without a version, for as long as a repeated commit may
    check them.

Crash points: before a rename the old content counts, after it the new one (`files.atomic_files`). A
removed intent may be back after a power cut if the directory was not synced, so it is synced; and a
sink that finds an intent checks the ledger first.

Thread-safety: none here; the caller holds the sink's lock.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import Intent, TransactionId, dumped, loaded

__all__ = ["LOCK_FILE", "SinkState"]

LOCK_FILE: Final = ".kafkalog-sink.lock"
EPOCH_FILE: Final = ".kafkalog-sink-epoch"
INTENT_FILE: Final = ".kafkalog-sink-intent.json"
WRITES_FILE: Final = ".kafkalog-sink-ledger.json"
_LEDGER_PREFIX: Final = ".kafkalog-sink-ledger-"
_MAX_BYTES: Final = 1 << 30


class SinkState:
    """
    The sink's files in one data directory.

    Args:
        filesystem: the disk.
        directory: the data directory.

    Attributes:
        epoch: of this session, -1 before it began.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.epoch = -1
        self._filesystem = filesystem
        self._directory = directory

    # ---------------------------------------------------------------------------------- fencing

    def begin_session(self) -> None:
        """Start a session with an epoch above all earlier ones, which refuses their writes."""
        self.epoch = self._read_epoch() + 1
        self._write(EPOCH_FILE, b"%d\n" % self.epoch)

    def ensure_owner(self) -> None:
        """
        Raise if a later session has begun: this one must write nothing more.

        Raises:
            KafkaLogSparkError: TXN_CONFLICT.
        """
        present = self._read_epoch()
        if present != self.epoch:
            raise KafkaLogSparkError(
                ErrorCode.TXN_CONFLICT,
                f"{self._directory}: a sink of epoch {present} has taken over from this one",
                path=str(self._directory),
                epoch=self.epoch,
                present_epoch=present,
            )

    def _read_epoch(self) -> int:
        text = self._read(EPOCH_FILE)
        try:
            return 0 if text is None else int(text)
        except ValueError as error:
            path = self._directory / EPOCH_FILE
            raise CorruptStateError(f"{path} is damaged: {text!r}", path=path) from error

    # ----------------------------------------------------------------------------------- intent

    def read_intent(self) -> Intent | None:
        """Return the present intent, None without one."""
        text = self._read(INTENT_FILE)
        if text is None:
            return None
        return Intent.from_json(text, str(self._directory / INTENT_FILE))

    def write_intent(self, intent: Intent) -> None:
        """Write an intent: from the moment it is on the disk, its transaction is committed."""
        self.ensure_owner()
        self._write(INTENT_FILE, intent.to_json())

    def remove_intent(self) -> None:
        """Remove the intent of a transaction in the ledger; its name is gone from the disk."""
        path = self._directory / INTENT_FILE
        with storage_errors(path, doing="removing"):
            with contextlib.suppress(FileNotFoundError):
                self._filesystem.unlink(path)
            self._filesystem.sync_directory(self._directory)

    # ----------------------------------------------------------------------------------- ledger

    def is_committed(self, transaction: TransactionId) -> bool:
        """Return True if the ledger has it, or a later one of its application."""
        if transaction.version is None:
            return transaction.app in self._writes()
        latest = self.latest_version(transaction.app)
        return latest is not None and latest >= transaction.version

    def latest_version(self, app: str) -> int | None:
        """Return the latest version that an application has committed, None without one."""
        name = self._ledger_name(TransactionId(app, 0))
        text = self._read(name)
        if text is None:
            return None
        where = str(self._directory / name)
        content = loaded(text, where)
        try:
            return int(content["version"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(f"{where} is damaged: {error!r}", path=where) from error

    def record_committed(self, intent: Intent, now_ms: int, keep_ms: int) -> None:
        """
        Add a transaction to the ledger.

        Args:
            intent: of the transaction, completely published.
            now_ms: the time.
            keep_ms: how long writes without a version are kept.
        """
        self.ensure_owner()
        transaction = intent.transaction
        if transaction.version is None:
            writes = {
                app: since for app, since in self._writes().items() if now_ms - since <= keep_ms
            }
            self._write(WRITES_FILE, dumped(writes=writes | {transaction.app: now_ms}))
            return
        content = dumped(
            app=transaction.app,
            version=transaction.version,
            committed_ms=now_ms,
            ranges=intent.ranges(),
        )
        self._write(self._ledger_name(transaction), content)

    def _writes(self) -> dict[str, int]:
        text = self._read(WRITES_FILE)
        if text is None:
            return {}
        where = str(self._directory / WRITES_FILE)
        writes = loaded(text, where).get("writes")
        if not isinstance(writes, dict):
            raise CorruptStateError(f"{where} is damaged: no writes in it", path=where)
        return writes

    @staticmethod
    def _ledger_name(transaction: TransactionId) -> str:
        return f"{_LEDGER_PREFIX}{transaction.app_name}.json"

    # ------------------------------------------------------------------------------------ files

    def _read(self, name: str) -> bytes | None:
        path = self._directory / name
        try:
            with storage_errors(path, doing="reading"):
                return read_file(self._filesystem, path, max_bytes=_MAX_BYTES)
        except ValueError as error:
            raise CorruptStateError(str(error), path=path) from error

    def _write(self, name: str, content: bytes) -> None:
        path = self._directory / name
        with storage_errors(path, doing="writing"):
            replace_file(self._filesystem, path, content)
