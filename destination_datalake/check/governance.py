"""Steps about Lake Formation: what syncs would change there, and whether the caller may.

Nothing is registered, defined or granted by a check. It reads what there is, and tries LF-Tags on a table of its own.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from destination_datalake.check.catalog import another_table, is_of_a_check
from destination_datalake.check.step import Findings, Trial
from destination_datalake.config.tables import GlueOptimizers
from destination_datalake.errors import Failure, MissingPermission
from destination_datalake.iam_policy.conditions import GOVERNED
from destination_datalake.iam_policy.policy import lake_formation_grants
from destination_datalake.lake_formation.calls import (
    Held,
    NotApplied,
    NotRead,
    apply,
    effective_permissions,
    read,
    tables_granted_to,
)
from destination_datalake.lake_formation.difference import Change, Difference, described, difference
from destination_datalake.lake_formation.messages import CommandLines, explained, foreseen, needed_for, warning
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.lake_formation.state import (
    AllTables,
    Database,
    DataLocation,
    Desired,
    OptIn,
    Present,
    Registration,
    Resource,
    Table,
    Tag,
)
from destination_datalake.maintenance.after_sync import ROLE_PERMISSIONS

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import DatabaseTypeDef
    from mypy_boto3_lakeformation import LakeFormationClient

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

EVERYBODY = "IAM_ALLOWED_PRINCIPALS"
"""The group of all whom IAM allows, by which Lake Formation leaves decisions to IAM."""

_DEFAULTS = ("CreateDatabaseDefaultPermissions", "CreateTableDefaultPermissions")
_KEPT = frozenset({"Name", "Description", "LocationUri", "Parameters"})
_NOT_ALLOWED = "Resource does not exist or requester is not authorized"
_SHOWN = 5


def try_location(trial: Trial, findings: Findings) -> None:
    """Compare the registration of the data location with the options, and read the data lake settings."""
    with findings.attempt("read", "the data lake settings") as reading:
        trial.settings = _client(trial).get_data_lake_settings()["DataLakeSettings"]
    if not reading.succeeded:
        # Syncs do not read them.
        findings.warn(f"{findings.failures.pop().message} Without it, check cannot tell what defaults void governance.")
    with _explained(trial, findings):
        found = _difference(trial, findings, replace(Policy.of(trial.config).location(), tag_values={}))
        to_register = [change for change in found.changes if isinstance(change, Registration)]
        for change in to_register:
            _logger.info("The first sync changes this: %s.", described(change).done)
            _require_access(trial, findings, change)
        if not to_register and not found.deviations:
            _require(trial, findings, found.changes)


def try_permissions(trial: Trial, findings: Findings) -> None:
    """Warn of permissions that the caller lacks on tables that others have created. Other steps try the rest."""
    if trial.remedies is None:
        return
    principal, database = trial.remedies.principal, Database(trial.database)
    tables = AllTables(database.name)
    with _explained(trial, findings):
        if not effective_permissions(EVERYBODY, database, _client(trial)).lacks(["ALL"], grantable=False):
            # Its tables are likely to be open to everybody as well, each by itself.
            return
        for grant in lake_formation_grants(trial.config, trial.remedies.scope):
            if grant.resource != tables or grant.grantable:
                continue
            if missing := _lacking(trial, principal, grant.permissions):
                findings.warn(
                    f"{principal} has no {', '.join(missing)} on {tables}, which syncs need for tables that others "
                    f"have created: {grant.command_line(principal, trial.config)}"
                )


def try_optimizers_role(trial: Trial, findings: Findings) -> None:
    """Warn of permissions that the role of Glue's table optimizers lacks on the tables."""
    options, tables = trial.config.maintenance, AllTables(trial.database)
    if not isinstance(options, GlueOptimizers):
        return
    with _explained(trial, findings):
        if missing := _lacking(trial, options.role_arn, ROLE_PERMISSIONS):
            command = CommandLines.of(trial.access).grant(options.role_arn, missing, tables, grantable=False)
            findings.warn(
                f"{options.role_arn} has no {', '.join(missing)} on {tables}, which Glue's table optimizers need: "
                f"{command}"
            )


