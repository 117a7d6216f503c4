"""The connector's configuration: all options as one immutable, validated object.

The docs generator (`python -m docs.generator`) creates `spec.json`, the source of Airbyte's form, from these models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError

from destination_datalake.aws.access import AccessKeys, AwsAccess, Encryption, Environment, Identity, Role
from destination_datalake.aws.objects import S3Address, is_misspelt, nearest_region
from destination_datalake.config.base import REGION, AnyCase, Options, choices, models, secrets
from destination_datalake.config.parsing import (
    UnknownOption,
    contradictions,
    invalid_options,
    nesting_error,
    normalised,
    s3_data_lake_hint,
    unknown_options,
    with_dependent_defaults,
)
from destination_datalake.config.services import (
    BucketDefault,
    Catalog,
    Credentials,
    GlueCatalogOptions,
    LakeFormationOptions,
    LineageOptions,
    LocalSpark,
    NotifyOptions,
    S3TablesCatalogOptions,
    Spark,
    SseKms,
    SseS3,
    contradictory_catalog,
    contradictory_governance,
    contradictory_spark,
)
from destination_datalake.config.tables import (
    CatalogPartitions,
    DatabaseStrategy,
    DedupOptions,
    Jsonl,
    Maintenance,
    NamingOptions,
    Nested,
    NoMaintenance,
    Parquet,
    PartitioningUnits,
    PathLayout,
    RawArchiveOptions,
    RejectOptions,
    SchemaConflicts,
    StreamOptions,
    TableType,
    Timezone,
    contradictory_dedup,
    contradictory_layout,
    contradictory_paths,
    database_folder,
)
from destination_datalake.errors import ConfigError


class Config(Options):
    """All options of the connector, including defaults."""

    aws_account_id: Annotated[str | None, Field(pattern=r"^[0-9]{12}$")] = None
    credentials: Annotated[Credentials, Field(discriminator="credentials_title")]
    region: Annotated[str, Field(pattern=REGION), AnyCase()]
    bucket_name: Annotated[str, Field(pattern=r"^(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
    bucket_prefix: Annotated[
        str | None,
        # The pattern rejects `.` and `..`: boto3 uses them literally, but Arrow, Hadoop and other libraries resolve
        # them.
        Field(pattern=r"^(?!s3[an]?:)(?!(.*/)?\.\.?(/|$))[^\x00-\x1f\x7f\\{}^%`\[\]\"<>#|?*]*$", max_length=512),
    ] = None
    lakeformation_database_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,255}$")]
    lakeformation_database_default_tag_key: Annotated[str | None, Field(max_length=128)] = None
    lakeformation_database_default_tag_values: str | None = None
    lakeformation_governed_tables: bool = False
    format: Annotated[Parquet | Jsonl, Field(discriminator="format_type")]
    table_type: TableType
    partitioning: PartitioningUnits
    numeric_types: Literal["int/float", "bigint/double", "int/decimal", "decimal"]
    schema_conflicts: SchemaConflicts = "new_column"
    glue_catalog_float_as_decimal: bool = False
    partition_source: Annotated[str, Field(min_length=1)]
    path_layout: PathLayout = "hive"
    timezone: Timezone = "UTC"
    catalog_partitions: CatalogPartitions = "register"
    max_open_partitions: Annotated[int, Field(ge=1, le=10000)] = 500
    nested: Nested = "struct"
    flatten_max_depth: Annotated[int, Field(ge=1, le=100)] = 10
    max_columns: Annotated[int, Field(ge=1, le=10000)] = 10000
    streams: list[StreamOptions] = Field(default_factory=list)
    database_strategy: DatabaseStrategy = "namespace"
    table_prefix: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", max_length=64)] = ""
    naming: NamingOptions = Field(default_factory=NamingOptions)
    follow_table_location: bool = False
    batch_size_mb: Annotated[int, Field(ge=1, le=4096)] = 256
    flush_interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    target_file_size_mb: Annotated[int, Field(ge=1, le=4096)] = 128
    buffer_size_mb: Annotated[int, Field(ge=16)] = 4096
    sync_reports: bool = True
    notify: NotifyOptions = Field(default_factory=NotifyOptions)
    lineage: LineageOptions = Field(default_factory=LineageOptions)
    rejects: RejectOptions = Field(default_factory=RejectOptions)
    raw_archive: RawArchiveOptions = Field(default_factory=RawArchiveOptions)
    lake_formation: LakeFormationOptions = Field(default_factory=LakeFormationOptions)
    encryption: Annotated[BucketDefault | SseS3 | SseKms, Field(discriminator="encryption_type")] = Field(
        default_factory=lambda: BucketDefault(encryption_type="Bucket default")
    )
    catalog: Annotated[Catalog, Field(discriminator="type")] = Field(
        default_factory=lambda: GlueCatalogOptions(type="glue")
    )
    glue_catalog_id: Annotated[str | None, Field(pattern=r"^[0-9]{12}$")] = None
    glue_region: Annotated[str | None, Field(pattern=REGION), AnyCase()] = None
    spark: Annotated[Spark, Field(discriminator="mode")] = Field(default_factory=LocalSpark)
    endpoint_url: Annotated[str | None, Field(pattern=r"^https?://[^\s/@?#]+/?$")] = None
    maintenance: Annotated[Maintenance, Field(discriminator="mode")] = Field(
        default_factory=lambda: NoMaintenance(mode="none")
    )
    dedup: DedupOptions = Field(default_factory=DedupOptions)

    _unknown: tuple[UnknownOption, ...] = ()

    _set_options: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Validate options, add defaults, and return the configuration.

        Raises ConfigError if options are invalid, contradictory or misspelt. The message contains one line per problem,
        with the option, the problem and the expected value. It never contains secrets.
        """
        try:
            normalised_options = normalised(options, cls)
        except RecursionError:
            raise nesting_error("configuration") from None
        unknown = tuple(unknown_options(normalised_options, cls))
        problems = [*(str(option) for option in unknown if option.is_misspelt), *contradictions(normalised_options)]
        try:
            config = cls.model_validate(with_dependent_defaults(normalised_options))
        except ValidationError as error:
            problems += invalid_options(error, cls, _VARIANTS)
        else:
            problems += _contradictions(config)
        if problems:
            count = [f"The configuration contains {len(problems)} errors:"] if len(problems) > 1 else []
            hint = s3_data_lake_hint(normalised_options)
            raise ConfigError("\n".join([*count, *problems, *([hint] if hint else [])]))
        config._unknown = unknown
        config._set_options = frozenset(normalised_options)
        return config

    @property
    def has_table_options(self) -> bool:
        """Whether any option is set that can make tables differ from those of Airbyte's AWS Datalake destination."""
        return not _TABLE_OPTIONS.isdisjoint(self._set_options)

    def unknown_options(self) -> tuple[UnknownOption, ...]:
        """Return the unknown options in the configuration. The connector ignores them, but rejects misspelt options."""
        return self._unknown

    def of_stream(self, namespace: str | None, name: str) -> StreamOptions:
        """Return the options that the entries in `streams` set for one stream. All other options are None.

        An entry without a namespace applies to the streams of its name in all namespaces. The options of an entry with
        the stream's namespace take precedence.
        """
        options = StreamOptions(stream=name)
        # Entries with a namespace come last, so they override the others. `sorted` keeps the order of equal entries.
        for entry in sorted(self.streams, key=lambda entry: entry.namespace is not None):
            if entry.is_for(namespace, name):
                options = options.overridden_by(entry)
        return options

    def nested_of(self, namespace: str | None, name: str) -> tuple[Nested, int]:
        """Return `nested` and `flatten_max_depth` for a stream: the stream's own values, or else the global values."""
        own = self.of_stream(namespace, name)
        return own.nested or self.nested, own.flatten_max_depth or self.flatten_max_depth

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values in the configuration, which the connector must mask in all output.

        They include the values of Spark properties whose names suggest a secret, such as `fs.s3a.secret.key`, and of
        Java properties of this kind, such as `-Djavax.net.ssl.keyStorePassword=…` in `extraJavaOptions`.
        """
        settings = [*self.spark.conf.items()]
        for options in self.spark.conf.values():
            settings += ((key, value.strip("\"'")) for key, value in _JAVA_PROPERTY.findall(options))
        return (*secrets(self), *(value for key, value in settings if _SECRET_SETTING.search(key)))

    def database_default_tag(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the key and the values of the LF-Tag for databases that the connector creates, or None.

        Returns None if the configuration contains no such LF-Tag.
        """
        values = [value.strip() for value in (self.lakeformation_database_default_tag_values or "").split(",")]
        key = self.lakeformation_database_default_tag_key
        return None if key is None else (key, tuple(dict.fromkeys(filter(None, values))))

    def key(self, *names: str) -> str:
        """Return bucket_prefix and `names`, joined by slashes to an S3 key.

        For example, `key("shop", "orders")` returns "lake/raw/shop/orders" if bucket_prefix is "lake/raw".
        """
        return "/".join([self.bucket_prefix, *names] if self.bucket_prefix else names)

    def table_uri(self, database: str, table: str) -> str:
        """Return the S3 URI of a table's folder in the layout `hive`: `database/table` under bucket_prefix."""
        return self.uri(database_folder(database), table)

    def uri(self, *names: str) -> str:
        """Return the S3 URI of `key(*names)`."""
        return str(S3Address(self.bucket_name, self.key(*names)))


