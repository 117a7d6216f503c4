"""The console entry point: parse the command line, and run the command.

Each command imports only the modules that it needs. `--help` and `spec` load neither Spark nor AWS clients nor the CDK
(Airbyte's connector development kit).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from destination_datalake.aws.access import mask_secrets
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.protocol.stdout import Stdout, StdoutClosedError, route_logging
from destination_datalake.terminal import Parser, put
from destination_datalake.termination import EXIT_PIPE_CLOSED, EXIT_TERMINATED, Termination
from destination_datalake.unforeseen import REPORT_ERROR, described, exhaustion, trace_of

if TYPE_CHECKING:
    from destination_datalake.spark.engine import Engine

_COMMANDS = {
    "spec": "print the connector's specification",
    "check": "validate the configuration",
    "write": "write the messages on standard input to the lake",
    "iam-policy": "print the IAM policy and the Lake Formation permissions that a configuration needs",
    "maintain": "compact the Iceberg tables of a configuration, expire snapshots, and remove orphan files",
    "replay": "rebuild a table from its archived records",
    "delete-rows": "erase rows by ID from all data of a configuration, and verify the erasure",
    "history": "list the recent syncs of a configuration with their outcomes",
    "health": "report the health of tables, with remedies",
    "report": "write an HTML page about the syncs of a configuration",
    "verify": "scan the tables of a configuration in full, and compare them with their metadata",
}

_EXIT_CODES = {
    "spec": "The exit code is 0 on success, and 2 for an invalid command line.",
    "check": (
        "The result is a CONNECTION_STATUS message with the status SUCCEEDED or FAILED. As Airbyte's protocol "
        "requires, the exit code is 0 for both, so scripts must read the status. The exit code is 1 if there is no "
        "result, and 2 for an invalid command line."
    ),
    "write": (
        "The exit code is 0 if every stream is complete, 1 if the sync or a stream failed, 2 for an invalid command "
        "line, and 143 after SIGTERM. In all cases, every record that precedes a state on standard output is stored."
    ),
}
"""Exit codes of the commands that Airbyte runs. The texts end the commands' help texts."""

_USER_COMMANDS = {
    "iam-policy": ("iam_policy.command", "run_iam_policy"),
    "maintain": ("maintenance.command", "run_maintain"),
    "replay": ("replay.command", "run_replay"),
    "delete-rows": ("erasure.command", "run_delete_rows"),
    "history": ("reports.command", "run_history"),
    "health": ("reports.command", "run_health"),
    "report": ("reports.command", "run_report"),
    "verify": ("verify.command", "run_verify"),
}
"""Maps each command that users run, and Airbyte does not, to a module and to the function in the module that runs the
command."""


