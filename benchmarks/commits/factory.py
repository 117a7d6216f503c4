"""Create the connector's table classes, without a sync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from benchmarks.cloud import BUCKET, DATABASE, KEY, REGION, SECRET
from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.context import Jobs, TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.glue.catalog import GlueTableCatalog
from destination_datalake.tables.table import Table, TableName


def table_catalog(access: AwsAccess) -> GlueTableCatalog:
    """Return the Glue catalog of tables, without Lake Formation."""
    return GlueTableCatalog(access, Governance(Policy(f"arn:aws:s3:::{BUCKET}"), access))


def opened(stream: Stream, table: str, access: AwsAccess, url: str, options: Mapping[str, object]) -> Table:
    """Return the table of a stream in the lake at `url`, opened with these options.

    The caller must not use operations that need Spark jobs.
    """
    config = Config.parse(
        {
            "credentials": {
                "credentials_title": "IAM User",
                "aws_access_key_id": KEY,
                "aws_secret_access_key": SECRET,
            },
            "region": REGION,
            "bucket_name": BUCKET,
            "bucket_prefix": "lake",
            "lakeformation_database_name": DATABASE,
            "endpoint_url": url,
            **options,
        }
    )
    no_spark: Any = None
    context = TableContext(uuid4().hex, access, table_catalog(access), Jobs(no_spark, str))
    return open_table(stream, TableName(DATABASE, table), config, context)
