"""Conditions on the configuration, to which the rules in permissions.toml refer by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from destination_datalake.config.options import Config
from destination_datalake.config.services import LOCATION_PERMISSIONS, GlueRestCatalogOptions


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the options of a configuration. `options` describes the condition in Markdown, for the docs."""

    options: str
    holds: Callable[[Config], bool]


def _tags(config: Config) -> bool:
    governance = config.lake_formation
    return bool(governance.tags or governance.table_tags or config.database_default_tag())


def _opts_in(config: Config) -> bool:
    """Return whether syncs opt principals in to Lake Formation.

    Syncs do so in hybrid mode, if the options contain grants on databases or tables.
    """
    granted = {permission for grant in config.lake_formation.grants for permission in grant.permissions}
    return config.lake_formation.mode == "hybrid" and bool(granted - LOCATION_PERMISSIONS)


def registers_partitions(config: Config) -> bool:
    """Return whether syncs create Hive tables, and register their partitions in the catalog."""
    partitioned = (
        config.partitioning != "NO PARTITIONING"
        or config.path_layout != "hive"
        or any(stream.partition_by for stream in config.streams)
    )
    return config.table_type == "HIVE" and partitioned and config.catalog_partitions != "projection"


ALWAYS = When("", lambda _config: True)
IN_GLUE = When("`catalog.type` glue", lambda config: config.catalog.type == "glue")
GLUE_OR_GLUE_REST = When(
    "`catalog.type` glue or glue_rest", lambda config: config.catalog.type in ("glue", "glue_rest")
)
GLUE_REST = When("`catalog.type` glue_rest", lambda config: config.catalog.type == "glue_rest")
HAS_LINES_TABLES = When(
    "`catalog.type` glue or glue_rest, without a table bucket",
    lambda config: GLUE_OR_GLUE_REST.holds(config) and not config.catalog.limits.assigns_locations,
)
REPORTS = When(
    "`sync_reports`, with `catalog.type` glue or glue_rest, without a table bucket",
    lambda config: config.sync_reports and HAS_LINES_TABLES.holds(config),
)
NOTIFIED = When("`notify.sns_topic_arn`", lambda config: config.notify.sns_topic_arn is not None)
S3_TABLES = When("`catalog.type` s3_tables", lambda config: config.catalog.type == "s3_tables")
TABLE_BUCKET = When("tables in a table bucket", lambda config: config.catalog.limits.assigns_locations)
VENDED_CREDENTIALS = When(
    "`catalog.type` glue_rest with `vended_credentials`",
    lambda config: isinstance(config.catalog, GlueRestCatalogOptions) and config.catalog.vended_credentials,
)
ARCHIVED = When("`raw_archive.enabled`", lambda config: config.raw_archive.enabled)
REPLAYED = When(
    "`raw_archive.enabled` with `catalog.type` glue or glue_rest",
    lambda config: ARCHIVED.holds(config) and GLUE_OR_GLUE_REST.holds(config),
)
ENCRYPTED = When("`encryption` SSE-KMS", lambda config: config.encryption.encryption_type == "SSE-KMS")
HIVE = When("`table_type` HIVE", lambda config: config.table_type == "HIVE")
PARTITIONED = When("partitioned Hive tables, unless `catalog_partitions` is projection", registers_partitions)
GOVERNED = When("`lake_formation.mode` hybrid or managed", lambda config: config.lake_formation.mode != "none")
REGISTERED = When(
    "`lake_formation.registration_role_arn`", lambda config: config.lake_formation.registration_role_arn is not None
)
TAGGED = When("`lake_formation.tags`, `table_tags`, or the default tag", _tags)
GRANTED = When("`lake_formation.grants`", lambda config: bool(config.lake_formation.grants))
OPTED_IN = When("`lake_formation.grants` with mode hybrid", _opts_in)

MAINTAINED = When(
    "`maintenance.mode` connector",
    lambda config: (
        config.maintenance.mode == "connector" and config.table_type == "ICEBERG" and GLUE_OR_GLUE_REST.holds(config)
    ),
)
MAINTAINED_BY_NAMESPACE = When(
    "`maintenance.mode` connector with `database_strategy` namespace",
    lambda config: MAINTAINED.holds(config) and config.database_strategy == "namespace",
)
OPTIMIZED = When(
    "`maintenance.mode` glue", lambda config: config.maintenance.mode == "glue" and config.table_type == "ICEBERG"
)
DELETE_ROWS = When("`iam-policy --delete-rows`", lambda _config: True)
DELETE_ROWS_IN_GLUE = When("`iam-policy --delete-rows` with `catalog.type` glue or glue_rest", GLUE_OR_GLUE_REST.holds)
DELETE_ROWS_BY_NAMESPACE = When(
    "`iam-policy --delete-rows` with `database_strategy` namespace",
    lambda config: GLUE_OR_GLUE_REST.holds(config) and config.database_strategy == "namespace",
)
