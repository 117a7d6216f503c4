"""The difference of the desired and the present state of Lake Formation: changes, and deviations that stay. Pure.

Changes only add settings. They never revoke, remove or replace any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from destination_datalake.lake_formation.state import Desired, Grant, OptIn, Present, Registration, Tag


@dataclass(frozen=True, slots=True)
class CreateLfTag:
    """Define an LF-Tag with its values."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddLfTagValues:
    """Add values to an LF-Tag's definition."""

    key: str
    values: tuple[str, ...]


Change = Registration | CreateLfTag | AddLfTagValues | Tag | Grant | OptIn
"""A setting to add: a registration, an LF-Tag or its values, an assigned tag, a grant, or an opt-in."""


class ChangeDescription(NamedTuple):
    """Texts about a change: the state after it, as a clause for the log, and its failure, "Cannot DOING RESOURCE"."""

    outcome: str
    doing: str
    resource: str


def describe_change(change: Change) -> ChangeDescription:
    """Return the texts about a change."""
    match change:
        case Registration(arn, role):
            location = f"data location {arn}"
            outcome = f"{location} is registered with {role} ({change.access})"
            return ChangeDescription(outcome, "register", f"{location} with role {role}")
        case CreateLfTag(key, values):
            return ChangeDescription(f"LF-Tag {key} is created with {', '.join(values)}", "create", f"LF-Tag {key}")
        case AddLfTagValues(key, values):
            added = ", ".join(values)
            return ChangeDescription(f"LF-Tag {key} gets {added}", f"add {added} to", f"LF-Tag {key}")
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
    """A location without a registration, and without a role in the options to register it."""

    desired: Registration


@dataclass(frozen=True, slots=True)
class RegisteredDifferently:
    """A location registered with another role or kind of access, which stays."""

    present: Registration
    desired: Registration


@dataclass(frozen=True, slots=True)
class OtherValueAssigned:
    """A resource with another value of the LF-Tag, which stays."""

    tag: Tag
    present: str


Deviation = LocationNotRegistered | RegisteredDifferently | OtherValueAssigned


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes, in a valid order, and the deviations that stay."""

    changes: tuple[Change, ...]
    deviations: tuple[Deviation, ...]


def difference(desired: Desired, present: Present) -> Difference:
    """Return the difference of the desired and the present state."""
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
    # The role of a registered parent folder also applies to other locations, so it is not compared.
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
