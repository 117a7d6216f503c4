"""Check steps for Lake Formation. They determine the changes that syncs would make, and check the permissions for them.

The steps do not register locations, define LF-Tags or grant permissions. They read the present state of Lake Formation,
and assign LF-Tags to a temporary table.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from destination_datalake.check.catalog import is_check_table, temporary_table
from destination_datalake.check.step import CheckContext, StepFindings
from destination_datalake.config.tables import GlueOptimizers
from destination_datalake.errors import Failure, MissingPermission
from destination_datalake.iam_policy.conditions import GOVERNED
from destination_datalake.iam_policy.policy import lake_formation_grants
from destination_datalake.lake_formation.calls import (
    ChangeError,
    EffectivePermissions,
    ReadError,
    apply,
    effective_permissions,
    read,
    tables_granted_to,
)
from destination_datalake.lake_formation.governance import (
    CommandLines,
    expected_denial,
    required_permissions,
    user_error,
    warning,
)
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.lake_formation.state import (
    AllTables,
    Change,
    Database,
    DataLocation,
    Desired,
    Difference,
    OptIn,
    Present,
    Registration,
    Resource,
    Table,
    Tag,
    describe_change,
    difference,
)
from destination_datalake.maintenance.after_sync import ROLE_PERMISSIONS

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import DatabaseTypeDef
    from mypy_boto3_lakeformation import LakeFormationClient

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""Lake Formation's group for all principals whose access IAM allows. If the group has permissions on a resource, IAM
alone controls access to the resource."""

_DEFAULTS = ("CreateDatabaseDefaultPermissions", "CreateTableDefaultPermissions")
_DATABASE_INPUT_MEMBERS = frozenset({"Name", "Description", "LocationUri", "Parameters"})
_NOT_ALLOWED = "Resource does not exist or requester is not authorized"
_SHOWN = 5


def try_location(context: CheckContext, findings: StepFindings) -> None:
    """Check the registration of the data location, and the grants on the data location.

    Adds a failure if the caller may not make the changes that the options require. Warns if the existing registration
    differs from the options. Stores the data lake settings in `context.settings`, for later steps.
    """
    with findings.attempt("read", "the data lake settings") as reading:
        context.settings = _client(context).get_data_lake_settings()["DataLakeSettings"]
    if not reading.succeeded:
        # Only warn, because syncs do not read the settings.
        findings.warn(
            f"{findings.failures.pop().message} Without this permission, the check cannot find default permissions "
            "that bypass Lake Formation."
        )
    with _reporting_errors(context, findings):
        result = _difference(context, findings, replace(Policy.from_config(context.config).location(), tag_values={}))
        to_register = [change for change in result.changes if isinstance(change, Registration)]
        for change in to_register:
            _logger.info("The first sync makes this change: %s.", describe_change(change).outcome)
            _require_access(context, findings, change)
        if not to_register and not result.deviations:
            _require(context, findings, result.changes)


def try_permissions(context: CheckContext, findings: StepFindings) -> None:
    """Warn if the caller has not been granted permissions on every table of the database.

    Syncs need these permissions for tables that other principals created. On tables that the caller created, the caller
    has these permissions implicitly.
    """
    principal, database = context.caller.principal, Database(context.database)
    tables = AllTables(database.name)
    with _reporting_errors(context, findings):
        if not effective_permissions(EVERYBODY, database, _client(context)).missing(["ALL"], grantable=False):
            # IAM_ALLOWED_PRINCIPALS then probably has permissions on the tables too.
            return
        for grant in lake_formation_grants(context.config, context.caller.scope):
            if grant.resource != tables or grant.grantable:
                continue
            if missing := _missing_permissions(context, principal, grant.permissions):
                findings.warn(
                    f"{principal} lacks {', '.join(missing)} on {tables}. Syncs need these permissions for tables that "
                    f"other principals created. Run: {grant.command_line(principal, context.config)}"
                )


def try_optimizers_role(context: CheckContext, findings: StepFindings) -> None:
    """Warn if the role of Glue's table optimizers lacks permissions on the tables of the database."""
    options, tables = context.config.maintenance, AllTables(context.database)
    assert isinstance(options, GlueOptimizers)
    with _reporting_errors(context, findings):
        if missing := _missing_permissions(context, options.role_arn, ROLE_PERMISSIONS):
            command = CommandLines.for_access(context.access).grant(options.role_arn, missing, tables, grantable=False)
            findings.warn(
                f"{options.role_arn} lacks {', '.join(missing)} on {tables}. Glue's table optimizers need these "
                f"permissions. Run: {command}"
            )


