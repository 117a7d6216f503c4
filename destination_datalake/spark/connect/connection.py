"""A connection to a server: how it is authenticated, and how long calls are tried again."""

from __future__ import annotations

import atexit
import contextlib
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession

from destination_datalake.spark.connect.failure import is_handshake_failure
from destination_datalake.spark.launchers.launcher import Endpoint, Headers

RETRY_SECONDS = 60.0
"""How long a server may be away in the middle of a call: it may be starting, or the network may fail for a while."""

_USER = "destination-datalake"


def connect(endpoint: Endpoint, retry_seconds: float = RETRY_SECONDS) -> SparkSession:
    """Return a new session; nothing is sent yet. Raises PySparkException if the address is none."""
    builder = DefaultChannelBuilder(endpoint.url)
    if endpoint.token is not None:
        builder.set(DefaultChannelBuilder.PARAM_TOKEN, endpoint.token)
    # A session of its own each time: one that has ended is ended for ever, whatever the address says.
    builder.set(DefaultChannelBuilder.PARAM_SESSION_ID, str(uuid.uuid4()))
    if builder.getDefault(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, None) is None:
        # Servers may close connections that are pinged without calls (gRPC's permitKeepAliveWithoutCalls).
        builder.set(DefaultChannelBuilder.PARAM_GRPC_KEEPALIVE_WITHOUT_CALLS, "false")
    builder.add_interceptor(_HeadersOfCalls(endpoint.headers))
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


class _Details(NamedTuple):
    """gRPC's details of a call, with other metadata."""

    method: str
    timeout: float | None
    metadata: list[tuple[str, str]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _HeadersOfCalls(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    """Adds an endpoint's headers to each call, as they are at that time: tokens of sessions expire."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_headers(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_headers(client_call_details), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._with_headers(client_call_details), request_iterator)

    def _with_headers(self, details: Any) -> _Details:
        metadata = [*(details.metadata or ()), *self._headers()]
        return _Details(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
