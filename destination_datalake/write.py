"""The `write` command: read the configuration and the catalog, start Spark, and run one sync.

This module does not use the CDK.
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
    """Write the records that are read from the file descriptor `stdin` to the lake. Return the exit code of `run_sync`.

    The sync uses the engine `spark`, or starts Spark if `spark` is None. The engine is stopped at the end in both
    cases. Raises ConnectorError.
    """
    from destination_datalake.sync.conductor import run_sync

    # Imported modules are never freed, so the garbage collector need not scan them again while records are read.
    gc.freeze()
    catalog = read_object(catalog_path, "configured catalog")
    config = accepted(options, _logger)
    for warning in config.spark.warnings:
        _logger.warning("%s", warning)
    spark = spark or _start_engine(config)
    try:
        return run_sync(config, catalog, stdin, out, spark, termination)
    finally:
        spark.stop()


def read_options(path: str) -> dict[str, Any]:
    """Return the normalised options of a configuration file. From now on, their secrets are masked in all output.

    Raises ConfigError with one line for each invalid option.
    """
    options = read_object(path, "configuration")
    register_secrets(*Config.parse(options).secrets())
    return normalised(options, Config)


def accepted(options: Mapping[str, Any], logger: logging.Logger) -> Config:
    """Return the configuration for valid options. Log a warning for each unknown option."""
    config = Config.parse(options)
    for option in config.unknown_options():
        logger.warning("%s", option)
    return config


def _start_engine(config: Config) -> Engine:
    try:
        return start_engine(config)
    except OSError as error:
        if (exhausted := exhaustion(error)) is not None:
            message = f"Spark cannot be started. {exhausted}"
            raise ConnectorError(Failure(message, message, "transient_error")) from error
        raise ConfigError(
            f"Cannot use a folder for temporary files: {error}. Set TMPDIR to a writable folder with free space."
        ) from error