def _missing_permissions(context: CheckContext, principal: str, permissions: Iterable[str]) -> list[str]:
    """Return the permissions that neither `principal` nor EVERYBODY has on all tables of the database, sorted."""
    for grantee in (principal, EVERYBODY):
        effective = effective_permissions(grantee, AllTables(context.database), _client(context))
        permissions = effective.missing(permissions, grantable=False)
    return sorted(permissions)


def try_lf_tags(context: CheckContext, findings: StepFindings) -> None:
    """Check the permission to create missing LF-Tags, and assign the existing LF-Tags to a temporary table.

    Adds a failure for each missing permission.
    """
    policy, database = Policy.from_config(context.config), context.database
    definitions = policy.location().tag_values
    desired = Desired(tag_values=definitions, tags=policy.database(database, created_by_connector=False).tags)
    with _reporting_errors(context, findings):
        present = read(desired, _client(context))
        _require(context, findings, _difference(context, findings, desired, present).changes)
        first = {key: values[0] for key, values in definitions.items() if values}
        defined = {key: value for key, value in first.items() if value.lower() in (present.values_of(key) or ())}
        if defined:
            with temporary_table(context) as table:
                tags = [Tag(Table(database, table), key, value) for key, value in defined.items()]
                _assign(tags, context)


def _assign(tags: Iterable[Tag], context: CheckContext) -> None:
    """Assign LF-Tags to a table that the caller created. Raises ChangeError.

    If a permission is missing, the text of the error names it.
    """
    try:
        apply(tags, _client(context))
    except ChangeError as error:
        if error.text.startswith(_NOT_ALLOWED):
            # AWS does not name the missing permission. It must be ASSOCIATE on the LF-Tag, because the creator of a
            # table has all permissions on the table.
            raise ChangeError(error.operation, error.change, error.code, "Required Associate") from error
        raise


def try_grants(context: CheckContext, findings: StepFindings) -> None:
    """Add a failure for each configured grant that the database lacks and that the caller may not make."""
    desired = replace(
        Policy.from_config(context.config).database(context.database, created_by_connector=False),
        tags=frozenset(),
    )
    with _reporting_errors(context, findings):
        _require(context, findings, _difference(context, findings, desired).changes)


def try_defaults(context: CheckContext, findings: StepFindings) -> None:
    """Warn if IAM alone controls access, because the group IAM_ALLOWED_PRINCIPALS has permissions.

    Checks the defaults of the account, the defaults of the database, the database itself, and the database's tables.
    https://docs.aws.amazon.com/lake-formation/latest/dg/upgrade-glue-lake-formation.html
    """
    name, lines = context.database, CommandLines.for_access(context.access)
    if open_defaults := [setting for setting in _DEFAULTS if (context.settings or {}).get(setting)]:
        findings.warn(
            f"The data lake settings grant {EVERYBODY} all permissions on new databases and tables, so IAM alone "
            f"controls access to these resources. Set {' and '.join(open_defaults)} to [] in the output of `aws "
            "lakeformation get-data-lake-settings`, and pass the result to `aws lakeformation put-data-lake-settings`."
        )
    with _reporting_errors(context, findings):
        database = context.access.client("glue").get_database(Name=name)["Database"]
        if database.get("CreateTableDefaultPermissions"):
            findings.warn(
                f"Database {name} grants {EVERYBODY} all permissions on new tables, so IAM alone controls access to "
                "these tables. "
                f"Run: {_without_defaults(database, context.access)}"
            )
        resources: list[Resource] = [
            table
            for table in tables_granted_to(EVERYBODY, name, _client(context))
            if not (isinstance(table, Table) and is_check_table(table.name))
        ]
        if effective_permissions(EVERYBODY, Database(name), _client(context)).permissions:
            resources.insert(0, Database(name))
        for resource in resources[:_SHOWN]:
            findings.warn(
                f"{EVERYBODY} has all permissions on {resource}, so IAM alone controls access to this resource. "
                f"Run: {lines.revoke(EVERYBODY, ['ALL'], resource)}"
            )
        if len(resources) > _SHOWN:
            findings.warn(
                f"The same applies to {len(resources) - _SHOWN} more tables of database {name}. Revoke these "
                "permissions too."
            )


