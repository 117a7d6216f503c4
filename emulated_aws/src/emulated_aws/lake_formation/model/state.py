"""The state of Lake Formation in an account and a region. Resetting moto's state also resets this state."""

from dataclasses import dataclass, field
from datetime import datetime
from threading import RLock
from typing import Any

from moto.lakeformation.models import lakeformation_backends

from emulated_aws.lake_formation.model.resources import Catalog, Resource

EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""The group of all principals that IAM allows. Lake Formation does not control access to resources on which the group
has permissions."""

lock = RLock()
"""The lock that each request holds, because moto's server handles each request in a thread of its own."""


@dataclass
class Grant:
    """A principal's explicit permissions on one resource. It may grant the permissions in `grantable` to others."""

    permissions: set[str] = field(default_factory=set)
    grantable: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Location:
    """A registered data location. `role` is None for the service-linked role."""

    arn: str
    role: str | None
    flags: dict[str, Any]
    modified: datetime


@dataclass
class Lake:
    """The state of Lake Formation in one account and region. `settings` is moto's own object."""

    settings: dict[str, dict[str, Any]]
    lf_tags: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The defined values of each LF-Tag, in the order of their definition, by catalog and key."""
    assigned: dict[Resource, dict[str, str]] = field(default_factory=dict)
    """The keys and values of the LF-Tags that are assigned to a database, table or column directly."""
    grants: dict[tuple[str, Resource], Grant] = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)
    opt_ins: dict[tuple[str, Resource], datetime] = field(default_factory=dict)


def lake_of(account: str, region: str) -> Lake:
    """Return the state of an account and a region.

    In a new account, all IAM principals may create databases, and have all permissions on new databases and tables:
    https://docs.aws.amazon.com/lake-formation/latest/dg/change-settings.html
    """
    backend = lakeformation_backends[account][region]
    with lock:
        lake = vars(backend).get("extension")
        if not isinstance(lake, Lake):
            lake = vars(backend)["extension"] = Lake(backend.settings)
            lake.grants[EVERYBODY, Catalog(account)] = Grant({"CREATE_DATABASE"})
        return lake
