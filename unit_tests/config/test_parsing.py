"""Options as users write them: their canonical form, defaults that depend on others, unsupported ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.config.options import Config
from destination_datalake.config.parsing import read_object
from destination_datalake.config.services import IamRole
from destination_datalake.errors import ConfigError
from unit_tests.config.examples import ROLE, options, refusal


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
def test_table_type_and_codec_default_by_format(given_options: dict[str, Any], table_type: str, codec: str) -> None:
    config = Config.parse(options(**given_options))

    assert (config.table_type, config.format.compression_codec) == (table_type, codec)


def test_a_configuration_of_aws_datalake_is_accepted() -> None:
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
    assert config.numeric_types == "int/decimal"
    assert config.unknown_options() == ()


@pytest.mark.parametrize(
    ("given", "units", "source"),
    [
        ({}, "NO PARTITIONING", "cursor"),
        ({"partitioning": "DATE"}, "DATE", "cursor"),
        ({"table_type": "HIVE", "path_layout": "rudderstack"}, "YEAR/MONTH/DAY/HOUR", "extracted_at"),
        ({"table_type": "HIVE", "path_layout": "segment"}, "DAY/HOUR", "extracted_at"),
        ({"table_type": "HIVE", "path_layout": "plain", "partitioning": "YEAR"}, "YEAR", "extracted_at"),
        ({"table_type": "HIVE", "path_layout": "plain", "partition_source": "cursor"}, "YEAR/MONTH/DAY/HOUR", "cursor"),
    ],
)
def test_layouts_of_other_lakes_have_their_own_default_partitions(
    given: dict[str, Any], units: str, source: str
) -> None:
    config = Config.parse(options(**given))

    assert (config.partitioning, config.partition_source) == (units, source)


def test_governed_tables_are_managed_iceberg_tables() -> None:
    config = Config.parse(options(lakeformation_governed_tables=True))

    assert (config.lake_formation.mode, config.table_type) == ("managed", "ICEBERG")


def test_the_default_tag_has_each_of_its_values_once() -> None:
    config = Config.parse(
        options(
            lakeformation_database_default_tag_key="pii_level",
            lakeformation_database_default_tag_values=" private, public,,private",
        )
    )

    assert config.database_default_tag() == ("pii_level", ("private", "public"))


def test_names_in_grants_and_tags_are_those_that_glue_stores() -> None:
    config = Config.parse(
        options(
            lake_formation={
                "mode": "managed",
                "grants": [{"principal": "123456789012", "permissions": ["SELECT"], "database": "Shop", "table": "O"}],
                "table_tags": [{"table": "Orders", "columns": ["eMail"], "tags": {"pii": ["high"]}}],
            }
        )
    )

    (grant,), (tags,) = config.lake_formation.grants, config.lake_formation.table_tags
    assert (grant.database, grant.table) == ("shop", "o")
    assert (tags.table, tags.columns) == ("orders", ["eMail"])


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
def test_superfluous_slashes_of_the_prefix_are_removed(prefix: str | None, key: str) -> None:
    assert Config.parse(options(bucket_prefix=prefix)).key("db", "t") == key


@given(st.text(alphabet=st.sampled_from("ab/ "), max_size=12))
def test_normalising_a_prefix_is_idempotent(prefix: str) -> None:
    once = Config.parse(options(bucket_prefix=prefix)).bucket_prefix

    assert Config.parse(options(bucket_prefix=once)).bucket_prefix == once


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_empty_values_inside_objects_count_as_not_set(blank: str | None) -> None:
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


def test_settings_of_spark_stay_as_they_are() -> None:
    conf = {"spark.jars": "", "spark.driver.extraJavaOptions": " -Da=b"}

    assert Config.parse(options(spark={"conf": conf})).spark.conf == conf


@pytest.mark.parametrize("name", ["spark.jars", "spark.driver.extraJavaOptions"])
@pytest.mark.parametrize("value", ["", " -Da=b"])
def test_settings_of_spark_are_an_object_or_a_list_of_entries(name: str, value: str) -> None:
    for member in ("name", "key"):
        entries = [{member: name, "value": value}, {member: "spark.ui.port", "value": None}]
        config = Config.parse(options(spark={"conf": entries}))
        assert (config.spark.conf, config.unknown_options()) == ({name: value}, ())
    assert Config.parse(options(spark={"conf": {name: value}})).spark.conf == {name: value}


def test_lf_tags_are_an_object_or_a_list_of_entries() -> None:
    entries = [{"name": "domain", "values": ["sales", "finance"]}, {"name": "pii", "values": ["high"]}]
    older = [{"key": entry["name"], "values": entry["values"]} for entry in entries]
    tags = {"domain": ["sales", "finance"], "pii": ["high"]}

    for given_tags in (entries, older, tags):
        governance = {"mode": "managed", "tags": given_tags, "table_tags": [{"table": "orders", "tags": given_tags}]}
        parsed = Config.parse(options(lake_formation=governance)).lake_formation
        assert (parsed.tags, parsed.table_tags[0].tags) == (tags, tags)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"spark": {"conf": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}},
            "spark.conf is not valid. It",
        ),
        ({"spark": {"conf": [{"value": "1"}]}}, "or a list of {name, value}."),
        ({"spark": {"conf": [{"name": "a", "value": 1}]}}, "spark.conf.a is not valid."),
        ({"lake_formation": {"mode": "managed", "tags": [{"name": "a"}]}}, "lake_formation.tags.a null is not valid."),
        (
            {"lake_formation": {"mode": "managed", "tags": ["a"]}},
            "lake_formation.tags is not valid. It must be LF-Tags",
        ),
    ],
)
def test_entries_that_are_no_mapping_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(options(**wrong))


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"format": {"format_type": "parquet", "compression_codec": "Snappy"}}, "format.compression_codec", "SNAPPY"),
        ({"format": {"format_type": "jsonl"}}, "format.format_type", "JSONL"),
        ({"table_type": "iceberg"}, "table_type", "ICEBERG"),
        ({"partitioning": "Year/month"}, "partitioning", "YEAR/MONTH"),
        ({"region": "EU-WEST-1"}, "region", "eu-west-1"),
        ({"credentials": {"credentials_title": "DEFAULT CHAIN"}}, "credentials.credentials_title", "Default chain"),
        ({"encryption": {"encryption_type": "sse-s3"}}, "encryption.encryption_type", "SSE-S3"),
        ({"maintenance": {"mode": "Connector"}}, "maintenance.mode", "connector"),
        ({"spark": {"mode": "Cluster", "master": "yarn", "python": "Pack"}}, "spark.python", "pack"),
        ({"table_type": "hive", "path_layout": "Plain"}, "path_layout", "plain"),
    ],
)
def test_the_letter_case_of_enumerations_does_not_matter(changes: dict[str, Any], path: str, value: str) -> None:
    parsed: Any = Config.parse(options(**changes))

    for name in path.split("."):
        parsed = getattr(parsed, name)
    assert parsed == value


def test_transforms_and_permissions_are_accepted_in_any_letter_case() -> None:
    config = Config.parse(
        options(
            streams=[{"stream": "orders", "partition_by": [{"source": "At", "transform": "Day"}], "nested": "JSON"}],
            lake_formation={
                "mode": "Hybrid",
                "grants": [{"principal": "123456789012", "permissions": ["select"], "table": "*"}],
            },
        )
    )

    [stream], [grant] = config.streams, config.lake_formation.grants
    assert stream.partition_by is not None
    assert (stream.partition_by[0].source, stream.partition_by[0].transform, stream.nested) == ("At", "day", "json")
    assert grant.permissions == ["SELECT"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty."),
        (" \n", "is empty."),
        ("[1]", "does not contain a JSON object."),
        ('{"a": ', "is not valid JSON: line 1, column 7: Expecting value."),
        (None, "cannot be read: Is a directory."),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: str | None, sentence: str) -> None:
    path = tmp_path if content is None else tmp_path / "config.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=re.escape(f"The configuration file {path} {sentence}")):
        read_object(str(path), "configuration")


@pytest.mark.parametrize("content", ['{"region": "hush-1", "region": "hush-2"}', '{"a": [{"region": 1, "region": 1}]}'])
def test_key_that_an_object_has_twice_is_named_without_its_values(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match='contains the key "region" more than once') as error:
        read_object(str(path), "configuration")

    assert "hush" not in str(error.value)
