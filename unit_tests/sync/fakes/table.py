"""A table without AWS, which remembers what was committed to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from destination_datalake.files.plan import DataFile, FilePlan
from destination_datalake.tables.table import Committed, Reencode, Rewrite, TableName, TablePosition


@dataclass
class FakeTable:
    """A table that counts its rows. What is asked of it may raise, or wait."""

    name: TableName
    on_prepare: Callable[[], None] = lambda: None
    on_plan: Callable[[], None] = lambda: None
    on_commit: Callable[[], Committed | Reencode] = Committed
    on_publish: Callable[[], None] = lambda: None
    on_discard: Callable[[], None] = lambda: None
    on_merge: Callable[[], None] = lambda: None
    is_due: bool = False
    rows: int = 0
    published: bool = False
    committed: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def prepare(self) -> None:
        self.on_prepare()

    def is_empty(self) -> bool:
        return not self.rows

    def is_archived(self) -> bool:
        return False

    def position(self) -> TablePosition:
        return TablePosition("a table", len(self.committed))

    def plan(self) -> FilePlan:
        self.on_plan()
        return FilePlan("parquet", "ZSTD", (), {}, "s3://lake", False, 1, None, None)

    def commit(self, files: Sequence[DataFile], _rewrite: Rewrite) -> Committed | Reencode:
        answer = self.on_commit()
        if isinstance(answer, Committed):
            self.rows += sum(file.rows for file in files)
            self.committed += [file.uri for file in files]
        else:
            self.discarded += [file.uri for file in files]
        return answer

    def merge_is_due(self) -> bool:
        return self.is_due

    def merge(self) -> None:
        self.on_merge()

    def publish(self, _rewrite: Rewrite) -> None:
        self.on_publish()
        self.published = True

    def discard(self, files: Sequence[DataFile]) -> None:
        self.on_discard()
        self.discarded += [file.uri for file in files]


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call
