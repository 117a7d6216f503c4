"""The console entry point: stdout, logging, signals and Spark's start around a command of the connector."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.protocol.logs import route_logging
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError
from destination_datalake.spark.classic.pyspark_internals import import_arrow
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from destination_datalake.errors import FailureType
    from destination_datalake.spark.engine import Engine


def run() -> int:
    """Run the command on the command line; return the exit code: 0 success, 1 failure, 143 after SIGTERM.

    Usage errors exit as argparse does: with code 2 and the usage on stderr.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["iam-policy"]:
        # No command of the platform's: it writes plain text.
        from destination_datalake.iam_policy.command import run_iam_policy

        return run_iam_policy(arguments[1:])
    if arguments[:1] == ["maintain"]:
        from destination_datalake.maintenance.command import run_maintain

        return run_maintain(arguments[1:])
    # First of all, so that nothing but protocol lines can reach stdout.
    out = Stdout.claim()
    route_logging(out)
    _report_uncaught_exceptions(out)
    if arguments == ["spec"]:
        out.write_line(spec_message())
        return 0
    return _run_command(arguments, out)


def spec_message() -> bytes:
    """Return the SPEC message, equal to what `DestinationDatalake` answers to `spec`.

    Airbyte asks for it often. Read from the file, it does not take the seconds that importing the CDK takes.
    """
    content = pkgutil.get_data("destination_datalake", "spec.json")
    if content is None:
        raise FileNotFoundError("spec.json is missing from the package")
    return json.dumps({"type": "SPEC", "spec": json.loads(content)}, ensure_ascii=False, separators=(",", ":")).encode()


def _run_command(arguments: Sequence[str], out: Stdout) -> int:
    # While this thread imports and reads, other threads exchange many short messages with the JVM and AWS. Python's
    # default interval of 5 ms before each switch would make Spark's start half a second longer.
    sys.setswitchinterval(0.0001)
    if arguments[:1] == ["write"] and sys.stderr.isatty():
        sys.stderr.write("Starting Spark …\n")  # The live display takes over once it is imported.
    termination, spark = (Termination(), _early_spark(arguments)) if arguments[:1] == ["write"] else (None, None)
    try:
        exit_code = _exit_code(arguments, out, spark, termination)
    finally:
        if spark is not None:
            spark.stop()
        out.flush()
    if termination is not None and termination.requested:
        # Do not wait for threads that wait for AWS: the platform kills the process 60 s after SIGTERM.
        os._exit(exit_code)
    return exit_code


def _exit_code(arguments: Sequence[str], out: Stdout, spark: Engine | None, termination: Termination | None) -> int:
    if spark is not None and termination is not None:
        import_arrow()
        from destination_datalake.write import read_options, run_write, write_arguments

        if (files := write_arguments(arguments)) is not None:
            # What the CDK would do, without importing it: that takes a fifth of a small sync's CPU time.
            return run_write(read_options(files.config), files.catalog, sys.stdin.fileno(), out, spark, termination)
    from destination_datalake.destination import DestinationDatalake

    # Again, because importing the CDK has replaced our handler.
    route_logging(out)
    destination = DestinationDatalake(out, spark, termination)
    destination.run(list(arguments))
    return destination.exit_code


def _early_spark(arguments: Sequence[str]) -> Engine | None:
    """Start Spark as configured, so that it starts while the CDK is being imported.

    Returns None if the configuration cannot be read or is not valid, which the command reports.
    """
    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import start_engine

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    try:
        path = parser.parse_known_args(list(arguments))[0].config
        return start_engine(Config.parse(json.loads(path.read_bytes())))
    except Exception:
        return None


def _report_uncaught_exceptions(out: Stdout) -> None:
    """Log uncaught exceptions of any thread to the platform; report those of the main thread as a TRACE ERROR."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt | StdoutClosedError):
            # To stderr: the platform does not read stdout any more.
            sys.__excepthook__(kind, error, trace)
        else:
            report_failure(out, error)

    def report_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread is not None else "a thread"
            out.log("ERROR", f"{name} failed: {_stack_trace(args.exc_value)}")

    sys.excepthook = report
    threading.excepthook = report_thread


def report_failure(out: Stdout, error: BaseException) -> None:
    """Write why the command failed: the stack trace as a LOG, then the TRACE ERROR that the platform acts on."""
    failure = _failure(error)
    # A stack trace does not help a user to correct the configuration.
    stack_trace = None if failure.type == "config_error" else _stack_trace(error)
    out.log("FATAL", stack_trace or failure.message)
    out.trace_error(failure.message, failure.detail, failure.type, None, stack_trace)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, ConnectorError):
        return error.failure
    if "airbyte_cdk" in sys.modules:
        return _failure_by_cdk(error)
    # In the CDK's words, but without importing it: a failing process may not be able to.
    message = "Something went wrong in the connector. See the logs for more details."
    return Failure(message, str(error), "system_error")


def _failure_by_cdk(error: BaseException) -> Failure:
    from airbyte_cdk.exception_handler import assemble_uncaught_exception

    # The CDK turns the exception into a TRACE; it is written here because the CDK's `print` would go to stderr.
    trace = assemble_uncaught_exception(type(error), error).as_sanitized_airbyte_message().trace
    traced = trace.error if trace is not None else None
    if traced is None:
        raise TypeError("the CDK made a trace without an error out of an exception") from error
    failure_type: FailureType = traced.failure_type.value if traced.failure_type is not None else "system_error"
    return Failure(traced.message, traced.internal_message or "", failure_type)


def _stack_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    sys.exit(run())
