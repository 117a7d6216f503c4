"""What an error of PySpark's client means: another session is needed, the job has failed, or Spark cannot be had."""

from __future__ import annotations

import re
from enum import Enum, auto

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destination_datalake.spark.connect.jobs.values import InvalidResults
from destination_datalake.spark.connect.progress import NoExecutors
from destination_datalake.spark.failure import SparkFailed

_LONGEST_REASON = 300


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
    reason = _reason(error)
    it = f"{server[:1].upper()}{server[1:]}"
    match why:
        case Meaning.REFUSED if is_handshake_failure(str(error)):
            return SparkFailed(
                f"{it} cannot be reached with TLS ({reason}). If the server has no TLS, "
                "leave use_ssl=true out of spark.remote; a token is sent without TLS only to localhost. If its "
                "certificate is of an authority of your own, name the file of that authority's certificates in the "
                "environment variable GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.",
                "config_error",
            )
        case Meaning.REFUSED:
            return SparkFailed(f"{it} refuses access ({reason}). Correct spark.token.", "config_error")
        case Meaning.NO_EXECUTORS:
            return SparkFailed(
                f"{it} has no executor for the connector: {reason}. Give it executors, or "
                "wait until other work has ended; the sync can be run again and continues from its last state."
            )
        case Meaning.STOPPED:
            return SparkFailed(
                f"Spark has ended on {server} ({reason}). Start it again; the sync can be run again and continues from "
                "its last state."
            )
        case Meaning.SESSION_LOST:
            return SparkFailed(
                f"The sessions on {server} end again and again ({reason}). The sync can be run again and continues "
                "from its last state."
            )
        case Meaning.JOB_FAILED:
            return SparkFailed(
                f"{it} does not run the connector's jobs: {reason}. The log has the details.",
            )
        case Meaning.UNREACHABLE:
            return SparkFailed(
                f"{it} did not answer ({reason}). Is it up, and can this machine reach it? "
                "Otherwise correct spark.remote. The sync can be run again and continues from its last state."
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
