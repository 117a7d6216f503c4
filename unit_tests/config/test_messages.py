"""Messages about invalid options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from destination_datalake.config.options import Config
from unit_tests.config.examples import KEYS, ROLE, options, refusal


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"region": ...}, "region is missing. It must be the code of the bucket's region, such as eu-west-1."),
        ({"region": ""}, "region is missing."),
        ({"region": "Ireland"}, 'region "Ireland" is not valid. It must be the code'),
        ({"region": "us-esat-1"}, "region us-esat-1 is not an AWS region. Did you mean us-east-1?"),
        ({"region": "EU-Wset-1"}, "region eu-wset-1 is not an AWS region. Did you mean eu-west-1?"),
        (
            {"glue_region": "ap-sotheast-2"},
            "glue_region ap-sotheast-2 is not an AWS region. Did you mean ap-southeast-2?",
        ),
        ({"bucket_name": "s3://lake"}, 'bucket_name "s3://lake" is not valid. It must be the bucket'),
        ({"bucket_name": "Lake"}, 'bucket_name "Lake" is not valid. It must be the bucket'),
        ({"bucket_name": "Lake"}, "3 to 63 lower-case letters, digits, dots and hyphens."),
        ({"bucket_name": "my..lake"}, 'bucket_name "my..lake" is not valid.'),
        (
            {"bucket_prefix": "s3://lake/raw"},
            'bucket_prefix "s3://lake/raw" is not valid. It must be a path of folders',
        ),
        ({"bucket_prefix": "raw/*"}, 'bucket_prefix "raw/*" is not valid.'),
        *(
            (
                {"bucket_prefix": prefix},
                f"bucket_prefix {json.dumps(prefix)} is not valid. It must be a path of folders inside",
            )
            for prefix in ("..", ".", "../other", "raw/./lake", "raw/..", "a\\b", "a%20b", "a?b", "a#b")
        ),
        ({"follow_table_location": "yes"}, 'follow_table_location "yes" is not valid. It must be true or false.'),
        ({"aws_account_id": "1234"}, 'aws_account_id "1234" is not valid. It must be an AWS account ID of 12 digits.'),
        ({"aws_account_id": 123456789012}, "aws_account_id 123456789012 is not valid."),
        ({"lakeformation_database_name": "a.b"}, 'lakeformation_database_name "a.b" is not valid.'),
        ({"credentials": ...}, "credentials is missing. It must be an object whose credentials_title is IAM Role"),
        ({"credentials": {}}, "credentials is incomplete. It must be an object whose credentials_title"),
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
            'format.compression_codec "ZSTD" is not valid. It must be UNCOMPRESSED or GZIP.',
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
        ({"naming": {"style": "preserve", "split_numbers": True}}, "naming.split_numbers true requires naming.style"),
        (
            {"naming": {"style": "aws_datalake", "split_numbers": True}},
            "naming.split_numbers true requires naming.style snake_case, but naming.style is aws_datalake.",
        ),
        ({"batch_size_mb": 0}, "batch_size_mb 0 is not valid. It must be a whole number of megabytes from 1 to 4096."),
        ({"batch_size_mb": "256"}, 'batch_size_mb "256" is not valid. It must be a whole number'),
        ({"flush_interval_seconds": 0}, "flush_interval_seconds 0 is not valid."),
        ({"target_file_size_mb": -1}, "target_file_size_mb -1 is not valid."),
        ({"buffer_size_mb": 1}, "buffer_size_mb 1 is"),
        (
            {"rejects": {"max_ratio": 5}},
            "rejects.max_ratio 5 is not valid. It must be a number from 0 to 1, such as 0.05 for 5 %.",
        ),
        ({"rejects": {"max_count": 0.5}}, "rejects.max_count 0.5 is not valid. It must be a whole number of records"),
        ({"raw_archive": True}, "raw_archive true is not valid. It must be an object with enabled, retention_days and"),
        (
            {"raw_archive": {"retention_days": 0}},
            "raw_archive.retention_days 0 is not valid. It must be a whole number of days from 1 to 36500.",
        ),
        (
            {"raw_archive": {"superseded": "drop"}},
            'raw_archive.superseded "drop" is not valid. It must be keep or delete.',
        ),
        (
            {"spark": {"master": "mesos://x"}},
            "spark.master is not valid. It must be spark://host:7077, k8s://… or yarn; for Spark on this machine",
        ),
        ({"spark": {"conf": {"spark.ui.port": 4040}}}, "spark.conf.spark.ui.port is not valid."),
        ({"endpoint_url": "localhost:9000"}, "endpoint_url is not valid. It must be the address"),
        ({"endpoint_url": "http://user:pass@localhost"}, "endpoint_url is not valid."),
        ({"lineage": {"endpoint": "http://ada:pass@marquez"}}, "lineage.endpoint is not valid."),
        ({"lineage": {"endpoint": "http://x/?api_key=abc"}}, "lineage.endpoint is not valid. It must be the address"),
        *(
            ({name: "https://ada:pass@host"}, f"{name} is not valid.")
            for name in ("catalog", "credentials", "lineage", "notify", "spark")
        ),
        ({"catalog_partitions": "all"}, 'catalog_partitions "all" is not valid.'),
        ({"notify": {"sns_topic_arn": "arn:aws:sqs:eu-west-1:1:q"}}, "notify.sns_topic_arn is not valid."),
        (
            {"format": {"format_type": "JSONL"}, "table_type": "ICEBERG"},
            "table_type ICEBERG does not support format_type JSONL: Iceberg tables consist of Parquet files. Set",
        ),
        (
            {"numeric_types": "int/float", "glue_catalog_float_as_decimal": True},
            "glue_catalog_float_as_decimal true requires numeric_types int/decimal, but numeric_types is int/float.",
        ),
        ({"batch_size_mb": 512, "buffer_size_mb": 256}, "buffer_size_mb 256 is smaller than batch_size_mb 512"),
    ],
)
def test_a_message_names_the_option_its_value_and_what_it_must_be(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(options(**changes))


def test_a_long_value_is_truncated() -> None:
    assert 'region "' + "x" * 79 + "… is not valid." in refusal(options(region="x" * 400))


def test_all_problems_are_in_one_message() -> None:
    message = refusal({"region": "Ireland", "partitioning": "WEEK"})

    for option in ("credentials", 'region "', "bucket_name", "lakeformation_database_name", 'partitioning "WEEK"'):
        assert f"\n{option}" in message


@pytest.mark.parametrize("wrong", [{"region": 1}, {"credentials": {**KEYS, "aws_access_key_id": 12}}])
def test_no_message_and_no_repr_shows_a_secret(wrong: dict[str, Any]) -> None:
    config = Config.parse(options())

    assert KEYS["aws_secret_access_key"] not in repr(config) + str(config) + refusal(options(**wrong))


S3_DATA_LAKE: dict[str, Any] = {
    "access_key_id": "AKIA1234",
    "secret_access_key": "s3cr3t/9876",
    "s3_bucket_name": "lake",
    "s3_bucket_region": "eu-west-1",
    "warehouse_location": "s3://lake/warehouse",
    "main_branch_name": "main",
    "catalog_type": {"catalog_type": "GLUE", "glue_id": "123456789012", "database_name": "landing"},
}


def test_options_of_s3_data_lake_are_answered_with_those_that_are_meant() -> None:
    """Each of them, and no value."""
    message = refusal(S3_DATA_LAKE)

    assert "credentials is missing." in message
    [line] = [line for line in message.splitlines() if "S3 Data Lake" in line]
    for key in ("access_key_id", "s3_bucket_name", "s3_bucket_region", "warehouse_location", "main_branch_name"):
        assert f"{key} corresponds to " in line
    assert "warehouse_location corresponds to bucket_name and bucket_prefix" in line
    assert "catalog_type.database_name corresponds to lakeformation_database_name" in line
    assert "s3_endpoint" not in line
    assert "docs/operating/migrating.md" in line
    assert not any(value in message for value in ("s3cr3t", "AKIA1234", "s3://lake"))


@pytest.mark.parametrize("kind", ["NESSIE", "REST", "POLARIS"])
def test_tables_in_other_catalogs_of_s3_data_lake_cannot_be_continued(kind: str) -> None:
    message = refusal(
        {**S3_DATA_LAKE, "catalog_type": {"catalog_type": kind, "server_uri": "https://a", "namespace": "b"}}
    )

    assert f"This connector cannot continue tables in a catalog of type {kind}." in message


@pytest.mark.parametrize("catalog", ["GLUE", None, [], {}])
def test_half_a_configuration_of_s3_data_lake_is_recognised(catalog: object) -> None:
    assert "warehouse_location corresponds to bucket_name" in refusal(
        {"warehouse_location": "s3://lake", "catalog_type": catalog}
    )
