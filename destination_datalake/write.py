"""The command `write`, from the files on its command line to the exit code of the sync. The CDK has no part in it."""

from __future__ import annotations

import argparse
import gc
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from destination_datalake.aws.secrets import known_secrets
from destination_datalake.config.files import read_object, too_deep
from destination_datalake.config.normalisation import normalised
from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError
from destination_datalake.spark.engine import Engine, start_engine
from destination_datalake.termination import Termination

if TYPE_CHECKING:
    from destination_datalake.protocol.stdout import Stdout

_logger = logging.getLogger(__name__)


class WriteArguments(NamedTuple):
    """The paths of the files on the command line of a `write`."""

    config: str
    catalog: str


def write_arguments(arguments: Sequence[str]) -> WriteArguments | None:
    """Return the files of a `write` as platforms call it; None for any other command line, which the CDK parses."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("command", nargs="?", choices=["write"])
    parser.add_argument("--config")
    parser.add_argument("--catalog")
    try:
        parsed, others = parser.parse_known_args(list(arguments))
    except (argparse.ArgumentError, SystemExit):
        return None
    # What argparse itself requires it misses with a usage on stderr, which is the CDK's to print.
    if others or None in (parsed.command, parsed.config, parsed.catalog):
        return None
    return WriteArguments(parsed.config, parsed.catalog)


def run_write(
    options: Mapping[str, Any],
    catalog_path: str,
    stdin: int,
    out: Stdout,
    spark: Engine | None,
    termination: Termination | None,
) -> int:
    """Write the messages on `stdin` (a file descriptor) to the lake; return the exit code, as `run_sync` does.

    Uses `spark` and `termination`, and makes its own if it is given none. Raises ConnectorError.
    """
    from destination_datalake.sync.conductor import run_sync

    # Imported modules live until the end: the garbage collector need not traverse them while records are read.
    gc.freeze()
    catalog = read_object(catalog_path, "configured catalog")
    config = accepted(options, out, _logger)
    for warning in config.spark.warnings:
        _logger.warning("%s", warning)
    spark = spark or _start_engine(config)
    try:
        return run_sync(config, catalog, stdin, out, spark, termination or Termination())
    finally:
        spark.stop()


def read_options(path: str) -> dict[str, Any]:
    """Return the options in a configuration file, normalised.

    Raises ConfigError with a sentence for each option that is not valid.
    """
    options = read_object(path, "configuration")
    try:
        Config.parse(options)
        return normalised(options, Config)
    except RecursionError:
        raise too_deep(path, "configuration") from None


def accepted(options: Mapping[str, Any], out: Stdout, logger: logging.Logger) -> Config:
    """Return valid options as a configuration, its secrets masked in `out`; warn of options that are not ours."""
    config = Config.parse(options)
    out.mask(config.secrets())
    out.mask_from(known_secrets)
    for option in config.unknown_options():
        logger.warning("%s", option)
    return config


def _start_engine(config: Config) -> Engine:
    try:
        return start_engine(config)
    except OSError as error:
        raise ConfigError(
            f"There is no folder for temporary files: {error}. Set TMPDIR to a folder that can be written and has room."
        ) from error
