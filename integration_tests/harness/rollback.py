"""A table whose second sync stored wrong rows, for each sync mode, and the statements of the page on rollbacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from integration_tests.documentation.blocks import blocks
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

PAGE = "docs/how-to/roll-back.md"
SNAPSHOT, SYNC_ID = "8217318465342345871", "4711"
"""The snapshot to roll back to, and the ID of the bad sync, as written in the page's statements."""


Row = tuple[int, int, str]
"""The fields `id`, `version` and `name` of a record."""

FIRST: Sequence[Row] = [(1, 1, "a"), (2, 1, "b")]
BAD: Sequence[Row] = [(1, 9, "bad"), (3, 9, "bad")]
RIGHT: Sequence[Row] = [(1, 2, "right"), (4, 2, "right")]
LATER: Sequence[Row] = [(3, 1, "later"), (4, 3, "later")]
"""The rows of four syncs. The second sync is rolled back. Its versions are the highest."""


@dataclass(frozen=True)
class SyncMode:
    """A sync mode, and the table's rows (ID and name) after the first, the third and the fourth sync."""

    name: str
    destination: Literal["append", "overwrite", "append_dedup"]
    replaces: bool
    after_third: Sequence[tuple[int, str]]
    after_fourth: Sequence[tuple[int, str]]
    options: Mapping[str, object] = field(default_factory=dict)

    def stream(self, number: int) -> Json:
        """Return the configured stream of a sync, whose number counts from 1.

        If the mode replaces rows, every sync has a new generation.
        """
        generation, minimum = (number, number) if self.replaces else (1, 0)
        return configured_stream(
            "orders",
            object_schema(id=INTEGER, version=INTEGER, name=STRING),
            mode=self.destination,
            primary_key=["id"],
            cursor="version",
            generation=generation,
            minimum=minimum,
            sync_id=number if number != 2 else int(SYNC_ID),
        )


_APPENDED = [(1, "a"), (1, "right"), (2, "b"), (4, "right")]
_MERGED = [(1, "right"), (2, "b"), (4, "right")]
_REPLACED = [(1, "right"), (4, "right")]
_MERGED_AGAIN = [(1, "right"), (2, "b"), (3, "later"), (4, "later")]
_REPLACED_AGAIN = [(3, "later"), (4, "later")]

SYNC_MODES = (
    SyncMode("append", "append", False, _APPENDED, sorted([*_APPENDED, (3, "later"), (4, "later")])),
    SyncMode("overwrite", "overwrite", True, _REPLACED, _REPLACED_AGAIN),
    SyncMode("dedup", "append_dedup", False, _MERGED, _MERGED_AGAIN, {"dedup": {"deletes": "copy_on_write"}}),
    SyncMode("merge-on-read", "append_dedup", False, _MERGED, _MERGED_AGAIN, {"dedup": {"deletes": "merge_on_read"}}),
    SyncMode("overwrite-dedup", "append_dedup", True, _REPLACED, _REPLACED_AGAIN),
)


@dataclass(frozen=True)
class RolledBack:
    """The table `orders` in one sync mode. The second of its syncs is rolled back."""

    warehouse: Warehouse
    mode: SyncMode

    @property
    def lake(self) -> Lake:
        """The lake that contains the table."""
        return self.warehouse.lake

    def sync(self, number: int, rows: Sequence[Row]) -> None:
        """Run a sync of these rows. Its number counts from 1."""
        lines = [record("orders", {"id": id_, "version": version, "name": name}) for id_, version, name in rows]
        end = [state("orders", number), status("orders", "COMPLETE")]
        self.warehouse.sync([self.mode.stream(number)], [*lines, *end], **self.mode.options)

    def names(self) -> list[tuple[int, str]]:
        """Return the ID and name of each row, sorted."""
        return sorted((row["id"], row["name"]) for row in self.warehouse.whole_rows("orders"))

    def snapshot(self) -> int:
        """Return the ID of the table's current snapshot."""
        snapshot = self.lake.iceberg_table(self.lake.database, "orders").metadata.current_snapshot_id
        assert snapshot is not None
        return snapshot

    def block(self, language: str, number: int = 0, *, snapshot: int | None = None) -> str:
        """Return a code block of the page, with this table and this snapshot in place of those on the page."""
        block = blocks(PAGE, language=language)[number].body.replace("shop.orders", f"{self.lake.database}.orders")
        return block if snapshot is None else block.replace(SNAPSHOT, str(snapshot))

    def reported(self) -> list[dict[str, Any]]:
        """Run the page's query over the table of reports in DuckDB, and return the result, newest first."""
        import duckdb

        query = self.block("sql").replace("'shop'", f"'{self.lake.database}'")
        with duckdb.connect() as engine:
            engine.execute("CREATE SCHEMA landing")
            files = [
                self.lake.s3.get_object(Bucket=self.lake.bucket, Key=key)["Body"].read()
                for key in self.lake.reports()
                if key.endswith("/report.jsonl")
            ]
            engine.execute("CREATE TABLE lines AS SELECT unnest($1)::JSON AS line", [_lines(files)])
            members = ("start_time", "type", "status", "database", "table_name")
            texts = ", ".join(f"line->>'{name}' AS {name}" for name in members)
            numbers = ", ".join(
                f"(line->>'{name}')::BIGINT AS {name}" for name in ("sync_id", "row_count", "snapshot_id")
            )
            engine.execute(f"CREATE VIEW landing.airbyte_sync_reports AS SELECT {texts}, {numbers} FROM lines")
            answer = engine.execute(query)
            columns = [column[0] for column in answer.description]
            return [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]


def _lines(files: Sequence[bytes]) -> list[str]:
    return [line.decode() for content in files for line in content.splitlines()]
