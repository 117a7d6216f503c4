"""The connector as a class of the Airbyte CDK with spec and check, for programs that run connectors by class.

Only this module uses the CDK. The command line (`cli.py`) gives the same results without it, because its import takes
longer than a check. `write` does not use it (`write.py`): the CDK's message classes drop fields, reject valid messages
and lose digits.
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
        """Return the normalised options in the file.

        Raises ConfigError with a line for each invalid option, before the CDK validates them against the spec and
        reports problems in terms of JSON schema.
        """
        return read_options(config_path)

    def run_cmd(self, parsed_args: Namespace) -> Iterable[AirbyteMessage]:
        """Run a command like the CDK. A check with an invalid configuration returns FAILED and does not raise.

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
        """Run the connection check (see `answer`)."""
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