def run() -> int:
    """Run the command in `sys.argv`. Return its exit code: 0 on success, 1 on failure, 143 after SIGTERM.

    After the commands `check` and `write`, this function does not return, but ends the process with their exit code.
    Raises SystemExit with code 141 if the reader of stdout closes the pipe. If the command line is invalid, prints the
    usage on stderr and raises SystemExit with code 2.
    """
    closed = _closed_descriptors()
    if 1 in closed:
        sys.stderr.write(
            "Standard output is closed, so the command did not run. Redirect it, for example with >FILE.\n"
        )
        return 1
    arguments = sys.argv[1:]
    if not arguments:
        _parser().print_help(sys.stderr)
        return 1
    command, *options = arguments
    if command in _USER_COMMANDS:
        # These commands write plain text, not protocol messages.
        sys.excepthook = _print_masked
        module, function = _USER_COMMANDS[command]
        # As in `write`, Spark starts while this thread imports the command's modules. `delete-rows` starts Spark
        # itself, because it encrypts Spark's local files.
        config = _spark_config_path(options) if command in ("replay", "verify") else None
        # Handle SIGTERM before Spark starts, as in `_write`. The command then handles SIGTERM itself.
        termination = Termination()
        spark = [_early_spark(config)] if config is not None else []
        run_command: Callable[..., int] = getattr(import_module(f"destination_datalake.{module}"), function)
        if termination.requested:
            for engine in filter(None, spark):
                engine.stop()
            return EXIT_TERMINATED
        termination.close()
        return run_command(options, *spark)
    parsed = _parser().parse_args(arguments)
    # Reserve stdout before anything else is written, so that stdout contains only protocol messages.
    out = Stdout.claim(mask_secrets)
    route_logging(out)
    _report_uncaught_exceptions(out)
    if parsed.command == "spec":
        with _exiting_on_closed_pipe():
            out.write_line(spec_message())
        return 0
    # While this thread imports modules, other threads exchange many short messages with the JVM and AWS. Python's
    # default switch interval of 5 ms would delay the start of Spark by half a second.
    sys.setswitchinterval(0.0001)
    try:
        if parsed.command == "check":
            with _exiting_on_closed_pipe():
                _check(parsed.config, out)
            _end(0, out)
        if 0 in closed:
            message = "Standard input is closed, so the sync did not start. Pipe the messages to the command write."
            raise ConnectorError(Failure(message, message, "system_error"))
        _end(_write(parsed.config, parsed.catalog, out), out)
    finally:
        out.flush()


@contextmanager
def _exiting_on_closed_pipe() -> Iterator[None]:
    """Raise SystemExit with code 141 if the reader closes stdout during the `with` block.

    The command `write` does not use this function, because a sync that cannot write a state has failed.
    """
    try:
        yield
    except StdoutClosedError:
        raise SystemExit(EXIT_PIPE_CLOSED) from None


def _closed_descriptors() -> set[int]:
    """Return which of the descriptors 0, 1 and 2 are closed, and open each of them on /dev/null.

    If a descriptor stayed closed, the next file that the process opens would get this descriptor, and would be used as
    standard input, standard output or standard error.
    """
    closed = set()
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # `open` returns the lowest free descriptor, which is this one.
            closed.add(os.open(os.devnull, os.O_RDWR))
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    return closed


