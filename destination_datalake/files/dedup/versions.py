"""The two DuckDB queries of a merge: find the latest row of each key, and find the stored rows that it replaces.

If a query needs more memory than the limit, DuckDB spills rows to the local disk. Keys are equal if all their columns
are equal: null equals null, NaN equals NaN, and -0.0 equals 0.0. In the order of values, null is lowest, then NaN, then
all other values. Queries compare strings as binary values, because other engines may have written strings that are not
UTF-8.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.sorting import spark_directory

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT_MB = 192
"""DuckDB's memory limit in each Spark task, in MB."""

# QUALIFY filters rows by a window function, as HAVING filters groups by an aggregate. Here it keeps one row per key.
_LATEST = """
CREATE TEMP TABLE winners AS
SELECT {kept}, is_tombstone, file, position FROM pending
QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1
"""

# DuckDB builds its hash table from the right side of a join, so the smaller relation must be on the right.
_REPLACED = """
SELECT stored.file, stored.position, winners.is_tombstone, winners.file AS by_file, winners.position AS by_position,
    {is_same_or_newer} AS wins
FROM {larger} JOIN {smaller} ON {same_key}
"""


@contextmanager
def database() -> Iterator[tuple[DuckDBPyConnection, Path]]:
    """Yield a connection to DuckDB, and a temporary folder on the local disk.

    The caller must create only temporary tables, which later connections to the same database do not see. Raises
    ConnectorError if the disk is full or the memory limit is too low.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="dedup-", dir=spark_directory()) as folder:
        try:
            # A cursor is a connection of its own. Temporary tables and registered names belong to it, and end with it.
            with _instance(os.getpid(), threading.get_ident(), MEMORY_LIMIT_MB).cursor() as connection:
                yield connection, Path(folder)
        except (duckdb.FatalException, duckdb.InternalException):
            _instance.cache_clear()  # After such an error, DuckDB rejects all queries of the instance.
            raise
        except (duckdb.OutOfMemoryException, duckdb.IOException, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            message = (
                "Cannot deduplicate rows: the disk for their keys is full, or a single key is too long for "
                f"{MEMORY_LIMIT_MB} MB of memory. Set TMPDIR (on executors of a cluster: spark.local.dir) to a folder "
                "on a larger disk."
            )
            raise ConnectorError(Failure(message, str(error), "transient_error")) from error


# The arguments only identify the instance: a forked worker must not use its parent's, and each thread has its own
# memory limit.
@lru_cache(maxsize=4)
def _instance(pid: int, thread: int, memory_limit_mb: int) -> DuckDBPyConnection:  # noqa: ARG001
    """Return the in-memory database of one thread of one process.

    Databases are cached, because opening a database takes as long as merging thousands of rows.
    """
    import duckdb

    folder = (spark_directory() or Path(tempfile.gettempdir())) / f"dedup-{secrets.token_hex(8)}"
    return duckdb.connect(
        config={
            # Spark already runs one task per core.
            "threads": 1,
            "memory_limit": f"{memory_limit_mb}MB",
            "temp_directory": str(folder),  # DuckDB creates it when it spills, and deletes it with the instance.
            # DuckDB's optimizer assumes that an Arrow stream has one row, so it would hash the wrong side of the join.
            "disabled_optimizers": "join_order,build_side_probe_side",
        }
    )


def find_winners(connection: DuckDBPyConnection, rows: Iterable[pa.Table], schema: pa.Schema, content: int) -> None:
    """Create the table `winners`, which contains the latest of the `rows` of each key.

    `rows` have the columns that `read_versions` describes. `winners` contains the columns of the key and the order,
    whether the row deletes its key, and the row's file and position. The files with numbers below `content` contain the
    result of the last merge. The rows of these files count as arrived before all other rows.
    """
    key, order = _named(schema, "key"), _named(schema, "order")
    ranks = [rank for name in order for rank in _ranks(name, schema)]
    # After the order columns, pending rows beat rows of the content. The file and position make the order total, so
    # that a repeated task finds the same winners.
    arrival = [f"file >= {content}", *_ranks("raw_id", schema), "file", "position"]
    latest_first = ", ".join(f"{rank} DESC" for rank in (*ranks, *arrival))
    kept = ", ".join((*key, *order))
    with _streamed(connection, "pending", rows, schema):
        connection.execute(_LATEST.format(kept=kept, key=", ".join(key), order=latest_first))


def find_replaced(
    connection: DuckDBPyConnection,
    rows: Iterable[pa.Table],
    schema: pa.Schema,
    count: int,
    index: Sequence[Path],
) -> Iterator[pa.RecordBatch]:
    """Find the `rows` whose key is in the index. Yield each row's position, and the position of the winner of its key.

    The column `wins` states whether the winner is at least as new as the row. `index` contains the paths of Parquet
    files with rows of the table `winners`. `rows` contains at most `count` rows, with the columns of `winners` except
    `is_tombstone`.
    """
    # A view cannot have parameters, so the paths are part of its text. By default, DuckDB would read a folder
    # `key=value` on the path as a column.
    paths = ", ".join("'{}'".format(str(path).replace("'", "''")) for path in index)
    connection.execute(f"CREATE TEMP VIEW winners AS FROM read_parquet([{paths}], hive_partitioning = false)")
    winners = connection.table("winners")
    ranks = [rank for name in _named(schema, "order") for rank in _ranks(name, schema, "{table}.")]
    # Build the expression from the least significant rank outwards. If all ranks are equal, the pending row wins,
    # because it arrived later.
    is_same_or_newer = "true"
    for rank in reversed(ranks):
        winner, stored = rank.format(table="winners"), rank.format(table="stored")
        # Compare one rank at a time. In SQL, a comparison of whole rows is null if one of them contains a null.
        is_equal = f"{winner} IS NOT DISTINCT FROM {stored}"
        is_same_or_newer = f"CASE WHEN {is_equal} THEN {is_same_or_newer} ELSE {winner} > {stored} END"
    # Null keys are equal too. The operator `=` would not join them.
    same_key = " AND ".join(f"stored.{name} IS NOT DISTINCT FROM winners.{name}" for name in _named(schema, "key"))
    # Choose the smaller relation here, because DuckDB cannot determine the number of streamed rows.
    larger, smaller = ("stored", "winners") if count > len(winners) else ("winners", "stored")
    query = _REPLACED.format(is_same_or_newer=is_same_or_newer, larger=larger, smaller=smaller, same_key=same_key)
    with _streamed(connection, "stored", rows, schema):
        yield from connection.sql(query).to_arrow_reader()


def comparable(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    """Return a column for DuckDB, with strings as binary values, because DuckDB rejects strings that are not UTF-8."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.binary()) if is_text else column


