"""What an error of PySpark's client means: another session is needed, the job has failed, or Spark cannot be had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destination_datalake.errors import FailureType
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.connect.values import InvalidResults

_LONGEST_REASON = 300


class NoExecutors(Exception):
    """Tasks have waited too long, and no executor has taken one."""


class Meaning(Enum):
    """What can be done about an error, and what the user is told if no job can be run for it."""

    def __init__(self, message: str, failure_type: FailureType) -> None:
        self.message = message
        self.failure_type: FailureType = failure_type

    SESSION_LOST = (
        "The sessions on {server} end again and again ({reason}). The sync can be run again and continues from its "
        "last state.",
        "transient_error",
    )
    """The session has ended: its jobs can be run in another one."""
    JOB_FAILED = "{it} does not run the connector's jobs: {reason}. The log has the details.", "transient_error"
    """Spark has given up the job; it takes others."""
    REFUSED = "{it} refuses access ({reason}). Correct spark.token.", "config_error"
    """The server does not accept the token."""
    NO_TLS = (
        "{it} cannot be reached with TLS ({reason}). If the server has no TLS, leave use_ssl=true out of spark.remote; "
        "a token is sent without TLS only to localhost. If its certificate is of an authority of your own, name the "
        "file of that authority's certificates in the environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.",
        "config_error",
    )
    """The server does not accept the connection's kind."""
    UNREACHABLE = (
        "{it} did not answer ({reason}). Is it up, and can this machine reach it? Otherwise correct spark.remote. "
        "The sync can be run again and continues from its last state.",
        "transient_error",
    )
    """No server has answered, for as long as that is tried."""
    NO_EXECUTORS = (
        "{it} has no executor for the connector: {reason}. Give it executors, or wait until other work has ended; the "
        "sync can be run again and continues from its last state.",
        "transient_error",
    )
    """The server has no executor that takes tasks."""
    STOPPED = (
        "Spark has ended on {server} ({reason}). Start it again; the sync can be run again and continues from its "
        "last state.",
        "transient_error",
    )
    """The server has, and its Spark has ended."""


def meaning(error: BaseException) -> Meaning:
    """Return what `error` means, which PySpark has raised, or `jobs`."""
    if isinstance(error, NoExecutors):
        return Meaning.NO_EXECUTORS
    if isinstance(error, InvalidResults):
        return Meaning.JOB_FAILED
    text = str(error)
    if _SESSION_LOST.search(text):
        return Meaning.SESSION_LOST
    if _STOPPED.search(text):
        return Meaning.STOPPED
    found = _BY_STATUS.get(status(error), Meaning.JOB_FAILED)
    return Meaning.NO_TLS if found is not Meaning.JOB_FAILED and is_handshake_failure(text) else found


_BY_STATUS: Mapping[grpc.StatusCode | None, Meaning] = {
    grpc.StatusCode.UNAUTHENTICATED: Meaning.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: Meaning.REFUSED,
    grpc.StatusCode.UNAVAILABLE: Meaning.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Meaning.UNREACHABLE,
    grpc.StatusCode.UNIMPLEMENTED: Meaning.UNREACHABLE,
}


def status(error: BaseException) -> grpc.StatusCode | None:
    """Return gRPC's status of an error; None if it has none."""
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", None)
        return code() if code is not None else None
    return error.getGrpcStatusCode() if isinstance(error, SparkConnectGrpcException) else None


def is_handshake_failure(text: str) -> bool:
    """Return whether a connection was refused because of TLS: to try again does not help."""
    return _HANDSHAKE.search(text) is not None


def unusable(why: Meaning, error: BaseException, server: str) -> SparkFailed:
    """Return that no job can be run on `server`, as messages name it, and what the user can do."""
    it = f"{server[:1].upper()}{server[1:]}"
    return SparkFailed(why.message.format(it=it, server=server, reason=_reason(error)), why.failure_type)


def _reason(error: BaseException) -> str:
    """Return what gRPC or Spark say in one line."""
    text = str(error)
    details = re.search(r'details = "(.*?)"\n', text, re.DOTALL)
    line = (details[1] if details else text).strip().splitlines() or [type(error).__name__]
    return line[0].strip().rstrip(".")[:_LONGEST_REASON]


_SESSION_LOST = re.compile(
    r"INVALID_HANDLE\.SESSION_|INVALID_HANDLE\.OPERATION_|INVALID_CURSOR\.|RESPONSE_ALREADY_RECEIVED|NO_ACTIVE_SESSION|"
    r"incorrect server side session|Cannot invoke RPC on closed channel"
)
_STOPPED = re.compile(
    r"stopped SparkContext|SparkContext (?:was|has been) shut ?down|SparkContext was stopped", re.IGNORECASE
)
_HANDSHAKE = re.compile(r"handshake|SSL_ERROR|CERTIFICATE_VERIFY|WRONG_VERSION|certificate", re.IGNORECASE)
