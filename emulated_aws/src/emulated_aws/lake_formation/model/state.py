"""What Lake Formation knows of an account in a region. It lives and is reset with moto's own state."""

from dataclasses import dataclass, field
from datetime import datetime
from threading import RLock
from typing import Any

from moto.lakeformation.models import lakeformation_backends

from emulated_aws.lake_formation.model.resources import Catalog, Resource

EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""Whoever IAM allows; what it has is not decided by Lake Formation."""

lock = RLock()
"""Held during a request: moto's server answers each in a thread of its own."""


@dataclass
class Grant:
    """A principal's explicit permissions on one resource; `grantable` are those that it may pass on."""

    permissions: set[str] = field(default_factory=set)
    grantable: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Location:
    """A registered data location; `role` is None for the service-linked one."""

    arn: str
    role: str | None
    flags: dict[str, Any]
    modified: datetime


@dataclass
class Lake:
    """The state of one account and region. Settings are moto's own."""

    settings: dict[str, dict[str, Any]]
    lf_tags: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The values that an LF-Tag may have, in the order in which they came, by catalog and key."""
    assigned: dict[Resource, dict[str, str]] = field(default_factory=dict)
    """LF-Tags by the database, table or column that they were assigned to themselves; not the inherited ones."""
    grants: dict[tuple[str, Resource], Grant] = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)
    opt_ins: dict[tuple[str, Resource], datetime] = field(default_factory=dict)


def lake_of(account: str, region: str) -> Lake:
    """Return the account's state. In a new one everybody may create databases, and has what is created.

    https://docs.aws.amazon.com/lake-formation/latest/dg/change-settings.html
    """
    backend = lakeformation_backends[account][region]
    with lock:
        lake = vars(backend).get("extension")
        if not isinstance(lake, Lake):
            lake = vars(backend)["extension"] = Lake(backend.settings)
            lake.grants[EVERYBODY, Catalog(account)] = Grant({"CREATE_DATABASE"})
        return lake
