"""The connector as an Airbyte CDK class with the commands `spec` and `check`, for programs that import connectors.

Only this module imports the CDK. The command line (`cli.py`) produces the same output without it, because importing the
CDK takes longer than a check. The `write` command (`write.py`) does not use the CDK either: its message classes drop
fields, reject valid messages and lose digits of numbers.
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
    """The CDK's interface to this destination."""

    @staticmethod
    def read_config(config_path: str) -> MutableMapping[str, Any]:
        """Return the normalised options of the configuration file.

        Raises ConfigError with one line for each invalid option. Without this method, the CDK would validate the
        options against the spec and report errors in terms of JSON Schema.
        """
        return read_options(config_path)

    def run_cmd(self, parsed_args: Namespace) -> Iterable[AirbyteMessage]:
        """Run a command as the CDK does, with different handling of errors.

        A check with an invalid configuration returns the status FAILED instead of raising. If any other command raises
        a ConnectorError, it is raised as an AirbyteTracedException.
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
        """Run the connection check and return its status (see `check.connection.answer`)."""
        from destination_datalake.check.connection import answer

        status, message = answer(accepted(config, logger))
        return AirbyteConnectionStatus(status=Status(status), message=message)

    def write(
        self,
        config: Mapping[str, Any],
        configured_catalog: ConfiguredAirbyteCatalog,
        input_messages: Iterable[AirbyteMessage],
    ) -> Iterable[AirbyteMessage]:
        """Raise NotImplementedError, because the CDK's message objects drop fields and digits."""
        raise NotImplementedError("records are read from stdin by `write.run_write`")
