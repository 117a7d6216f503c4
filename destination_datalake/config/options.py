"""The connector's options as one immutable, validated object.

`spec.json`, which describes them to Airbyte's form, is generated from these models (`python -m docs.generator`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity
from destination_datalake.aws.address import S3Address, is_misspelt, nearest_region
from destination_datalake.aws.session import Encryption, Role
from destination_datalake.config.aws import BucketDefault, Credentials, SseKms, SseS3
from destination_datalake.config.base import REGION, AnyCase, Expects, Form, Options, choices, models, secrets
from destination_datalake.config.catalog import (
    Catalog,
    GlueCatalogOptions,
    S3TablesCatalogOptions,
    contradictory_catalog,
)
from destination_datalake.config.governance import LakeFormationOptions, contradictory_governance
from destination_datalake.config.observers import LineageOptions, NotifyOptions
from destination_datalake.config.parsing import (
    UnknownOption,
    contradictions,
    invalid_options,
    normalised,
    of_s3_data_lake,
    too_deep,
    unknown_options,
    with_dependent_defaults,
)
from destination_datalake.config.spark import LocalSpark, Spark, contradictory_spark
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
    """Every option of the connector, defaults filled in."""

    aws_account_id: Annotated[
        str | None,
        Field(pattern=r"^[0-9]{12}$"),
        Expects("an AWS account id of 12 digits"),
        Form(
            "The 12 digits of the AWS account. The connection check then fails if the credentials "
            "belong to another account. Default: empty, any account.",
            title="AWS Account Id",
            examples=("123456789012",),
            group="aws",
        ),
    ] = None
    credentials: Annotated[
        Credentials,
        Field(discriminator="credentials_title"),
        Expects("an object whose credentials_title is IAM Role, IAM User or Default chain"),
        Form(
            "How to authenticate with AWS. Choose a role where the connector runs with an identity of"
            " its own, a user's access key elsewhere.",
            title="Authentication",
            group="aws",
        ),
    ]
    region: Annotated[
        str,
        Field(pattern=REGION),
        AnyCase(),
        Expects("the code of the bucket's region, such as eu-west-1"),
        Form(
            "The region of the S3 bucket, and of the Glue Data Catalog unless Glue Region is set.",
            title="S3 Bucket Region",
            examples=("eu-west-1", "us-east-1"),
            group="aws",
        ),
    ]
    bucket_name: Annotated[
        str,
        Field(pattern=r"^(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"),
        Expects(
            "the bucket's name alone, without s3:// and without folders: 3 to 63 lower-case letters, digits, dots and "
            "hyphens"
        ),
        Form(
            "The S3 bucket that all data is written to. It must exist.",
            title="S3 Bucket Name",
            examples=("my-company-lake",),
            group="lake",
        ),
    ]
    bucket_prefix: Annotated[
        str | None,
        # boto3 takes `.` and `..` literally, Arrow, Hadoop and others resolve them.
        Field(pattern=r"^(?!s3[an]?:)(?!(.*/)?\.\.?(/|$))[^\x00-\x1f\x7f\\{}^%`\[\]\"<>#|?*]*$", max_length=512),
        Expects(
            "folders inside the bucket, such as lake/raw, none of them called . or .., without any of "
            '\\ { } ^ % ` [ ] " < > # | ? *'
        ),
        Form(
            "Folders inside the bucket under which everything is written. Default: empty, the "
            "bucket's root. Set it if the bucket holds other data too.",
            title="S3 Bucket Prefix",
            examples=("lake/raw",),
            group="lake",
            in_sight=True,
        ),
    ] = None
    lakeformation_database_name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]{1,255}$"),
        Expects("a database name of at most 255 letters, digits, hyphens and underscores"),
        Form(
            "The database of streams without a namespace, which is created if it is missing. Streams "
            "with a namespace are written to a database of that name, unless Database Strategy is "
            "single.",
            title="Database Name",
            examples=("lake",),
            group="lake",
        ),
    ]
    lakeformation_database_default_tag_key: Annotated[
        str | None,
        Field(max_length=128),
        Expects("the key of an LF-Tag, of at most 128 characters"),
        Form(
            "The key of an LF-Tag that is assigned to databases which the connector creates. Default:"
            " empty, no tag. Prefer Database Tags of Lake Formation, which also covers existing "
            "databases.",
            title="Database Tag Key",
            examples=("pii_level",),
            group="governance",
        ),
    ] = None
    lakeformation_database_default_tag_values: Annotated[
        str | None,
        Expects("the values of the LF-Tag, separated by commas"),
        Form(
            "The values of the LF-Tag in Database Tag Key, separated by commas. All of them are "
            "defined; the first is assigned. Default: empty; required with a key.",
            title="Database Tag Values",
            examples=("private,public",),
            group="governance",
        ),
    ] = None
    lakeformation_governed_tables: Annotated[
        bool,
        Form(
            "Older form of Lake Formation's mode managed. AWS has retired the table type GOVERNED; "
            "Iceberg tables under Lake Formation take its place. Default: off.",
            title="Governed Tables",
            hidden=True,
            group="governance",
        ),
    ] = False
    format: Annotated[
        Parquet | Jsonl,
        Field(discriminator="format_type"),
        Expects("an object whose format_type is Parquet or JSONL"),
        Form(
            "The format of the data files. Default: Parquet. Choose JSON lines only for readers that "
            "need text files; their tables are Hive tables.",
            title="Output Format",
            group="tables",
            in_sight=True,
        ),
    ]
    table_type: Annotated[
        TableType,
        Form(
            "ICEBERG tables change atomically and can be deduplicated; HIVE tables are plain folders "
            "of files. Default: ICEBERG for Parquet, HIVE for JSON lines. Set HIVE for engines that "
            "do not read Iceberg.",
            group="tables",
            in_sight=True,
        ),
    ]
    partitioning: Annotated[
        PartitioningUnits,
        Form(
            "The parts of a date by which tables are partitioned; Partition Source names the date. "
            "Default: NO PARTITIONING, or by the hour with a Path Layout of another lake. Set it if "
            "queries filter by date and tables have gigabytes.",
            group="tables",
            in_sight=True,
        ),
    ]
    numeric_types: Annotated[
        Literal["int/float", "bigint/double", "int/decimal", "decimal"],
        Form(
            "The column types of integers and numbers: int/float starts narrow and is widened before "
            "a value would change, bigint/double is wide from the start, int/decimal keeps numbers "
            "exact, and decimal also integers of up to 38 digits. Default: int/float. Choose "
            "int/decimal for amounts of money, and decimal for integers beyond 64 bits.",
            group="columns",
        ),
    ]
    schema_conflicts: Annotated[
        SchemaConflicts,
        Form(
            "What happens when a field changes to a type that its column cannot hold: new_column "
            "writes its values to a second column, <name>__<type>, and fail stops the stream and "
            "changes nothing. Default: new_column. Choose fail if readers must not miss such a "
            "change.",
            group="columns",
        ),
    ] = "new_column"
    glue_catalog_float_as_decimal: Annotated[
        bool,
        Form(
            "Older form of Numeric Types int/decimal. Default: off.",
            title="Glue Catalog: Float as Decimal",
            hidden=True,
            group="columns",
        ),
    ] = False
    partition_source: Annotated[
        str,
        Field(min_length=1),
        Expects("cursor, extracted_at, or the name of a field that is a date or a date-time"),
        Form(
            "The date that Partitioning reads: cursor (the connection's cursor), extracted_at (the "
            "time of extraction), or the name of a field. Default: cursor, or extracted_at with a "
            "Path Layout of another lake. Set extracted_at for sources without a cursor.",
            examples=("cursor", "extracted_at", "created_at"),
            group="tables",
            in_sight=True,
        ),
    ]
    path_layout: Annotated[
        PathLayout,
        Form(
            "The folders of partitions of Hive tables: hive (key=value), plain (YYYY/MM/DD/HH), as "
            "RudderStack, Segment or Firehose name them, or a template such as "
            "{database}/{table}/dt={date}/hr={hour}. Default: hive. Change it if readers expect the "
            "folders of another lake.",
            examples=("hive", "plain", "rudderstack", "segment", "firehose", "{database}/{table}/dt={date}/hr={hour}"),
            group="partitions",
        ),
    ] = "hive"
    timezone: Annotated[
        Timezone,
        Form(
            "The time zone of dates and hours in the partitions of Hive tables. Default: UTC. Change "
            "it if people query by local days.",
            title="Time Zone",
            examples=("UTC", "Europe/Berlin"),
            group="partitions",
        ),
    ] = "UTC"
    catalog_partitions: Annotated[
        CatalogPartitions,
        Form(
            "How engines find the partitions of Hive tables: register (in the Glue Data Catalog, for "
            "every engine), projection (Athena computes them), or both. Default: register. Choose "
            "projection for tables with many thousands of partitions that only Athena reads.",
            group="partitions",
        ),
    ] = "register"
    max_open_partitions: Annotated[
        int,
        Field(ge=1, le=10000),
        Expects("a whole number from 1 to 10000"),
        Form(
            "Maximum number of open partition files per task; rows of further partitions wait on "
            "disk, and memory allows 4 in any case. Default: 500. Lower it if executors run out of "
            "file descriptors.",
            title="Open Partitions",
            group="partitions",
        ),
    ] = 500
    nested: Annotated[
        Nested,
        Form(
            "What objects and arrays with a declared schema become: struct (columns of type struct "
            "and array), json (JSON text) or flatten (a column for each field, names joined with _). "
            "Default: struct. Change it for engines or tools that cannot query structs.",
            title="Nested Values",
            group="columns",
        ),
    ] = "struct"
    flatten_max_depth: Annotated[
        int,
        Field(ge=1, le=100),
        Expects("a whole number from 1 to 100"),
        Form(
            "How many levels of objects Nested Values flatten turns into columns; deeper objects stay"
            " structs. Default: 10. Lower it if tables get too many columns.",
            title="Flatten Depth",
            group="columns",
        ),
    ] = 10
    max_columns: Annotated[
        int,
        Field(ge=1, le=10000),
        Expects("a whole number from 1 to 10000"),
        Form(
            "Maximum number of columns of a table, without metadata columns. A stream that needs more"
            " is refused before its first record is read. Default: 10000; lower it to protect the "
            "catalog from very wide streams.",
            title="Most Columns",
            group="columns",
        ),
    ] = 10000
    streams: Annotated[
        list[StreamOptions],
        Expects("a list of objects with stream, and perhaps namespace, partition_by, sort_by, nested, …"),
        Form(
            "Options of single streams: partition fields, order of rows, nested values. Default: "
            "none, all streams alike. Add an entry for a large stream that is queried by other fields"
            " than a date.",
            group="partitions",
        ),
    ] = Field(default_factory=list)
    database_strategy: Annotated[
        DatabaseStrategy,
        Form(
            "namespace: the database of a stream is its namespace, or Database Name if it has none. "
            "single: every stream is written to Database Name, and streams with equal names are "
            "refused. Default: namespace.",
            group="lake",
        ),
    ] = "namespace"
    table_prefix: Annotated[
        str,
        Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", max_length=64),
        Expects("at most 64 letters, digits and underscores, the first no digit"),
        Form(
            "Prepended to every table's name, in lower case. Default: empty. Set it if several "
            "connections share a database.",
            examples=("raw_",),
            group="lake",
            in_sight=True,
        ),
    ] = ""
    naming: Annotated[
        NamingOptions,
        Expects("an object with style and split_numbers"),
        Form(
            "How names of streams and fields become names of databases, tables and columns. Default: "
            "snake_case. Choose it before the first sync: a change makes new tables and columns, and "
            "the old ones stay.",
            group="columns",
        ),
    ] = Field(default_factory=NamingOptions)
    follow_table_location: Annotated[
        bool,
        Form(
            "Write to existing tables wherever they are, also outside S3 Bucket Name and S3 Bucket "
            "Prefix. Default: off, such tables are refused. Set it to continue tables that were "
            "created elsewhere.",
            group="lake",
        ),
    ] = False
    batch_size_mb: Annotated[
        int,
        Field(ge=1, le=4096),
        Expects("a whole number of megabytes from 1 to 4096"),
        Form(
            "The size at which records of a stream are written and committed as a batch; a batch "
            "grows beyond it if that fills files of Target File Size. Default: 256. Lower it for "
            "fresher tables, raise it for fewer commits.",
            title="Batch Size (MB)",
            group="performance",
        ),
    ] = 256
    flush_interval_seconds: Annotated[
        int,
        Field(ge=1, le=3600),
        Expects("a whole number of seconds from 1 to 3600"),
        Form(
            "How long records wait at most before they are written and committed, however few they "
            "are. Default: 300. Lower it for fresher tables, raise it for fewer small files.",
            title="Flush Interval (seconds)",
            group="performance",
        ),
    ] = 300
    target_file_size_mb: Annotated[
        int,
        Field(ge=1, le=4096),
        Expects("a whole number of megabytes from 1 to 4096"),
        Form(
            "The size of a data file at which the next one begins. Default: 128. Raise it for tables "
            "of many gigabytes that are read as a whole.",
            title="Target File Size (MB)",
            group="performance",
        ),
    ] = 128
    buffer_size_mb: Annotated[
        int,
        Field(ge=16),
        Expects("a whole number of megabytes, 16 or more"),
        Form(
            "Maximum local disk space for buffered records; when it is used up, reading waits. "
            "Default: 4096. Lower it if the container has less disk.",
            title="Buffer Size (MB)",
            group="performance",
        ),
    ] = 4096
    sync_reports: Annotated[
        bool,
        Form(
            "Write a report of every sync under _reports/: records received, committed and rejected, "
            "and durations. The commands history, health and report read them. Default: on; switch it"
            " off if nothing else may be written beside tables.",
            title="Reports of Syncs",
            group="reports",
        ),
    ] = True
    notify: Annotated[
        NotifyOptions,
        Expects("an object with sns_topic_arn and after"),
        Form(
            "Which SNS topic gets a message when syncs fail, and after how many failures. Default: no"
            " topic. Set it if nobody watches Airbyte's own notifications.",
            group="reports",
        ),
    ] = Field(default_factory=NotifyOptions)
    lineage: Annotated[
        LineageOptions,
        Expects("an object with endpoint and api_key"),
        Form(
            "Where OpenLineage events of each sync are sent. Default: nowhere. Set it if you have a "
            "lineage server such as Marquez.",
            group="reports",
        ),
    ] = Field(default_factory=LineageOptions)
    rejects: Annotated[
        RejectOptions,
        Expects("an object with max_ratio and max_count"),
        Form(
            "The limit of rejects above which a stream is stopped. Below it nothing is lost: rejects "
            "are kept under _errors/. Default: no limit; set one if wrong values must not go "
            "unnoticed.",
            group="rows",
        ),
    ] = Field(default_factory=RejectOptions)
    raw_archive: Annotated[
        RawArchiveOptions,
        Expects("an object with enabled, retention_days and superseded"),
        Form(
            "Keep records as the source sent them, under _raw/, so that tables can be rebuilt from "
            "them. Default: off. Switch it on if the source cannot send old records again.",
            group="rows",
        ),
    ] = Field(default_factory=RawArchiveOptions)
    lake_formation: Annotated[
        LakeFormationOptions,
        Expects("an object with mode, registration_role_arn, tags, table_tags and grants"),
        Form(
            "What Lake Formation governs: registration, LF-Tags and grants, which each sync applies "
            "where they are missing and never revokes. Default: nothing. Set it if Lake Formation "
            "decides who reads the tables.",
            group="governance",
        ),
    ] = Field(default_factory=LakeFormationOptions)
    encryption: Annotated[
        BucketDefault | SseS3 | SseKms,
        Field(discriminator="encryption_type"),
        Expects("an object whose encryption_type is Bucket default, SSE-S3 or SSE-KMS"),
        Form(
            "How S3 encrypts the objects that the connector writes. Default: as the bucket is "
            "configured. Choose SSE-KMS if a key of yours is required and is not the bucket's "
            "default.",
            group="catalog",
        ),
    ] = Field(default_factory=lambda: BucketDefault(encryption_type="Bucket default"))
    catalog: Annotated[
        Catalog,
        Field(discriminator="type"),
        Expects("an object whose type is glue, rest, glue_rest or s3_tables"),
        Form(
            "The catalog that tables are in. Default: the Glue Data Catalog. Choose another one for "
            "Iceberg tables in a REST catalog or in Amazon S3 Tables.",
            group="catalog",
        ),
    ] = Field(default_factory=lambda: GlueCatalogOptions(type="glue"))
    glue_catalog_id: Annotated[
        str | None,
        Field(pattern=r"^[0-9]{12}$"),
        Expects("the id of the account that owns the Data Catalog, 12 digits"),
        Form(
            "The account that owns the Glue Data Catalog. Default: empty, the account of the "
            "credentials. Set it to write to a catalog that another account shares.",
            examples=("123456789012",),
            group="catalog",
        ),
    ] = None
    glue_region: Annotated[
        str | None,
        Field(pattern=REGION),
        AnyCase(),
        Expects("the code of the Data Catalog's region, such as eu-west-1"),
        Form(
            "The region of the Glue Data Catalog and of Lake Formation. Default: empty, that of the "
            "bucket. Set it if the catalog is in another region.",
            examples=("eu-west-1",),
            group="catalog",
        ),
    ] = None
    spark: Annotated[
        Spark,
        Field(discriminator="mode"),
        Expects("an object whose mode is local, cluster or connect"),
        Form(
            "Where Spark runs. Default: in the connector's container. Choose a cluster for more than "
            "about 10 GB a sync.",
            group="performance",
        ),
    ] = Field(default_factory=LocalSpark)
    endpoint_url: Annotated[
        str | None,
        Field(pattern=r"^https?://[^\s/@?#]+/?$"),
        Expects("the address of an S3-compatible store, such as http://localhost:9000, without user and path"),
        Form(
            "The address of an S3-compatible store or an emulator, used for all AWS services. "
            "Default: empty, AWS itself.",
            title="Endpoint URL",
            examples=("http://localhost:4566",),
            group="catalog",
        ),
    ] = None
    maintenance: Annotated[
        Maintenance,
        Field(discriminator="mode"),
        Expects("an object whose mode is none, glue or connector"),
        Form(
            "What compacts small files of Iceberg tables, expires old snapshots and removes orphan "
            "files. Default: nothing. Choose one unless another job maintains the tables.",
            group="rows",
        ),
    ] = Field(default_factory=lambda: NoMaintenance(mode="none"))
    dedup: Annotated[
        DedupOptions,
        Expects("an object with deletes and cdc_deletion"),
        Form(
            "How streams with the sync mode Append + Deduped keep one row for each primary key. Their"
            " tables are Iceberg tables. The defaults suit every engine.",
            title="Deduplication",
            group="rows",
        ),
    ] = Field(default_factory=DedupOptions)

    _unknown: tuple[UnknownOption, ...] = ()

    _given: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the validated configuration.

        Raises ConfigError with one sentence per problem: the option, what is wrong with it, what it must be; misspelt
        ones too. No secret is quoted.
        """
        try:
            given = normalised(options, cls)
        except RecursionError:
            raise too_deep("configuration") from None
        unknown = tuple(unknown_options(given, cls))
        problems = [*(str(option) for option in unknown if option.is_misspelt), *contradictions(given)]
        try:
            config = cls.model_validate(with_dependent_defaults(given))
        except ValidationError as error:
            problems += invalid_options(error, cls, _VARIANTS)
        else:
            problems += _contradictions(config)
        if problems:
            count = [f"{len(problems)} options need attention:"] if len(problems) > 1 else []
            of_others = of_s3_data_lake(given)
            raise ConfigError("\n".join([*count, *problems, *([of_others] if of_others else [])]))
        config._unknown = unknown
        config._given = frozenset(given)
        return config

    @property
    def chooses_tables(self) -> bool:
        """Whether an option is given by which this connector's tables differ from those of AWS Datalake."""
        return not _CHOOSING_TABLES.isdisjoint(self._given)

    def unknown_options(self) -> tuple[UnknownOption, ...]:
        """Return the given options that the connector does not know. None of them is much like one that it knows."""
        return self._unknown

    def of_stream(self, namespace: str | None, name: str) -> StreamOptions:
        """Return the options of one stream; without values if none are given.

        An entry without a namespace is for the streams of that name in every namespace. One with the stream's own
        namespace is preferred, option by option.
        """
        options = StreamOptions(stream=name)
        for entry in sorted(self.streams, key=lambda each: each.namespace is not None):
            if entry.is_for(namespace, name):
                options = options.overridden_by(entry)
        return options

    def nested_of(self, namespace: str | None, name: str) -> tuple[Nested, int]:
        """Return `nested` and `flatten_max_depth` of one stream."""
        own = self.of_stream(namespace, name)
        return own.nested or self.nested, own.flatten_max_depth or self.flatten_max_depth

    def secrets(self) -> tuple[str, ...]:
        """Return the values that must be masked in every output."""
        return (*secrets(self), *(value for key, value in self.spark.conf.items() if _SECRET_SETTING.search(key)))

    def database_default_tag(self) -> tuple[str, tuple[str, ...]] | None:
        """Return key and values of the LF-Tag for databases that the connector creates; None if there is none."""
        values = [value.strip() for value in (self.lakeformation_database_default_tag_values or "").split(",")]
        key = self.lakeformation_database_default_tag_key
        return None if key is None else (key, tuple(dict.fromkeys(filter(None, values))))

    def key(self, *names: str) -> str:
        """Return the S3 key of `names` under bucket_prefix: `key("shop", "orders")` is "lake/raw/shop/orders"."""
        return "/".join([self.bucket_prefix, *names] if self.bucket_prefix else names)

    def table_uri(self, database: str, table: str) -> str:
        """Return the s3:// address of a table's folder in the layout `hive`: `database/table` under bucket_prefix."""
        return self.uri(database_folder(database), table)

    def uri(self, *names: str) -> str:
        """Return the s3:// address of `key(*names)`."""
        return str(S3Address(self.bucket_name, self.key(*names)))


