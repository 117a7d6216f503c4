"""What Lake Formation refuses, explained: which permission is missing on what, and the command line that grants it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from destination_datalake.aws.caller import caller_arn
from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.lake_formation.applying import NotApplied
from destination_datalake.lake_formation.difference import (
    AddLfTagValues,
    AssignLfTag,
    CreateLfTag,
    GrantPermission,
    OptInPrincipal,
    RegisterLocation,
)
from destination_datalake.lake_formation.messages import CommandLines
from destination_datalake.lake_formation.reading import NotRead
from destination_datalake.lake_formation.resources import (
    Catalog,
    Columns,
    Database,
    DataLocation,
    LfTag,
    Resource,
    Table,
)
from destination_datalake.lake_formation.state import Grant

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
_INVALID = frozenset({"InvalidInputException", "EntityNotFoundException", "AlreadyExistsException"})
_IAM = re.compile(r"not authorized to perform: (?P<action>[a-z-]+:\w+)(?: on resource: (?P<resource>\S+))?")
_HYBRID = "https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html"

# What tagging a resource requires beside ASSOCIATE on the LF-Tag, unless the caller has created the resource
# (https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html).
_TO_TAG_DATABASE = frozenset({"DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"})
_TO_TAG_TABLE = frozenset({"DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"})


def explained(error: NotApplied | NotRead, access: AwsAccess) -> ConnectorError:
    """Return the error for the user. A denial names permission, resource and caller, and how to grant it."""
    doing, resource = _subject(error)
    if error.code in _DENIED:
        why = f"access denied. {_remedy(error, access)}"
    elif error.code in _INVALID:
        why = f"{mask_secrets(error.text).rstrip('.')}. {_correction(error)}"
    elif (failure := explain(error, doing=doing, resource=resource)) is not None:
        return ConnectorError(failure)
    else:
        raise AssertionError(f"{error} has no error of botocore as its cause")
    message = f"Cannot {doing} {resource} (Lake Formation, {error.operation}): {why}"
    return ConnectorError(Failure(message, mask_secrets(f"{error.code}: {error.text}"), "config_error"))


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
        case NotApplied(change=GrantPermission(grant=Grant(resource=DataLocation())), code="EntityNotFoundException"):
            # https://docs.aws.amazon.com/lake-formation/latest/dg/granting-location-permissions.html
            return "Only on a registered location can access be granted: set lake_formation.registration_role_arn."
    return "Correct lake_formation in the configuration."


def _remedy(error: NotApplied | NotRead, access: AwsAccess) -> str:
    caller = _caller(access)
    if (found := _IAM.search(error.text)) is not None:
        on = f" on {found['resource']}" if found["resource"] else ""
        return f"Allow {found['action']}{on} to {caller} in IAM."
    if "OptIn" in error.operation:
        return (
            f"Only data lake administrators may opt principals in ({_HYBRID}). Make {caller} one, or set "
            "lake_formation.mode to managed."
        )
    needed = _needed(error)
    if needed is None:
        return f"Allow lakeformation:{error.operation} to {caller} in IAM, and iam:PassRole on the role that is named."
    permissions, resource, grantable = needed
    line = CommandLines.of(access).grant(caller, permissions, resource, grantable=grantable)
    option = " with grant option" if grantable else ""
    return f"{caller} needs {', '.join(sorted(permissions))} on {resource}{option}: {line}"


def _caller(access: AwsAccess) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return caller_arn(access)
    except (BotoCoreError, ClientError):
        return "<ARN_OF_THE_CONNECTOR>"


def _needed(error: NotApplied | NotRead) -> tuple[frozenset[str], Resource, bool] | None:
    """Return the permissions of Lake Formation that the call needs, on what, and whether with grant option.

    https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html
    """
    if isinstance(error, NotRead):
        return (frozenset({"DESCRIBE"}), error.of, False) if isinstance(error.of, LfTag | Database | Table) else None
    match error.change:
        case CreateLfTag():
            return frozenset({"CREATE_LF_TAG"}), Catalog(), False
        case AddLfTagValues(key):
            return frozenset({"ALTER"}), LfTag(key, ("*",)), False
        case AssignLfTag(tag):
            if re.search("tag|associate", error.text, re.IGNORECASE):
                return frozenset({"ASSOCIATE"}), LfTag(tag.key, (tag.value,)), False
            return (
                (_TO_TAG_DATABASE if isinstance(tag.resource, Database) else _TO_TAG_TABLE),
                _table(tag.resource),
                True,
            )
        case GrantPermission(grant):
            return frozenset({grant.permission}), grant.resource, True
    return None


def _table(resource: Resource) -> Resource:
    return Table(resource.database, resource.table) if isinstance(resource, Columns) else resource
