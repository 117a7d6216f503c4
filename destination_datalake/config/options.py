"""The connector's options as one immutable, validated object.

`spec.json` describes the same options to Airbyte's user interface; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, PrivateAttr, SecretStr, ValidationError

from destination_datalake.aws.address import S3Address
from destination_datalake.config.base import ROLE_ARN, Options
from destination_datalake.config.groups.dedup import DedupOptions, contradictory_dedup
from destination_datalake.config.groups.encryption import BucketDefault, SseKms, SseS3
from destination_datalake.config.groups.governance import LakeFormationOptions, contradictory_governance
from destination_datalake.config.groups.layout import (
    CatalogPartitions,
    Nested,
    PartitioningUnits,
    PathLayout,
    StreamOptions,
    Timezone,
    contradictory_layout,
    contradictory_paths,
    database_folder,
)
from destination_datalake.config.groups.maintenance import MODES, Maintenance, NoMaintenance
from destination_datalake.config.groups.spark import SparkOptions, contradictory_spark
from destination_datalake.config.messages import Expects, invalid_options, of_s3_data_lake
from destination_datalake.config.normalisation import contradictions, normalised, with_dependent_defaults
from destination_datalake.errors import ConfigError

TableType = Literal["ICEBERG", "HIVE"]
DatabaseStrategy = Literal["namespace", "single"]
NamingStyle = Literal["snake_case", "preserve", "aws_datalake"]
SchemaConflicts = Literal["new_column", "fail"]
ParquetCodec = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"]
JsonlCodec = Literal["UNCOMPRESSED", "GZIP"]


class IamRole(Options):
    """Assume a role, starting from the credentials of the environment."""

    credentials_title: Literal["IAM Role"]
    role_arn: Annotated[
        str,
        Field(pattern=ROLE_ARN),
        Expects("a role's ARN, such as arn:aws:iam::123456789012:role/airbyte"),
    ]
    external_id: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$"),
        Expects("the external id in the role's trust policy, 2 to 1224 characters without spaces"),
    ] = None
    session_duration_seconds: Annotated[
        int, Field(ge=900, le=43200), Expects("a whole number of seconds from 900 to 43200")
    ] = 3600


class IamUser(Options):
    """The access key of an IAM user."""

    credentials_title: Literal["IAM User"]
    aws_access_key_id: Annotated[SecretStr, Field(min_length=1), Expects("the user's access key id")]
    aws_secret_access_key: Annotated[SecretStr, Field(min_length=1), Expects("the user's secret access key")]


class DefaultChain(Options):
    """The credentials that AWS's default chain finds where the connector runs."""

    credentials_title: Literal["Default chain"]


class Parquet(Options):
    """Columnar files."""

    format_type: Literal["Parquet"]
    compression_codec: Annotated[ParquetCodec, Expects("one of UNCOMPRESSED, SNAPPY, GZIP, ZSTD")]


class Jsonl(Options):
    """One JSON object per line."""

    format_type: Literal["JSONL"]
    compression_codec: Annotated[JsonlCodec, Expects("one of UNCOMPRESSED, GZIP")]


class NamingOptions(Options):
    """How names of streams and fields become names of databases, tables and columns."""

    style: Annotated[NamingStyle, Expects("snake_case, preserve or aws_datalake")] = "snake_case"
    split_numbers: Annotated[bool, Expects("true or false")] = False


class RejectOptions(Options):
    """How many of a stream's records may have rejects before it is stopped."""

    max_ratio: Annotated[
        float, Field(ge=0, le=1), Expects("a number from 0 to 1, such as 0.05 for five in a hundred")
    ] = 1.0
    max_count: Annotated[int | None, Field(ge=0), Expects("a whole number of records, 0 or more")] = None


