"""Model the desired and the present state of Lake Formation, and compute the changes between them, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

# --- Resources --------------------------------------------------------------------------------------------------------
# The resources of Lake Formation, and their desired and present state: registration, LF-Tags, grants and opt-ins.


@dataclass(frozen=True, slots=True, order=True)
class Catalog:
    """The Data Catalog as a whole."""

    def __str__(self) -> str:
        return "the Data Catalog"


@dataclass(frozen=True, slots=True, order=True)
class DataLocation:
    """A bucket, or a folder in a bucket. `arn` has no trailing slash."""

    arn: str

    def __str__(self) -> str:
        return f"data location {self.arn}"


@dataclass(frozen=True, slots=True, order=True)
class Database:
    """A database in the Data Catalog."""

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
class Column:
    """A column of a table."""

    database: str
    table: str
    name: str

    def __str__(self) -> str:
        return f"column {self.name} of table {self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ColumnsExcept:
    """All columns of a table except the named ones (Lake Formation API: ColumnWildcard).

    The connector makes no such grants, but reads those that users or other tools made.
    """

    database: str
    table: str
    excluded: frozenset[str]

    def __str__(self) -> str:
        return f"columns of table {self.database}.{self.table} except {', '.join(sorted(self.excluded))}"

    def includes(self, column: Column) -> bool:
        """Return whether a column belongs to this table and is not excluded. Its name must be in lower case."""
        same_table = (self.database, self.table) == (column.database, column.table)
        return same_table and column.name not in self.excluded


@dataclass(frozen=True, slots=True, order=True)
class LfTag:
    """An LF-Tag: a key and some of its values. The value `*` stands for all values."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"LF-Tag {self.key}"


Resource = Catalog | DataLocation | Database | AllTables | Table | Column | ColumnsExcept | LfTag

_ALL_TABLES = "ALL_TABLES"
"""The table name that ListPermissions returns for all tables of a database."""


def to_request(resource: Resource) -> Any:
    """Return the resource as a member `Resource` of Lake Formation's API."""
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
        case Column(database, table, name):
            return {"TableWithColumns": {"DatabaseName": database, "Name": table, "ColumnNames": [name]}}
        case ColumnsExcept(database, table, excluded):
            wildcard = {"ExcludedColumnNames": sorted(excluded)}
            return {"TableWithColumns": {"DatabaseName": database, "Name": table, "ColumnWildcard": wildcard}}
        case LfTag(key, values):
            return {"LFTag": {"TagKey": key, "TagValues": [*values]}}
    assert_never(resource)


def with_lowercase_column(resource: Resource) -> Resource:
    """Return the resource with a column's name in lower case, because its letter case in Glue is not reliable."""
    return replace(resource, name=resource.name.lower()) if isinstance(resource, Column) else resource


def containing_table(resource: Resource) -> Resource:
    """Return the table of a column. Return any other resource unchanged."""
    return Table(resource.database, resource.table) if isinstance(resource, Column) else resource


