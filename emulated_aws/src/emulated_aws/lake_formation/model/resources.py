"""The resources of permissions and LF-Tags, as values and in the form of the API.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_Resource.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALL_TABLES = "ALL_TABLES"
"""The table name by which lists refer to a TableWildcard, according to Terraform's AWS provider
(internal/service/lakeformation)."""


@dataclass(frozen=True)
class Catalog:
    """The Data Catalog itself."""

    catalog: str

    def wire(self) -> dict[str, Any]:
        return {"Catalog": {"Id": self.catalog}}


@dataclass(frozen=True)
class Database:
    """A database."""

    catalog: str
    name: str

    def wire(self) -> dict[str, Any]:
        return {"Database": {"CatalogId": self.catalog, "Name": self.name}}


@dataclass(frozen=True)
class Table:
    """A table. If `name` is None, all existing and future tables of the database."""

    catalog: str
    database: str
    name: str | None

    def wire(self) -> dict[str, Any]:
        every: dict[str, Any] = {"TableWildcard": {}} if self.name is None else {}
        named = {"CatalogId": self.catalog, "DatabaseName": self.database, "Name": self.name or ALL_TABLES}
        return {"Table": named | every}


@dataclass(frozen=True)
class Columns:
    """All columns of a table except the excluded ones. If `table` is None, the columns of all tables of a database."""

    catalog: str
    database: str
    table: str | None
    excluded: frozenset[str] = frozenset()

    def wire(self) -> dict[str, Any]:
        named = {"CatalogId": self.catalog, "DatabaseName": self.database, "Name": self.table or ALL_TABLES}
        wildcard = {"ExcludedColumnNames": sorted(self.excluded)} if self.excluded else {}
        return {"TableWithColumns": named | {"ColumnWildcard": wildcard}}


@dataclass(frozen=True)
class Column:
    """One column of a table. The API combines columns with equal permissions in lists (see `wire_columns`)."""

    catalog: str
    database: str
    table: str
    name: str

    def wire(self) -> dict[str, Any]:
        return wire_columns(Table(self.catalog, self.database, self.table), [self.name])


@dataclass(frozen=True)
class DataLocation:
    """A bucket, or a prefix in a bucket. `arn` has no trailing slash."""

    catalog: str
    arn: str

    def wire(self) -> dict[str, Any]:
        return {"DataLocation": {"CatalogId": self.catalog, "ResourceArn": self.arn}}


@dataclass(frozen=True)
class LFTag:
    """An LF-Tag: a key, and some of its values. The value "*" stands for all values."""

    catalog: str
    key: str
    values: frozenset[str]

    def wire(self) -> dict[str, Any]:
        return {"LFTag": {"CatalogId": self.catalog, "TagKey": self.key, "TagValues": sorted(self.values)}}


@dataclass(frozen=True)
class LFTagPolicy:
    """All databases or tables whose LF-Tags match an expression: they have one of the values for each key."""

    catalog: str
    kind: str
    expression: frozenset[tuple[str, frozenset[str]]]

    def wire(self) -> dict[str, Any]:
        terms = [{"TagKey": key, "TagValues": sorted(values)} for key, values in sorted(self.expression)]
        return {"LFTagPolicy": {"CatalogId": self.catalog, "ResourceType": self.kind, "Expression": terms}}


Resource = Catalog | Database | Table | Columns | Column | DataLocation | LFTag | LFTagPolicy


def location_arn(uri: str) -> str:
    """Return the ARN of an S3 URI, without a trailing slash."""
    return f"arn:aws:s3:::{uri.partition('://')[2]}".rstrip("/")


def wire_columns(table: Table, names: list[str]) -> dict[str, Any]:
    """Return these columns of a table in the form of the API."""
    named = {"CatalogId": table.catalog, "DatabaseName": table.database, "Name": table.name}
    return {"TableWithColumns": named | {"ColumnNames": sorted(names)}}


def read(wire: Mapping[str, Any], catalog: str) -> tuple[Resource, ...]:
    """Return the resources in a `Resource` of the API. Each named column is a separate resource.

    Converts names to lower case, as Glue does. Raises ValueError if `wire` does not contain exactly one resource, or
    lacks the required name of a table or column.
    """
    if len(wire) != 1:
        raise ValueError(f"Resource parameter must have exactly 1 resource specified but {len(wire)} were provided.")
    ((kind, named),) = wire.items()
    catalog = str(named.get("CatalogId") or catalog)
    match kind:
        case "Catalog":
            return (Catalog(str(named.get("Id") or catalog)),)
        case "Database":
            return (Database(catalog, named["Name"].lower()),)
        case "Table":
            return (Table(catalog, named["DatabaseName"].lower(), _table(named)),)
        case "TableWithColumns":
            return _columns(catalog, named)
        case "DataLocation":
            return (DataLocation(catalog, named["ResourceArn"].rstrip("/")),)
        case "LFTag":
            return (LFTag(catalog, named["TagKey"].lower(), _folded(named["TagValues"])),)
        case "LFTagPolicy":
            terms = frozenset((term["TagKey"].lower(), _folded(term["TagValues"])) for term in named["Expression"])
            return (LFTagPolicy(catalog, named["ResourceType"], terms),)
    raise ValueError(f"Resource {kind} is not supported here.")


def _table(named: Mapping[str, Any]) -> str | None:
    name, every = named.get("Name"), "TableWildcard" in named
    if every and name in (None, ALL_TABLES):
        return None
    if name is None:
        raise ValueError("Table name and table wildcard cannot both be empty.")
    if every:
        raise ValueError("Table name and table wildcard cannot both be present.")
    return str(name).lower()


def _columns(catalog: str, named: Mapping[str, Any]) -> tuple[Resource, ...]:
    database, table, names = named["DatabaseName"].lower(), named["Name"].lower(), named.get("ColumnNames")
    if bool(names) == ("ColumnWildcard" in named):
        raise ValueError("Exactly one of column names and column wildcard must be present.")
    if names:
        return tuple(Column(catalog, database, table, name.lower()) for name in names)
    excluded = _folded(named["ColumnWildcard"].get("ExcludedColumnNames") or [])
    return (Columns(catalog, database, None if named["Name"] == ALL_TABLES else table, excluded),)


def _folded(values: list[str]) -> frozenset[str]:
    return frozenset(value.lower() for value in values)
