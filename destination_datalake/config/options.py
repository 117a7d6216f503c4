"""The connector's options: one typed, validated, unchangeable object.

`spec.json` says the same to Airbyte's user interface; a test keeps the two equal. Options that older configurations of
Airbyte's AWS Datalake destination have and that this version does not act on are accepted only where ignoring them
changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from destination_datalake.aws.address import S3Address
from destination_datalake.errors import ConfigError

# Options of earlier configurations that nothing here reads yet, with the value that changes nothing (None: none).
_INHERITED: Mapping[str, object] = {
    "partitioning": "NO PARTITIONING",
    "lakeformation_governed_tables": False,
    "lakeformation_database_default_tag_key": None,
}
# Meaningless without the option before it, which is refused.
_UNUSED_ALONE = frozenset({"lakeformation_database_default_tag_values"})

TableType = Literal["ICEBERG", "HIVE"]
DatabaseStrategy = Literal["namespace", "single"]
NamingStyle = Literal["snake_case", "preserve", "aws_datalake"]
NumericTypes = Literal["int/float", "bigint/double", "decimal"]
SchemaConflicts = Literal["new_column", "fail"]
ParquetCodec = Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"]
JsonlCodec = Literal["UNCOMPRESSED", "GZIP"]


@dataclass(frozen=True, slots=True)
class Expects:
    """What a field wants, said to somebody who got it wrong: completes "It must be …"."""

    what: str


class _Options(BaseModel):
    # `allow` and not `forbid`: unknown options are named in a warning (`Config.unknown_options`), not refused.
    # Python's regular expressions, because they know look-ahead, as the spec's readers do.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")


class IamRole(_Options):
    """Assume a role, starting from the credentials of the environment."""

    credentials_title: Literal["IAM Role"]
    role_arn: Annotated[
        str,
        Field(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$"),
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


class IamUser(_Options):
    """The access key of an IAM user."""

    credentials_title: Literal["IAM User"]
    aws_access_key_id: Annotated[SecretStr, Field(min_length=1), Expects("the user's access key id")]
    aws_secret_access_key: Annotated[SecretStr, Field(min_length=1), Expects("the user's secret access key")]


class DefaultChain(_Options):
    """Whatever AWS's default chain finds where the connector runs."""

    credentials_title: Literal["Default chain"]


class Parquet(_Options):
    """Columnar files."""

    format_type: Literal["Parquet"]
    compression_codec: Annotated[ParquetCodec, Expects("one of UNCOMPRESSED, SNAPPY, GZIP, ZSTD")]


class Jsonl(_Options):
    """One JSON object per line."""

    format_type: Literal["JSONL"]
    compression_codec: Annotated[JsonlCodec, Expects("one of UNCOMPRESSED, GZIP")]


class NamingOptions(_Options):
    """How names of streams and fields become names of databases, tables and columns."""

    style: Annotated[NamingStyle, Expects("snake_case, preserve or aws_datalake")] = "snake_case"
    split_numbers: Annotated[bool, Expects("true or false")] = False


class SparkOptions(_Options):
    """Where Spark runs, and its own settings."""

    master: Annotated[
        str,
        Field(pattern=r"^(local(\[[0-9*]+(, *[0-9]+)?\])?|local-cluster\[[0-9, ]+\]|spark://\S+|k8s://\S+|yarn)$"),
        Expects("local[*], local[4], spark://host:7077, k8s://… or yarn"),
    ] = "local[*]"
    conf: Annotated[dict[str, str], Expects("an object of Spark settings, each value a string")] = Field(
        default_factory=dict
    )


class RejectOptions(_Options):
    """How many of a stream's records may have rejects before it is stopped."""

    max_ratio: Annotated[
        float, Field(ge=0, le=1), Expects("a number from 0 to 1, such as 0.05 for five in a hundred")
    ] = 1.0
    max_count: Annotated[int | None, Field(ge=0), Expects("a whole number of records, 0 or more")] = None