def from_answer(answer: Mapping[str, Any]) -> list[Resource]:
    """Return the resources in a response. Each column is a separate resource, with its name in lower case.

    Returns an empty list for kinds of resources that this module does not model. In responses, a column wildcard stands
    for all columns of a table, and the table name ALL_TABLES for all tables of a database.
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
            return [Column(database, table, name.lower()) for name in names]
        case {"Table": table}:
            return [_table(table)]
    return []


def _table(table: Mapping[str, Any]) -> Table | AllTables:
    database, name = table["DatabaseName"], table.get("Name", _ALL_TABLES)
    return AllTables(database) if "TableWildcard" in table or name == _ALL_TABLES else Table(database, name)


ALL = "ALL"
"""The permission that includes all others. The AWS console calls it Super."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered data location: its ARN, the role that Lake Formation assumes, and whether access is hybrid.

    With hybrid access, Lake Formation's permissions apply only to principals that have opted in.
    """

    arn: str
    role_arn: str | None
    hybrid: bool

    @property
    def access(self) -> str:
        """The kind of access as a phrase for messages."""
        return "hybrid access" if self.hybrid else "access by Lake Formation's permissions only"

    def covers(self, arn: str) -> bool:
        """Return whether this registration applies to the location at `arn`.

        A registration applies to all folders below its path
        (https://docs.aws.amazon.com/lake-formation/latest/dg/register-data-lake.html).
        """
        folder = self.arn.removesuffix("*").rstrip("/")
        return arn == folder or arn.startswith(f"{folder}/")


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """The assignment of an LF-Tag to a resource: key and value. A resource has at most one value for each key."""

    resource: Resource
    key: str
    value: str


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One permission of a principal on a resource. If `grantable` is true, the principal may grant it to others."""

    principal: str
    resource: Resource
    permission: str
    grantable: bool = False


@dataclass(frozen=True, slots=True, order=True)
class OptIn:
    """A principal's opt-in for a resource with hybrid access: Lake Formation's permissions apply to this principal."""

    principal: str
    resource: Resource


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of some resources in Lake Formation.

    `tag_values` maps the key of each LF-Tag to values that its definition must contain. `tags` are assignments of
    LF-Tags. A registration without a role cannot be made; the connector only warns if it is missing.
    """

    registration: Registration | None = None
    tag_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.registration or self.tag_values or self.tags or self.grants or self.opt_ins)

    def without(self, other: Desired) -> Desired:
        """Return this state without the tags, grants and opt-ins that `other` contains."""
        return replace(
            self, tags=self.tags - other.tags, grants=self.grants - other.grants, opt_ins=self.opt_ins - other.opt_ins
        )

    def outside(self, database: str, table: str, columns: Collection[str]) -> Desired:
        """Return this state without the tags and grants on `columns` of a table."""
        inside = {Column(database, table, column) for column in columns}
        tags = frozenset(tag for tag in self.tags if tag.resource not in inside)
        return replace(
            self, tags=tags, grants=frozenset(grant for grant in self.grants if grant.resource not in inside)
        )

    def union(self, other: Desired) -> Desired:
        """Return this state with the tags, grants and opt-ins of `other` added."""
        return replace(
            self, tags=self.tags | other.tags, grants=self.grants | other.grants, opt_ins=self.opt_ins | other.opt_ins
        )


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of the resources and LF-Tags that a desired state contains.

    `tag_values` maps the key of each LF-Tag to the values in its definition. `tags` contains LF-Tags that are assigned
    to a resource directly, but not inherited ones. Names of columns are in lower case.
    """

    registrations: frozenset[Registration] = frozenset()
    tag_values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def covering_registration(self, arn: str) -> Registration | None:
        """Return the registration that applies to the location at `arn`, or None. The longest path wins."""
        covering = [registration for registration in self.registrations if registration.covers(arn)]
        return max(covering, key=lambda registration: len(registration.arn), default=None)

    # Lake Formation stores keys and values in lower case
    # (https://docs.aws.amazon.com/lake-formation/latest/dg/lf-tag-considerations.html).

    def values_of(self, key: str) -> frozenset[str] | None:
        """Return the values that an LF-Tag's definition contains, in lower case, or None if it is not defined."""
        definitions = [values for name, values in self.tag_values.items() if name.lower() == key.lower()]
        return frozenset(value.lower() for values in definitions for value in values) if definitions else None

    def assigned_value(self, resource: Resource, key: str) -> str | None:
        """Return the LF-Tag's value on a resource, or None if it is not assigned directly."""
        resource = with_lowercase_column(resource)
        values = (tag.value for tag in self.tags if tag.resource == resource and tag.key.lower() == key.lower())
        return next(values, None)

    def is_granted(self, grant: Grant) -> bool:
        """Return whether a permission is granted directly or as part of ALL.

        A permission on a column is also granted by one on its table, or on all columns except others.
        """
        column = with_lowercase_column(grant.resource)
        resources = [column]
        if isinstance(column, Column):
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


# --- Difference -------------------------------------------------------------------------------------------------------
# The difference between the desired and the present state of Lake Formation. Performs no I/O.
#
# The difference consists of changes and of deviations. Changes only add settings; they never revoke, remove or replace
# a setting. Deviations are differences that the connector only reports.


@dataclass(frozen=True, slots=True)
class CreateLfTag:
    """A change that creates the definition of an LF-Tag, with its values."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddLfTagValues:
    """A change that adds values to the definition of an LF-Tag."""

    key: str
    values: tuple[str, ...]


Change = Registration | CreateLfTag | AddLfTagValues | Tag | Grant | OptIn
"""A setting to add: a registration, the definition of an LF-Tag, values in a definition, an assignment of an LF-Tag, a
grant, or an opt-in."""


class ChangeDescription(NamedTuple):
    """Texts about a change for logs and error messages.

    `outcome` is a clause about the state after the change. `doing` and `resource` complete the message "Cannot …".
    """

    outcome: str
    doing: str
    resource: str


def describe_change(change: Change) -> ChangeDescription:
    """Return the texts about a change for logs and error messages."""
    match change:
        case Registration(arn, role):
            location = f"data location {arn}"
            outcome = f"{location} is registered with role {role} ({change.access})"
            return ChangeDescription(outcome, "register", f"{location} with role {role}")
        case CreateLfTag(key, values):
            return ChangeDescription(
                f"LF-Tag {key} is created with the values {', '.join(values)}", "create", f"LF-Tag {key}"
            )
        case AddLfTagValues(key, values):
            added = ", ".join(values)
            return ChangeDescription(
                f"LF-Tag {key} is extended by the values {added}", f"add the values {added} to", f"LF-Tag {key}"
            )
        case Tag(resource, key, value):
            return ChangeDescription(
                f"{resource} is tagged {key}={value}", f"assign LF-Tag {key}={value} to", str(resource)
            )
        case Grant(principal, resource, permission, grantable):
            option = " with grant option" if grantable else ""
            outcome = f"{permission} on {resource} is granted to {principal}{option}"
            return ChangeDescription(outcome, f"grant {principal} {permission} on", str(resource))
        case OptIn(principal, resource):
            return ChangeDescription(f"{principal} is opted in on {resource}", f"opt {principal} in on", str(resource))
    assert_never(change)


@dataclass(frozen=True, slots=True)
class LocationNotRegistered:
    """A deviation: the location is not registered, and the options contain no role to register it with."""

    desired: Registration


@dataclass(frozen=True, slots=True)
class RegisteredDifferently:
    """A deviation: the location is registered with another role or kind of access. The registration is kept."""

    present: Registration
    desired: Registration


@dataclass(frozen=True, slots=True)
class OtherValueAssigned:
    """A deviation: the LF-Tag has another value on the resource. The value is kept."""

    tag: Tag
    present: str


Deviation = LocationNotRegistered | RegisteredDifferently | OtherValueAssigned


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes, in an order in which they can be applied, and the deviations.

    Deviations are settings that differ from the desired state. The connector only reports them.
    """

    changes: tuple[Change, ...]
    deviations: tuple[Deviation, ...]


def difference(desired: Desired, present: Present) -> Difference:
    """Return the changes and deviations between the desired and the present state of Lake Formation."""
    items = [*_registration(desired, present), *_tag_values(desired, present), *_tags(desired, present)]
    items += [grant for grant in sorted(desired.grants, key=str) if not present.is_granted(grant)]
    items += sorted(desired.opt_ins - present.opt_ins, key=str)
    return Difference(
        tuple(item for item in items if isinstance(item, Change)),
        tuple(item for item in items if isinstance(item, Deviation)),
    )


def _registration(desired: Desired, present: Present) -> Iterator[Change | Deviation]:
    required = desired.registration
    if required is None:
        return
    existing = present.covering_registration(required.arn)
    if existing is None:
        yield LocationNotRegistered(required) if required.role_arn is None else required
        return
    # The role of a registered parent folder is not compared, because it applies to other locations too.
    has_other_role = existing.arn.rstrip("/") == required.arn and required.role_arn not in (None, existing.role_arn)
    if has_other_role or existing.hybrid != required.hybrid:
        yield RegisteredDifferently(existing, required)


def _tag_values(desired: Desired, present: Present) -> Iterator[Change]:
    for key, values in desired.tag_values.items():
        existing = present.values_of(key)
        if existing is None:
            yield CreateLfTag(key, values)
        elif missing := tuple(value for value in values if value.lower() not in existing):
            yield AddLfTagValues(key, missing)


def _tags(desired: Desired, present: Present) -> Iterator[Change | Deviation]:
    for tag in sorted(desired.tags, key=str):
        value = present.assigned_value(tag.resource, tag.key)
        if value is None:
            yield tag
        elif value.lower() != tag.value.lower():
            yield OtherValueAssigned(tag, value)