def _parser() -> Parser:
    """Return the parser for `spec`, `check`, `write` and the overall help. Other commands have their own parsers."""
    parser = Parser(
        prog="destination-datalake",
        description="Airbyte destination for data lakes on AWS.",
        epilog="Run destination-datalake COMMAND --help for the options of a command.",
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
        parsers[name].add_argument("--config", metavar="FILE", required=True, help="JSON file with the configuration")
    parsers["write"].add_argument(
        "--catalog", metavar="FILE", required=True, help="JSON file with the configured catalog"
    )
    return parser


def spec_message() -> bytes:
    """Return the SPEC message as JSON. The CDK prints the same line for `DestinationDatalake`.

    Reads `spec.json` from the package and does not import the CDK: Airbyte requests the spec often, and the import
    takes seconds.
    """
    content = pkgutil.get_data("destination_datalake", "spec.json")
    if content is None:
        raise FileNotFoundError("The package contains no spec.json. Reinstall the connector.")
    return json.dumps({"type": "SPEC", "spec": json.loads(content)}, ensure_ascii=False, separators=(",", ":")).encode()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        put(sys.stdout, f"{parser.prog} {version('destination-datalake')}")
        parser.exit()


def _end(code: int, out: Stdout) -> NoReturn:
    """Flush the output, and exit immediately: do not wait for threads, and do not clean up modules.

    A thread may still wait for a response of AWS, and Airbyte kills the process 60 seconds after SIGTERM.
    """
    out.flush()
    sys.stderr.flush()
    os._exit(code)


def _check(config: str, out: Stdout) -> None:
    """Check the connection, and write a CONNECTION_STATUS message.

    The status is FAILED if the check finds a problem, or if the configuration is invalid. Raises other ConnectorErrors.
    """
    from destination_datalake.check.connection import answer
    from destination_datalake.write import parse_options, read_options

    message: str | None
    try:
        status, message = answer(parse_options(read_options(config), logging.getLogger(__name__)))
    except ConnectorError as error:
        if error.failure.type != "config_error":
            raise
        status, message = "FAILED", error.failure.message
    result = {"status": status} if message is None else {"status": status, "message": message}
    out.write_message({"type": "CONNECTION_STATUS", "connectionStatus": result})


def _write(config: str, catalog: str, out: Stdout) -> int:
    """Run a sync. Return its exit code.

    Spark starts while this thread imports the sync's modules. The sync does not import the CDK, because the import
    takes too long.
    """
    if sys.stderr.isatty():
        sys.stderr.write("Starting Spark …\n")  # The live display replaces this line after its import.
    # Handle SIGTERM before Spark starts. Otherwise, the signal would end this process without deleting temporary files.
    termination, spark = Termination(), _early_spark(config)
    try:
        from destination_datalake.write import read_options, run_write

        return run_write(read_options(config), catalog, 0, out, spark, termination)
    finally:
        if spark is not None:
            spark.stop()


def _spark_config_path(options: Sequence[str]) -> str | None:
    """Return the path in `--config`, or None if the command may not need Spark (`--help`, `--dry-run`)."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--config")
    parser.add_argument("--dry-run", "--help", "-h", action="store_true", dest="is_short")
    try:
        parsed, _ = parser.parse_known_args(options)
    except argparse.ArgumentError:
        return None
    return None if parsed.is_short else parsed.config


def _early_spark(config: str) -> Engine | None:
    """Start Spark, and import Arrow (without pandas) while Spark starts. Return the engine.

    Returns None if the configuration is unreadable or invalid, which the command reports later. Also returns None if
    the configuration is a pipe, because only the command itself can read a pipe.
    """
    from destination_datalake.spark.classic.pyspark_internals import import_arrow

    spark = _started_spark(config)
    import_arrow()
    return spark


def _started_spark(config: str) -> Engine | None:
    from destination_datalake.spark.engine import start_engine, start_local_engine

    if not Path(config).is_file():
        return None
    try:
        options = json.loads(Path(config).read_bytes())
        if options.get("spark") is None:
            # Start Java first, because the import of the option models takes 0.2 seconds.
            return start_local_engine()
        from destination_datalake.config.options import Config

        return start_engine(Config.parse(options))
    except Exception:
        return None


def _print_masked(_type: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    sys.stderr.write(mask_secrets(f"{trace_of(error)}\n"))


def _report_uncaught_exceptions(out: Stdout) -> None:
    """Report uncaught exceptions on stdout: those of the main thread as TRACE ERROR, those of other threads as LOG."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt | StdoutClosedError):
            # Print the exception on stderr, because the platform no longer reads stdout.
            sys.__excepthook__(kind, error, trace)
        else:
            report_failure(out, error)

    def report_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread is not None else "unknown"
            out.log("ERROR", f"Thread {name} failed: {trace_of(args.exc_value)}")

    sys.excepthook = report
    threading.excepthook = report_thread


def report_failure(out: Stdout, error: BaseException) -> None:
    """Report the failure of a command: log the message or stack trace, then write a TRACE ERROR."""
    failure = _failure(error)
    # For a known failure, the message is enough: a stack trace does not help to correct the configuration.
    known = isinstance(error, ConnectorError) and error.__cause__ is None
    stack_trace = None if known or failure.type == "config_error" else trace_of(error)
    out.log("FATAL", stack_trace or failure.message)
    out.trace_error(failure.advice, failure.detail, failure.type, None, stack_trace)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, ConnectorError):
        return error.failure
    if (exhausted := exhaustion(error)) is not None:
        return Failure(exhausted, described(error), "transient_error")
    message = f"The command failed with an unexpected {described(error)}. {REPORT_ERROR}"
    return Failure(message, described(error), "system_error")


if __name__ == "__main__":
    sys.exit(run())