class Config(_Options):
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
        Field(pattern=r"^[a-z]{2,3}(-[a-z]+)+-[0-9]+$"),
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
        # `.` and `..` are folders' names to boto3, and ways to other folders to Arrow, Hadoop and others.
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
    format: Annotated[
        Parquet | Jsonl,
        Field(discriminator="format_type"),
        Expects("an object whose format_type is Parquet or JSONL"),
    ]
    table_type: Annotated[TableType, Expects("ICEBERG or HIVE")]
    numeric_types: Annotated[NumericTypes, Expects("int/float, bigint/double or decimal")]
    schema_conflicts: Annotated[SchemaConflicts, Expects("new_column or fail")] = "new_column"
    glue_catalog_float_as_decimal: Annotated[bool, Expects("true or false")] = False
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
    spark: Annotated[SparkOptions, Expects("an object with master and conf")] = Field(default_factory=SparkOptions)
    endpoint_url: Annotated[
        str | None,
        Field(pattern=r"^https?://[^\s/@?#]+/?$"),
        Expects("the address of an S3-compatible store, such as http://localhost:9000, without user and path"),
    ] = None

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the validated configuration.

        Raises ConfigError with one sentence per problem: the option, what is wrong with it, what it must be. No
        secret is ever quoted.
        """
        given = normalised(options)
        problems = [*_not_supported(given), *_contradictions(given)]
        try:
            config = cls.model_validate(_with_dependent_defaults(given))
        except ValidationError as error:
            problems += [_sentence(problem["type"], problem["loc"], problem.get("input")) for problem in error.errors()]
        if problems:
            raise _config_error(problems)
        return config

    def unknown_options(self) -> tuple[str, ...]:
        """Return the dotted names of options that were given and that nothing here knows."""
        known = _INHERITED.keys() | _UNUSED_ALONE
        return tuple(name for name in _extra(self) if name not in known)

    def secrets(self) -> tuple[str, ...]:
        """Return the values that must never be printed."""
        conf = [value for key, value in self.spark.conf.items() if _SECRET_SETTING.search(key)]
        match self.credentials:
            case IamUser() as user:
                keys = [user.aws_access_key_id.get_secret_value(), user.aws_secret_access_key.get_secret_value()]
                return (*keys, *conf)
            case _:
                return tuple(conf)

    def key(self, *names: str) -> str:
        """Return the S3 key of `names` under bucket_prefix: `key("shop", "orders")` is "lake/raw/shop/orders"."""
        return "/".join([self.bucket_prefix, *names] if self.bucket_prefix else names)

    def table_uri(self, database: str, table: str) -> str:
        """Return the s3:// address of a table's folder: `database/table` under bucket_prefix.

        A database that is called like a folder with another purpose has one that no database is called like.
        """
        folder = f"{database}.db" if database in _OTHER_FOLDERS else database
        return self.uri(folder, table)

    def uri(self, *names: str) -> str:
        """Return the s3:// address of `key(*names)`."""
        return str(S3Address(self.bucket_name, self.key(*names)))


_OTHER_FOLDERS = frozenset({"_staging", "_raw", "_errors", "_reports"})
"""Folders under bucket_prefix that hold no tables."""

_SECRET_SETTING = re.compile(r"secret|password|token|access[._-]?key", re.IGNORECASE)


