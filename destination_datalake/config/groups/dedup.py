"""Options of streams that keep one row for each primary key (destination sync mode `append_dedup`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from destination_datalake.config.base import Form, Options
from destination_datalake.protocol.catalog import StreamId

_SHOWN = 3

Deletes = Literal["copy_on_write", "merge_on_read"]
CdcDeletion = Literal["hard", "soft"]


class DedupOptions(Options):
    """How rows that newer ones replace leave the table, and what a source's deletions do.

    `hard`: a record with a value in `_ab_cdc_deleted_at` deletes the row of its key. `soft`: it is kept like any other.
    """

    deletes: Annotated[
        Deletes,
        Form(
            "How rows that newer ones replace leave the table. copy_on_write: their files are written again "
            "without them; every engine reads the result. merge_on_read: small files of position deletes name "
            "them, which writes far less when few rows change, and readers leave these rows out. Databricks "
            "does not: it shows replaced rows too, without an error. Athena, Redshift, Snowflake, Trino, "
            "Spark, DuckDB and BigQuery do.",
            title="Removal of Rows",
        ),
    ] = "copy_on_write"
    cdc_deletion: Annotated[
        CdcDeletion,
        Form(
            "What records with a value in _ab_cdc_deleted_at do, by which sources with change data capture "
            "report deletions. hard: they delete the row of their primary key. soft: they are kept as the "
            "latest row of their key.",
            title="Deletions of the Source",
        ),
    ] = "hard"


def contradictory_dedup(dedup: DedupOptions, table_type: str, format_type: str) -> Iterator[str]:
    """Yield a sentence if options are given that tables of this type do not have.

    Forms send defaults too, so those are no contradiction.
    """
    given = [f"dedup.{name}" for name in DedupOptions.model_fields if getattr(dedup, name) != _default(name)]
    if table_type == "HIVE" and given:
        names = " and ".join(given)
        verb = "is" if len(given) == 1 else "are"
        yield f"{names} {verb} for Iceberg tables. {_remedy(format_type)}, or leave {names} out."


def streams_without_dedup(streams: Sequence[StreamId], table_type: str, format_type: str) -> str | None:
    """Return why these streams, which are to be deduplicated, cannot be, and what to do; None if they can."""
    if table_type != "HIVE" or not streams:
        return None
    one = len(streams) == 1
    names = ", ".join([*map(str, streams[:_SHOWN]), *(["…"] if len(streams) > _SHOWN else [])])
    return (
        f"{'Stream' if one else 'Streams'} {names} {'asks' if one else 'ask'} for the destination sync mode "
        "append_dedup, and the tables of these options are Hive tables, from which no rows can be removed. "
        f"{_remedy(format_type)} (with another lakeformation_database_name or table_prefix if there are tables "
        "already), or choose a sync mode without deduplication (append, overwrite)."
    )


def _remedy(format_type: str) -> str:
    changes = "table_type to ICEBERG and format_type to Parquet" if format_type == "JSONL" else "table_type to ICEBERG"
    return f"Set {changes}"


def _default(name: str) -> object:
    return DedupOptions.model_fields[name].default