_CHOOSING_TABLES = frozenset({"table_type", "naming", "table_prefix", "database_strategy"})

_SECRET_SETTING = re.compile(r"secret|password|token|access[._-]?key", re.IGNORECASE)


def _contradictions(config: Config) -> Iterator[str]:
    """Yield a sentence for each contradiction among valid options."""
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
    of_services = {
        "maintenance.mode connector": config.maintenance.mode == "connector",
        "encryption": config.encryption.encryption_type != "Bucket default",
    }
    yield from contradictory_catalog(config.catalog, glue_only, of_services, spark_is_local=config.spark.is_local)
    yield from _unfit_for_the_catalog(config)
    yield from contradictory_paths(config.path_layout, config.partitioning, config.table_prefix)


def _unfit_for_the_catalog(config: Config) -> Iterator[str]:
    """Yield a sentence for each option that is as the catalog does not take it."""
    limits, database = config.catalog.limits, config.lakeformation_database_name
    if not limits.takes(database):
        yield f"lakeformation_database_name {database} is no name that the catalog takes: {limits.name_in_words}."
    if isinstance(config.catalog, S3TablesCatalogOptions):
        region = config.catalog.table_bucket_arn.split(":")[3]
        if region != config.region:
            yield (
                f"catalog.table_bucket_arn is of a table bucket in {region}, and region is {config.region}. Set region "
                f"to {region}; bucket_name must be a bucket there too."
            )


def _misspelt_regions(config: Config) -> Iterator[str]:
    """Yield a sentence for each region that AWS cannot have. S3-compatible stores may have others."""
    if config.endpoint_url is not None:
        return
    for name, region in (("region", config.region), ("glue_region", config.glue_region)):
        if region is not None and is_misspelt(region):
            yield f"{name} {region} is no region of AWS. Is {nearest_region(region)} meant?"


_VARIANTS: Mapping[str, type[Options]] = {
    choices(model.model_fields[field.discriminator].annotation)[0]: model
    for field in Config.model_fields.values()
    if isinstance(field.discriminator, str)
    for model in models(field.annotation)
}
"""The models in discriminated unions, by the value that chooses them."""


def aws_access(config: Config) -> AwsAccess:
    """Return the access to AWS that the options configure."""
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
    asked = config.encryption
    match asked.encryption_type:
        case "Bucket default":
            return None
        case "SSE-S3":
            return Encryption()
        case "SSE-KMS":
            return Encryption(asked.kms_key_arn, asked.bucket_key)
