"""Resources that permissions and LF-Tags are about, as values; and as the API writes them.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_Resource.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ALL_TABLES = "ALL_TABLES"
"""The name that lists have for a TableWildcard (so reads Terraform's AWS provider, internal/service/lakeformation)."""


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
    """A table, or with the name None all tables of the database: those there are and those to come."""

    catalog: str
    database: str
    name: str | None

    def wire(self) -> dict[str, Any]:
        every: dict[str, Any] = {"TableWildcard": {}} if self.name is None else {}
        named = {"CatalogId": self.catalog, "DatabaseName": self.database, "Name": self.name or ALL_TABLES}
        return {"Table": named | every}


@dataclass(frozen=True)
class Columns:
    """All columns of a table but the excluded ones; with the table None, of all tables of the database."""

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
    """One column of a table. The API lists columns with equal permissions together: see `wire_columns`."""

    catalog: str
    database: str
    table: str
    name: str

    def wire(self) -> dict[str, Any]:
        return wire_columns(Table(self.catalog, self.database, self.table), [self.name])


@dataclass(frozen=True)
class DataLocation:
    """A bucket or a prefix, as an ARN without a slash at the end."""

    catalog: str
    arn: str

    def wire(self) -> dict[str, Any]:
        return {"DataLocation": {"CatalogId": self.catalog, "ResourceArn": self.arn}}


@dataclass(frozen=True)
class LFTag:
    """An LF-Tag's key with some of its values, or "*"."""

    catalog: str
    key: str
    values: frozenset[str]

    def wire(self) -> dict[str, Any]:
        return {"LFTag": {"CatalogId": self.catalog, "TagKey": self.key, "TagValues": sorted(self.values)}}


@dataclass(frozen=True)
class LFTagPolicy:
    """All databases or all tables whose LF-Tags match: one of the values for each of the keys."""

    catalog: str
    kind: str
    expression: frozenset[tuple[str, frozenset[str]]]

    def wire(self) -> dict[str, Any]:
        terms = [{"TagKey": key, "TagValues": sorted(values)} for key, values in sorted(self.expression)]
        return {"LFTagPolicy": {"CatalogId": self.catalog, "ResourceType": self.kind, "Expression": terms}}


Resource = Catalog | Database | Table | Columns | Column | DataLocation | LFTag | LFTagPolicy


def location_arn(uri: str) -> str:
    """Return the ARN of an S3 URI, without a slash at the end."""
    return f"arn:aws:s3:::{uri.partition('://')[2]}".rstrip("/")


def wire_columns(table: Table, names: list[str]) -> dict[str, Any]:
    """Return some columns of a table as the API writes them."""
    named = {"CatalogId": table.catalog, "DatabaseName": table.database, "Name": table.name}
    return {"TableWithColumns": named | {"ColumnNames": sorted(names)}}


def read(wire: Mapping[str, Any], catalog: str) -> tuple[Resource, ...]:
    """Read a resource; columns that are named are one resource each. Names are folded to lower case, as Glue's are.

    Raises ValueError if it is not exactly one resource, or names neither tables nor columns where it has to.
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
