"""The connector as a class of the Airbyte CDK, for programs that import connectors. Supports `spec` and `check`.

Only this module imports the CDK (Airbyte's connector development kit). The command line (`cli`) prints the same output
without the CDK, because importing the CDK takes longer than a check. The command `write` does not use the CDK either:
the CDK's message classes drop fields, reject valid messages, and lose digits of numbers.
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
from destination_datalake.write import parse_options, read_options

if TYPE_CHECKING:
    from argparse import Namespace


class DestinationDatalake(Destination):
    """This destination as a subclass of the CDK's `Destination`. Supports `spec` and `check`, but not `write`."""

    @staticmethod
    def read_config(config_path: str) -> MutableMapping[str, Any]:
        """Return the options in a configuration file, normalised.

        Raises ConfigError with one line per invalid option. This method replaces the CDK's validation, whose messages
        users can understand only if they know JSON Schema.
        """
        return read_options(config_path)

    def run_cmd(self, parsed_args: Namespace) -> Iterable[AirbyteMessage]:
        """Run a command, and yield its messages. Only the handling of ConnectorErrors differs from the CDK's method.

        If a check raises a ConnectorError that Airbyte can show as a status, such as an invalid configuration, yields
        the status FAILED. Converts all other ConnectorErrors to AirbyteTracedException.
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
        """Check the connection, and return the status SUCCEEDED or FAILED (see `check.connection.answer`)."""
        from destination_datalake.check.connection import answer

        status, message = answer(parse_options(config, logger))
        return AirbyteConnectionStatus(status=Status(status), message=message)

    def write(
        self,
        config: Mapping[str, Any],
        configured_catalog: ConfiguredAirbyteCatalog,
        input_messages: Iterable[AirbyteMessage],
    ) -> Iterable[AirbyteMessage]:
        """Raise NotImplementedError. The CDK's message objects drop fields and digits; use `write.run_write`."""
        raise NotImplementedError("records are read from stdin by `write.run_write`")
