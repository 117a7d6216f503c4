"""What must be changed in Lake Formation, and what is left as it is although the options say otherwise. Pure.

No change takes anything away: nothing is revoked, removed or replaced.
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
"""A registration, assigned tag, grant or opt-in is one to make; so is the definition of an LF-Tag."""


class Described(NamedTuple):
    """What is so after a change, as a clause for the log; and what its failure is about: "Cannot DOING RESOURCE"."""

    done: str
    doing: str
    resource: str


def described(change: Change) -> Described:
    """Return a change in words."""
    match change:
        case Registration(arn, role):
            location = f"data location {arn}"
            done = f"{location} is registered with {role} ({change.access})"
            return Described(done, "register", f"{location} with role {role}")
        case CreateLfTag(key, values):
            return Described(f"LF-Tag {key} is created with {', '.join(values)}", "create", f"LF-Tag {key}")
        case AddLfTagValues(key, values):
            added = ", ".join(values)
            return Described(f"LF-Tag {key} gets {added}", f"add {added} to", f"LF-Tag {key}")
        case Tag(resource, key, value):
            return Described(f"{resource} is tagged {key}={value}", f"assign LF-Tag {key}={value} to", str(resource))
        case Grant(principal, resource, permission, grantable):
            done = f"{permission} on {resource} is granted to {principal}{' with grant option' if grantable else ''}"
            return Described(done, f"grant {principal} {permission} on", str(resource))
        case OptIn(principal, resource):
            return Described(f"{principal} is opted in on {resource}", f"opt {principal} in on", str(resource))
    assert_never(change)


@dataclass(frozen=True, slots=True)
class LocationNotRegistered:
    """The location is not registered, and the options name no role to register it with."""

    desired: Registration


@dataclass(frozen=True, slots=True)
class RegisteredDifferently:
    """The location is registered with another role or another kind of access, and stays so."""

    present: Registration
    desired: Registration


@dataclass(frozen=True, slots=True)
class OtherValueAssigned:
    """The resource has been assigned another value of the LF-Tag, and keeps it."""

    tag: Tag
    present: str


Deviation = LocationNotRegistered | RegisteredDifferently | OtherValueAssigned


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes to make, in an order in which they can be made, and the deviations that stay."""

    changes: tuple[Change, ...]
    deviations: tuple[Deviation, ...]


def difference(desired: Desired, present: Present) -> Difference:
    """Compare what is desired with what there is."""
    found = [*_registration(desired, present), *_tag_values(desired, present), *_tags(desired, present)]
    found += [grant for grant in sorted(desired.grants, key=str) if not present.allows(grant)]
    found += sorted(desired.opt_ins - present.opt_ins, key=str)
    return Difference(
        tuple(each for each in found if isinstance(each, Change)),
        tuple(each for each in found if isinstance(each, Deviation)),
    )


def _registration(desired: Desired, present: Present) -> Iterator[Change | Deviation]:
    wanted = desired.registration
    if wanted is None:
        return
    found = present.registration_of(wanted.arn)
    if found is None:
        yield LocationNotRegistered(wanted) if wanted.role_arn is None else wanted
        return
    # The role of a folder above was chosen for more than this location.
    other_role = found.arn.rstrip("/") == wanted.arn and wanted.role_arn not in (None, found.role_arn)
    if other_role or found.hybrid != wanted.hybrid:
        yield RegisteredDifferently(found, wanted)


def _tag_values(desired: Desired, present: Present) -> Iterator[Change]:
    for key, values in desired.tag_values.items():
        existing = present.values_of(key)
        if existing is None:
            yield CreateLfTag(key, values)
        elif missing := tuple(value for value in values if value.lower() not in existing):
            yield AddLfTagValues(key, missing)


def _tags(desired: Desired, present: Present) -> Iterator[Change | Deviation]:
    for tag in sorted(desired.tags, key=str):
        value = present.value_on(tag.resource, tag.key)
        if value is None:
            yield tag
        elif value.lower() != tag.value.lower():
            yield OtherValueAssigned(tag, value)
