"""A lake with one kind of table, and the platform that syncs into it: the operations that test scenarios use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.running import Running
from integration_tests.harness.table_kinds import TableKind

META = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Warehouse:
    """The lake, the kind of table and the platform of one test scenario."""

    lake: Lake
    platform: Platform
    kind: TableKind

    def config(self, **options: object) -> dict[str, object]:
        """Return the connector's configuration for this kind of table. `options` sets or replaces options."""
        return self.lake.config(**{**self.kind.options, **options})

    def sync(self, streams: Sequence[Json], lines: Iterable[bytes], **options: object) -> Run:
        """Run a sync to its end. Fails the test if the sync fails."""
        run = self.attempt(streams, lines, **options)
        assert run.exit_code == 0, run.report()
        assert run.errors == []
        return run

    def attempt(self, streams: Sequence[Json], lines: Iterable[bytes], **options: object) -> Run:
        """Run a sync to its end, and return its outcome, successful or not."""
        return self.platform.write(self.config(**options), configured_catalog(*streams), lines)

    def start(self, streams: Sequence[Json], **options: object) -> Running:
        """Start a sync. The caller sends its input and ends it."""
        return self.platform.start(self.config(**options), configured_catalog(*streams))

    def rows(self, table: str, database: str | None = None) -> list[dict[str, Any]]:
        """Return a table's rows without the columns that the connector adds, sorted by `id` if this column exists."""
        rows = [{key: row[key] for key in row if key not in META} for row in self.whole_rows(table, database)]
        return sorted(rows, key=lambda row: str(row.get("id")))

    def whole_rows(self, table: str, database: str | None = None) -> list[dict[str, Any]]:
        """Return a table's rows with all columns, including those that the connector adds."""
        return self.lake.rows(database or self.lake.database, table)

    def ids(self, table: str, database: str | None = None) -> list[int]:
        """Return the values of the column `id`, sorted."""
        return sorted(row["id"] for row in self.whole_rows(table, database))

    def row(self, table: str, database: str | None = None) -> dict[str, Any]:
        """Return the only row of a table. Fails if there are none or several."""
        (row,) = self.whole_rows(table, database)
        return row

    def columns(self, table: str) -> dict[str, str]:
        """Map the names of a table's columns to their Glue types, in order, without partition keys."""
        keys = {key["Name"] for key in self.lake.glue_table(self.lake.database, table).get("PartitionKeys", ())}
        types = self.lake.columns(self.lake.database, table)
        return {name: type_ for name, type_ in types.items() if name not in keys}

    def exists(self, table: str, database: str | None = None) -> bool:
        """Return whether the catalog contains the table."""
        return (database or self.lake.database, table) in self.lake.tables()


def object_schema(**properties: object) -> dict[str, object]:
    """Return the JSON schema of an object with these properties."""
    return {"type": "object", "properties": properties}


INTEGER: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
STRING: Json = {"type": "string"}
INSTANT: Json = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
BOOLEAN: Json = {"type": "boolean"}
