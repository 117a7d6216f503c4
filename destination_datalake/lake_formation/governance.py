"""Apply the Lake Formation options to a sync's tables, and explain the denial of requests by Lake Formation."""

from __future__ import annotations

import json
import logging
import re
import shlex
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, assert_never

from destination_datalake.aws.access import caller_arn, mask_secrets
from destination_datalake.aws.errors import denied_by_iam, explain
from destination_datalake.aws.objects import partition_of, retry_until_done
from destination_datalake.errors import ConnectorError, Failure, MissingPermission
from destination_datalake.lake_formation.calls import ChangeError, ReadError, apply, calls, effective_permissions, read
from destination_datalake.lake_formation.state import (
    AddLfTagValues,
    AllTables,
    Catalog,
    Change,
    CreateLfTag,
    Database,
    DataLocation,
    Desired,
    Deviation,
    Grant,
    LfTag,
    LocationNotRegistered,
    OptIn,
    OtherValueAssigned,
    RegisteredDifferently,
    Registration,
    Resource,
    Table,
    Tag,
    containing_table,
    describe_change,
    difference,
    to_request,
)

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.policy import Policy


# --- Messages ---------------------------------------------------------------------------------------------------------
# User-facing messages about Lake Formation: warnings, errors that name the missing permission, and AWS CLI commands.

ROLE_PLACEHOLDER = "<ROLE_ARN>"
"""The placeholder in commands for the ARN of a role that the user must choose."""

_SERVICE_LINKED = ":role/aws-service-role/lakeformation.amazonaws.com/"


@dataclass(frozen=True, slots=True)
class CommandLines:
    """Returns AWS CLI commands for Lake Formation, for use in messages.

    `catalog_id` is the ID of the account that owns the Data Catalog, or None if this is the caller's account.
    """

    region: str
    catalog_id: str | None = None

    @classmethod
    def for_access(cls, access: AwsAccess) -> Self:
        """Return an instance for the region and the Data Catalog that `access` uses."""
        return cls(access.glue_region or access.region, access.glue_catalog_id)

    def grant(self, principal: str, permissions: Iterable[str], resource: Resource, *, grantable: bool) -> str:
        """Return the command that grants permissions on a resource, with the grant option if `grantable` is true."""
        names = sorted(permissions)
        option = ["--permissions-with-grant-option", *names] if grantable else []
        words = [*_to(principal), "--permissions", *names, *option, *_on(resource)]
        return self._line("grant-permissions", *words, *self._catalog)

    def revoke(self, principal: str, permissions: Iterable[str], resource: Resource) -> str:
        """Return the command that revokes permissions on a resource."""
        names = sorted(permissions)
        words = [*_to(principal), "--permissions", *names, *_on(resource)]
        return self._line("revoke-permissions", *words, *self._catalog)

    def opt_in(self, principal: str, resource: Resource) -> str:
        """Return the command that opts a principal in on a resource.

        After the opt-in, Lake Formation's permissions on the resource apply to the principal.

        This command contains the catalog ID as a part of the resource, and not as a separate argument.
        """
        catalog = {} if self.catalog_id is None else {"CatalogId": self.catalog_id}
        named = {kind: {**catalog, **names} for kind, names in to_request(resource).items()}
        return self._line("create-lake-formation-opt-in", *_to(principal), "--resource", _json(named))

    def assign(self, tag: Tag) -> str:
        """Return the command that assigns an LF-Tag to a resource. The command replaces the previous value, if any."""
        tags = [{"TagKey": tag.key, "TagValues": [tag.value]}]
        return self._line("add-lf-tags-to-resource", *_on(tag.resource), "--lf-tags", _json(tags), *self._catalog)

    def register(self, registration: Registration) -> str:
        """Return the command that registers a data location."""
        return self._of_location("register-resource", registration)

    def update(self, registration: Registration) -> str:
        """Return the command that changes the role and the hybrid access of a registered data location."""
        return self._of_location("update-resource", registration)

    def register_again(self, registration: Registration) -> str:
        """Return the command that deregisters a data location and registers it again.

        Users need this command if the location is registered with a service-linked role, because AWS cannot change such
        a registration.
        """
        deregister = self._line("deregister-resource", "--resource-arn", registration.arn)
        return f"{deregister} && {self.register(registration)}"

    def _of_location(self, command: str, registration: Registration) -> str:
        hybrid = "--hybrid-access-enabled" if registration.hybrid else "--no-hybrid-access-enabled"
        role = registration.role_arn or ROLE_PLACEHOLDER
        # Omit the catalog ID, because AWS always registers a location in the caller's account.
        return self._line(command, "--resource-arn", registration.arn, "--role-arn", role, hybrid)

    @property
    def _catalog(self) -> Sequence[str]:
        return () if self.catalog_id is None else ("--catalog-id", self.catalog_id)

    def _line(self, command: str, *arguments: str) -> str:
        words = ["aws", "lakeformation", command, *arguments, "--region", self.region]
        return " ".join(word if word == ROLE_PLACEHOLDER else shlex.quote(word) for word in words)


