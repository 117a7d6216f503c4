"""What users read about Lake Formation: warnings, refusals with the missing permission, and commands that help."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self, assert_never

from destination_datalake.aws.access import caller_arn
from destination_datalake.aws.address import partition_of
from destination_datalake.aws.errors import denied_by_iam, explain
from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.errors import ConnectorError, Failure, MissingPermission
from destination_datalake.lake_formation.calls import NotApplied, NotRead, calls, effective_permissions
from destination_datalake.lake_formation.difference import (
    AddLfTagValues,
    Change,
    CreateLfTag,
    Deviation,
    LocationNotRegistered,
    OtherValueAssigned,
    RegisteredDifferently,
    described,
)
from destination_datalake.lake_formation.state import (
    AllTables,
    Catalog,
    Database,
    DataLocation,
    Grant,
    LfTag,
    OptIn,
    Registration,
    Resource,
    Table,
    Tag,
    to_request,
    whole,
)

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
        return self._line("grant-permissions", *_to(principal), "--permissions", *wanted, *option, *_on(resource))

    def revoke(self, principal: str, permissions: Iterable[str], resource: Resource) -> str:
        """Revoke permissions on a resource."""
        wanted = sorted(permissions)
        return self._line("revoke-permissions", *_to(principal), "--permissions", *wanted, *_on(resource))

    def opt_in(self, principal: str, resource: Resource) -> str:
        """Let Lake Formation decide for a principal about a resource. Here the catalog is part of the resource."""
        catalog = {} if self.catalog_id is None else {"CatalogId": self.catalog_id}
        named = {kind: {**catalog, **names} for kind, names in to_request(resource).items()}
        words = ["create-lake-formation-opt-in", *_to(principal), "--resource", _json(named)]
        return _joined(["aws", "lakeformation", *words, "--region", self.region])

    def assign(self, tag: Tag) -> str:
        """Assign an LF-Tag to a resource, in place of another value of its key."""
        tags = [{"TagKey": tag.key, "TagValues": [tag.value]}]
        return self._line("add-lf-tags-to-resource", *_on(tag.resource), "--lf-tags", _json(tags))

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
            wanted = desired.access + (f" with role {desired.role_arn}" if desired.role_arn else "")
            return (
                f"Data location {present.arn} is registered with Lake Formation for {present.access} with "
                f"role {present.role_arn}, and stays so; the options ask for {wanted}. To change it: {line}"
            )
        case OtherValueAssigned(tag, present):
            return (
                f"LF-Tag {tag.key} of {tag.resource} has the value {present}, and keeps it; the options ask for "
                f"{tag.value}. To change it: {lines.assign(tag)}"
            )
    assert_never(deviation)


def _joined(words: Iterable[str]) -> str:
    return " ".join(word if word == ROLE_PLACEHOLDER else shlex.quote(word) for word in words)


def _to(principal: str) -> tuple[str, str]:
    return "--principal", f"DataLakePrincipalIdentifier={principal}"


def _on(resource: Resource) -> tuple[str, str]:
    return "--resource", _json(to_request(resource))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
_INVALID = frozenset({"InvalidInputException", "EntityNotFoundException", "AlreadyExistsException"})
_HYBRID = "https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html"

# What tagging a resource requires beside ASSOCIATE on the LF-Tag, unless the caller has created the resource
# (https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html).
TO_TAG_DATABASE = frozenset({"DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"})
TO_TAG_TABLE = frozenset({"DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"})


def explained(error: NotApplied | NotRead, access: AwsAccess) -> ConnectorError:
    """Return the error for the user. A denial names permission, resource and caller, and how to grant it."""
    if isinstance(error, NotRead):
        doing, resource = f"read {error.what} of", str(error.of)
    else:
        _, doing, resource = described(error.change)
    missing = None
    if error.code in _DENIED:
        missing, remedy = _missing(error, access)
        why = f"access denied. {remedy}"
    elif error.code in _INVALID:
        why = f"{mask_secrets(error.text).rstrip('.')}. {_correction(error)}"
    elif (failure := explain(error, doing=doing, resource=resource)) is not None:
        return ConnectorError(failure)
    else:
        raise AssertionError(f"{error} has no error of botocore as its cause")
    message = f"Cannot {doing} {resource} (Lake Formation, {error.operation}): {why}"
    return ConnectorError(Failure(message, mask_secrets(f"{error.code}: {error.text}"), "config_error", missing))


@contextmanager
def naming_grants(database: str, table: str, access: AwsAccess, location: str | None = None) -> Iterator[None]:
    """Add the grant to what Lake Formation denies in the responses of other services about a table.

    `location` is the ARN of the folder of all tables, on which access is granted instead of on the table's.
    Raises ConnectorError for such a denial, and every other exception as it is.
    """
    try:
        yield
    except Exception as error:
        failure = explain(error, doing="write to", resource=f"table {database}.{table}")
        if failure is None or failure.missing is None or failure.missing.in_iam or isinstance(error, ConnectorError):
            raise
        permission = failure.missing.action
        named = failure.missing.resource
        if named is not None:
            named = re.sub("^s3://", f"arn:{partition_of(access.region)}:s3:::", named).rstrip("/")
            if location is not None and f"{named}/".startswith(f"{location}/"):
                named = location
        resource = _of_table(permission, named, database, table)
        lines, caller = CommandLines.of(access), _caller(access)
        line = lines.grant(caller, [permission], resource, grantable=False)
        if permission == "DESCRIBE" and resource == Database(database):
            # A caller who may not create databases is not told which ones exist.
            creation = lines.grant(caller, ["CREATE_DATABASE"], Catalog(), grantable=False)
            line += f" Or, if there is no such database yet: {creation}"
        raise ConnectorError(replace(failure, message=f"{failure.message} Command: {line}")) from error


def _of_table(permission: str, named: str | None, database: str, table: str) -> Resource:
    """Return what a permission of a table's writer is granted on; `named` is what AWS's text names, if anything."""
    match permission:
        case "CREATE_DATABASE":
            return Catalog()
        case "CREATE_TABLE":
            return Database(database)
        case "DATA_LOCATION_ACCESS" if named is not None:
            return DataLocation(named)
        case _ if named == database:
            return Database(database)
        case "DESCRIBE":
            # Whether the table exists is not told to a caller without it, and on one that does not, nothing is granted.
            return AllTables(database)
    return Table(database, table)


def foreseen(change: Change, access: AwsAccess) -> ConnectorError:
    """Return the error with which a change will be denied to a caller without the permissions that it needs."""
    return explained(NotApplied(calls([change])[0].operation, change, "AccessDeniedException", ""), access)


def _correction(error: NotApplied | NotRead) -> str:
    match error:
        case NotApplied(change=Grant(resource=DataLocation()), text=text) if "register" in text:
            # https://docs.aws.amazon.com/lake-formation/latest/dg/granting-location-permissions.html
            return "Only on a registered location can access be granted: set lake_formation.registration_role_arn."
    return "Correct lake_formation in the configuration."


def _missing(error: NotApplied | NotRead, access: AwsAccess) -> tuple[MissingPermission, str]:
    """Return what the caller lacks, and how it is given."""
    caller = _caller(access)
    needed = None if "not authorized to perform" in error.text else _needed(error, access)
    if needed is not None:
        permissions, resource, grantable = needed
        line = CommandLines.of(access).grant(caller, permissions, resource, grantable=grantable)
        wanted = ", ".join(sorted(permissions))
        remedy = f"{caller} needs {wanted} on {resource}{' with grant option' if grantable else ''}. Command: {line}"
        return MissingPermission(wanted, str(resource)), remedy
    missing = denied_by_iam(error.operation, error.text)
    if "OptIn" in error.operation and missing.resource is None:
        remedy = f"Only data lake administrators may opt principals in ({_HYBRID}). Make {caller} one, or set "
        match error:
            case NotApplied(change=OptIn(principal, resource)):
                # An opt-in that exists is found, and not asked for again.
                line = CommandLines.of(access).opt_in(principal, resource)
                return missing, f"{remedy}lake_formation.mode to managed, or let one opt it in. Command: {line}"
        return missing, f"{remedy}lake_formation.mode to managed."
    return missing, f"Allow {missing.action} on {missing.resource or 'all resources'} to {caller} in IAM."


def _caller(access: AwsAccess) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return caller_arn(access)
    except (BotoCoreError, ClientError):
        return "<ARN_OF_THE_CONNECTOR>"


class Needed(NamedTuple):
    """Permissions of Lake Formation that a call needs, on what, and whether with the grant option."""

    permissions: frozenset[str]
    resource: Resource
    grantable: bool


def _needed(error: NotApplied | NotRead, access: AwsAccess) -> Needed | None:
    if isinstance(error, NotRead):
        about_tags = error.operation in ("GetLFTag", "GetResourceLFTags")
        return Needed(frozenset({"DESCRIBE"}), error.of, grantable=False) if about_tags else None
    # A denial that is foreseen has no text; who foresees it has looked for ASSOCIATE before.
    if isinstance(error.change, Tag) and error.text:
        tag = LfTag(error.change.key, (error.change.value,))
        if not _may_associate(tag, access):
            return Needed(frozenset({"ASSOCIATE"}), tag, grantable=False)
    return needed_for(error.change)


def needed_for(change: Change) -> Needed | None:
    """Return what a change needs, but for ASSOCIATE on an LF-Tag; None if that is no permission of Lake Formation.

    https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html
    """
    match change:
        case CreateLfTag():
            return Needed(frozenset({"CREATE_LF_TAG"}), Catalog(), grantable=False)
        case AddLfTagValues(key):
            return Needed(frozenset({"ALTER"}), LfTag(key, ("*",)), grantable=False)
        case Tag(resource):
            permissions = TO_TAG_DATABASE if isinstance(resource, Database) else TO_TAG_TABLE
            return Needed(permissions, whole(resource), grantable=True)
        case Grant(_, resource, permission):
            return Needed(frozenset({permission}), resource, grantable=True)
    return None


def _may_associate(tag: LfTag, access: AwsAccess) -> bool:
    """Whether the caller is known to have ASSOCIATE on an LF-Tag: AWS's text does not say what a caller lacks."""
    from botocore.exceptions import BotoCoreError

    try:
        held = effective_permissions(_caller(access), tag, access.client("lakeformation"))
    except (BotoCoreError, NotRead):
        return False
    return not held.lacks(["ASSOCIATE"], grantable=False)
