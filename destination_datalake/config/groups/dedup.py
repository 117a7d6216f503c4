"""Options of streams that keep one row for each primary key (destination sync mode `append_dedup`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from destination_datalake.config.base import Options
from destination_datalake.config.messages import Expects

Deletes = Literal["copy_on_write", "merge_on_read"]
CdcDeletion = Literal["hard", "soft"]


class DedupOptions(Options):
    """How rows that newer ones replace leave the table, and what a source's deletions do.

    `hard`: a record with a value in `_ab_cdc_deleted_at` deletes the row of its key. `soft`: it is kept like any other.
    """

    deletes: Annotated[Deletes, Expects("copy_on_write or merge_on_read")] = "copy_on_write"
    cdc_deletion: Annotated[CdcDeletion, Expects("hard or soft")] = "hard"


def contradictory_dedup(dedup: DedupOptions, table_type: str, format_type: str) -> Iterator[str]:
    """Yield a sentence if options are given that tables of this type do not have.

    Forms send defaults too, so those are no contradiction.
    """
    given = [f"dedup.{name}" for name in DedupOptions.model_fields if getattr(dedup, name) != _default(name)]
    if table_type == "HIVE" and given:
        names = " and ".join(given)
        remedy = remedy_for_dedup(format_type)
        yield f"{names} {'is' if len(given) == 1 else 'are'} for Iceberg tables. {remedy}, or leave {names} out."


def remedy_for_dedup(format_type: str) -> str:
    """Return what to set so that tables can be deduplicated, without a full stop."""
    if format_type == "JSONL":
        return "Set table_type to ICEBERG and format_type to Parquet"
    return "Set table_type to ICEBERG"


def _default(name: str) -> object:
    return DedupOptions.model_fields[name].default
