"""What Lake Formation refuses, explained: which permission is missing on what, and the command line that grants it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

from destination_datalake.aws.address import partition_of
from destination_datalake.aws.caller import caller_arn
from destination_datalake.aws.errors import explain
from destination_datalake.aws.permissions import denial_by_iam
from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.errors import ConnectorError, Failure, MissingPermission
from destination_datalake.lake_formation.applying import NotApplied, calls
from destination_datalake.lake_formation.difference import (
    AddLfTagValues,
    AssignLfTag,
    Change,
    CreateLfTag,
    GrantPermission,
    OptInPrincipal,
    RegisterLocation,
)
from destination_datalake.lake_formation.messages import CommandLines
from destination_datalake.lake_formation.reading import NotRead
from destination_datalake.lake_formation.resources import (
    AllTables,
    Catalog,
    Columns,
    Database,
    DataLocation,
    LfTag,
    Resource,
    Table,
    to_request,
)
from destination_datalake.lake_formation.state import Grant

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
_INVALID = frozenset({"InvalidInputException", "EntityNotFoundException", "AlreadyExistsException"})
_HYBRID = "https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html"

# What tagging a resource requires beside ASSOCIATE on the LF-Tag, unless the caller has created the resource
# (https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html).
_TO_TAG_DATABASE = frozenset({"DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"})
_TO_TAG_TABLE = frozenset({"DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"})


def explained(error: NotApplied | NotRead, access: AwsAccess) -> ConnectorError:
    """Return the error for the user. A denial names permission, resource and caller, and how to grant it."""
    doing, resource = _subject(error)
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
            # Lake Formation does not tell whoever may not create databases which ones exist.
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


def _subject(error: NotApplied | NotRead) -> tuple[str, str]:
    """Return what failed, to complete "Cannot …", and on which resource."""
    if isinstance(error, NotRead):
        return f"read {error.what} of", str(error.of)
    match error.change:
        case RegisterLocation(registration):
            return "register", f"data location {registration.arn} with role {registration.role_arn}"
        case CreateLfTag(key):
            return "create", f"LF-Tag {key}"
        case AddLfTagValues(key, values):
            return f"add {', '.join(values)} to", f"LF-Tag {key}"
        case AssignLfTag(tag):
            return f"assign LF-Tag {tag.key}={tag.value} to", str(tag.resource)
        case GrantPermission(grant):
            return f"grant {grant.principal} {grant.permission} on", str(grant.resource)
        case OptInPrincipal(opt_in):
            return f"opt {opt_in.principal} in on", str(opt_in.resource)
    assert_never(error.change)


def _correction(error: NotApplied | NotRead) -> str:
    match error:
        case NotApplied(change=GrantPermission(grant=Grant(resource=DataLocation())), text=text) if "register" in text:
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
    missing = denial_by_iam(error.operation, error.text).missing
    if "OptIn" in error.operation and missing.resource is None:
        remedy = f"Only data lake administrators may opt principals in ({_HYBRID}). Make {caller} one, or set "
        match error:
            case NotApplied(change=OptInPrincipal(opt_in)):
                # An opt-in that exists is found, and not asked for again.
                line = CommandLines.of(access).opt_in(opt_in.principal, opt_in.resource)
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
    if isinstance(error.change, AssignLfTag) and error.text:
        tag = LfTag(error.change.tag.key, (error.change.tag.value,))
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
        case AssignLfTag(tag):
            permissions = _TO_TAG_DATABASE if isinstance(tag.resource, Database) else _TO_TAG_TABLE
            return Needed(permissions, _table(tag.resource), grantable=True)
        case GrantPermission(grant):
            return Needed(frozenset({grant.permission}), grant.resource, grantable=True)
    return None


def _may_associate(tag: LfTag, access: AwsAccess) -> bool:
    """Whether the caller is known to have ASSOCIATE on an LF-Tag: AWS's text does not say what a caller lacks."""
    from botocore.exceptions import BotoCoreError, ClientError

    caller, client = _caller(access), access.client("lakeformation")
    try:
        found = client.list_permissions(Resource=to_request(tag), MaxResults=1000)["PrincipalResourcePermissions"]
    except (BotoCoreError, ClientError):
        return False
    held = [each for each in found if each["Principal"]["DataLakePrincipalIdentifier"] == caller]
    return any("ASSOCIATE" in each["Permissions"] for each in held)


def _table(resource: Resource) -> Resource:
    return Table(resource.database, resource.table) if isinstance(resource, Columns) else resource
