"""The server that the options name: `spark.remote`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.spark.connect.backend import ConnectBackend
from destination_datalake.spark.connect.endpoint import Endpoint
from destination_datalake.spark.executors.archive import archive
from destination_datalake.spark.executors.python import ExecutorPython

if TYPE_CHECKING:
    from destination_datalake.config.options import Config

_CHECK_SECONDS = 15.0


def connect_backend(config: Config) -> ConnectBackend:
    """Return the Spark that `spark.remote` means."""
    python = ExecutorPython(config.spark.python)

    def packages(scratch: Path) -> Path:
        return archive(scratch, with_json_lines=config.format.format_type == "JSONL").path

    return ConnectBackend(Endpoint.of(config.spark), python, config.spark.conf, packages if python.is_packed else None)


def server_version(config: Config) -> str:
    """Return the version of the Spark at `spark.remote`, or raise SparkFailed: no server answers, or it refuses."""
    from destination_datalake.spark.connect.connection import close, connect
    from destination_datalake.spark.connect.failure import meaning, unusable

    server = Endpoint.of(config.spark)
    try:
        session = connect(server, retry_seconds=_CHECK_SECONDS)
        try:
            return str(session.version)
        finally:
            close(session)
    except Exception as error:
        raise unusable(meaning(error), error, server.name) from error
