"""The console entry point: the command line, stdout, logging, signals and Spark's start around a command.

What a command needs is imported when it runs: help and `spec` load nothing of Spark, AWS or the CDK.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError, route_logging
from destination_datalake.terminal import Parser, put
from destination_datalake.termination import EXIT_PIPE_CLOSED, Termination
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine

_COMMANDS = {
    "spec": "print the connector's specification",
    "check": "validate the configuration",
    "write": "write the messages on standard input to the lake",
    "iam-policy": "print the IAM policy and the Lake Formation permissions that a configuration needs",
    "maintain": "compact a configuration's Iceberg tables, expire snapshots, remove orphan files",
    "replay": "rebuild a table from the archive of its records",
    "delete-rows": "erase the rows of people from all that a configuration has written, with proof",
    "history": "show the last syncs of a configuration, and how each ended",
    "health": "report table health, and what to do",
    "report": "write a page that shows a configuration's syncs",
    "verify": "scan a configuration's tables in full, and check them against their metadata",
}

_EXIT_CODES = {
    "spec": "The exit code is 0, and 2 for a wrong command line.",
    "check": (
        "The answer is a CONNECTION_STATUS message with the status SUCCEEDED or FAILED. The exit code is 0 for both, "
        "as Airbyte's protocol demands: scripts must read the status. It is 1 if there is no answer, and 2 for a wrong "
        "command line."
    ),
    "write": (
        "The exit code is 0 if every stream is complete, 1 if the sync or a stream failed, 2 for a wrong command line, "
        "and 143 after SIGTERM. States on standard output are safe in all cases."
    ),
}
"""The end of the help of the platform's commands."""

_PLAIN = {
    "iam-policy": ("iam_policy.command", "run_iam_policy"),
    "maintain": ("maintenance.command", "run_maintain"),
    "replay": ("replay.command", "run_replay"),
    "delete-rows": ("erasure.command", "run_delete_rows"),
    "history": ("reports.command", "run_history"),
    "health": ("reports.command", "run_health"),
    "report": ("reports.command", "run_report"),
    "verify": ("verify.command", "run_verify"),
}
"""The commands that are not the platform's: the module of each, which is imported when it runs, and its function."""


def run() -> int:
    """Run the command on the command line; return the exit code: 0 success, 1 failure, 143 after SIGTERM.

    Raises SystemExit with code 141 if nobody reads what a command prints.

    Usage errors exit as argparse does: with code 2 and the usage on stderr.
    """
    closed = _closed_descriptors()
    if 1 in closed:
        sys.stderr.write("Standard output is closed: there is nowhere to write to. Nothing was done.\n")
        return 1
    arguments = sys.argv[1:]
    if not arguments:
        _parser().print_help(sys.stderr)
        return 1
    command, *options = arguments
    if command in _PLAIN:
        # No commands of the platform's: they write plain text.
        sys.excepthook = _print_masked
        module, function = _PLAIN[command]
        # Spark starts while the command is still imported, as in `write`.
        config = _config_of_jobs(options) if command in ("replay", "delete-rows", "verify") else None
        spark = [_early_spark(config)] if config is not None else []
        exit_code: int = getattr(import_module(f"destination_datalake.{module}"), function)(options, *spark)
        return exit_code
    asked = _parser().parse_args(arguments)
    # First of all, so that nothing but protocol lines can reach stdout.
    out = Stdout.claim(mask_secrets)
    route_logging(out)
    _report_uncaught_exceptions(out)
    if asked.command == "spec":
        with _leaving_with_the_reader():
            out.write_line(spec_message())
        return 0
    # While this thread imports and reads, other threads exchange many short messages with the JVM and AWS. Python's
    # default interval of 5 ms before each switch would make Spark's start half a second longer.
    sys.setswitchinterval(0.0001)
    try:
        if asked.command == "check":
            with _leaving_with_the_reader():
                _check(asked.config, out)
            _end(0, out)
        if 0 in closed:
            message = "Standard input is closed: the messages to write must come from there. Nothing was written."
            raise ConnectorError(Failure(message, message, "system_error"))
        _end(_write(asked.config, asked.catalog, out), out)
    finally:
        out.flush()


@contextmanager
def _leaving_with_the_reader() -> Iterator[None]:
    """End as SIGPIPE would if nobody reads the answer. Not for `write`: a state that is not delivered is a failure."""
    try:
        yield
    except StdoutClosedError:
        raise SystemExit(EXIT_PIPE_CLOSED) from None


def _closed_descriptors() -> set[int]:
    """Return which of stdin, stdout and stderr are closed, and open these on nothing.

    The next file or pipe would get the number, and be read as the input, or be written protocol lines and errors.
    """
    closed = set()
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.add(os.open(os.devnull, os.O_RDWR))
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    return closed


