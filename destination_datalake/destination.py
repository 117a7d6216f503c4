"""The connector as the Airbyte CDK knows it: spec, check, write.

The CDK parses the command line, validates the configuration against the spec and turns exceptions into messages; this
is the one module that raises its exceptions. stdin and stdout are left to our own `protocol` package, because the CDK's
message classes drop fields, refuse valid messages and lose digits. `cli.py` runs a plain `write` without the CDK.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterable, Mapping, MutableMapping
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import msgspec
from airbyte_cdk import (
    AirbyteConnectionStatus,
    AirbyteMessage,
    AirbyteTracedException,
    ConfiguredAirbyteCatalog,
    Destination,
    FailureType,
    Status,
)
from airbyte_cdk.models.airbyte_protocol_serializers import AirbyteMessageSerializer

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.write import accepted, read_options, run_write

if TYPE_CHECKING:
    from argparse import Namespace

    from destination_datalake.spark.engine import Engine
    from destination_datalake.termination import Termination

_FURTHER_COMMANDS = (
    "There are two more commands: iam-policy --help prints the IAM policy for a configuration, maintain --help "
    "maintains its Iceberg tables.\n"
)
"""Follows the usage of the CDK's parser, which knows the platform's commands alone."""


class DestinationDatalake(Destination):
    """Writes to an AWS data lake."""

    def __init__(
        self, out: Stdout | None = None, spark: Engine | None = None, termination: Termination | None = None
    ) -> None:
        """Write protocol lines to `out`, by default to file descriptor 1.

        A `write` uses `spark` and `termination`, and makes its own if it is given none.
        """
        self._out = Stdout(1) if out is None else out
        self._spark = spark
        self._termination = termination
        self.exit_code = 0

    @staticmethod
    def read_config(config_path: str) -> MutableMapping[str, Any]:
        """Return the options in the file, normalised.

        Raises ConfigError with a sentence for each option that is not valid, before the CDK validates them against the
        spec and reports problems in the terms of JSON schema.
        """
        return read_options(config_path)

    def run_cmd(self, parsed_args: Namespace) -> Iterable[AirbyteMessage]:
        """Run a command as the CDK does. A check with an invalid configuration answers FAILED and does not fail.

        Raises AirbyteTracedException for a ConnectorError of any other command.
        """
        try:
            yield from super().run_cmd(parsed_args)
        except ConnectorError as error:
            refusal = _traced(error.failure)
            status = refusal.as_connection_status_message()
            if parsed_args.command != "check" or status is None:
                raise refusal from error
            yield status

    def run(self, args: list[str]) -> None:
        """Run the command in `args` (without the program's name) and set `exit_code`.

        Raises what the command raises, and SystemExit for a wrong command line.
        """
        try:
            parsed_args = self.parse_args(args)
        except SystemExit:
            sys.stderr.write(_FURTHER_COMMANDS)
            raise
        for message in self.run_cmd(parsed_args):
            self._out.write_line(msgspec.json.encode(AirbyteMessageSerializer.dump(message)))

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Try everything that a sync needs. The message of a FAILED status has a sentence for each problem.

        That of a SUCCEEDED status, if there is one, names options that are ignored, and tables and columns that the
        options would leave behind.
        """
        from destination_datalake.check.connection import check_connection

        options = accepted(config, self._out, logger)
        found = check_connection(options, uuid.uuid4().hex)
        if found.problems:
            return AirbyteConnectionStatus(status=Status.FAILED, message="\n".join(found.problems))
        notes = [*map(str, options.unknown_options()), *([found.note] if found.note else [])]
        return AirbyteConnectionStatus(status=Status.SUCCEEDED, message="\n".join(notes) or None)

    def write(
        self,
        config: Mapping[str, Any],
        configured_catalog: ConfiguredAirbyteCatalog,
        input_messages: Iterable[AirbyteMessage],
    ) -> Iterable[AirbyteMessage]:
        """Raise NotImplementedError: the CDK's message objects lack fields and digits that must be kept."""
        raise NotImplementedError("records are read from stdin by `run`, not from the CDK's message objects")

    def _run_write(
        self, config: Mapping[str, Any], configured_catalog_path: str, input_stream: TextIOWrapper
    ) -> Iterable[AirbyteMessage]:
        stdin = input_stream.fileno()
        self.exit_code = run_write(config, configured_catalog_path, stdin, self._out, self._spark, self._termination)
        # The sync has written its messages itself, as bytes.
        return ()


def _traced(failure: Failure) -> AirbyteTracedException:
    return AirbyteTracedException(failure.detail, failure.message, FailureType(failure.type))
