"""The resources of Lake Formation, as values, and as its API has them (Lake Formation API: Resource)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never


@dataclass(frozen=True, slots=True, order=True)
class Catalog:
    """The Data Catalog."""

    def __str__(self) -> str:
        return "the Data Catalog"


@dataclass(frozen=True, slots=True, order=True)
class DataLocation:
    """A bucket, or a prefix in one, by its ARN without a slash at its end."""

    arn: str

    def __str__(self) -> str:
        return f"data location {self.arn}"


@dataclass(frozen=True, slots=True, order=True)
class Database:
    """A database."""

    name: str

    def __str__(self) -> str:
        return f"database {self.name}"


@dataclass(frozen=True, slots=True, order=True)
class AllTables:
    """All tables of a database, those that are created later included (Lake Formation API: TableWildcard)."""

    database: str

    def __str__(self) -> str:
        return f"all tables of database {self.database}"


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """A table with all of its columns."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"table {self.database}.{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Columns:
    """Some columns of a table. In states and changes each column is a resource of its own; requests combine them."""

    database: str
    table: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        word = "column" if len(self.names) == 1 else "columns"
        return f"{word} {', '.join(self.names)} of table {self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ColumnsExcept:
    """All columns of a table but some (Lake Formation API: ColumnWildcard). Others may have granted something on it."""

    database: str
    table: str
    excluded: frozenset[str]

    def __str__(self) -> str:
        return f"columns of table {self.database}.{self.table} except {', '.join(sorted(self.excluded))}"

    def includes(self, columns: Columns) -> bool:
        """Whether these columns, folded, are all among them."""
        same_table = (self.database, self.table) == (columns.database, columns.table)
        return same_table and self.excluded.isdisjoint(columns.names)


@dataclass(frozen=True, slots=True, order=True)
class LfTag:
    """An LF-Tag: a key and some of its values; `*` stands for all."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"LF-Tag {self.key}"


Resource = Catalog | DataLocation | Database | AllTables | Table | Columns | ColumnsExcept | LfTag

_ALL_TABLES = "ALL_TABLES"
"""The name of the table in what ListPermissions answers about all tables of a database."""


def to_request(resource: Resource) -> Any:
    """Return the resource as requests have it."""
    match resource:
        case Catalog():
            return {"Catalog": {}}
        case DataLocation(arn):
            return {"DataLocation": {"ResourceArn": arn}}
        case Database(name):
            return {"Database": {"Name": name}}
        case AllTables(database):
            return {"Table": {"DatabaseName": database, "TableWildcard": {}}}
        case Table(database, name):
            return {"Table": {"DatabaseName": database, "Name": name}}
        case Columns(database, table, names):
            return {"TableWithColumns": {"DatabaseName": database, "Name": table, "ColumnNames": [*names]}}
        case ColumnsExcept(database, table, excluded):
            wildcard = {"ExcludedColumnNames": sorted(excluded)}
            return {"TableWithColumns": {"DatabaseName": database, "Name": table, "ColumnWildcard": wildcard}}
        case LfTag(key, values):
            return {"LFTag": {"TagKey": key, "TagValues": [*values]}}
    assert_never(resource)


def folded(resource: Resource) -> Resource:
    """Return the resource with the names of columns in lower case, as answers are read: Glue's case is not reliable."""
    if isinstance(resource, Columns):
        return Columns(resource.database, resource.table, tuple(name.lower() for name in resource.names))
    return resource


def from_answer(answer: Mapping[str, Any]) -> list[Resource]:
    """Return the resources that an answer means, one for each column, and folded; none for kinds not governed here.

    What was granted on all columns comes back as a table with a column wildcard, and what was granted on all tables as
    a table of the name ALL_TABLES.
    """
    match answer:
        case {"DataLocation": {"ResourceArn": arn}}:
            return [DataLocation(arn.rstrip("/"))]
        case {"Database": {"Name": name}}:
            return [Database(name)]
        case {"TableWithColumns": {"ColumnWildcard": wildcard} as table}:
            excluded = (wildcard or {}).get("ExcludedColumnNames")
            if excluded:
                return [ColumnsExcept(table["DatabaseName"], table["Name"], frozenset(map(str.lower, excluded)))]
            return [_table(table)]
        case {"TableWithColumns": {"DatabaseName": database, "Name": table, "ColumnNames": names}}:
            return [Columns(database, table, (name.lower(),)) for name in names]
        case {"Table": table}:
            return [_table(table)]
    return []


def _table(table: Mapping[str, Any]) -> Table | AllTables:
    database, name = table["DatabaseName"], table.get("Name", _ALL_TABLES)
    return AllTables(database) if "TableWildcard" in table or name == _ALL_TABLES else Table(database, name)
