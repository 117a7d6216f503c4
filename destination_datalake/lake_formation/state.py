"""Resources of Lake Formation, and what it is to have on them and has: registration, LF-Tags, grants and opt-ins."""

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


def whole(resource: Resource) -> Resource:
    """Return the table that the columns are in; any other resource as it is."""
    return Table(resource.database, resource.table) if isinstance(resource, Columns) else resource


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


ALL = "ALL"
"""The permission that includes all others (the console calls it Super)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered data location: its ARN, the role that Lake Formation uses for it, and whether access is hybrid."""

    arn: str
    role_arn: str | None
    hybrid: bool

    @property
    def access(self) -> str:
        """What decides about access, for messages."""
        return "hybrid access" if self.hybrid else "access by Lake Formation's permissions alone"

    def covers(self, arn: str) -> bool:
        """Whether the location at `arn` is registered by this.

        All folders under a registered path are registered, too
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
    """One permission of one principal on a resource; `grantable` if the principal may pass it on."""

    principal: str
    resource: Resource
    permission: str
    grantable: bool = False


@dataclass(frozen=True, slots=True, order=True)
class OptIn:
    """Lake Formation's permissions are enforced for this principal on a resource of a hybrid location."""

    principal: str
    resource: Resource


@dataclass(frozen=True, slots=True)
class Desired:
    """What the options ask for, on some resources. `tag_values` are the values that an LF-Tag's definition must have.

    A registration without a role cannot be made, but its absence is warned of.
    """

    registration: Registration | None = None
    tag_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.registration or self.tag_values or self.tags or self.grants or self.opt_ins)

    def without(self, other: Desired) -> Desired:
        """Return the tags, grants and opt-ins that `other` has not."""
        return replace(
            self, tags=self.tags - other.tags, grants=self.grants - other.grants, opt_ins=self.opt_ins - other.opt_ins
        )

    def outside(self, database: str, table: str, columns: Collection[str]) -> Desired:
        """Return what is not about these columns of a table."""
        inside = {Columns(database, table, (column,)) for column in columns}
        tags = frozenset(tag for tag in self.tags if tag.resource not in inside)
        return replace(self, tags=tags, grants=frozenset(each for each in self.grants if each.resource not in inside))

    def union(self, other: Desired) -> Desired:
        """Return the tags, grants and opt-ins of both."""
        return replace(
            self, tags=self.tags | other.tags, grants=self.grants | other.grants, opt_ins=self.opt_ins | other.opt_ins
        )


@dataclass(frozen=True, slots=True)
class Present:
    """What Lake Formation has, as far as it matters for what is desired.

    `tag_values` has the LF-Tags' definitions; `tags` what is assigned to a resource itself, not what it inherits. The
    resources are folded.
    """

    registrations: frozenset[Registration] = frozenset()
    tag_values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def registration_of(self, arn: str) -> Registration | None:
        """Return the registration that covers the location: the one with the longest path."""
        covering = [each for each in self.registrations if each.covers(arn)]
        return max(covering, key=lambda each: len(each.arn), default=None)

    # Lake Formation converts keys and values to lower case when they are stored
    # (https://docs.aws.amazon.com/lake-formation/latest/dg/lf-tag-considerations.html).

    def values_of(self, key: str) -> frozenset[str] | None:
        """Return the values in an LF-Tag's definition, in lower case; None if it is not defined."""
        found = [values for name, values in self.tag_values.items() if name.lower() == key.lower()]
        return frozenset(value.lower() for values in found for value in values) if found else None

    def value_on(self, resource: Resource, key: str) -> str | None:
        """Return the value that is assigned to the resource itself, if any."""
        found = (tag.value for tag in self.tags if tag.resource == folded(resource) and tag.key.lower() == key.lower())
        return next(found, None)

    def allows(self, grant: Grant) -> bool:
        """Whether the principal has the permission: itself, or as part of ALL, or on more of the column's table."""
        resources = [folded(grant.resource)]
        if isinstance(resources[0], Columns):
            column = resources[0]
            resources.append(Table(column.database, column.table))
            held = (each.resource for each in self.grants)
            resources += {each for each in held if isinstance(each, ColumnsExcept) and each.includes(column)}
        return any(
            Grant(grant.principal, resource, permission, grantable) in self.grants
            for resource in resources
            for permission in (grant.permission, ALL)
            for grantable in {True, grant.grantable}
        )
