"""What errors of PySpark's client mean, and what the user is told."""

from __future__ import annotations

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectException, SparkConnectGrpcException

from destination_datalake.spark.connect.session import ErrorKind, NoExecutors, error_kind, spark_failure
from destination_datalake.spark.connect.values import InvalidResults

SERVER = "the Spark Connect server sc://spark:15002"


def answered(message: str, status: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> SparkConnectGrpcException:
    return SparkConnectGrpcException(message, grpc_status_code=status)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answered("[INVALID_HANDLE.SESSION_CLOSED] The handle 0 is invalid."), ErrorKind.SESSION_LOST),
        (answered("[INVALID_HANDLE.SESSION_CHANGED] The handle 0 is invalid."), ErrorKind.SESSION_LOST),
        (answered("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle 0 is invalid."), ErrorKind.SESSION_LOST),
        (answered("[INVALID_HANDLE.OPERATION_ABANDONED] The handle 0 is invalid."), ErrorKind.SESSION_LOST),
        (SparkConnectException("[NO_ACTIVE_SESSION] No active Spark session found."), ErrorKind.SESSION_LOST),
        (AssertionError("Received incorrect server side session identifier for request."), ErrorKind.SESSION_LOST),
        (answered("Job aborted due to stage failure: Task 0 failed 4 times"), ErrorKind.JOB_FAILED),
        (answered("An exception was thrown from the Python worker."), ErrorKind.JOB_FAILED),
        (InvalidResults("1 of 2 parts"), ErrorKind.JOB_FAILED),
        (NoExecutors("4 tasks have waited for 301 s"), ErrorKind.NO_EXECUTORS),
        (answered("no token", grpc.StatusCode.UNAUTHENTICATED), ErrorKind.REFUSED),
        (answered("not allowed", grpc.StatusCode.PERMISSION_DENIED), ErrorKind.REFUSED),
        (answered("Ssl handshake failed: WRONG_VERSION_NUMBER", grpc.StatusCode.UNAVAILABLE), ErrorKind.NO_TLS),
        (answered("failed to connect to all addresses", grpc.StatusCode.UNAVAILABLE), ErrorKind.UNREACHABLE),
        (answered("RPC deadline exceeded", grpc.StatusCode.DEADLINE_EXCEEDED), ErrorKind.UNREACHABLE),
        (answered("Received http2 header with status: 404", grpc.StatusCode.UNIMPLEMENTED), ErrorKind.UNREACHABLE),
        (answered("Cannot call methods on a stopped SparkContext."), ErrorKind.STOPPED),
        (answered("Job 3 cancelled because SparkContext was shut down"), ErrorKind.STOPPED),
    ],
)
def test_error_is_classified(error: Exception, expected: ErrorKind) -> None:
    assert error_kind(error) is expected


@pytest.mark.parametrize(
    ("kind", "error", "failure_type", "words"),
    [
        (ErrorKind.REFUSED, answered("no token"), "config_error", "Correct spark.token."),
        (ErrorKind.NO_TLS, answered("Ssl handshake failed"), "config_error", "remove use_ssl=true from spark.remote"),
        (
            ErrorKind.UNREACHABLE,
            answered("Connection refused"),
            "transient_error",
            "did not respond (Connection refused)",
        ),
        (ErrorKind.NO_EXECUTORS, NoExecutors("4 tasks have waited"), "transient_error", "has no executor"),
        (ErrorKind.STOPPED, answered("SparkContext was shut down"), "transient_error", "Start Spark again"),
        (ErrorKind.SESSION_LOST, answered("SESSION_CLOSED"), "transient_error", "ended repeatedly"),
        (ErrorKind.JOB_FAILED, answered("boom"), "transient_error", "cannot run the connector's jobs: boom"),
    ],
)
def test_message_names_the_server_and_the_remedy(
    kind: ErrorKind, error: Exception, failure_type: str, words: str
) -> None:
    failed = spark_failure(kind, error, SERVER)

    assert failed.failure.type == failure_type
    assert "the Spark Connect server sc://spark:15002" in failed.failure.message.replace("The Spark", "the Spark")
    assert words in failed.failure.message


def test_message_has_the_details_of_grpc_s_error() -> None:
    text = '<_InactiveRpcError of RPC:\n\tstatus = UNAVAILABLE\n\tdetails = "no route"\n\tdebug = "x"\n>'

    assert "did not respond (no route)." in spark_failure(ErrorKind.UNREACHABLE, answered(text), SERVER).failure.message