def warning(deviation: Deviation, lines: CommandLines) -> str:
    """Return a warning about a setting that differs from the options, with the command that corrects the setting."""
    match deviation:
        case LocationNotRegistered(desired):
            return (
                f"Data location {desired.arn} is not registered with Lake Formation, so Lake Formation's permissions "
                "have no effect on its files. Set lake_formation.registration_role_arn to a role that may read and "
                f"write the location, or run: {lines.register(desired)}"
            )
        case RegisteredDifferently(present, desired):
            changed = replace(desired, arn=present.arn, role_arn=desired.role_arn or present.role_arn)
            if present.arn != desired.arn:
                # Keep the role of a registered parent folder, because this role also applies to other locations.
                changed = replace(changed, role_arn=present.role_arn)
            # https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html
            is_fixed = _SERVICE_LINKED in (present.role_arn or "")
            line = (
                lines.register_again(replace(changed, role_arn=desired.role_arn)) if is_fixed else lines.update(changed)
            )
            required = desired.access + (f" with role {desired.role_arn}" if desired.role_arn else "")
            return (
                f"Data location {present.arn} is registered with Lake Formation for {present.access} with role "
                f"{present.role_arn}, but the options require {required}. The connector does not change an existing "
                f"registration. To change the registration, run: {line}"
            )
        case OtherValueAssigned(tag, present):
            return (
                f"LF-Tag {tag.key} of {tag.resource} has the value {present}, but the options require {tag.value}. "
                f"The connector does not change an existing value. To change the value, run: {lines.assign(tag)}"
            )
    assert_never(deviation)


def _to(principal: str) -> tuple[str, str]:
    return "--principal", f"DataLakePrincipalIdentifier={principal}"


def _on(resource: Resource) -> tuple[str, str]:
    return "--resource", _json(to_request(resource))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})
_INVALID = frozenset({"InvalidInputException", "EntityNotFoundException", "AlreadyExistsException"})
_HYBRID = "https://docs.aws.amazon.com/lake-formation/latest/dg/notes-hybrid.html"

# The permissions that a principal needs to tag a resource, in addition to ASSOCIATE on the LF-Tag. The creator of the
# resource has these permissions (https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html).
TO_TAG_DATABASE = frozenset({"DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"})
TO_TAG_TABLE = frozenset({"DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"})


def user_error(error: ChangeError | ReadError, access: AwsAccess) -> ConnectorError:
    """Return the user-facing error for a change or a read that Lake Formation rejected.

    If AWS denied access, the message names the missing permission, the resource, the caller and the remedy.
    """
    if isinstance(error, ReadError):
        doing, resource = f"read {error.property_name} of", str(error.resource)
    else:
        _, doing, resource = describe_change(error.change)
    missing = None
    if error.code in _DENIED:
        missing, remedy = _missing(error, access)
        reason = f"access denied. {remedy}"
    elif error.code in _INVALID:
        reason = f"{mask_secrets(error.text).rstrip('.')}. {_correction(error)}"
    elif (failure := explain(error, doing=doing, resource=resource)) is not None:
        return ConnectorError(failure)
    else:
        raise AssertionError(f"{error} was not caused by an error of botocore")
    message = f"Cannot {doing} {resource} (Lake Formation, {error.operation}): {reason}"
    return ConnectorError(Failure(message, mask_secrets(f"{error.code}: {error.text}"), "config_error", missing))


