"""The servers that the options name."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from destination_datalake.config.access import aws_access
from destination_datalake.spark.connect.backend import ConnectBackend
from destination_datalake.spark.executors.archive import archive
from destination_datalake.spark.executors.python import ExecutorPython
from destination_datalake.spark.launchers.launcher import Launcher
from destination_datalake.spark.launchers.running import RunningServer

if TYPE_CHECKING:
    from destination_datalake.config.options import Config

_CHECK_SECONDS = 15.0


def connect_backend(config: Config) -> ConnectBackend:
    """Return the Spark that `spark.remote`, `spark.emr_serverless` or `spark.glue_session` means."""
    python = ExecutorPython(config.spark.python)

    def packages(scratch: Path) -> Path:
        return archive(scratch, with_json_lines=config.format.format_type == "JSONL").path

    return ConnectBackend(_launcher(config), python, config.spark.conf, packages if python.is_packed else None)


def server_version(config: Config) -> str:
    """Return the version of the Spark at `spark.remote`, or raise SparkFailed: no server answers, or it refuses."""
    from destination_datalake.spark.connect.connection import close, connect
    from destination_datalake.spark.connect.failure import meaning, unusable

    server = _launcher(config)
    try:
        session = connect(server.launch(threading.Event()), retry_seconds=_CHECK_SECONDS)
        try:
            return str(session.version)
        finally:
            close(session)
    except Exception as error:
        raise unusable(meaning(error), error, server.name) from error


def _launcher(config: Config) -> Launcher:
    spark = config.spark
    access = aws_access(config)
    if spark.emr_serverless is not None:
        from destination_datalake.spark.launchers.emr_serverless import EmrServerlessSessions

        return EmrServerlessSessions(spark.emr_serverless, spark.conf, lambda: access.client("emr-serverless"))
    if spark.glue_session is not None:
        from destination_datalake.spark.launchers.glue_session import GlueSessions

        # The session runs where the bucket is, wherever the Data Catalog is.
        near = replace(access, glue_region=None, glue_catalog_id=None)
        return GlueSessions(spark.glue_session, spark.conf, lambda: near.client("glue"))
    if spark.remote is None:
        raise AssertionError("no Spark Connect server is configured")
    return RunningServer(spark.remote, spark.token.get_secret_value() if spark.token else None)
