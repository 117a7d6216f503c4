"""The connector as the Airbyte CDK knows it: spec, check, write.

The CDK parses the command line, validates the configuration against the spec and turns exceptions into messages; this
is the one module that raises its exceptions. stdin and stdout are left to our own `protocol` package, because the CDK's
message classes drop fields, refuse valid messages and lose digits.
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

from destination_datalake.aws.secrets import known_secrets
from destination_datalake.config.files import read_object, too_deep
from destination_datalake.config.normalisation import normalised
from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError, ConnectorError, Failure
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.spark.engine import Engine, start_engine
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from argparse import Namespace

_logger = logging.getLogger(__name__)

_FURTHER_COMMAND = "There is one more command, which prints the IAM policy for a configuration: iam-policy --help\n"
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
        options = read_object(config_path, "configuration")
        try:
            Config.parse(options)
            return normalised(options)
        except RecursionError:
            raise too_deep(config_path, "configuration") from None

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
            sys.stderr.write(_FURTHER_COMMAND)
            raise
        for message in self.run_cmd(parsed_args):
            self._out.write_line(msgspec.json.encode(AirbyteMessageSerializer.dump(message)))

    def check(self, logger: logging.Logger, config: Mapping[str, Any]) -> AirbyteConnectionStatus:
        """Try everything that a sync needs. The message of a FAILED status has a sentence for each problem.

        That of a SUCCEEDED status, if there is one, names tables and columns that the options would leave behind.
        """
        from destination_datalake.check.connection import check_connection

        found = check_connection(self._parse(config, logger), uuid.uuid4().hex)
        if found.problems:
            return AirbyteConnectionStatus(status=Status.FAILED, message="\n".join(found.problems))
        return AirbyteConnectionStatus(status=Status.SUCCEEDED, message=found.note)

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
        from destination_datalake.sync.conductor import run_sync

        catalog = read_object(configured_catalog_path, "configured catalog")
        options = self._parse(config, _logger)
        if options.spark.sends_in_clear and options.credentials.credentials_title == "IAM User":
            _logger.warning(
                "Spark sends the access key to its executors in clear text. Set spark.authenticate and "
                "spark.network.crypto.enabled to true in spark.conf, or use an IAM role."
            )
        spark = self._spark or _start_engine(options)
        termination = self._termination or Termination()
        try:
            self.exit_code = run_sync(options, catalog, input_stream.fileno(), self._out, spark, termination)
        finally:
            spark.stop()
        # The sync has written its messages itself, as bytes.
        return ()

    def _parse(self, options: Mapping[str, Any], logger: logging.Logger) -> Config:
        config = Config.parse(options)
        self._out.mask(config.secrets())
        self._out.mask_from(known_secrets)
        for name in config.unknown_options():
            logger.warning("The option %s is not one of this connector's and is ignored.", name)
        return config


def _start_engine(config: Config) -> Engine:
    try:
        return start_engine(config)
    except OSError as error:
        raise ConfigError(
            f"There is no folder for temporary files: {error}. Set TMPDIR to a folder that can be written and has room."
        ) from error


def _traced(failure: Failure) -> AirbyteTracedException:
    return AirbyteTracedException(failure.detail, failure.message, FailureType(failure.type))
