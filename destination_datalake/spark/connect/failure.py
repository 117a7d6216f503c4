"""What an error of PySpark's client means: another session is needed, the job has failed, or Spark cannot be had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destination_datalake.errors import FailureType
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.connect.values import InvalidResults

_LONGEST_REASON = 300


class NoExecutors(Exception):
    """Tasks have waited too long, and no executor has taken one."""


class Meaning(Enum):
    """What can be done about an error."""

    SESSION_LOST = auto()
    """The session has ended: its jobs can be run in another one."""
    JOB_FAILED = auto()
    """Spark has given up the job; it takes others."""
    REFUSED = auto()
    """The server does not accept the token, or the connection's kind."""
    UNREACHABLE = auto()
    """No server has answered, for as long as that is tried."""
    NO_EXECUTORS = auto()
    """The server has no executor that takes tasks."""
    STOPPED = auto()
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
    match status(error):
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Meaning.REFUSED
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.UNIMPLEMENTED:
            return Meaning.REFUSED if is_handshake_failure(text) else Meaning.UNREACHABLE
        case _:
            return Meaning.JOB_FAILED


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
    message, failure_type = _MESSAGES[why]
    if why is Meaning.REFUSED and is_handshake_failure(str(error)):
        message = _NO_TLS
    it = f"{server[:1].upper()}{server[1:]}"
    return SparkFailed(message.format(it=it, server=server, reason=_reason(error)), failure_type)


_CONTINUES = "the sync can be run again and continues from its last state."

_MESSAGES: Mapping[Meaning, tuple[str, FailureType]] = {
    Meaning.REFUSED: ("{it} refuses access ({reason}). Correct spark.token.", "config_error"),
    Meaning.NO_EXECUTORS: (
        "{it} has no executor for the connector: {reason}. Give it executors, or wait until other work has ended; "
        + _CONTINUES,
        "transient_error",
    ),
    Meaning.STOPPED: (f"Spark has ended on {{server}} ({{reason}}). Start it again; {_CONTINUES}", "transient_error"),
    Meaning.SESSION_LOST: (
        "The sessions on {server} end again and again ({reason}). The sync can be run again and continues from its "
        "last state.",
        "transient_error",
    ),
    Meaning.JOB_FAILED: (
        "{it} does not run the connector's jobs: {reason}. The log has the details.",
        "transient_error",
    ),
    Meaning.UNREACHABLE: (
        "{it} did not answer ({reason}). Is it up, and can this machine reach it? Otherwise correct spark.remote. "
        "The sync can be run again and continues from its last state.",
        "transient_error",
    ),
}
_NO_TLS = (
    "{it} cannot be reached with TLS ({reason}). If the server has no TLS, leave use_ssl=true out of spark.remote; a "
    "token is sent without TLS only to localhost. If its certificate is of an authority of your own, name the file of "
    "that authority's certificates in the environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH."
)


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
