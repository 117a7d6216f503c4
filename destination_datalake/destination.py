"""The connector as the Airbyte CDK knows it: spec and check.

The CDK validates the configuration against the spec and turns exceptions into messages; this is the one module that
raises its exceptions. `write` has no part of the CDK (`write.py`): its message classes drop fields, refuse valid
messages and lose digits.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

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

from destination_datalake.aws.secrets import mask_secrets
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.write import accepted, read_options

if TYPE_CHECKING:
    from argparse import Namespace


class DestinationDatalake(Destination):
    """Writes to an AWS data lake."""

    def __init__(self, out: Stdout | None = None) -> None:
        """Write protocol lines to `out`, by default to file descriptor 1."""
        self._out = Stdout(1, mask_secrets) if out is None else out

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
        """Run the command in `args` (without the program's name).

        Raises what the command raises, and SystemExit for a wrong command line.
        """
        for message in self.run_cmd(self.parse_args(args)):
            self._out.write_message(AirbyteMessageSerializer.dump(message))

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Try everything that a sync needs. The message of a FAILED status has a sentence for each problem.

        That of a SUCCEEDED status, if there is one, names options that are ignored, and tables and columns that the
        options would leave behind.
        """
        from destination_datalake.check.connection import check_connection

        options = accepted(config, logger)
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
        raise NotImplementedError("records are read from stdin by `write.run_write`")


def _traced(failure: Failure) -> AirbyteTracedException:
    return AirbyteTracedException(failure.detail, failure.message, FailureType(failure.type))
