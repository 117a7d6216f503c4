"""What Lake Formation is to have, and what it has: registration, LF-Tags, grants and opt-ins, as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from destination_datalake.lake_formation.resources import Columns, ColumnsExcept, Resource, Table, folded

ALL = "ALL"
"""The permission that includes all others (the console calls it Super)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered data location: its ARN, the role that Lake Formation uses for it, and whether access is hybrid."""

    arn: str
    role_arn: str | None
    hybrid: bool

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
