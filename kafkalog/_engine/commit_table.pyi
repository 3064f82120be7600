"""Types of the entries of one commit of a journal."""

from typing import Self, final

from typing_extensions import Buffer

from kafkalog._engine.commit_source import PendingCommit

@final
class CommitTable:
    @property
    def entry_count(self) -> int: ...
    @property
    def table_bytes(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    def __new__(cls) -> Self: ...
    def add_entry(self, entry: bytes, data: bytes = b"") -> None: ...
    def add_data(
        self,
        number: int,
        base_offset: int,
        position: int,
        first_offset: int,
        end_offset: int,
        bytes_before: Buffer,
        data: Buffer,
    ) -> None: ...
    def read_data(self, number: int, pending: PendingCommit) -> bool: ...
    def entries(self) -> bytes: ...
    def data(self) -> memoryview: ...
