"""What executors on other machines sign their requests to AWS with."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, cast

from destination_datalake.aws.access import AwsAccess, Environment
from destination_datalake.aws.session.lending import SessionKeys
from destination_datalake.config.groups.spark import ExecutorCredentials

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_logger = logging.getLogger(__name__)

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_RENEWALS = 2
"""How often a task is done again because its session has ended."""


class ExecutorAccess:
    """Gives tasks the access to AWS that executors are to have, and does those again whose session has ended.

    `role` is what executors find in their own environment; `session` are short-lived credentials of the connector's
    identity, and `keys` its own, whatever they are. Can be used by several threads.
    """

    def __init__(self, credentials: ExecutorCredentials, access: AwsAccess) -> None:
        """`access` is the connector's."""
        self._kind = credentials
        self._access = access
        self._lock = threading.Lock()
        self._lent: Credentials | None = None

    def run(self, job: Callable[[Sequence[_Task]], Sequence[_Result]], tasks: Sequence[_Task]) -> list[_Result]:
        """Run the job on the tasks, and again on those whose session had ended; return its results, in their order.

        Tasks are dataclasses with a field `access`. A result's field `again` is the task to do again, which has one
        result. Raises what `job` raises, and for `session` what STS raises, or NoCredentialsError (botocore).
        """
        results = [*job(self.given(tasks))]
        for _ in range(_RENEWALS):
            expired = [again for result in results if (again := _again(result)) is not None]
            if not expired:
                break
            _logger.warning("The session of %d tasks ended before they had; they are done again.", len(expired))
            self._replace(expired[-1].access)
            repeated = iter(job(self.given(expired)))
            results = [result if _again(result) is None else next(repeated) for result in results]
        return results

    def run_as_a_whole(
        self, job: Callable[[Sequence[_Task]], Sequence[_Result]], tasks: Sequence[_Task]
    ) -> list[_Result]:
        """Run the job on the tasks, and again on all of them if the session of one had ended; return its results.

        That is for jobs with results of several tasks together. Results have a field `again` as in `run`.
        """
        results = [*job(self.given(tasks))]
        for _ in range(_RENEWALS):
            expired = [again for result in results if (again := _again(result)) is not None]
            if not expired:
                break
            _logger.warning("The session of %d tasks ended before they had; all of a job are done again.", len(expired))
            self._replace(expired[-1].access)
            results = [*job(self.given(tasks))]
        return results

    def current(self) -> AwsAccess:
        """Return the access that executors are to have now.

        A session has a quarter of an hour left, or a third of its time if that is less. Raises as `run` does.
        """
        match self._kind:
            case "role":
                return replace(self._access, identity=Environment())
            case "keys":
                return self._access
            case "session":
                with self._lock:
                    if self._lent is None:
                        self._lent = self._access.lendable()
                    return replace(self._access, identity=SessionKeys.of(self._lent))
        assert_never(self._kind)

    def given(self, tasks: Sequence[_Task]) -> list[_Task]:
        """Return the tasks with `current` as their access. Raises as `run` does."""
        access = self.current()
        return [replace(cast("Any", task), access=access) if hasattr(task, "access") else task for task in tasks]

    def _replace(self, ended: AwsAccess) -> None:
        """Begin another session, unless another thread has, whatever AWS had announced of the end of this one."""
        if self.current() == ended:
            with self._lock:
                self._lent = None


def _again(result: Any) -> Any:
    return getattr(result, "again", None)
