"""Errors that no other module explains: what has run out, and what libraries say without the values that they quote."""

from __future__ import annotations

import errno
import re
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.reading import parquet_errors
from destination_datalake.unforeseen import REPORT_ERROR, described, exhaustion, trace_of, unforeseen


def caused(error: Exception, cause: Exception) -> Exception:
    """The error, raised from the cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text", "resource"),
    [
        (MemoryError(), "", "memory"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "", "memory"),
        (duckdb.OutOfMemoryException("Out of Memory Error: failed to pin a block"), "", "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "", "memory"),
        (caused(RuntimeError("no gateway"), OSError(errno.EMFILE, "")), "", "file descriptors"),
        (OSError(errno.ENFILE, "Too many open files in system"), "", "file descriptors"),
        (RuntimeError("can't start new thread"), "", "threads"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "", "threads"),
        (None, "Could not reserve enough space for code cache (245760K)", "memory"),
        (None, "Could not allocate compressed class space: 1073741824 bytes", "memory"),
        (None, "libz.so.1: failed to map segment from shared object", "memory"),
        (None, "java.lang.OutOfMemoryError: Java heap space", "memory"),
        (None, "java.lang.OutOfMemoryError: unable to create native thread", "threads or memory"),
        (None, "libjava.so: cannot open shared object file: Too many open files", "file descriptors"),
        (None, "Caused by: java.io.IOException: Config file not found on classpath", "file descriptors"),
        (None, "[gc] Failed to commit memory (Not enough space)", "memory"),
        (None, "Failed to reserve and commit memory. p: 0x0, size: 8192", "memory"),
        (duckdb.TransactionException("TransactionContext Error: Failed to commit: write-write conflict"), "", None),
        (RuntimeError("CommitFailedException: Failed to commit the table in the catalog"), "", None),
        (RuntimeError("Table shop.outofmemory_events not found"), "", None),
        (RuntimeError("Table shop.memoryerrors not found"), "", None),
        (ValueError("a value"), "a text", None),
        (FileNotFoundError(errno.ENOENT, "No such file"), "", None),
        (None, "", None),
    ],
)
def test_a_resource_that_has_run_out_is_named_with_its_limits(
    error: Exception | None, text: str, resource: str | None
) -> None:
    message = exhaustion(error, text)

    assert (message is None) == (resource is None)
    assert message is None or re.search(rf"has run out of {resource} \(.*\d.*\)\. .*run the sync again", message)


def test_threads_that_address_space_is_limited_for_may_lack_memory() -> None:
    code = (
        "import resource; from destination_datalake.unforeseen import exhaustion; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)); "
        'print(exhaustion(RuntimeError("can\'t start new thread")))'
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "has run out of threads or memory (" in output
    assert "ulimit -v is 1,073,741,824 KiB" in output


def test_what_has_run_out_is_a_transient_error_wherever_it_is_noticed() -> None:
    error = caused(RuntimeError("a library"), OSError(errno.EMFILE, "Too many open files"))

    failures = (unforeseen("Cannot do it", error), explain(error, doing="write to", resource="s3://lake"))

    for failure in failures:
        assert failure is not None
        assert (failure.type, "file descriptors" in failure.message) == ("transient_error", True)


def test_a_file_that_could_not_be_opened_for_lack_of_descriptors_is_not_a_broken_one() -> None:
    with pytest.raises(OSError, match="Too many open files"), parquet_errors():
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_failure_that_is_known_is_not_taken_for_one_of_memory() -> None:
    known = ConnectorError(Failure("java.lang.OutOfMemoryError in a message of ours", "", "config_error"))

    assert exhaustion(known) is None


def test_descriptors_that_have_run_out_are_not_a_java_that_is_missing() -> None:
    program = """
import os, resource
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.backend import start_failure
from destination_datalake.spark.classic.jvm import require_java
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    while True:
        os.dup(0)
except OSError as error:
    print(start_failure(error, (), "local[*]").failure)
try:
    require_java()
except SparkFailed as error:
    print(error.failure)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    for line in done.stdout.splitlines():
        assert "has run out of file descriptors (ulimit -n is 20 files per process)" in line
        assert "type='transient_error'" in line
        assert "Install" not in line
        assert "spark.conf" not in line
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "description"),
    [
        (
            duckdb.InvalidInputException('Invalid Input Error: Malformed JSON at byte 7 of input: odd.  Input: "Ann"'),
            "InvalidInputException (Invalid Input Error: Malformed JSON at byte … of input: …)",
        ),
        (
            duckdb.NotImplementedException("Not implemented: slices"),
            "NotImplementedException (Not implemented: slices)",
        ),
        (
            duckdb.ConversionException("Conversion Error: Type VARCHAR with value Ann can't be cast"),
            "ConversionException",
        ),
        (duckdb.OutOfRangeException("Out of Range Error: Ann"), "OutOfRangeException"),
        (
            pa.ArrowInvalid("Failed to parse string: 'Ann' as a scalar"),
            "ArrowInvalid (Failed to parse string: … as a scalar)",
        ),
        (pa.ArrowInvalid("Integer value 42 not in range"), "ArrowInvalid (Integer value … not in range)"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/Ann"), "FileNotFoundError (No such file)"),
        (ClientError({"Error": {"Code": "Throttled", "Message": "Ann"}}, "PutObject"), "ClientError (Throttled)"),
        (ValueError("Ann"), "ValueError"),
        (KeyError("Ann"), "KeyError"),
    ],
)
def test_a_library_s_sentence_is_told_without_values_of_records(error: Exception, description: str) -> None:
    assert described(error) == description
    assert "Ann" not in trace_of(error)
    assert unforeseen("Cannot do it", error) == Failure(
        f"Cannot do it: an unexpected {description}. {REPORT_ERROR}", trace_of(error), "system_error"
    )