_TABLE_OPTIONS = frozenset({"table_type", "naming", "table_prefix", "database_strategy"})

_SECRET_SETTING = re.compile(r"secret|password|token|(access|account|encryption)[._-]?key", re.IGNORECASE)
_JAVA_PROPERTY = re.compile(r"""-D([^\s=]+)=("[^"]*"|'[^']*'|\S+)""")


def _contradictions(config: Config) -> Iterator[str]:
    """Yield a message for each contradiction between options that are valid individually."""
    yield from _misspelt_regions(config)
    hive_only = {
        "path_layout": config.path_layout != "hive",
        "catalog_partitions": config.catalog_partitions != "register",
        "timezone": config.timezone != "UTC",
    }
    yield from contradictory_governance(config.lake_formation, governed_tables=config.lakeformation_governed_tables)
    yield from contradictory_layout(config.table_type, hive_only, config.streams)
    yield from contradictory_dedup(config.dedup, config.table_type, config.format.format_type)
    yield from contradictory_spark(config.spark)
    glue_only = {
        "table_type HIVE": config.table_type == "HIVE",
        "format_type JSONL": config.format.format_type == "JSONL",
        "lake_formation": config.lake_formation.mode != "none",
        "lakeformation_governed_tables": config.lakeformation_governed_tables,
        "lakeformation_database_default_tag_key": config.lakeformation_database_default_tag_key is not None,
        "glue_catalog_id": config.glue_catalog_id is not None,
        "glue_region": config.glue_region is not None,
        "maintenance.mode glue": config.maintenance.mode == "glue",
    }
    storage = {
        "maintenance.mode connector": config.maintenance.mode == "connector",
        "encryption": config.encryption.encryption_type != "Bucket default",
    }
    yield from contradictory_catalog(config.catalog, glue_only, storage, spark_is_local=config.spark.is_local)
    yield from _unsupported_by_catalog(config)
    yield from contradictory_paths(config.path_layout, config.partitioning, config.table_prefix)