def _lacking(trial: Trial, principal: str, permissions: Iterable[str]) -> list[str]:
    """Return which of these permissions on all tables neither the principal nor everybody has."""
    for each in (principal, EVERYBODY):
        held = effective_permissions(each, AllTables(trial.database), _client(trial))
        permissions = held.lacks(permissions, grantable=False)
    return sorted(permissions)


def try_lf_tags(trial: Trial, findings: Findings) -> None:
    """Find what is missing of LF-Tags and whether the caller may add it; assign those that are defined to a table."""
    policy, database = Policy.of(trial.config), trial.database
    definitions = policy.location().tag_values
    desired = Desired(tag_values=definitions, tags=policy.database(database, created_by_us=False).tags)
    with _explained(trial, findings):
        present = read(desired, _client(trial))
        _require(trial, findings, _difference(trial, findings, desired, present).changes)
        first = {key: values[0] for key, values in definitions.items() if values}
        defined = {key: value for key, value in first.items() if value.lower() in (present.values_of(key) or ())}
        if defined:
            with another_table(trial) as table:
                tags = [Tag(Table(database, table), key, value) for key, value in defined.items()]
                _assign(tags, trial)


def _assign(tags: Iterable[Tag], trial: Trial) -> None:
    """Assign LF-Tags to a table of the caller's. Raises NotApplied."""
    try:
        apply(tags, _client(trial))
    except NotApplied as error:
        if error.text.startswith(_NOT_ALLOWED):
            # AWS does not say what is missing. Who has created a table lacks nothing on it.
            raise NotApplied(error.operation, error.change, error.code, "Required Associate") from error
        raise


def try_grants(trial: Trial, findings: Findings) -> None:
    """Find which grants on the database and its tables are missing, and whether the caller may make them."""
    desired = replace(
        Policy.of(trial.config).database(trial.database, created_by_us=False),
        tags=frozenset(),
    )
    with _explained(trial, findings):
        _require(trial, findings, _difference(trial, findings, desired).changes)


def try_defaults(trial: Trial, findings: Findings) -> None:
    """Warn of permissions for IAM_ALLOWED_PRINCIPALS: with them, IAM alone decides about database and tables.

    https://docs.aws.amazon.com/lake-formation/latest/dg/upgrade-glue-lake-formation.html
    """
    name, lines = trial.database, CommandLines.of(trial.access)
    if opened := [each for each in _DEFAULTS if (trial.settings or {}).get(each)]:
        findings.warn(
            f"The data lake settings open new databases and tables to {EVERYBODY}, so IAM alone decides who may use "
            f"them. Set {' and '.join(opened)} to [] in what `aws lakeformation get-data-lake-settings` prints, and "
            "give that to `aws lakeformation put-data-lake-settings`."
        )
    with _explained(trial, findings):
        database = trial.access.client("glue").get_database(Name=name)["Database"]
        if database.get("CreateTableDefaultPermissions"):
            findings.warn(
                f"Database {name} opens new tables to {EVERYBODY}, so IAM alone decides who may use them. "
                f"Command: {_without_defaults(database, trial.access)}"
            )
        resources: list[Resource] = [
            each
            for each in tables_granted_to(EVERYBODY, name, _client(trial))
            if not (isinstance(each, Table) and is_of_a_check(each.name))
        ]
        if effective_permissions(EVERYBODY, Database(name), _client(trial)).permissions:
            resources.insert(0, Database(name))
        for resource in resources[:_SHOWN]:
            findings.warn(
                f"{EVERYBODY} has all permissions on {resource}, so IAM alone decides who may use it. "
                f"Command: {lines.revoke(EVERYBODY, ['ALL'], resource)}"
            )
        if len(resources) > _SHOWN:
            findings.warn(f"The same holds for {len(resources) - _SHOWN} more tables of database {name}.")


def _without_defaults(database: DatabaseTypeDef, access: AwsAccess) -> str:
    """Return the command that takes the default permissions from a database, and keeps what else it has."""
    kept = {key: value for key, value in database.items() if key in _KEPT}
    entry = json.dumps({**kept, "CreateTableDefaultPermissions": []})
    catalog = [] if access.glue_catalog_id is None else ["--catalog-id", access.glue_catalog_id]
    words = ["aws", "glue", "update-database", "--name", database["Name"], "--database-input", entry, *catalog]
    return shlex.join([*words, "--region", access.glue_region or access.region])


