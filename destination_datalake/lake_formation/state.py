"""Model the desired and the present state of Lake Formation, and compute their difference, without I/O."""

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
    """All tables of a database, including future tables (Lake Formation API: TableWildcard)."""

    database: str

    def __str__(self) -> str:
        return f"all tables of database {self.database}"


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """A table with all its columns."""

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
    """All columns of a table except `excluded` (Lake Formation API: ColumnWildcard).

    The connector grants no permissions on such resources, but it reads the grants that users or other tools made.
    """

    database: str
    table: str
    excluded: frozenset[str]

    def __str__(self) -> str:
        return f"columns of table {self.database}.{self.table} except {', '.join(sorted(self.excluded))}"

    def includes(self, column: Column) -> bool:
        """Return whether a column belongs to this table and is not excluded.

        The column's name must be in lower case.
        """
        same_table = (self.database, self.table) == (column.database, column.table)
        return same_table and column.name not in self.excluded


@dataclass(frozen=True, slots=True, order=True)
class LfTag:
    """An LF-Tag: a key, and some of the values that its definition contains. The value `*` stands for all values."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"LF-Tag {self.key}"


Resource = Catalog | DataLocation | Database | AllTables | Table | Column | ColumnsExcept | LfTag

_ALL_TABLES = "ALL_TABLES"
"""The table name with which ListPermissions refers to all tables of a database."""


def to_request(resource: Resource) -> Any:
    """Return the resource in the form of the member `Resource` in requests to Lake Formation."""
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
    """Return a column with its name in lower case. Return any other resource unchanged.

    The letter case of a column's name in Glue is not reliable.
    """
    return replace(resource, name=resource.name.lower()) if isinstance(resource, Column) else resource


def containing_table(resource: Resource) -> Resource:
    """Return the table of a column. Return any other resource unchanged."""
    return Table(resource.database, resource.table) if isinstance(resource, Column) else resource


def from_answer(answer: Mapping[str, Any]) -> list[Resource]:
    """Return the resources to which the member `Resource` of a response refers.

    Returns a separate resource for each column, with the column's name in lower case. Returns an empty list for kinds
    of resources that this module does not model. In responses, a column wildcard stands for all columns of a table, and
    the table name ALL_TABLES for all tables of a database.
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
"""The permission that includes all other permissions. The AWS console calls this permission Super."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a data location with Lake Formation.

    `arn` is the ARN of the location, and `role_arn` is the role that Lake Formation assumes to access the location. If
    `hybrid` is true, Lake Formation's permissions apply only to principals that have opted in.
    """

    arn: str
    role_arn: str | None
    hybrid: bool

    @property
    def access(self) -> str:
        """A phrase for messages about the kind of access, according to `hybrid`."""
        return "hybrid access" if self.hybrid else "access by Lake Formation's permissions only"

    def covers(self, arn: str) -> bool:
        """Return whether this registration applies to the location at `arn`.

        A registration applies to all folders below its path
        (https://docs.aws.amazon.com/lake-formation/latest/dg/register-data-lake.html).
        """
        # The ARN of a registered folder may end with `/` or `/*`.
        folder = self.arn.removesuffix("*").rstrip("/")
        return arn == folder or arn.startswith(f"{folder}/")


