"""A connection to a server: how it is authenticated, how long calls are tried again, and what is not taken from it."""

from __future__ import annotations

import atexit
import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder, core
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import UserDefinedType

from destination_datalake.spark.connect.endpoint import Endpoint
from destination_datalake.spark.connect.failure import is_handshake_failure
from destination_datalake.spark.failure import SparkFailed

RETRY_SECONDS = 60.0
"""How long a server may be away in the middle of a call: it may be starting, or the network may fail for a while."""

_USER = "destination-datalake"


def connect(endpoint: Endpoint, retry_seconds: float = RETRY_SECONDS) -> SparkSession:
    """Return a new session; nothing is sent yet. Raises SparkFailed if the address is none."""
    take_data_alone()
    try:
        builder = DefaultChannelBuilder(endpoint.url)
    except (PySparkException, ValueError) as error:
        address = endpoint.url.partition(";")[0]
        raise SparkFailed(f"{address} is no address of a Spark Connect server: {error}", "config_error") from error
    if endpoint.token is not None:
        builder.set(DefaultChannelBuilder.PARAM_TOKEN, endpoint.token)
    # A session of its own each time: one that has ended is ended for ever, whatever the address says.
    builder.set(DefaultChannelBuilder.PARAM_SESSION_ID, str(uuid.uuid4()))
    if builder.getDefault(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, None) is None:
        # Servers may close connections that are pinged without calls (gRPC's permitKeepAliveWithoutCalls).
        builder.set(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, "false")
    session = SparkSession(builder, userId=_USER)
    forget_at_exit(session)
    session.client.set_retry_policies([_PatientPolicy(retry_seconds)])
    return session


def close(session: SparkSession) -> None:
    """End the session on its server, and its jobs. A server that is gone is not waited for."""
    session.client.set_retry_policies([])
    with contextlib.suppress(Exception):
        session.interruptAll()
    with contextlib.suppress(Exception):
        session.stop()


def forget_at_exit(session: SparkSession) -> None:
    """Keep PySpark from calling the server when this process exits, to clear a cache that only models are in.

    A server that is gone would hold the process for as long as calls are tried again.
    """
    atexit.unregister(session.client._on_exit)


def take_data_alone() -> None:
    """Keep PySpark from running what a server's answers name: classes of a schema, and pickles among metrics.

    Nobody asks for either. Types of users are found by importing the module that the server names; updates of Python's
    accumulators are unpickled, by PySpark before 4.3 whatever they are.
    """
    UserDefinedType.fromJson = _no_type_of_users  # type: ignore[assignment, method-assign]
    core.PlanObservedMetrics = _UnreadMetrics  # type: ignore[misc]


def _no_type_of_users(_: Any) -> NoReturn:
    raise TypeError("the server's answer has a user-defined type, and no job of the connector has one")


class _UnreadMetrics(core.PlanObservedMetrics):
    """Metrics without their name, by which PySpark knows those that it unpickles."""

    @property
    def name(self) -> str:
        return ""


class _PatientPolicy(DefaultPolicy):
    """Retries as PySpark does, with exponential backoff, and for a time instead of a number of times.

    When the time is over the error is no longer one to retry: that way PySpark raises it without a warning.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(max_retries=None, max_backoff=5_000, max_server_retry_delay=10_000)
        self.seconds = seconds
        self.clock = clock

    def can_retry(self, e: BaseException) -> bool:
        return super().can_retry(e) and not is_handshake_failure(str(e))

    def to_state(self) -> RetryPolicyState:
        return _PatientState(self)


class _PatientState(RetryPolicyState):
    """The retries of one call."""

    def __init__(self, policy: _PatientPolicy) -> None:
        super().__init__(policy)
        self._patient = policy
        self._failing_since: float | None = None

    def can_retry(self, exception: BaseException) -> bool:
        now = self._patient.clock()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since < self._patient.seconds and super().can_retry(exception)
