"""The console entry: what happens around a command, whichever it is."""

from __future__ import annotations

import argparse
import gc
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

from destination_datalake.protocol.logs import route_logging
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError
from destination_datalake.spark.pyspark_internals import import_arrow
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from destination_datalake.errors import FailureType
    from destination_datalake.spark.engine import Engine


def run() -> int:
    """Run the command that the command line names; return the exit code: 0 success, 1 failure, 143 after SIGTERM.

    Usage errors end in argparse's way, with code 2 and the usage on stderr.
    """
    # Before anything else: from here on nothing but protocol lines can reach stdout.
    out = Stdout.claim()
    route_logging(out)
    _report_uncaught_exceptions(out)
    arguments = sys.argv[1:]
    if arguments == ["spec"]:
        out.write_line(spec_message())
        return 0
    return _run_command(arguments, out)


def spec_message() -> bytes:
    """Return the SPEC message, the same that the connector's class answers to `spec`.

    Airbyte asks for it often, and the answer is a file: it is not worth the seconds that loading the CDK takes.
    """
    content = pkgutil.get_data("destination_datalake", "spec.json")
    if content is None:
        raise FileNotFoundError("spec.json is missing from the package")
    return json.dumps({"type": "SPEC", "spec": json.loads(content)}, ensure_ascii=False, separators=(",", ":")).encode()


def _run_command(arguments: Sequence[str], out: Stdout) -> int:
    # While this thread loads and reads, others talk to the JVM and to AWS, in many short turns. Python's own five
    # milliseconds before each would make Spark's start half a second longer.
    sys.setswitchinterval(0.0001)
    if arguments[:1] == ["write"] and sys.stderr.isatty():
        sys.stderr.write("Starting Spark …\n")  # Whoever sits there sees the display once it is loaded.
    termination, spark = (Termination(), _early_spark(arguments)) if arguments[:1] == ["write"] else (None, None)
    try:
        if spark is not None:
            import_arrow()
        from destination_datalake.destination import DestinationDatalake

        # Again, because loading the CDK has put its own handler in place of ours.
        route_logging(out)
        # What is loaded now stays: the collector need not look at it again and again while records are read.
        gc.freeze()
        destination = DestinationDatalake(out, spark, termination)
        destination.run(list(arguments))
    finally:
        if spark is not None:
            spark.stop()
        out.flush()
    if termination is not None and termination.requested:
        # Threads that still wait for AWS must not keep the process beyond the platform's patience.
        os._exit(destination.exit_code)
    return destination.exit_code


def _early_spark(arguments: Sequence[str]) -> Engine | None:
    """Start the Spark that the configuration asks for, so that it comes up while the CDK is being loaded.

    None if the configuration cannot be read or is not valid: saying so is the command's part.
    """
    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import Engine
    from destination_datalake.spark.settings import EngineSettings

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    try:
        path = parser.parse_known_args(list(arguments))[0].config
        return Engine.start(EngineSettings.from_config(Config.parse(json.loads(path.read_bytes()))))
    except Exception:
        return None


def _report_uncaught_exceptions(out: Stdout) -> None:
    """Make every way a thread can die end in the platform's log, and that of the main thread in a TRACE ERROR."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt | StdoutClosedError):
            # To whoever sits at the terminal: of the platform, nobody listens any more.
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
    """Say on `out` why the command failed: the stack trace for the log, then the TRACE ERROR the platform acts on."""
    from airbyte_cdk.exception_handler import assemble_uncaught_exception

    # The CDK decides what a failure means to the user; writing it out is ours, because its `print` would not arrive.
    trace = assemble_uncaught_exception(type(error), error).as_sanitized_airbyte_message().trace
    said = trace.error if trace is not None else None
    if said is None:
        raise TypeError("the CDK made a trace without an error out of an exception") from error
    failure_type: FailureType = said.failure_type.value if said.failure_type is not None else "system_error"
    # Where in our code a user's mistake was found helps nobody to mend it.
    stack_trace = None if failure_type == "config_error" else said.stack_trace or _stack_trace(error)
    out.log("FATAL", stack_trace or said.message)
    stream = said.stream_descriptor
    out.trace_error(
        said.message,
        said.internal_message,
        failure_type,
        (stream.namespace, stream.name) if stream is not None else None,
        stack_trace,
    )


def _stack_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    sys.exit(run())
