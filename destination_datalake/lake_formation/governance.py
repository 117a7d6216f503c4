"""Governance of what one sync writes: read what Lake Formation has, compare, and call only for differences."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.backoff import retry_until_done
from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError
from destination_datalake.lake_formation.calls import NotApplied, NotRead, apply, read
from destination_datalake.lake_formation.difference import described, difference
from destination_datalake.lake_formation.messages import CommandLines, explained, warning
from destination_datalake.lake_formation.state import DataLocation, Desired, Grant, Tag

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.policy import Policy

_logger = logging.getLogger(__name__)

_RETRIED = frozenset({"ConcurrentModificationException", "OperationTimeoutException"})
"""Codes with which Lake Formation refuses what it accepts a moment later."""


class Governance:
    """What the options ask of Lake Formation, for one sync. Thread-safe.

    Without such options no call is ever made. What is done once is not read again in the same sync. Methods raise
    ConnectorError for what the caller may not do, and otherwise what botocore raises.
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
        """Tag a database and grant what the options grant on it, once for the sync.

        `created_by_us` is called if the answer makes a difference.
        """
        with self._database_lock:
            if name not in self._databases:
                ours = self._policy.default_tag is not None and created_by_us()
                self._converge(self._policy.database(name, created_by_us=ours))
                self._databases.add(name)

    def govern_table(
        self,
        database: str,
        table: str,
        columns: Collection[str],
        added: Collection[str] = (),
        incarnation: Hashable = None,
    ) -> None:
        """Tag a table and its columns, and grant what the options grant on them; only what is not done yet.

        `columns` are all that the table has, in its spelling. Those `added` just now are governed although columns of
        their names may have been before: with a column its LF-Tags and grants are dropped. For the same reason
        `incarnation` tells the table from earlier ones of its name.
        """
        missing = self._ungoverned(database, table, columns, added, incarnation)
        if missing:
            self._converge(missing)
            with self._lock:
                done = self._tables[database, table, incarnation]
                self._tables[database, table, incarnation] = done.union(missing)

    def is_governed(
        self,
        database: str,
        table: str,
        columns: Collection[str],
        added: Collection[str] = (),
        incarnation: Hashable = None,
    ) -> bool:
        """Whether `govern_table` would have nothing to do."""
        return not self._ungoverned(database, table, columns, added, incarnation)

    def _ungoverned(
        self, database: str, table: str, columns: Collection[str], added: Collection[str], incarnation: Hashable
    ) -> Desired:
        with self._lock:
            done = self._tables[database, table, incarnation]
        return self._policy.table(database, table, columns).without(done.outside(database, table, added))

    def _converge(self, desired: Desired) -> None:
        """Make what is desired, unless it is there. Logs each change and each deviation.

        Another sync may make the same changes at the same time, and an answer may be lost after AWS has acted: after
        an error the state is read again, and the error counts only if the change is still missing.
        """
        if not desired:
            return
        client = self._access.client("lakeformation")
        failure: NotApplied | None = None
        unread: NotRead | None = None

        def attempt() -> bool:
            nonlocal failure, unread
            try:
                found = difference(desired, read(desired, client))
            except NotRead as error:
                if error.code not in _RETRIED:
                    raise
                unread = error
                return False
            if failure is not None and failure.change in found.changes and not _passes(failure, desired):
                raise failure
            if failure is None:
                for deviation in found.deviations:
                    _logger.warning("%s", warning(deviation, CommandLines.of(self._access)))
            try:
                apply(found.changes, client)
            except NotApplied as error:
                failure = error
                return False
            for change in found.changes:
                _logger.info("Lake Formation: %s.", described(change).done)
            return True

        try:
            if not retry_until_done(attempt) and (error := failure or unread) is not None:
                raise error
        except (NotApplied, NotRead) as error:
            raise explained(error, self._access) from error


def _passes(failure: NotApplied, desired: Desired) -> bool:
    """Whether Lake Formation may accept the change a moment later: what it refers to may have been made just now."""
    match failure.change:
        case Tag():
            just_made = failure.code == "EntityNotFoundException"
        case Grant(resource=DataLocation()):
            registered = desired.registration is not None and desired.registration.role_arn is not None
            just_made = registered and "register" in failure.text
        case _:
            just_made = False
    return just_made or failure.code in _RETRIED
