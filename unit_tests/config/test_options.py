"""The configuration: what is accepted, what it comes to mean, and what is said about what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.config.options import Config, DefaultChain, IamRole, IamUser
from destination_datalake.errors import ConfigError

KEYS = {"credentials_title": "IAM User", "aws_access_key_id": "AKIA1234", "aws_secret_access_key": "s3cr3t/9876"}
ROLE = {"credentials_title": "IAM Role", "role_arn": "arn:aws:iam::123456789012:role/airbyte"}


def options(**changes: Any) -> dict[str, Any]:
    """The smallest configuration, with changes; a change to ... leaves the option out."""
    smallest = {"credentials": KEYS, "region": "eu-west-1", "bucket_name": "lake", "lakeformation_database_name": "raw"}
    return {key: value for key, value in {**smallest, **changes}.items() if value is not ...}


def refusal(given_options: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.parse(given_options)
    return str(caught.value)


def test_the_smallest_configuration_makes_widening_iceberg_tables_of_parquet() -> None:
    config = Config.parse(options())

    assert (config.format.format_type, config.format.compression_codec) == ("Parquet", "ZSTD")
    assert (config.table_type, config.numeric_types) == ("ICEBERG", "int/float")
    assert (config.database_strategy, config.table_prefix) == ("namespace", "")
    assert (config.naming.style, config.naming.split_numbers) == ("snake_case", False)
    assert (config.batch_size_mb, config.flush_interval_seconds) == (256, 300)
    assert (config.target_file_size_mb, config.buffer_size_mb) == (128, 4096)
    assert (config.spark.master, config.spark.conf, config.endpoint_url) == ("local[*]", {}, None)
    assert config.unknown_options() == ()


@pytest.mark.parametrize(
    ("given_options", "table_type", "codec"),
    [
        ({"format": {"format_type": "Parquet"}}, "ICEBERG", "ZSTD"),
        ({"format": {"format_type": "Parquet"}, "table_type": "HIVE"}, "HIVE", "SNAPPY"),
        ({"table_type": "HIVE"}, "HIVE", "SNAPPY"),
        ({"format": {"format_type": "JSONL"}}, "HIVE", "UNCOMPRESSED"),
        ({"format": {"format_type": "JSONL", "compression_codec": "GZIP"}}, "HIVE", "GZIP"),
        ({"format": {"format_type": "Parquet", "compression_codec": "SNAPPY"}}, "ICEBERG", "SNAPPY"),
        ({"format": {"format_type": "Parquet", "compression_codec": None}}, "ICEBERG", "ZSTD"),
    ],
)
def test_table_type_and_compression_follow_the_format_unless_they_are_chosen(
    given_options: dict[str, Any], table_type: str, codec: str
) -> None:
    config = Config.parse(options(**given_options))

    assert (config.table_type, config.format.compression_codec) == (table_type, codec)


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (KEYS, IamUser),
        (ROLE, IamRole),
        ({**ROLE, "external_id": "airbyte-1", "session_duration_seconds": 900}, IamRole),
        ({"credentials_title": "Default chain"}, DefaultChain),
    ],
)
def test_credentials_are_told_apart_by_their_title(credentials: dict[str, Any], kind: type) -> None:
    assert isinstance(Config.parse(options(credentials=credentials)).credentials, kind)


def test_a_configuration_of_the_older_connector_loads_unchanged() -> None:
    older = {
        "aws_account_id": "123456789012",
        "credentials": ROLE,
        "region": "eu-central-1",
        "bucket_name": "my-lake",
        "bucket_prefix": "/airbyte/raw/",
        "lakeformation_database_name": "Raw_Data",
        "lakeformation_database_default_tag_key": "",
        "lakeformation_database_default_tag_values": "private,public",
        "lakeformation_governed_tables": False,
        "format": {"format_type": "Parquet", "compression_codec": "SNAPPY"},
        "partitioning": "NO PARTITIONING",
        "glue_catalog_float_as_decimal": True,
    }

    config = Config.parse(older)

    assert config.uri("raw_data", "orders") == "s3://my-lake/airbyte/raw/raw_data/orders"
    assert config.lakeformation_database_name == "raw_data"
    assert config.numeric_types == "decimal"
    assert config.unknown_options() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"partitioning": "DATE"},
        {"partitioning": "YEAR/MONTH/DAY"},
        {"lakeformation_governed_tables": True},
        {"lakeformation_database_default_tag_key": "pii_level"},
    ],
)
def test_an_older_option_that_would_change_what_happens_is_refused_and_not_ignored(changes: dict[str, Any]) -> None:
    said = refusal(options(**changes))

    assert said.startswith(next(iter(changes)))
    assert "not supported yet by this version" in said


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        (None, "db/t"),
        ("", "db/t"),
        ("/", "db/t"),
        ("raw", "raw/db/t"),
        ("/raw/", "raw/db/t"),
        (" lake//raw ", "lake/raw/db/t"),
        (".hidden/..raw/a.", ".hidden/..raw/a./db/t"),
        ("My Lake/größe+1", "My Lake/größe+1/db/t"),
    ],
)
def test_the_prefix_needs_no_particular_slashes(prefix: str | None, key: str) -> None:
    assert Config.parse(options(bucket_prefix=prefix)).key("db", "t") == key


@pytest.mark.parametrize(
    ("database", "folder"),
    [("shop", "shop"), ("_shop", "_shop"), ("_staging", "_staging.db"), ("_raw", "_raw.db")],
)
def test_a_table_s_folder_is_its_database_s_and_none_with_another_purpose(database: str, folder: str) -> None:
    assert Config.parse(options()).table_uri(database, "orders") == f"s3://lake/{folder}/orders"


@given(st.text(alphabet=st.sampled_from("ab/ "), max_size=12))
def test_normalising_a_prefix_twice_changes_nothing_more(prefix: str) -> None:
    once = Config.parse(options(bucket_prefix=prefix)).bucket_prefix

    assert Config.parse(options(bucket_prefix=once)).bucket_prefix == once


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"region": ...}, "region is missing. It must be the code of the bucket's region, such as eu-west-1."),
        ({"region": ""}, "region is missing."),
        ({"region": "Ireland"}, 'region "Ireland" is not valid. It must be the code'),
        ({"bucket_name": "s3://lake"}, 'bucket_name "s3://lake" is not valid. It must be the bucket'),
        ({"bucket_name": "Lake"}, 'bucket_name "Lake" is not valid. It must be the bucket'),
        ({"bucket_name": "Lake"}, "3 to 63 lower-case letters, digits, dots and hyphens."),
        ({"bucket_name": "my..lake"}, 'bucket_name "my..lake" is not valid.'),
        ({"bucket_prefix": "s3://lake/raw"}, 'bucket_prefix "s3://lake/raw" is not valid. It must be folders'),
        ({"bucket_prefix": "raw/*"}, 'bucket_prefix "raw/*" is not valid.'),
        *(
            ({"bucket_prefix": prefix}, f"bucket_prefix {json.dumps(prefix)} is not valid. It must be folders inside")
            for prefix in ("..", ".", "../other", "raw/./lake", "raw/..", "a\\b", "a%20b", "a?b", "a#b")
        ),
        ({"follow_table_location": "yes"}, 'follow_table_location "yes" is not valid. It must be true or false.'),
        ({"aws_account_id": "1234"}, 'aws_account_id "1234" is not valid. It must be an AWS account id of 12 digits.'),
        ({"aws_account_id": 123456789012}, "aws_account_id 123456789012 is not valid."),
        ({"lakeformation_database_name": "a.b"}, 'lakeformation_database_name "a.b" is not valid.'),
        ({"credentials": ...}, "credentials is missing. It must be an object whose credentials_title is IAM Role"),
        ({"credentials": {}}, "credentials says no kind. It must be an object whose credentials_title"),
        ({"credentials": {"credentials_title": "Root"}}, "credentials is not valid. It must be an object whose"),
        (
            {"credentials": {"credentials_title": "IAM Role"}},
            "credentials.role_arn is missing. It must be a role's ARN",
        ),
        (
            {"credentials": {**ROLE, "role_arn": "airbyte"}},
            "credentials.role_arn is not valid. It must be a role's ARN",
        ),
        (
            {"credentials": {**ROLE, "session_duration_seconds": 60}},
            "credentials.session_duration_seconds is not valid.",
        ),
        ({"format": {"format_type": "CSV"}}, "format is not valid. It must be an object whose format_type is"),
        (
            {"format": {"format_type": "JSONL", "compression_codec": "ZSTD"}},
            'format.compression_codec "ZSTD" is not valid. It must be one of UNCOMPRESSED, GZIP.',
        ),
        ({"format": "Parquet"}, 'format "Parquet" is not valid.'),
        ({"table_type": "DELTA"}, 'table_type "DELTA" is not valid. It must be ICEBERG or HIVE.'),
        ({"numeric_types": "int"}, 'numeric_types "int" is not valid.'),
        ({"database_strategy": "one"}, 'database_strategy "one" is not valid. It must be namespace or single.'),
        ({"table_prefix": "raw-"}, 'table_prefix "raw-" is not valid. It must be at most 64 letters, digits and'),
        ({"table_prefix": "1_"}, 'table_prefix "1_" is not valid.'),
        ({"naming": "preserve"}, 'naming "preserve" is not valid. It must be an object with style and split_numbers.'),
        (
            {"naming": {"style": "camel"}},
            'naming.style "camel" is not valid. It must be snake_case, preserve or aws_datalake.',
        ),
        ({"naming": {"split_numbers": "no"}}, 'naming.split_numbers "no" is not valid. It must be true or false.'),
        ({"naming": {"style": "preserve", "split_numbers": True}}, "naming.split_numbers true cuts names into words"),
        (
            {"naming": {"style": "aws_datalake", "split_numbers": True}},
            "naming.split_numbers true cuts names into words, which naming.style aws_datalake does not.",
        ),
        ({"batch_size_mb": 0}, "batch_size_mb 0 is not valid. It must be a whole number of megabytes from 1 to 4096."),
        ({"batch_size_mb": "256"}, 'batch_size_mb "256" is not valid. It must be a whole number'),
        ({"flush_interval_seconds": 0}, "flush_interval_seconds 0 is not valid."),
        ({"target_file_size_mb": -1}, "target_file_size_mb -1 is not valid."),
        ({"buffer_size_mb": 1}, "buffer_size_mb 1 is"),
        (
            {"rejects": {"max_ratio": 5}},
            "rejects.max_ratio 5 is not valid. It must be a number from 0 to 1, such as 0.05 for five in a hundred.",
        ),
        ({"rejects": {"max_count": 0.5}}, "rejects.max_count 0.5 is not valid. It must be a whole number of records"),
        ({"spark": {"master": "mesos://x"}}, "spark.master is not valid. It must be local[*]"),
        ({"spark": {"conf": {"spark.ui.port": 4040}}}, "spark.conf.spark.ui.port is not valid."),
        ({"endpoint_url": "localhost:9000"}, "endpoint_url is not valid. It must be the address"),
        ({"endpoint_url": "http://user:pass@localhost"}, "endpoint_url is not valid."),
        (
            {"format": {"format_type": "JSONL"}, "table_type": "ICEBERG"},
            "table_type ICEBERG cannot hold format_type JSONL: Iceberg tables are made of Parquet files. Set",
        ),
        (
            {"numeric_types": "int/float", "glue_catalog_float_as_decimal": True},
            "glue_catalog_float_as_decimal true asks for decimal columns, numeric_types int/float for others.",
        ),
        ({"batch_size_mb": 512, "buffer_size_mb": 256}, "buffer_size_mb 256 is smaller than batch_size_mb 512"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_with_the_option_and_what_it_must_be(
    changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(options(**changes))


def test_a_long_value_is_shown_in_part() -> None:
    assert 'region "' + "x" * 79 + "… is not valid." in refusal(options(region="x" * 400))


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_what_a_form_leaves_empty_inside_an_object_says_nothing(blank: str | None) -> None:
    config = Config.parse(
        options(
            credentials={**ROLE, "external_id": blank, "session_duration_seconds": blank},
            format={"format_type": "Parquet", "compression_codec": blank},
            rejects={"max_count": blank},
        )
    )

    assert isinstance(config.credentials, IamRole)
    assert (config.credentials.external_id, config.credentials.session_duration_seconds) == (None, 3600)
    assert (config.format.compression_codec, config.rejects.max_count) == ("ZSTD", None)


def test_a_setting_of_spark_s_may_be_empty_and_keeps_its_blanks() -> None:
    conf = {"spark.jars": "", "spark.driver.extraJavaOptions": " -Da=b"}

    assert Config.parse(options(spark={"conf": conf})).spark.conf == conf


def test_all_problems_are_said_at_once() -> None:
    said = refusal({"region": "Ireland", "partitioning": "DAY"})

    for option in ("credentials", 'region "', "bucket_name", "lakeformation_database_name", 'partitioning "DAY"'):
        assert f"\n{option}" in said


def test_an_option_nobody_knows_is_named_and_does_no_harm() -> None:
    config = Config.parse(options(colour="green", credentials={**KEYS, "mfa": "1"}, spark={"jars": "x"}))

    assert sorted(config.unknown_options()) == ["colour", "credentials.mfa", "spark.jars"]


@pytest.mark.parametrize("wrong", [{"region": 1}, {"credentials": {**KEYS, "aws_access_key_id": 12}}])
def test_no_sentence_and_no_repr_shows_a_secret(wrong: dict[str, Any]) -> None:
    config = Config.parse(options())

    assert KEYS["aws_secret_access_key"] not in repr(config) + str(config) + refusal(options(**wrong))


def test_the_secrets_are_known_so_that_logs_can_mask_them() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hidden", "spark.driver.memory": "1g"}

    assert Config.parse(options(spark={"conf": conf})).secrets() == ("AKIA1234", "s3cr3t/9876", "hidden")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(option=st.sampled_from(sorted(Config.model_fields)), value=json_values)
def test_any_json_value_in_any_option_is_either_accepted_or_refused_in_words(option: str, value: Any) -> None:
    try:
        Config.parse(options(**{option: value}))
        said = "accepted"
    except ConfigError as error:
        said = str(error)

    assert said
