"""The command `write`: read the configuration and the catalog, start Spark, and run one sync.

This module does not use the CDK (Airbyte's connector development kit).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.access import register_secrets
from destination_datalake.config.options import Config
from destination_datalake.config.parsing import normalised, read_object
from destination_datalake.errors import ConfigError, ConnectorError, Failure
from destination_datalake.spark.engine import Engine, start_engine
from destination_datalake.termination import Termination
from destination_datalake.unforeseen import exhaustion

if TYPE_CHECKING:
    from destination_datalake.protocol.stdout import Stdout

_logger = logging.getLogger(__name__)


def run_write(
    options: Mapping[str, Any],
    catalog_path: str,
    stdin: int,
    out: Stdout,
    spark: Engine | None,
    termination: Termination,
) -> int:
    """Run one sync with the messages read from the file descriptor `stdin`. Return the exit code of `run_sync`.

    Uses the engine `spark`, or starts Spark if `spark` is None. Stops the engine at the end in both cases. Raises
    ConnectorError, for example for an invalid catalog.
    """
    from destination_datalake.sync.conductor import run_sync

    # Imported modules are never freed, so exclude them from the scans of the garbage collector during the sync.
    gc.freeze()
    catalog = read_object(catalog_path, "configured catalog")
    config = parse_options(options, _logger)
    for warning in config.spark.warnings:
        _logger.warning("%s", warning)
    # `spark` is None if `cli` could not start Spark. This second attempt raises an error for the user.
    spark = spark or _start_engine(config)
    try:
        return run_sync(config, catalog, stdin, out, spark, termination)
    finally:
        spark.stop()


def read_options(path: str) -> dict[str, Any]:
    """Return the options in a configuration file, normalised. All later output masks the secrets among these options.

    Raises ConfigError with one line per invalid option.
    """
    options = read_object(path, "configuration")
    register_secrets(*Config.parse(options).secrets())
    return normalised(options, Config)


def parse_options(options: Mapping[str, Any], logger: logging.Logger) -> Config:
    """Parse the options, and return the configuration. Log a warning for each unknown option.

    Raises ConfigError if an option is invalid.
    """
    config = Config.parse(options)
    for option in config.unknown_options():
        logger.warning("%s", option)
    return config


def _start_engine(config: Config) -> Engine:
    try:
        return start_engine(config)
    except OSError as error:
        if (exhausted := exhaustion(error)) is not None:
            message = f"Cannot start Spark. {exhausted}"
            raise ConnectorError(Failure(message, message, "transient_error")) from error
        raise ConfigError(
            f"Cannot write temporary files: {error}. Set TMPDIR to a writable folder with free space."
        ) from error