def with_parts(connection: DuckDBPyConnection, rows: pa.Table, parts: int) -> pa.Table:
    """Return the rows with a column `part`: the part, from 0 to `parts` - 1, to which the row's key belongs.

    Equal keys have the same part.
    """
    # Registering a name again replaces the rows of the previous block.
    connection.register("rows", rows)
    key = ", ".join(_named(rows.schema, "key"))
    # The hash has no random seed, so all producers assign a key to the same part.
    numbered = connection.sql(f"SELECT *, (hash({key}) % {parts})::INTEGER AS part FROM rows")
    return cast("pa.Table", numbered.to_arrow_table())


def _named(schema: pa.Schema, kind: str) -> list[str]:
    return [name for name in schema.names if name.startswith(kind)]


def _ranks(column: str, schema: pa.Schema, prefix: str = "") -> list[str]:
    """Return SQL expressions by which a query orders the values of a column: null is lowest, then NaN.

    The first expression is the most significant.
    """
    value = f"{prefix}{column}"
    not_nan = [f"(NOT isnan({value}))"] if pa.types.is_floating(schema.field(column).type) else []
    return [f"({value} IS NOT NULL)", *not_nan, value]


@contextmanager
def _streamed(
    connection: DuckDBPyConnection, name: str, tables: Iterable[pa.Table], schema: pa.Schema
) -> Iterator[None]:
    """Register rows under a name for the query in the `with` block.

    If reading the rows fails, raises the original error instead of DuckDB's error.
    """
    import duckdb

    raised: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for table in tables:
                yield from table.to_batches()
        except Exception as error:  # Keep the error, because DuckDB replaces it with its own error.
            raised.append(error)
            raise

    connection.register(name, pa.RecordBatchReader.from_batches(schema, batches()))
    try:
        yield
    except duckdb.Error:
        if raised:
            raise raised[0] from None
        raise
    finally:
        connection.unregister(name)