def _parser() -> Parser:
    """Return the parser of the command line, without the options of those commands that have a parser of their own."""
    parser = Parser(
        prog="destination-datalake",
        description="Airbyte destination for data lakes on AWS.",
        epilog="destination-datalake COMMAND --help has the options of a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    parsers = {
        name: commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_EXIT_CODES.get(name)
        )
        for name, text in _COMMANDS.items()
    }
    for name in ("check", "write"):
        parsers[name].add_argument("--config", metavar="FILE", required=True, help="the configuration, in JSON")
    parsers["write"].add_argument("--catalog", metavar="FILE", required=True, help="the configured catalog, in JSON")
    return parser


def spec_message() -> bytes:
    """Return the SPEC message, equal to what `DestinationDatalake` answers to `spec`.

    Airbyte asks for it often. Read from the file, it does not take the seconds that importing the CDK takes.
    """
    content = pkgutil.get_data("destination_datalake", "spec.json")
    if content is None:
        raise FileNotFoundError("spec.json is missing from the package")
    return json.dumps({"type": "SPEC", "spec": json.loads(content)}, ensure_ascii=False, separators=(",", ":")).encode()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        put(sys.stdout, f"{parser.prog} {version('destination-datalake')}")
        parser.exit()


def _end(code: int, out: Stdout) -> NoReturn:
    """End this process: do not wait for threads that wait for AWS, as the platform kills it 60 s after SIGTERM, nor for
    the interpreter to take a thousand modules apart.
    """
    out.flush()
    sys.stderr.flush()
    os._exit(code)


def _check(config: str, out: Stdout) -> None:
    """Write the answer to the command. Raises ConnectorError for what is no fault of the configuration."""
    from destination_datalake.check.connection import answer
    from destination_datalake.write import accepted, read_options

    message: str | None
    try:
        status, message = answer(accepted(read_options(config), logging.getLogger(__name__)))
    except ConnectorError as error:
        if error.failure.type != "config_error":
            raise
        status, message = "FAILED", error.failure.message
    said = {"status": status} if message is None else {"status": status, "message": message}
    out.write_message({"type": "CONNECTION_STATUS", "connectionStatus": said})


def _write(config: str, catalog: str, out: Stdout) -> int:
    """Run a sync, whose Spark starts while this thread still imports. The CDK's import would take longer than both."""
    if sys.stderr.isatty():
        sys.stderr.write("Starting Spark …\n")  # The live display takes over once it is imported.
    termination, spark = Termination(), _early_spark(config)
    try:
        from destination_datalake.write import read_options, run_write

        return run_write(read_options(config), catalog, 0, out, spark, termination)
    finally:
        if spark is not None:
            spark.stop()


def _config_of_jobs(options: Sequence[str]) -> str | None:
    """Return the configuration's file on a command line that asks for jobs; None if Spark may not be needed."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config")
    parser.add_argument("--dry-run", "--help", "-h", action="store_true", dest="is_short")
    try:
        asked, _ = parser.parse_known_args(options)
    except argparse.ArgumentError:
        return None
    return None if asked.is_short else asked.config


def _early_spark(config: str) -> Engine | None:
    """Start Spark as configured, and import Arrow, without pandas, while it starts.

    Returns None if the configuration cannot be read or is not valid, which the command reports.
    """
    from destination_datalake.spark.classic.pyspark_internals import import_arrow

    spark = _started_spark(config)
    import_arrow()
    return spark


def _started_spark(config: str) -> Engine | None:
    from destination_datalake.spark.engine import start_engine, start_local_engine

    try:
        options = json.loads(Path(config).read_bytes())
        if options.get("spark") is None:
            # Java is launched before the models of options are imported, which takes a fifth of a second.
            return start_local_engine()
        from destination_datalake.config.options import Config

        return start_engine(Config.parse(options))
    except Exception:
        return None


def _print_masked(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(mask_secrets("".join(traceback.format_exception(kind, error, trace))))


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
    # A stack trace helps with nothing that is known: a user cannot correct the configuration by it.
    known = isinstance(error, ConnectorError) and error.__cause__ is None
    stack_trace = None if known or failure.type == "config_error" else _stack_trace(error)
    out.log("FATAL", stack_trace or failure.message)
    out.trace_error(failure.advice, failure.detail, failure.type, None, stack_trace)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, ConnectorError):
        return error.failure
    if (exhausted := exhaustion(error)) is not None:
        return Failure(exhausted, f"{type(error).__name__}: {error}", "transient_error")
    # In the CDK's words, which is not imported.
    message = "Something went wrong in the connector. See the logs for more details."
    return Failure(message, str(error), "system_error")


def _stack_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    sys.exit(run())
