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

        Tasks are dataclasses with a field `access`, and have one result each, or one for each of their `units`. The
        field `expired` of a result says that its session had ended. Raises what `job` raises, and for `session` what
        STS raises, or NoCredentialsError (botocore).
        """
        given = self.given(tasks)
        results = [*job(given)]
        for _ in range(_RENEWALS):
            ended = [number for number, result in enumerate(results) if _has_expired(result)]
            if not ended:
                break
            _logger.warning("The session of %d tasks ended before they had; they are done again.", len(ended))
            self._replace(given[0].access)
            each = [one for task in tasks for one in _with_one_result(task)]
            given = self.given([each[number] for number in ended])
            for number, result in zip(ended, job(given), strict=True):
                results[number] = result
        return results

    def run_as_a_whole(
        self, job: Callable[[Sequence[_Task]], Sequence[_Result]], tasks: Sequence[_Task]
    ) -> list[_Result]:
        """Run the job on the tasks, and again on all of them if the session of one had ended; return its results.

        That is for jobs with results of several tasks together. Results have a field `expired` as in `run`.
        """
        given = self.given(tasks)
        results = [*job(given)]
        for _ in range(_RENEWALS):
            if not any(map(_has_expired, results)):
                break
            _logger.warning("The session of tasks ended before they had; all of their job are done again.")
            self._replace(given[0].access)
            given = self.given(tasks)
            results = [*job(given)]
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

    def given(self, tasks: Sequence[_Task]) -> list[Any]:
        """Return the tasks with `current` as their access. Raises as `run` does."""
        access = self.current()
        return [replace(cast("Any", task), access=access) if hasattr(task, "access") else task for task in tasks]

    def _replace(self, ended: AwsAccess) -> None:
        """Begin another session, unless another thread has, whatever AWS had announced of the end of this one."""
        if self.current() == ended:
            with self._lock:
                self._lent = None


def _has_expired(result: Any) -> bool:
    return getattr(result, "expired", False)


def _with_one_result(task: Any) -> list[Any]:
    return [replace(task, units=(unit,)) for unit in task.units] if hasattr(task, "units") else [task]
