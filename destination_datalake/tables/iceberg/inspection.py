"""The Iceberg tables that exist, before any sync: which of them could no stream be written to?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.exceptions import ValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from destination_datalake.tables.iceberg.compatibility import UNREADABLE, incompatibility
from destination_datalake.tables.iceberg.dedup.definition import stranded
from destination_datalake.tables.iceberg.metadata.io import S3FileIO
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.glue.listing import ListedTable

_logger = logging.getLogger(__name__)


def incompatible_tables(tables: Sequence[ListedTable], access: AwsAccess) -> Iterator[tuple[TableName, str]]:
    """Yield the names of the tables that cannot be written to, and why, as `incompatibility` and `stranded` say it.

    Tables whose metadata cannot be fetched are left out, and logged.
    """
    for database, glue_table in tables:
        name = TableName(database, glue_table["Name"])
        try:
            metadata = _metadata(glue_table.get("Parameters", {}).get("metadata_location", ""), access)
        except ValidationError:
            yield name, UNREADABLE
            continue
        except Exception as error:  # Only a note depends on it.
            _logger.info("The metadata of table %s was not read: %s.", name, type(error).__name__)
            continue
        if (reason := incompatibility(metadata) or stranded(metadata)) is not None:
            yield name, reason


def _metadata(location: str, access: AwsAccess) -> TableMetadata:
    return FromInputFile.table_metadata(S3FileIO(access.client("s3")).new_input(location))
