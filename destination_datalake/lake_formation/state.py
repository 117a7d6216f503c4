"""Resources of Lake Formation, and their desired and present states: registration, LF-Tags, grants and opt-ins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, assert_never


@dataclass(frozen=True, slots=True, order=True)
class Catalog:
    """The Data Catalog."""

    def __str__(self) -> str:
        return "the Data Catalog"


@dataclass(frozen=True, slots=True, order=True)
class DataLocation:
    """A bucket or a prefix in it, by its ARN without a trailing slash."""

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
    """All tables of a database, including future ones (Lake Formation API: TableWildcard)."""

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
    """Some columns of a table. States and changes have one column per resource; requests combine several."""

    database: str
    table: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        word = "column" if len(self.names) == 1 else "columns"
        return f"{word} {', '.join(self.names)} of table {self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ColumnsExcept:
    """All columns of a table except some (Lake Formation API: ColumnWildcard), as other principals may grant them."""

    database: str
    table: str
    excluded: frozenset[str]

    def __str__(self) -> str:
        return f"columns of table {self.database}.{self.table} except {', '.join(sorted(self.excluded))}"

    def includes(self, columns: Columns) -> bool:
        """Return whether it includes all these columns, whose names are in lower case."""
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
"""The table's name in responses of ListPermissions about all tables of a database."""


def to_request(resource: Resource) -> Any:
    """Return the resource in the form of requests."""
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


def with_lowercase_columns(resource: Resource) -> Resource:
    """Return the resource with column names in lower case, because the case in Glue is not reliable."""
    if isinstance(resource, Columns):
        return Columns(resource.database, resource.table, tuple(name.lower() for name in resource.names))
    return resource


def containing_table(resource: Resource) -> Resource:
    """Return the table of columns, or any other resource unchanged."""
    return Table(resource.database, resource.table) if isinstance(resource, Columns) else resource


def from_answer(answer: Mapping[str, Any]) -> list[Resource]:
    """Return the resources in a response, one per column, with names in lower case; empty for other kinds.

    AWS returns all columns as a table with a column wildcard, and all tables as a table with the name ALL_TABLES.
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


ALL = "ALL"
"""The permission that includes all others (the console calls it Super)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered data location: its ARN, Lake Formation's role for it, and whether access is hybrid."""

    arn: str
    role_arn: str | None
    hybrid: bool

    @property
    def access(self) -> str:
        """The kind of access, for messages."""
        return "hybrid access" if self.hybrid else "access by Lake Formation's permissions only"

    def covers(self, arn: str) -> bool:
        """Return whether this registration includes the location at `arn`.

        A registration includes all folders below its path
        (https://docs.aws.amazon.com/lake-formation/latest/dg/register-data-lake.html).
        """
        own = self.arn.removesuffix("*").rstrip("/")
        return arn == own or arn.startswith(f"{own}/")


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """An LF-Tag's value on a resource. A resource has one value for each key."""

    resource: Resource
    key: str
    value: str


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One permission of a principal on a resource. `grantable`: with the grant option."""

    principal: str
    resource: Resource
    permission: str
    grantable: bool = False


@dataclass(frozen=True, slots=True, order=True)
class OptIn:
    """The enforcement of Lake Formation's permissions for a principal on a resource of a hybrid location."""

    principal: str
    resource: Resource


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of some resources. `tag_values` are the required values of LF-Tag definitions.

    A registration without a role cannot be applied; it results in a warning.
    """

    registration: Registration | None = None
    tag_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.registration or self.tag_values or self.tags or self.grants or self.opt_ins)

    def without(self, other: Desired) -> Desired:
        """Return the tags, grants and opt-ins that `other` does not have."""
        return replace(
            self, tags=self.tags - other.tags, grants=self.grants - other.grants, opt_ins=self.opt_ins - other.opt_ins
        )

    def outside(self, database: str, table: str, columns: Collection[str]) -> Desired:
        """Return the state without these columns of a table."""
        inside = {Columns(database, table, (column,)) for column in columns}
        tags = frozenset(tag for tag in self.tags if tag.resource not in inside)
        return replace(
            self, tags=tags, grants=frozenset(grant for grant in self.grants if grant.resource not in inside)
        )

    def union(self, other: Desired) -> Desired:
        """Return the tags, grants and opt-ins of both."""
        return replace(
            self, tags=self.tags | other.tags, grants=self.grants | other.grants, opt_ins=self.opt_ins | other.opt_ins
        )


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of Lake Formation that is relevant for a desired state.

    `tag_values` are the definitions of LF-Tags. `tags` are assigned to a resource directly, not inherited. Column names
    are in lower case.
    """

    registrations: frozenset[Registration] = frozenset()
    tag_values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def covering_registration(self, arn: str) -> Registration | None:
        """Return the registration with the longest path that includes the location."""
        covering = [registration for registration in self.registrations if registration.covers(arn)]
        return max(covering, key=lambda registration: len(registration.arn), default=None)

    # Lake Formation stores keys and values in lower case
    # (https://docs.aws.amazon.com/lake-formation/latest/dg/lf-tag-considerations.html).

    def values_of(self, key: str) -> frozenset[str] | None:
        """Return the values in an LF-Tag's definition, in lower case; None if the LF-Tag is not defined."""
        definitions = [values for name, values in self.tag_values.items() if name.lower() == key.lower()]
        return frozenset(value.lower() for values in definitions for value in values) if definitions else None

    def assigned_value(self, resource: Resource, key: str) -> str | None:
        """Return the value assigned to the resource directly, if any."""
        resource = with_lowercase_columns(resource)
        values = (tag.value for tag in self.tags if tag.resource == resource and tag.key.lower() == key.lower())
        return next(values, None)

    def is_granted(self, grant: Grant) -> bool:
        """Return whether the principal has the permission directly, as part of ALL, or on the column's table."""
        resources = [with_lowercase_columns(grant.resource)]
        if isinstance(resources[0], Columns):
            column = resources[0]
            resources.append(Table(column.database, column.table))
            granted = (existing.resource for existing in self.grants)
            resources += {
                columns for columns in granted if isinstance(columns, ColumnsExcept) and columns.includes(column)
            }
        return any(
            Grant(grant.principal, resource, permission, grantable) in self.grants
            for resource in resources
            for permission in (grant.permission, ALL)
            for grantable in {True, grant.grantable}
        )