class Config(Options):
    """Every option of the connector, defaults filled in."""

    aws_account_id: Annotated[str | None, Field(pattern=r"^[0-9]{12}$"), Expects("an AWS account id of 12 digits")] = (
        None
    )
    credentials: Annotated[
        IamRole | IamUser | DefaultChain,
        Field(discriminator="credentials_title"),
        Expects("an object whose credentials_title is IAM Role, IAM User or Default chain"),
    ]
    region: Annotated[
        str,
        Field(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$"),
        Expects("the code of the bucket's region, such as eu-west-1"),
    ]
    bucket_name: Annotated[
        str,
        Field(pattern=r"^(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"),
        Expects(
            "the bucket's name alone, without s3:// and without folders: 3 to 63 lower-case letters, digits, dots and "
            "hyphens"
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
    ] = None
    lakeformation_database_name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]{1,255}$"),
        Expects("a database name of at most 255 letters, digits, hyphens and underscores"),
    ]
    lakeformation_database_default_tag_key: Annotated[
        str | None, Field(max_length=128), Expects("the key of an LF-Tag, of at most 128 characters")
    ] = None
    lakeformation_database_default_tag_values: Annotated[
        str | None, Expects("the values of the LF-Tag, separated by commas")
    ] = None
    lakeformation_governed_tables: Annotated[bool, Expects("true or false")] = False
    format: Annotated[
        Parquet | Jsonl,
        Field(discriminator="format_type"),
        Expects("an object whose format_type is Parquet or JSONL"),
    ]
    partitioning: Annotated[
        PartitioningUnits,
        Expects("NO PARTITIONING, DATE, YEAR, MONTH, DAY, YEAR/MONTH, YEAR/MONTH/DAY, YEAR/MONTH/DAY/HOUR or DAY/HOUR"),
    ]
    table_type: Annotated[TableType, Expects("ICEBERG or HIVE")]
    numeric_types: Annotated[
        Literal["int/float", "bigint/double", "decimal"], Expects("int/float, bigint/double or decimal")
    ]
    schema_conflicts: Annotated[SchemaConflicts, Expects("new_column or fail")] = "new_column"
    glue_catalog_float_as_decimal: Annotated[bool, Expects("true or false")] = False
    partition_source: Annotated[
        str, Field(min_length=1), Expects("cursor, extracted_at, or the name of a field that is a date or a date-time")
    ]
    path_layout: PathLayout = "hive"
    timezone: Timezone = "UTC"
    catalog_partitions: Annotated[CatalogPartitions, Expects("register, projection or both")] = "register"
    max_open_partitions: Annotated[int, Field(ge=1, le=10000), Expects("a whole number from 1 to 10000")] = 500
    nested: Annotated[Nested, Expects("struct, json or flatten")] = "struct"
    flatten_max_depth: Annotated[int, Field(ge=1, le=100), Expects("a whole number from 1 to 100")] = 10
    max_columns: Annotated[int, Field(ge=1, le=10000), Expects("a whole number from 1 to 10000")] = 10000
    streams: Annotated[
        list[StreamOptions],
        Expects("a list of objects with stream, and perhaps namespace, partition_by, sort_by, nested, …"),
    ] = Field(default_factory=list)
    database_strategy: Annotated[DatabaseStrategy, Expects("namespace or single")] = "namespace"
    table_prefix: Annotated[
        str,
        Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", max_length=64),
        Expects("at most 64 letters, digits and underscores, the first no digit"),
    ] = ""
    naming: Annotated[NamingOptions, Expects("an object with style and split_numbers")] = Field(
        default_factory=NamingOptions
    )
    follow_table_location: Annotated[bool, Expects("true or false")] = False
    batch_size_mb: Annotated[int, Field(ge=1, le=4096), Expects("a whole number of megabytes from 1 to 4096")] = 256
    flush_interval_seconds: Annotated[
        int, Field(ge=1, le=3600), Expects("a whole number of seconds from 1 to 3600")
    ] = 300
    target_file_size_mb: Annotated[int, Field(ge=1, le=4096), Expects("a whole number of megabytes from 1 to 4096")] = (
        128
    )
    buffer_size_mb: Annotated[int, Field(ge=16), Expects("a whole number of megabytes, 16 or more")] = 4096
    rejects: Annotated[RejectOptions, Expects("an object with max_ratio and max_count")] = Field(
        default_factory=RejectOptions
    )
    lake_formation: Annotated[
        LakeFormationOptions, Expects("an object with mode, registration_role_arn, tags, table_tags and grants")
    ] = Field(default_factory=LakeFormationOptions)
    encryption: Annotated[
        BucketDefault | SseS3 | SseKms,
        Field(discriminator="encryption_type"),
        Expects("an object whose encryption_type is Bucket default, SSE-S3 or SSE-KMS"),
    ] = Field(default_factory=lambda: BucketDefault(encryption_type="Bucket default"))
    glue_catalog_id: Annotated[
        str | None,
        Field(pattern=r"^[0-9]{12}$"),
        Expects("the id of the account that owns the Data Catalog, 12 digits"),
    ] = None
    glue_region: Annotated[
        str | None,
        Field(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$"),
        Expects("the code of the Data Catalog's region, such as eu-west-1"),
    ] = None
    spark: Annotated[SparkOptions, Expects("an object with master or remote, python and conf")] = Field(
        default_factory=SparkOptions
    )
    endpoint_url: Annotated[
        str | None,
        Field(pattern=r"^https?://[^\s/@?#]+/?$"),
        Expects("the address of an S3-compatible store, such as http://localhost:9000, without user and path"),
    ] = None
    maintenance: Annotated[
        Maintenance, Field(discriminator="mode"), Expects("an object whose mode is none, glue or connector")
    ] = Field(default_factory=lambda: NoMaintenance(mode="none"))
    dedup: Annotated[DedupOptions, Expects("an object with deletes and cdc_deletion")] = Field(
        default_factory=DedupOptions
    )

    _given: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the validated configuration.

        Raises ConfigError with one sentence per problem: the option, what is wrong with it, what it must be. No secret
        is quoted.
        """
        given = normalised(options)
        problems = [*contradictions(given)]
        try:
            config = cls.model_validate(with_dependent_defaults(given))
        except ValidationError as error:
            problems += invalid_options(error, cls, _VARIANTS)
        else:
            governed = config.lakeformation_governed_tables
            problems += contradictory_governance(config.lake_formation, governed_tables=governed)
            hive_only = {
                "path_layout": config.path_layout != "hive",
                "catalog_partitions": config.catalog_partitions != "register",
                "timezone": config.timezone != "UTC",
            }
            problems += contradictory_layout(config.table_type, hive_only, config.streams)
            problems += contradictory_dedup(config.dedup, config.table_type, config.format.format_type)
            problems += contradictory_spark(given)
            problems += contradictory_paths(config.path_layout, config.partitioning, config.table_prefix)
        if problems:
            count = [f"{len(problems)} options need attention:"] if len(problems) > 1 else []
            of_others = of_s3_data_lake(given)
            raise ConfigError("\n".join([*count, *problems, *([of_others] if of_others else [])]))
        config._given = frozenset(given)
        return config

    @property
    def chooses_tables(self) -> bool:
        """Whether an option is given by which this connector's tables differ from those of AWS Datalake."""
        return not _CHOOSING_TABLES.isdisjoint(self._given)

    def unknown_options(self) -> tuple[str, ...]:
        """Return the dotted names of the given options that the connector does not know."""
        return tuple(_extra(self))

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
        conf = [value for key, value in self.spark.conf.items() if _SECRET_SETTING.search(key)]
        if self.spark.token is not None:
            conf.append(self.spark.token.get_secret_value())
        match self.credentials:
            case IamUser() as user:
                keys = [user.aws_access_key_id.get_secret_value(), user.aws_secret_access_key.get_secret_value()]
                return (*keys, *conf)
            case _:
                return tuple(conf)

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


def _extra(options: BaseModel, path: str = "") -> Iterator[str]:
    for name in options.model_extra or {}:
        yield f"{path}{name}"
    for name in type(options).model_fields:
        if isinstance(value := getattr(options, name), BaseModel):
            yield from _extra(value, f"{path}{name}.")


_VARIANTS: Mapping[str, type[Options]] = {
    "IAM Role": IamRole,
    "IAM User": IamUser,
    "Default chain": DefaultChain,
    "Parquet": Parquet,
    "JSONL": Jsonl,
    "Bucket default": BucketDefault,
    "SSE-S3": SseS3,
    "SSE-KMS": SseKms,
    **MODES,
}
"""The models in discriminated unions, by the value that chooses them."""
