"""Governance of a sync's tables: read the present state, compare it with the options, and apply the difference."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.backoff import retry_until_done
from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError
from destination_datalake.lake_formation.calls import ChangeError, ReadError, apply, read
from destination_datalake.lake_formation.difference import describe_change, difference
from destination_datalake.lake_formation.messages import CommandLines, user_error, warning
from destination_datalake.lake_formation.state import DataLocation, Desired, Grant, Tag

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.policy import Policy

_logger = logging.getLogger(__name__)

_RETRIED = frozenset({"ConcurrentModificationException", "OperationTimeoutException"})
"""Error codes after which a retry may succeed."""


class Governance:
    """The governance options, applied to the locations, databases and tables of one sync. Thread-safe.

    Without such options, it makes no calls. Applied settings are not read again in the same sync. Methods raise
    ConnectorError for denied changes, and otherwise botocore's errors.
    """

    def __init__(self, policy: Policy, access: AwsAccess) -> None:
        self._policy = policy
        self._access = access
        self._lock = threading.Lock()
        self._database_lock = threading.Lock()
        self._databases: set[str] = set()
        self._tables: dict[tuple[str, str, Hashable], Desired] = defaultdict(Desired)

    @property
    def database_settings(self) -> Mapping[str, Any]:
        """See Policy."""
        return self._policy.database_settings

    def govern_location(self) -> None:
        """Register the data location, define the LF-Tags and grant access to the location. Raises ConnectorError."""
        for note in self._policy.notes():
            _logger.info("%s", note)
        try:
            self._converge(self._policy.location())
        except Exception as error:
            failure = explain(error, doing="govern", resource=f"data location {self._policy.location_arn}")
            if isinstance(error, ConnectorError) or failure is None:
                raise
            raise ConnectorError(failure) from error

    def govern_database(self, name: str, created_by_us: Callable[[], bool]) -> None:
        """Apply the LF-Tags and grants of a database, once per sync.

        `created_by_us` is called only if its result matters.
        """
        with self._database_lock:
            if name not in self._databases:
                is_own = self._policy.default_tag is not None and created_by_us()
                self._converge(self._policy.database(name, created_by_us=is_own))
                self._databases.add(name)

    def govern_table(
        self,
        database: str,
        table: str,
        columns: Collection[str],
        added: Collection[str] = (),
        incarnation: Hashable = None,
    ) -> None:
        """Apply the LF-Tags and grants of a table and its columns that are not applied yet.

        `columns` are all columns of the table, in its spelling. `added` are new columns, which are governed even if
        earlier columns had the same names: dropping a column drops its LF-Tags and grants. For the same reason,
        `incarnation` distinguishes the table from earlier tables with its name.
        """
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
        """Return whether all settings of the table are already applied."""
        return not self._ungoverned(database, table, columns, added, incarnation)

    def _ungoverned(
        self, database: str, table: str, columns: Collection[str], added: Collection[str], incarnation: Hashable
    ) -> Desired:
        with self._lock:
            applied = self._tables[database, table, incarnation]
        return self._policy.table(database, table, columns).without(applied.outside(database, table, added))

    def _converge(self, desired: Desired) -> None:
        """Apply the missing settings. Logs each change and each deviation.

        Another sync may apply the same changes concurrently, and a response may be lost. After an error, the state is
        read again, and the error is raised only if the change is still missing.
        """
        if not desired:
            return
        client = self._access.client("lakeformation")
        failure: ChangeError | None = None
        read_failure: ReadError | None = None

        def attempt() -> bool:
            nonlocal failure, read_failure
            try:
                result = difference(desired, read(desired, client))
            except ReadError as error:
                if error.code not in _RETRIED:
                    raise
                read_failure = error
                return False
            still_missing = failure is not None and failure.change in result.changes
            if failure is not None and still_missing and not _may_succeed_on_retry(failure, desired):
                raise failure
            if failure is None:
                for deviation in result.deviations:
                    _logger.warning("%s", warning(deviation, CommandLines.of(self._access)))
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
    """Return whether a retry may succeed, for example because the resource was created just before."""
    match failure.change:
        case Tag():
            just_made = failure.code == "EntityNotFoundException"
        case Grant(resource=DataLocation()):
            registered = desired.registration is not None and desired.registration.role_arn is not None
            just_made = registered and "register" in failure.text
        case _:
            just_made = False
    return just_made or failure.code in _RETRIED
