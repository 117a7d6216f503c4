"""What executors on other machines sign their requests to AWS with."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, cast

from destination_datalake.aws.access import AwsAccess, Environment
from destination_datalake.aws.session import SessionKeys
from destination_datalake.config.spark import ExecutorCredentials

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_Task = TypeVar("_Task")


class ExecutorAccess:
    """Gives tasks the access to AWS that executors are to have.

    `role` is what executors find in their own environment; `session` are short-lived credentials of the connector's
    identity. Can be used by several threads.
    """

    def __init__(self, credentials: ExecutorCredentials, access: AwsAccess) -> None:
        """`access` is the connector's."""
        self._kind = credentials
        self._access = access
        self._lock = threading.Lock()
        self._lent: Credentials | None = None

    def current(self) -> AwsAccess:
        """Return the access that executors are to have now.

        A session has a quarter of an hour left, or a third of its time if that is less: enough for a job. Raises for
        `session` what STS raises, or NoCredentialsError (botocore).
        """
        match self._kind:
            case "role":
                return replace(self._access, identity=Environment())
            case "session":
                with self._lock:
                    if self._lent is None:
                        self._lent = self._access.lendable()
                    return replace(self._access, identity=SessionKeys.of(self._lent))
        assert_never(self._kind)

    def given(self, tasks: Sequence[_Task]) -> list[Any]:
        """Return the tasks with `current` as their access. Raises as `current` does."""
        access = self.current()
        return [replace(cast("Any", task), access=access) if hasattr(task, "access") else task for task in tasks]