def normalised(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say something, spelled one way.

    A null says nothing, nor does the empty string that forms leave behind in an optional field, inside an object too;
    blanks around a value come from pasting. Settings of Spark's are what they are.
    """
    tidy: dict[str, Any] = {}
    for key, given in options.items():
        value = _tidied(given)
        if key in ("lakeformation_database_name", "table_prefix") and isinstance(value, str):
            # Glue's names are lower-case, whatever case they are asked for in.
            value = value.lower()
        elif key == "bucket_prefix" and isinstance(value, str) and "://" not in value:
            value = "/".join(folder for folder in value.split("/") if folder.strip()).strip()
        if value is not None and value != "":
            tidy[key] = value
    spark, as_given = tidy.get("spark"), options.get("spark")
    if isinstance(spark, dict) and isinstance(as_given, dict) and isinstance(conf := as_given.get("conf"), dict):
        tidy["spark"] = {**spark, "conf": {name: text for name, text in conf.items() if text is not None}}
    return tidy


def _tidied(value: Any) -> Any:
    match value:
        case dict():
            tidied = {key: _tidied(item) for key, item in value.items()}
            return {key: item for key, item in tidied.items() if item is not None and item != ""}
        case str():
            return value.strip()
        case _:
            return value


def _with_dependent_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults that depend on other options: table_type, numeric_types and the compression codec."""
    options = {**given}
    format_ = options.setdefault("format", {"format_type": "Parquet"})
    jsonl = isinstance(format_, dict) and format_.get("format_type") == "JSONL"
    table_type = options.setdefault("table_type", "HIVE" if jsonl else "ICEBERG")
    options.setdefault(
        "numeric_types", "decimal" if options.get("glue_catalog_float_as_decimal") is True else "int/float"
    )
    if isinstance(format_, dict):
        codec = "UNCOMPRESSED" if jsonl else "ZSTD" if table_type == "ICEBERG" else "SNAPPY"
        options["format"] = {"compression_codec": codec, **format_}
    return options


def _not_supported(given: Mapping[str, Any]) -> Iterator[str]:
    for key, harmless in _INHERITED.items():
        value = given.get(key, harmless)
        if value is not harmless and value != harmless:
            yield f"{key}{_quoted(key, value)} is not supported yet by this version. Leave it out."


def _contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    format_ = given.get("format")
    if isinstance(format_, dict) and format_.get("format_type") == "JSONL" and given.get("table_type") == "ICEBERG":
        yield (
            "table_type ICEBERG cannot hold format_type JSONL: Iceberg tables are made of Parquet files. "
            "Set table_type to HIVE, or format_type to Parquet."
        )
    numeric_types = given.get("numeric_types")
    if given.get("glue_catalog_float_as_decimal") is True and numeric_types not in (None, "decimal"):
        yield (
            f"glue_catalog_float_as_decimal true asks for decimal columns, numeric_types {numeric_types} for others. "
            "Set numeric_types to decimal, or glue_catalog_float_as_decimal to false."
        )
    naming = given.get("naming")
    style = naming.get("style", "snake_case") if isinstance(naming, dict) else "snake_case"
    if isinstance(naming, dict) and naming.get("split_numbers") is True and style in ("preserve", "aws_datalake"):
        yield (
            f"naming.split_numbers true cuts names into words, which naming.style {style} does not. "
            "Set naming.style to snake_case, or naming.split_numbers to false."
        )
    batch, buffer = given.get("batch_size_mb", 256), given.get("buffer_size_mb", 4096)
    if isinstance(batch, int) and isinstance(buffer, int) and buffer < batch:
        yield (
            f"buffer_size_mb {buffer} is smaller than batch_size_mb {batch}: a batch would never fill. "
            "Lower batch_size_mb or raise buffer_size_mb."
        )


def _extra(options: BaseModel, path: str = "") -> Iterator[str]:
    for name in options.model_extra or {}:
        yield f"{path}{name}"
    for name in type(options).model_fields:
        if isinstance(value := getattr(options, name), BaseModel):
            yield from _extra(value, f"{path}{name}.")


# --- Sentences --------------------------------------------------------------------------------------------------------


def _sentence(kind: str, location: tuple[int | str, ...], value: object) -> str:
    # Pydantic puts the chosen variant's title into the location of what lies in it; the user never wrote that.
    steps = [step for step in location if step not in _VARIANTS]
    name = ".".join(str(step) for step in steps)
    expected = _expectation(location)
    must_be = f"It must be {expected}." if expected else "Correct it."
    if kind in ("missing", "union_tag_not_found"):
        return f"{name} is missing. {must_be}" if kind == "missing" else f"{name} says no kind. {must_be}"
    return f"{name}{_quoted(name, value)} is not valid. {must_be}"


_VARIANTS: Mapping[str, type[_Options]] = {
    "IAM Role": IamRole,
    "IAM User": IamUser,
    "Default chain": DefaultChain,
    "Parquet": Parquet,
    "JSONL": Jsonl,
}


def _expectation(location: tuple[int | str, ...]) -> str | None:
    """Return what the field at `location` wants; of something inside a field (a Spark setting), what that wants."""
    options: type[_Options] = Config
    found: str | None = None
    for step in location:
        if step in _VARIANTS:
            options = _VARIANTS[str(step)]
            continue
        field = options.model_fields.get(str(step))
        if field is None:
            break
        found = next((item.what for item in field.metadata if isinstance(item, Expects)), found)
        if isinstance(field.annotation, type) and issubclass(field.annotation, _Options):
            options = field.annotation
    return found


def _quoted(name: str, value: object) -> str:
    """Return `value` after a space, or nothing if it may hold a secret or is too big to be recognised."""
    if name.startswith(("credentials", "spark", "endpoint_url")) or isinstance(value, dict | list):
        return ""
    # As it stands in the configuration: "256" in quotes is no number, and should be seen to be none.
    text = json.dumps(value, ensure_ascii=False)
    return f" {text}" if len(text) <= 80 else f" {text[:80]}…"


def _config_error(problems: list[str]) -> ConfigError:
    message = problems[0] if len(problems) == 1 else "\n".join([f"{len(problems)} options need attention:", *problems])
    return ConfigError(message)
