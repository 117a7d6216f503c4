"""The connector as the Airbyte CDK knows it: spec and check, for what runs connectors by their class.

This is the one module that knows the CDK. The command line (`cli.py`) answers the same without it, since importing it
takes longer than a check, and `write` has no part of it anywhere (`write.py`): its message classes drop fields, refuse
valid messages and lose digits.
"""

from __future__ import annotations

import logging
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

from destination_datalake.errors import ConnectorError
from destination_datalake.write import accepted, read_options

if TYPE_CHECKING:
    from argparse import Namespace


class DestinationDatalake(Destination):
    """Writes to an AWS data lake."""

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
            failure = error.failure
            refusal = AirbyteTracedException(failure.detail, failure.message, FailureType(failure.type))
            status = refusal.as_connection_status_message()
            if parsed_args.command != "check" or status is None:
                raise refusal from error
            yield status

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Try everything that a sync needs, as `answer` says."""
        from destination_datalake.check.connection import answer

        status, message = answer(accepted(config, logger))
        return AirbyteConnectionStatus(status=Status(status), message=message)

    def write(
        self,
        config: Mapping[str, Any],
        configured_catalog: ConfiguredAirbyteCatalog,
        input_messages: Iterable[AirbyteMessage],
    ) -> Iterable[AirbyteMessage]:
        """Raise NotImplementedError: the CDK's message objects lack fields and digits that must be kept."""
        raise NotImplementedError("records are read from stdin by `write.run_write`")