def _unsupported_by_catalog(config: Config) -> Iterator[str]:
    """Yield a message for each option whose value the configured catalog does not support."""
    limits, database = config.catalog.limits, config.lakeformation_database_name
    if not limits.is_valid_name(database):
        yield f"lakeformation_database_name {database} is not a valid name in this catalog. Use {limits.name_in_words}."
    if isinstance(config.catalog, S3TablesCatalogOptions):
        region = config.catalog.table_bucket_arn.split(":")[3]
        if region != config.region:
            yield (
                f"The table bucket in catalog.table_bucket_arn is in region {region}, but region is {config.region}. "
                f"Set region to {region}, and bucket_name to a bucket in {region}."
            )


def _misspelt_regions(config: Config) -> Iterator[str]:
    """Yield a message for each misspelt AWS region.

    Does not check the regions of S3-compatible stores, because such stores can define their own regions.
    """
    if config.endpoint_url is not None:
        return
    for name, region in (("region", config.region), ("glue_region", config.glue_region)):
        if region is not None and is_misspelt(region):
            yield f"{name} {region} is not an AWS region. Did you mean {nearest_region(region)}?"


_VARIANTS: Mapping[str, type[Options]] = {
    choices(model.model_fields[field.discriminator].annotation)[0]: model
    for field in Config.model_fields.values()
    if isinstance(field.discriminator, str)
    for model in models(field.annotation)
}
"""Maps each discriminator value, such as `IAM Role`, to the option model that it selects in a union."""


def aws_access(config: Config) -> AwsAccess:
    """Return the configured access to AWS: identity, encryption, regions, Glue catalog and endpoint."""
    return AwsAccess(
        region=config.region,
        identity=_identity(config),
        endpoint_url=config.endpoint_url,
        encryption=_encryption(config),
        glue_region=config.glue_region,
        glue_catalog_id=config.glue_catalog_id,
    )


def _identity(config: Config) -> Identity:
    credentials = config.credentials
    match credentials.credentials_title:
        case "IAM Role":
            return Role(credentials.role_arn, credentials.external_id, credentials.session_duration_seconds)
        case "IAM User":
            return AccessKeys(
                credentials.aws_access_key_id.get_secret_value(), credentials.aws_secret_access_key.get_secret_value()
            )
        case "Default chain":
            return Environment()


def _encryption(config: Config) -> Encryption | None:
    encryption = config.encryption
    match encryption.encryption_type:
        case "Bucket default":
            return None
        case "SSE-S3":
            return Encryption()
        case "SSE-KMS":
            return Encryption(encryption.kms_key_arn, encryption.bucket_key)