@dataclass(frozen=True, slots=True, order=True)
class Tag:
    """The assignment of an LF-Tag's key and value to a resource. A resource has at most one value for each key."""

    resource: Resource
    key: str
    value: str


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One permission of a principal on a resource.

    If `grantable` is true, the principal may grant the permission to others.
    """

    principal: str
    resource: Resource
    permission: str
    grantable: bool = False


@dataclass(frozen=True, slots=True, order=True)
class OptIn:
    """A principal's opt-in for a resource with hybrid access.

    With the opt-in, Lake Formation's permissions on the resource apply to the principal.
    """

    principal: str
    resource: Resource


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of some resources in Lake Formation.

    `tag_values` maps the key of each LF-Tag to the values that the LF-Tag's definition must contain. `tags` contains
    assignments of LF-Tags to resources. The connector cannot create a registration that has no role. If such a
    registration is missing, the connector only logs a warning.
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
        # Registrations and the values of LF-Tags belong to the location, which is governed separately.
        return replace(
            self, tags=self.tags - other.tags, grants=self.grants - other.grants, opt_ins=self.opt_ins - other.opt_ins
        )

    def outside(self, database: str, table: str, columns: Collection[str]) -> Desired:
        """Return this state without the tags and grants on these columns of a table."""
        inside = {Column(database, table, column) for column in columns}
        tags = frozenset(tag for tag in self.tags if tag.resource not in inside)
        return replace(
            self, tags=tags, grants=frozenset(grant for grant in self.grants if grant.resource not in inside)
        )

    def union(self, other: Desired) -> Desired:
        """Return this state with the additional tags, grants and opt-ins of `other`."""
        return replace(
            self, tags=self.tags | other.tags, grants=self.grants | other.grants, opt_ins=self.opt_ins | other.opt_ins
        )


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of the resources and LF-Tags that a desired state contains.

    `tag_values` maps the key of each LF-Tag to the values in the LF-Tag's definition. `tags` contains only the LF-Tags
    that are assigned to a resource directly, and not the LF-Tags that a resource inherits. Names of columns are in
    lower case.
    """

    registrations: frozenset[Registration] = frozenset()
    tag_values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tags: frozenset[Tag] = frozenset()
    grants: frozenset[Grant] = frozenset()
    opt_ins: frozenset[OptIn] = frozenset()

    def covering_registration(self, arn: str) -> Registration | None:
        """Return the registration that applies to the location at `arn`, or None if the location is not registered.

        If several registrations cover the location, the one with the longest path applies.
        """
        covering = [registration for registration in self.registrations if registration.covers(arn)]
        return max(covering, key=lambda registration: len(registration.arn), default=None)

    # Lake Formation stores keys and values in lower case
    # (https://docs.aws.amazon.com/lake-formation/latest/dg/lf-tag-considerations.html).

    def values_of(self, key: str) -> frozenset[str] | None:
        """Return the values in an LF-Tag's definition, in lower case, or None if the LF-Tag is not defined."""
        definitions = [values for name, values in self.tag_values.items() if name.lower() == key.lower()]
        return frozenset(value.lower() for values in definitions for value in values) if definitions else None

    def assigned_value(self, resource: Resource, key: str) -> str | None:
        """Return the value of an LF-Tag that is assigned to a resource directly, or None if there is no such value."""
        resource = with_lowercase_column(resource)
        values = (tag.value for tag in self.tags if tag.resource == resource and tag.key.lower() == key.lower())
        return next(values, None)

    def is_granted(self, grant: Grant) -> bool:
        """Return whether a principal has a permission, directly or as part of ALL.

        A principal also has a permission on a column if it has the permission on the table, or on all columns except
        other ones.
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
            # A grant with grant option includes the one without.
            for grantable in {True, grant.grantable}
        )


# --- Difference -------------------------------------------------------------------------------------------------------
# The difference between the desired and the present state of Lake Formation. Performs no I/O.
#
# The difference consists of changes and deviations. A change only adds a setting. It never revokes, removes or replaces
# one. Deviations are differences that the connector only reports.


@dataclass(frozen=True, slots=True)
class CreateLfTag:
    """A change that creates the definition of an LF-Tag with these values."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddLfTagValues:
    """A change that adds values to the definition of an LF-Tag."""

    key: str
    values: tuple[str, ...]


Change = Registration | CreateLfTag | AddLfTagValues | Tag | Grant | OptIn
"""A setting to add: a registration, the definition of an LF-Tag, values in the definition of an LF-Tag, the assignment
of an LF-Tag to a resource, a grant, or an opt-in."""


class ChangeDescription(NamedTuple):
    """The descriptions of a change for logs and error messages.

    `outcome` is a clause about the state after the change. `doing` and `resource` complete the message "Cannot …".
    """

    outcome: str
    doing: str
    resource: str


def describe_change(change: Change) -> ChangeDescription:
    """Return the descriptions of a change for logs and error messages."""
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
    """A deviation: the location is not registered, and the options contain no role for the registration."""

    desired: Registration


@dataclass(frozen=True, slots=True)
class RegisteredDifferently:
    """A deviation: the location is registered with another role or another kind of access.

    The connector keeps the present registration.
    """

    present: Registration
    desired: Registration


@dataclass(frozen=True, slots=True)
class OtherValueAssigned:
    """A deviation: the resource has another value of the LF-Tag. The connector keeps the present value."""

    tag: Tag
    present: str


Deviation = LocationNotRegistered | RegisteredDifferently | OtherValueAssigned


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between the desired and the present state of Lake Formation.

    `changes` contains the settings to add, in an order in which the connector can apply them. `deviations` contains the
    settings that differ from the desired state, and that the connector only reports.
    """

    changes: tuple[Change, ...]
    deviations: tuple[Deviation, ...]


def difference(desired: Desired, present: Present) -> Difference:
    """Return the changes and deviations between the desired and the present state of Lake Formation."""
    # In this order, each change finds what it needs: a grant on a location requires its registration, and an assignment
    # requires the LF-Tag's values.
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
    # Do not compare the role of a registered parent folder, because this role also applies to other locations.
    has_other_role = existing.arn.rstrip("/") == required.arn and required.role_arn not in (None, existing.role_arn)
    if has_other_role or existing.hybrid != required.hybrid:
        yield RegisteredDifferently(existing, required)


def _tag_values(desired: Desired, present: Present) -> Iterator[Change]:
    for key, values in desired.tag_values.items():
        existing = present.values_of(key)
        if existing is None:
            yield CreateLfTag(key, values)
        # Definitions are only extended. Values of other users of the LF-Tag stay.
        elif missing := tuple(value for value in values if value.lower() not in existing):
            yield AddLfTagValues(key, missing)


def _tags(desired: Desired, present: Present) -> Iterator[Change | Deviation]:
    for tag in sorted(desired.tags, key=str):
        value = present.assigned_value(tag.resource, tag.key)
        if value is None:
            yield tag
        # Assigning another value would replace the present one, and with it the access of others.
        elif value.lower() != tag.value.lower():
            yield OtherValueAssigned(tag, value)
