"""Options that name streams and fields which a sync does not have: refused or warned of before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from destination_datalake.errors import SyncRefused
from destination_datalake.partitioning.spec import EXTRACTED_AT
from destination_datalake.partitioning.templates import path_template, time_parts
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Date, Nested, NumericTypes, Timestamp

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.tables.table import TableName

_SHOWN = 10
"""How many fields are named."""


def misnamed_streams(config: Config, streams: Sequence[StreamId]) -> Iterator[str]:
    """Yield a warning for each entry of `streams` that is for none of a sync's streams: one of another connection.

    Raises SyncRefused for one that differs from a stream without an entry only in case and separators: that stream's
    table would be created without what the entry says.
    """
    names = {str(stream).lower(): stream for stream in streams}
    for number, entry in enumerate(config.streams):
        if any(entry.is_for(*stream) for stream in streams):
            continue
        named = StreamId(entry.namespace, entry.stream)
        similar = get_close_matches(str(named).lower(), names, n=1)
        meant = names[similar[0]] if similar else None
        hint = f" Is {meant} meant?" if meant else ""
        has_entry = meant is not None and any(each.is_for(*meant) for each in config.streams)
        if meant is not None and not has_entry and _letters(meant) == _letters(named):
            raise SyncRefused(
                f"streams.{number} is about stream {named}, which this sync does not have.{hint} Names are compared "
                "exactly: correct the entry."
            )
        yield (
            f"streams.{number} is about stream {named}, which this sync does not have, so its options have no "
            f"effect.{hint} Names are compared exactly."
        )


def require_partition_source(
    config: Config, streams: Sequence[Stream], tables: Mapping[StreamId, TableName], access: AwsAccess
) -> None:
    """Refuse a field in `partition_source` that is a date in no stream, unless a table exists already.

    A table is partitioned when it is created, one of Hive's for ever. One that exists goes on if its source takes the
    field away. Raises SyncRefused.
    """
    source = config.partition_source
    concerned = [stream for stream in streams if config.of_stream(*stream.id).partition_by is None]
    if source in ("cursor", "extracted_at", EXTRACTED_AT) or not concerned or not _partitions_by_time(config):
        return
    dates = {name for stream in concerned for name in _dates(config, stream)}
    if source in dates or any(_exists(tables[stream.id], access) for stream in concerned):
        return
    named = ", ".join([*sorted(dates)[:_SHOWN], *(["…"] if len(dates) > _SHOWN else [])])
    hint = f" Fields that are dates: {named}." if dates else ""
    if similar := get_close_matches(source, dates, n=1):
        hint = f" Is {similar[0]} meant?"
    raise SyncRefused(
        f"partition_source {source} is a date or a date-time in no stream of this sync, so no table would be "
        f"partitioned.{hint} Set it to cursor, extracted_at or the name of "
        "such a field, or leave partitioning out."
    )


def _letters(stream: StreamId) -> str:
    return "".join(letter for letter in str(stream).casefold() if letter.isalnum())


def _partitions_by_time(config: Config) -> bool:
    template = path_template(config.path_layout, config.partitioning)
    return config.partitioning != "NO PARTITIONING" or (template is not None and bool(time_parts(template)))


def _dates(config: Config, stream: Stream) -> Iterator[str]:
    nested, depth = config.nested_of(*stream.id)
    # Of the columns only the fields' own names are used, whatever the table calls them.
    for column in stream_columns(
        stream.json_schema, NumericTypes(config.numeric_types), SNAKE_CASE, Nested(nested), depth
    ):
        if isinstance(column.type, Date | Timestamp):
            yield ".".join(column.path)


def _exists(table: TableName, access: AwsAccess) -> bool:
    """Whether a table exists; if Glue does not say, its answer to the sync's own requests will be told."""
    glue = access.client("glue")
    try:
        glue.get_table(DatabaseName=table.database, Name=table.table)
    except glue.exceptions.EntityNotFoundException:
        return False
    except Exception:
        return True
    return True
