"""Wider columns for files that cannot be read with them as they are: all are written anew, out of readers' sight."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from destination_datalake.datafiles import RewriteTask
from destination_datalake.schema.types import ColumnType
from destination_datalake.tables.base import Rewrite, TableName
from destination_datalake.tables.folders import Folders

_logger = logging.getLogger(__name__)


def write_anew(
    table: TableName, folders: Folders, source: str, target: str, types: Mapping[str, ColumnType], rewrite: Rewrite
) -> str:
    """Write a folder's files into `target` with these types for some columns, and say so in the log.

    Return the folder that now holds the content: `source` if there were no files in it.
    """
    started = time.monotonic()
    tasks = [
        RewriteTask(uri, f"{target}/{uri.rpartition('/')[2]}", types, folders.access) for uri in folders.files(source)
    ]
    if not tasks:
        return source
    rewritten = rewrite(tasks)
    _logger.info(
        "Table %s: column %s became wider. The table's %d files were written anew (%.1f MB, %.1f s).",
        table,
        ", ".join(sorted(types)),
        len(rewritten),
        sum(file.size for file in rewritten) / 1e6,
        time.monotonic() - started,
    )
    return target
