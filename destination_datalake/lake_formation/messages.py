"""Warnings about what is left as it is, and calls as command lines of the AWS CLI, which messages offer to be run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, assert_never

from destination_datalake.lake_formation.difference import (
    Deviation,
    LocationNotRegistered,
    OtherValueAssigned,
    RegisteredDifferently,
)
from destination_datalake.lake_formation.resources import Resource, to_request
from destination_datalake.lake_formation.state import Registration, Tag

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

ROLE_PLACEHOLDER = "<ROLE_ARN>"
"""Stands for the role that the user has to choose."""

_SERVICE_LINKED = ":role/aws-service-role/lakeformation.amazonaws.com/"


@dataclass(frozen=True, slots=True)
class CommandLines:
    """Command lines for one Data Catalog. None is the catalog of the account whose credentials run them."""

    region: str
    catalog_id: str | None = None

    @classmethod
    def of(cls, access: AwsAccess) -> Self:
        """Return command lines for the Data Catalog that `access` is for."""
        return cls(access.glue_region or access.region, access.glue_catalog_id)

    def grant(self, principal: str, permissions: Iterable[str], resource: Resource, *, grantable: bool) -> str:
        """Grant permissions on a resource, with or without the right to grant them to others."""
        wanted = sorted(permissions)
        option = ["--permissions-with-grant-option", *wanted] if grantable else []
        principal = f"DataLakePrincipalIdentifier={principal}"
        of_resource = ["--resource", _json(to_request(resource))]
        return self._line(
            "grant-permissions", "--principal", principal, "--permissions", *wanted, *option, *of_resource
        )

    def revoke(self, principal: str, permissions: Iterable[str], resource: Resource) -> str:
        """Revoke permissions on a resource."""
        who, of_resource = f"DataLakePrincipalIdentifier={principal}", _json(to_request(resource))
        wanted = sorted(permissions)
        return self._line("revoke-permissions", "--principal", who, "--permissions", *wanted, "--resource", of_resource)

    def opt_in(self, principal: str, resource: Resource) -> str:
        """Let Lake Formation decide for a principal about a resource. Here the catalog is part of the resource."""
        catalog = {} if self.catalog_id is None else {"CatalogId": self.catalog_id}
        named = {kind: {**catalog, **names} for kind, names in to_request(resource).items()}
        who = f"DataLakePrincipalIdentifier={principal}"
        words = ["create-lake-formation-opt-in", "--principal", who, "--resource", _json(named)]
        return _joined(["aws", "lakeformation", *words, "--region", self.region])

    def assign(self, tag: Tag) -> str:
        """Assign an LF-Tag to a resource, in place of another value of its key."""
        tags = [{"TagKey": tag.key, "TagValues": [tag.value]}]
        resource = _json(to_request(tag.resource))
        return self._line("add-lf-tags-to-resource", "--resource", resource, "--lf-tags", _json(tags))

    def register(self, registration: Registration) -> str:
        """Register a data location."""
        return self._of_location("register-resource", registration)

    def update(self, registration: Registration) -> str:
        """Change the role of a registered data location, and whether access is hybrid."""
        return self._of_location("update-resource", registration)

    def register_again(self, registration: Registration) -> str:
        """Deregister a data location and register it anew, which one with a service-linked role requires."""
        region = ["--region", self.region]
        deregister = ["aws", "lakeformation", "deregister-resource", "--resource-arn", registration.arn, *region]
        return f"{shlex.join(deregister)} && {self.register(registration)}"

    def _of_location(self, command: str, registration: Registration) -> str:
        hybrid = "--hybrid-access-enabled" if registration.hybrid else "--no-hybrid-access-enabled"
        role = registration.role_arn or ROLE_PLACEHOLDER
        location = ["--resource-arn", registration.arn, "--role-arn", role, hybrid]
        # These commands know no catalog: a location is registered in the account that runs them.
        return _joined(["aws", "lakeformation", command, *location, "--region", self.region])

    def _line(self, command: str, *arguments: str) -> str:
        catalog = ["--catalog-id", self.catalog_id] if self.catalog_id is not None else []
        return _joined(["aws", "lakeformation", command, *arguments, *catalog, "--region", self.region])


def warning(deviation: Deviation, lines: CommandLines) -> str:
    """Return the warning about a deviation."""
    match deviation:
        case LocationNotRegistered(desired):
            return (
                f"Data location {desired.arn} is not registered with Lake Formation, so Lake Formation's permissions "
                "have no effect on its files. Set lake_formation.registration_role_arn to a role that may read and "
                f"write it, or register it: {lines.register(desired)}"
            )
        case RegisteredDifferently(present, desired):
            changed = replace(desired, arn=present.arn, role_arn=desired.role_arn or present.role_arn)
            if present.arn != desired.arn:
                # The role of a folder above was chosen for more than this location.
                changed = replace(changed, role_arn=present.role_arn)
            # https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html
            fixed = _SERVICE_LINKED in (present.role_arn or "")
            line = lines.register_again(replace(changed, role_arn=desired.role_arn)) if fixed else lines.update(changed)
            wanted = _access(desired.hybrid) + (f" with role {desired.role_arn}" if desired.role_arn else "")
            return (
                f"Data location {present.arn} is registered with Lake Formation for {_access(present.hybrid)} with "
                f"role {present.role_arn}, and stays so; the options ask for {wanted}. To change it: {line}"
            )
        case OtherValueAssigned(tag, present):
            return (
                f"LF-Tag {tag.key} of {tag.resource} has the value {present}, and keeps it; the options ask for "
                f"{tag.value}. To change it: {lines.assign(tag)}"
            )
    assert_never(deviation)


def _access(hybrid: bool) -> str:
    return "hybrid access" if hybrid else "access by Lake Formation's permissions alone"


def _joined(words: Iterable[str]) -> str:
    return " ".join(word if word == ROLE_PLACEHOLDER else shlex.quote(word) for word in words)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