def _without_defaults(database: DatabaseTypeDef, access: AwsAccess) -> str:
    """Return the AWS CLI command that removes a database's default permissions and keeps its other properties."""
    members = {key: value for key, value in database.items() if key in _DATABASE_INPUT_MEMBERS}
    entry = json.dumps({**members, "CreateTableDefaultPermissions": []})
    catalog = [] if access.glue_catalog_id is None else ["--catalog-id", access.glue_catalog_id]
    words = ["aws", "glue", "update-database", "--name", database["Name"], "--database-input", entry, *catalog]
    return shlex.join([*words, "--region", access.glue_region or access.region])


def _client(context: CheckContext) -> LakeFormationClient:
    return context.access.client("lakeformation")


def _difference(
    context: CheckContext, findings: StepFindings, desired: Desired, present: Present | None = None
) -> Difference:
    """Return the difference between the desired and the present state of Lake Formation. Warn about deviations.

    Deviations are existing settings that the connector does not change. If `present` is None, reads the present state.
    """
    result = difference(desired, present or read(desired, _client(context)))
    for deviation in result.deviations:
        findings.warn(warning(deviation, CommandLines.for_access(context.access)))
    return result


def _require(context: CheckContext, findings: StepFindings, changes: Iterable[Change]) -> None:
    """Add a failure for each change that Lake Formation would deny, judging by the caller's effective permissions."""
    if not GOVERNED.holds(context.config):
        # Only the older option for an LF-Tag on databases is set. It does not require the permission to list
        # permissions, so the check does not list them.
        return
    if _is_administrator(context):
        return
    known: dict[Resource, EffectivePermissions] = {}
    for change in changes:
        needed = required_permissions(change)
        if needed is None:
            is_denied = isinstance(change, OptIn)
        else:
            if needed.resource not in known:
                known[needed.resource] = effective_permissions(
                    context.caller.principal, needed.resource, _client(context)
                )
            is_denied = bool(known[needed.resource].missing(needed.permissions, grantable=needed.grantable))
        if is_denied:
            _add_expected_failure(context, findings, expected_denial(change, context.access).failure)


def _add_expected_failure(context: CheckContext, findings: StepFindings, failure: Failure) -> None:
    """Add a failure that syncs would have. If the caller may be a data lake administrator, only warn.

    The caller may be an administrator if the check could not read the data lake settings.
    """
    if context.settings is None:
        findings.warn(f"This problem does not apply if the caller is a data lake administrator: {failure.message}")
    else:
        findings.failures.append(failure)


def _is_administrator(context: CheckContext) -> bool:
    """Return whether the data lake settings list the caller as a data lake administrator.

    Administrators may make all changes:
    https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html
    """
    administrators = (context.settings or {}).get("DataLakeAdmins", [])
    return any(admin["DataLakePrincipalIdentifier"] == context.caller.principal for admin in administrators)


def _require_access(context: CheckContext, findings: StepFindings, registration: Registration) -> None:
    """Add a failure if the caller could not create tables at a location after the registration of the location.

    After the registration, the caller needs DATA_LOCATION_ACCESS, except below the database's own location
    (https://docs.aws.amazon.com/lake-formation/latest/dg/access-control-underlying-data.html).
    """
    location, principal = DataLocation(registration.arn), context.caller.principal
    if _is_administrator(context):
        return
    effective = effective_permissions(principal, location, _client(context))
    if not effective.missing(["DATA_LOCATION_ACCESS"], grantable=False) or _is_below_database_location(context):
        return
    lines = CommandLines.for_access(context.access)
    granting = lines.grant(principal, ["DATA_LOCATION_ACCESS"], location, grantable=False)
    message = (
        f"Cannot create tables at {location}: the first sync registers {location}, and Lake Formation then denies "
        f"access. {principal} needs DATA_LOCATION_ACCESS on {location}, which can be granted only after the "
        f"registration. Run: {lines.register(registration)} && {granting}"
    )
    missing = MissingPermission("DATA_LOCATION_ACCESS", str(location))
    _add_expected_failure(context, findings, Failure(message, message, "config_error", missing))


def _is_below_database_location(context: CheckContext) -> bool:
    from botocore.exceptions import ClientError

    try:
        database = context.access.client("glue").get_database(Name=context.database)["Database"]
    except ClientError:
        return False
    location = database.get("LocationUri", "").rstrip("/")
    return bool(location) and context.config.table_uri(context.database, "table").startswith(f"{location}/")


@contextmanager
def _reporting_errors(context: CheckContext, findings: StepFindings) -> Iterator[None]:
    with findings.attempt("read Lake Formation's permissions for", context.database):
        try:
            yield
        except (ReadError, ChangeError) as error:
            findings.add(user_error(error, context.access).failure)
