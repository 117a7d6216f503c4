"""A lake of one kind of table and the platform that syncs into it, in the words of the scenarios."""

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
    """Where the syncs of one scenario go."""

    lake: Lake
    platform: Platform
    kind: TableKind

    def config(self, **options: object) -> dict[str, object]:
        """Return the configuration for this kind of table, with these options set or replaced."""
        return self.lake.config(**{**self.kind.options, **options})

    def sync(self, streams: Sequence[Json], lines: Iterable[bytes], **options: object) -> Run:
        """Run a sync that must succeed."""
        run = self.attempt(streams, lines, **options)
        assert run.exit_code == 0, run.report()
        assert run.errors == []
        return run

    def attempt(self, streams: Sequence[Json], lines: Iterable[bytes], **options: object) -> Run:
        """Run a sync, however it ends."""
        return self.platform.write(self.config(**options), configured_catalog(*streams), lines)

    def start(self, streams: Sequence[Json], **options: object) -> Running:
        """Start a sync and leave the conversation to the caller."""
        return self.platform.start(self.config(**options), configured_catalog(*streams))

    def rows(self, table: str, database: str | None = None) -> list[dict[str, Any]]:
        """Return a table's rows without the connector's own columns, in the order of `id` where there is one."""
        rows = [{key: row[key] for key in row if key not in META} for row in self.whole_rows(table, database)]
        return sorted(rows, key=lambda row: str(row.get("id")))

    def whole_rows(self, table: str, database: str | None = None) -> list[dict[str, Any]]:
        """Return a table's rows with all their columns."""
        return self.lake.rows(database or self.lake.database, table)

    def ids(self, table: str, database: str | None = None) -> list[int]:
        """Return the values of the column `id`, sorted."""
        return sorted(row["id"] for row in self.whole_rows(table, database))

    def row(self, table: str, database: str | None = None) -> dict[str, Any]:
        """Return the table's only row."""
        (row,) = self.whole_rows(table, database)
        return row

    def columns(self, table: str) -> dict[str, str]:
        """Return the Glue types of a table's columns by name, in order, without partition keys."""
        keys = {key["Name"] for key in self.lake.glue_table(self.lake.database, table).get("PartitionKeys", ())}
        types = self.lake.columns(self.lake.database, table)
        return {name: type_ for name, type_ in types.items() if name not in keys}

    def exists(self, table: str, database: str | None = None) -> bool:
        """Tell whether the catalog has the table."""
        return (database or self.lake.database, table) in self.lake.tables()


def object_schema(**properties: object) -> dict[str, object]:
    """Return the JSON schema of an object with these properties."""
    return {"type": "object", "properties": properties}


INTEGER: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
STRING: Json = {"type": "string"}
INSTANT: Json = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
BOOLEAN: Json = {"type": "boolean"}