def _client(trial: Trial) -> LakeFormationClient:
    return trial.access.client("lakeformation")


def _difference(trial: Trial, findings: Findings, desired: Desired, present: Present | None = None) -> Difference:
    """Return what is to change, and warn of what stays otherwise than desired. `present` is read unless given."""
    found = difference(desired, present or read(desired, _client(trial)))
    for deviation in found.deviations:
        findings.warn(warning(deviation, CommandLines.of(trial.access)))
    return found


def _require(trial: Trial, findings: Findings, changes: Iterable[Change]) -> None:
    """Add a failure for each change that the caller will be denied, as far as that can be known."""
    if not GOVERNED.holds(trial.config):
        # The older LF-Tag of databases needs no permission to list permissions.
        return
    principal = "" if trial.remedies is None else trial.remedies.principal
    if _administers(trial):
        return
    known: dict[Resource, Held] = {}
    for change in changes:
        needed = needed_for(change)
        if needed is None:
            lacks = isinstance(change, OptIn)
        else:
            if needed.resource not in known:
                known[needed.resource] = effective_permissions(principal, needed.resource, _client(trial))
            lacks = bool(known[needed.resource].lacks(needed.permissions, grantable=needed.grantable))
        if lacks:
            _add_foreseen(trial, findings, foreseen(change, trial.access).failure)


def _add_foreseen(trial: Trial, findings: Findings, failure: Failure) -> None:
    """Add a failure that the caller will meet; a warning if it is not known whether they are an administrator."""
    if trial.settings is None:
        findings.warn(f"Unless the caller is a data lake administrator: {failure.message}")
    else:
        findings.failures.append(failure)


def _administers(trial: Trial) -> bool:
    """Whether the caller may do everything (https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html)."""
    principal = None if trial.remedies is None else trial.remedies.principal
    administrators = (trial.settings or {}).get("DataLakeAdmins", [])
    return any(each["DataLakePrincipalIdentifier"] == principal for each in administrators)


def _require_access(trial: Trial, findings: Findings, registration: Registration) -> None:
    """Add a failure if the caller will be denied tables at a location once that is registered.

    Who may create tables in a database has access below the database's own location
    (https://docs.aws.amazon.com/lake-formation/latest/dg/access-control-underlying-data.html).
    """
    location = DataLocation(registration.arn)
    if trial.remedies is None or _administers(trial):
        return
    held = effective_permissions(trial.remedies.principal, location, _client(trial))
    if not held.lacks(["DATA_LOCATION_ACCESS"], grantable=False) or _is_below_its_database(trial):
        return
    lines, principal = CommandLines.of(trial.access), trial.remedies.principal
    granting = lines.grant(principal, ["DATA_LOCATION_ACCESS"], location, grantable=False)
    message = (
        f"Cannot create tables at {location}: the first sync registers it with Lake Formation, which then denies it. "
        f"{principal} needs DATA_LOCATION_ACCESS on {location}, which can be granted once that is registered. "
        f"Command: {lines.register(registration)} && {granting}"
    )
    missing = MissingPermission("DATA_LOCATION_ACCESS", str(location))
    _add_foreseen(trial, findings, Failure(message, message, "config_error", missing))


def _is_below_its_database(trial: Trial) -> bool:
    from botocore.exceptions import ClientError

    try:
        database = trial.access.client("glue").get_database(Name=trial.database)["Database"]
    except ClientError:
        return False
    location = database.get("LocationUri", "").rstrip("/")
    return bool(location) and trial.config.table_uri(trial.database, "table").startswith(f"{location}/")


@contextmanager
def _explained(trial: Trial, findings: Findings) -> Iterator[None]:
    with findings.attempt("read Lake Formation's permissions for", trial.database):
        try:
            yield
        except (NotRead, NotApplied) as error:
            findings.add(explained(error, trial.access).failure)