@contextmanager
def explaining_denials(database: str, table: str, access: AwsAccess, location: str | None = None) -> Iterator[None]:
    """Convert an error in the `with` block to ConnectorError if Lake Formation denied a request about the table.

    Services such as Glue return the denials of Lake Formation. The message contains the command that grants the missing
    permission. Raises all other exceptions unchanged.

    `location` is the ARN of the folder that contains all tables, or None. If `location` is set, the command grants
    access to this folder instead of the table's own folder.
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
        lines, caller = CommandLines.for_access(access), _caller(access)
        line = lines.grant(caller, [permission], resource, grantable=False)
        if permission == "DESCRIBE" and resource == Database(database):
            # AWS does not reveal whether a database exists to a caller without CREATE_DATABASE.
            creation = lines.grant(caller, ["CREATE_DATABASE"], Catalog(), grantable=False)
            line += f" If the database does not exist, run instead: {creation}"
        raise ConnectorError(replace(failure, message=f"{failure.message} Run: {line}")) from error


def _of_table(permission: str, named: str | None, database: str, table: str) -> Resource:
    """Return the resource on which the connector needs `permission` to write the table.

    `named` is the resource that AWS's error text names, or None.
    """
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
            # AWS does not reveal whether the table exists, and nobody can grant permissions on a missing table.
            return AllTables(database)
    return Table(database, table)


def expected_denial(change: Change, access: AwsAccess) -> ConnectorError:
    """Return the error that a sync would raise if the caller lacked the permission for `change`."""
    return user_error(ChangeError(calls([change])[0].operation, change, "AccessDeniedException", ""), access)


def _correction(error: ChangeError | ReadError) -> str:
    match error:
        case ChangeError(change=Grant(resource=DataLocation()), text=text) if "register" in text:
            # https://docs.aws.amazon.com/lake-formation/latest/dg/granting-location-permissions.html
            return "The location is not registered with Lake Formation. Set lake_formation.registration_role_arn."
    return "Correct lake_formation in the configuration."


def _missing(error: ChangeError | ReadError, access: AwsAccess) -> tuple[MissingPermission, str]:
    """Return the permission that the caller lacks, and sentences that explain how to grant this permission."""
    caller = _caller(access)
    # If IAM denied the request, the error text names the action. Otherwise, the change determines the permissions.
    needed = None if "not authorized to perform" in error.text else _required_permissions(error, access)
    if needed is not None:
        permissions, resource, grantable = needed
        line = CommandLines.for_access(access).grant(caller, permissions, resource, grantable=grantable)
        names = ", ".join(sorted(permissions))
        remedy = f"{caller} needs {names} on {resource}{' with grant option' if grantable else ''}. Run: {line}"
        return MissingPermission(names, str(resource)), remedy
    missing = denied_by_iam(error.operation, error.text)
    if "OptIn" in error.operation and missing.resource is None:
        remedy = (
            f"Only data lake administrators can opt principals in ({_HYBRID}). Make {caller} a data lake "
            "administrator, or set "
        )
        match error:
            case ChangeError(change=OptIn(principal, resource)):
                # An administrator can make the opt-in, because the connector does not request existing opt-ins.
                line = CommandLines.for_access(access).opt_in(principal, resource)
                return (
                    missing,
                    f"{remedy}lake_formation.mode to managed, or ask an administrator to opt {principal} in. Run: "
                    f"{line}",
                )
        return missing, f"{remedy}lake_formation.mode to managed."
    return missing, f"Allow {missing.action} on {missing.resource or 'all resources'} in an IAM policy of {caller}."


def _caller(access: AwsAccess) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return caller_arn(access)
    except (BotoCoreError, ClientError):
        return "<ARN_OF_THE_CONNECTOR>"


class RequiredPermissions(NamedTuple):
    """The permissions that a call requires on a resource. If `grantable` is true, it also requires the grant option."""

    permissions: frozenset[str]
    resource: Resource
    grantable: bool


def _required_permissions(error: ChangeError | ReadError, access: AwsAccess) -> RequiredPermissions | None:
    if isinstance(error, ReadError):
        about_tags = error.operation in ("GetLFTag", "GetResourceLFTags")
        return RequiredPermissions(frozenset({"DESCRIBE"}), error.resource, grantable=False) if about_tags else None
    # An error without a text comes from `expected_denial`. The connection check tests ASSOCIATE separately.
    if isinstance(error.change, Tag) and error.text:
        tag = LfTag(error.change.key, (error.change.value,))
        if not _may_associate(tag, access):
            return RequiredPermissions(frozenset({"ASSOCIATE"}), tag, grantable=False)
    return required_permissions(error.change)


def required_permissions(change: Change) -> RequiredPermissions | None:
    """Return the Lake Formation permissions that a change requires, except ASSOCIATE on an LF-Tag.

    Returns None for registrations and opt-ins, which require other kinds of permissions.
    https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html
    """
    match change:
        case CreateLfTag():
            return RequiredPermissions(frozenset({"CREATE_LF_TAG"}), Catalog(), grantable=False)
        case AddLfTagValues(key):
            return RequiredPermissions(frozenset({"ALTER"}), LfTag(key, ("*",)), grantable=False)
        case Tag(resource):
            permissions = TO_TAG_DATABASE if isinstance(resource, Database) else TO_TAG_TABLE
            return RequiredPermissions(permissions, containing_table(resource), grantable=True)
        case Grant(_, resource, permission):
            return RequiredPermissions(frozenset({permission}), resource, grantable=True)
    return None


def _may_associate(tag: LfTag, access: AwsAccess) -> bool:
    """Return whether the caller has the permission ASSOCIATE on an LF-Tag. Return False if the request fails.

    Sends a request, because AWS's error text does not name the missing permission.
    """
    from botocore.exceptions import BotoCoreError

    try:
        effective = effective_permissions(_caller(access), tag, access.client("lakeformation"))
    except (BotoCoreError, ReadError):
        return False
    return not effective.missing(["ASSOCIATE"], grantable=False)


# --- Governance -------------------------------------------------------------------------------------------------------
# Apply the governance options to the tables of a sync: read the present state of Lake Formation, compare it with the
# options, and apply the difference.


_logger = logging.getLogger(__name__)

_RETRIED = frozenset({"ConcurrentModificationException", "OperationTimeoutException"})
"""The error codes of requests that may succeed if the connector sends them again."""


class Governance:
    """Applies the governance options to the data location, databases and tables of one sync. Thread-safe.

    Each method that applies options reads the present state from Lake Formation, and applies the missing settings. An
    instance does not read settings again that it has applied once. Without governance options, the methods send no
    requests. They raise ConnectorError if Lake Formation rejects a request, and botocore's errors if a request fails
    otherwise.
    """

    def __init__(self, policy: Policy, access: AwsAccess) -> None:
        self._policy = policy
        self._access = access
        self._lock = threading.Lock()
        # Held during requests, so that threads do not apply the settings of a database several times. `_lock` is held
        # only for moments.
        self._database_lock = threading.Lock()
        self._databases: set[str] = set()
        self._tables: dict[tuple[str, str, Hashable], Desired] = defaultdict(Desired)

    @property
    def database_settings(self) -> Mapping[str, Any]:
        """The members of DatabaseInput (Glue API) with which the connector creates databases.

        See `Policy.database_settings`.
        """
        return self._policy.database_settings

    def govern_location(self) -> None:
        """Register the data location, grant access to it, and define the LF-Tags. Raises ConnectorError."""
        for note in self._policy.notes():
            _logger.info("%s", note)
        try:
            self._converge(self._policy.location())
        except Exception as error:
            failure = explain(error, doing="govern", resource=f"data location {self._policy.location_arn}")
            if isinstance(error, ConnectorError) or failure is None:
                raise
            raise ConnectorError(failure) from error

    def govern_database(self, name: str, created_by_connector: Callable[[], bool]) -> None:
        """Apply the configured LF-Tags and grants to a database, once per sync.

        `created_by_connector` returns whether the connector created the database. This method calls it only if the
        options contain an LF-Tag for such databases.
        """
        with self._database_lock:
            if name not in self._databases:
                is_created = self._policy.default_tag is not None and created_by_connector()
                self._converge(self._policy.database(name, created_by_connector=is_created))
                # Only after success, so that the next table of the database tries again after an error.
                self._databases.add(name)

    def govern_table(
        self,
        database: str,
        table: str,
        columns: Collection[str],
        added: Collection[str] = (),
        incarnation: Hashable = None,
    ) -> None:
        """Apply the LF-Tags and grants for a table and its columns, unless this sync has already applied them.

        `columns` contains the names of all columns, spelled as in the table. `added` contains the names of the columns
        that the sync has just added. A dropped column may have had the same name. AWS deletes the LF-Tags and grants of
        a dropped column, so this method always applies those of an added column. `incarnation` identifies the table
        among tables with the same name, because AWS also deletes the LF-Tags and grants of a dropped table.
        """
        # The lock is not held during requests. Two threads may apply the same settings, which are idempotent.
        missing = self._ungoverned(database, table, columns, added, incarnation)
        if missing:
            self._converge(missing)
            with self._lock:
                applied = self._tables[database, table, incarnation]
                self._tables[database, table, incarnation] = applied.union(missing)

    def is_governed(
        self,
        database: str,
        table: str,
        columns: Collection[str],
        added: Collection[str] = (),
        incarnation: Hashable = None,
    ) -> bool:
        """Return whether `govern_table` with the same arguments would have nothing to apply. Sends no requests."""
        return not self._ungoverned(database, table, columns, added, incarnation)

    def _ungoverned(
        self, database: str, table: str, columns: Collection[str], added: Collection[str], incarnation: Hashable
    ) -> Desired:
        with self._lock:
            applied = self._tables[database, table, incarnation]
        return self._policy.table(database, table, columns).without(applied.outside(database, table, added))

    def _converge(self, desired: Desired) -> None:
        """Apply the desired settings that are missing. Log each change, and each deviation that the connector keeps.

        If Lake Formation rejects a change, reads the present state again, and raises ConnectorError only if the setting
        is still missing. Another sync may have applied the change, or the response to a successful request may have
        been lost.
        """
        if not desired:
            return
        client = self._access.client("lakeformation")
        failure: ChangeError | None = None
        read_failure: ReadError | None = None

        # Called up to eight times with increasing delays (see `retry_until_done`).
        def attempt() -> bool:
            nonlocal failure, read_failure
            try:
                # Read before each attempt, because a request may have taken effect although it failed.
                result = difference(desired, read(desired, client))
            except ReadError as error:
                if error.code not in _RETRIED:
                    raise
                read_failure = error
                return False
            still_missing = failure is not None and failure.change in result.changes
            if failure is not None and still_missing and not _may_succeed_on_retry(failure, desired):
                raise failure
            # Deviations are logged only once, not after each retry.
            if failure is None:
                for deviation in result.deviations:
                    _logger.warning("%s", warning(deviation, CommandLines.for_access(self._access)))
            try:
                apply(result.changes, client)
            except ChangeError as error:
                failure = error
                return False
            for change in result.changes:
                _logger.info("Lake Formation: %s.", describe_change(change).outcome)
            return True

        try:
            if not retry_until_done(attempt) and (error := failure or read_failure) is not None:
                raise error
        except (ChangeError, ReadError) as error:
            raise user_error(error, self._access) from error


def _may_succeed_on_retry(failure: ChangeError, desired: Desired) -> bool:
    """Return whether a rejected change may succeed on a retry, for example because its resource is very new.

    `desired` is the state that the connector applies.
    """
    match failure.change:
        case Grant(resource=DataLocation()):
            registered = desired.registration is not None and desired.registration.role_arn is not None
            just_made = registered and "register" in failure.text
        case Tag() | Grant() | OptIn():
            just_made = failure.code == "EntityNotFoundException"
        case _:
            just_made = False
    return just_made or failure.code in _RETRIED
