"""Code that all jobs on executors share.

A task that fails does not raise an error, which would stop the job. Instead, it returns a result that contains a
message for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.errors import explain, is_expired
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.unforeseen import trace_of, unforeseen

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a failed task. `failure` contains the message for the user.

    Before a task fails, it deletes the new objects that it wrote, unless its process is killed.
    """

    failure: Failure


@dataclass(frozen=True, slots=True)
class Problem:
    """The parts of the message that the user gets if a task fails.

    `headline` states which action failed, without a full stop. `aws.errors.explain` documents `doing` and `resource`.
    `access` is the task's access to AWS. If the user must correct the task's input, `remedy` is the whole message, with
    the instructions; otherwise, it is None.
    """

    headline: str
    doing: str
    resource: str
    access: AwsAccess
    remedy: str | None = None

    def failed(self, error: Exception) -> Failed:
        """Return the result of a task that raised `error`. The result's message explains the error to the user."""
        if isinstance(error, ConnectorError):
            return Failed(replace(error.failure, message=f"{self.headline}: {error.failure.message}"))
        trace = "\n".join([trace_of(error), *getattr(error, "__notes__", ())])
        failure = explain(error, doing=self.doing, resource=self.resource)
        if failure is not None:
            failure = replace(failure, detail=f"{failure.detail}\n{trace}")
            if self.access.has_session_credentials and is_expired(error):
                failure = replace(failure, message=f"{self.headline}: {_SESSION_ENDED}", type="transient_error")
        elif self.remedy is not None:
            failure = Failure(self.remedy, trace, "config_error")
        else:
            failure = replace(unforeseen(self.headline, error), detail=trace)
        return Failed(failure)


_SESSION_ENDED = (
    "the executors' session credentials expired before the job ended. Lower batch_size_mb, or raise "
    "session_duration_seconds. The next sync continues from the last state."
)


def distribute(items: Sequence[_Item], tasks: int) -> list[tuple[_Item, ...]]:
    """Distribute items among at most `tasks` tasks.

    Each task gets at least one item. The numbers of items per task differ by at most one.
    """
    return [tuple(items[number::tasks]) for number in range(min(tasks, len(items)))]


def attempt(work: Callable[[], _Result], problem: Problem | Callable[[Exception], Problem]) -> _Result | Failed:
    """Return the result of `work`. If `work` raises an error, return a Failed with a message for the user instead.

    `problem` contains the parts of the message, or is a function that returns them for an error.
    """
    import pyarrow as pa  # A slow import. `check` and `iam-policy` import this module, but do not need Arrow.

    pa.set_cpu_count(1)  # Spark already runs one task per core.
    try:
        return work()
    except Exception as error:
        return (problem if isinstance(problem, Problem) else problem(error)).failed(error)


def results_or_raise(results: Iterable[_Result | Failed]) -> list[_Result]:
    """Return the results of all tasks. If a task failed, raise ConnectorError with the first failure instead."""
    succeeded: list[_Result] = []
    for result in results:
        if isinstance(result, Failed):
            raise ConnectorError(result.failure)
        succeeded.append(result)
    return succeeded
