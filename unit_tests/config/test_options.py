"""Options as one object: defaults, options of streams, access to AWS as they configure it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import botocore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.aws.access import AccessKeys, AwsAccess, Encryption, Environment, Identity, Role
from destination_datalake.config.options import Config, aws_access
from destination_datalake.config.services import DefaultChain, IamRole, IamUser
from destination_datalake.errors import ConfigError
from unit_tests.config.examples import KEYS, ROLE, options, refusal


def test_the_smallest_configuration_has_every_default() -> None:
    config = Config.parse(options())

    assert (config.format.format_type, config.format.compression_codec) == ("Parquet", "ZSTD")
    assert (config.table_type, config.numeric_types) == ("ICEBERG", "int/float")
    assert (config.database_strategy, config.table_prefix) == ("namespace", "")
    assert (config.naming.style, config.naming.split_numbers) == ("snake_case", False)
    assert (config.batch_size_mb, config.flush_interval_seconds) == (256, 300)
    assert (config.target_file_size_mb, config.buffer_size_mb) == (128, 4096)
    assert (config.spark.master, config.spark.conf, config.endpoint_url) == ("local[*]", {}, None)
    assert config.unknown_options() == ()


def test_no_region_of_aws_is_refused() -> None:
    partitions = json.loads((Path(botocore.__file__).parent / "data" / "partitions.json").read_text())["partitions"]
    regions = [region for partition in partitions for region in partition["regions"] if "global" not in region]

    assert [Config.parse(options(region=region, glue_region=region)).glue_region for region in regions] == regions


@pytest.mark.parametrize(
    "given",
    [{"region": "nz-north-1"}, {"region": "eu-southwest-4"}, {"region": "nl-ams-1", "endpoint_url": "http://s3"}],
)
def test_regions_that_are_newer_than_this_connector_or_not_of_aws_are_accepted(given: dict[str, Any]) -> None:
    assert Config.parse(options(**given)).region == given["region"]


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (KEYS, IamUser),
        (ROLE, IamRole),
        ({**ROLE, "external_id": "airbyte-1", "session_duration_seconds": 900}, IamRole),
        ({"credentials_title": "Default chain"}, DefaultChain),
    ],
)
def test_the_title_chooses_the_kind_of_credentials(credentials: dict[str, Any], kind: type) -> None:
    assert isinstance(Config.parse(options(credentials=credentials)).credentials, kind)


@pytest.mark.parametrize(
    ("database", "folder"),
    [("shop", "shop"), ("_shop", "_shop"), ("_staging", "_staging.db"), ("_raw", "_raw.db")],
)
def test_the_folder_of_a_table_is_never_a_reserved_one(database: str, folder: str) -> None:
    assert Config.parse(options()).table_uri(database, "orders") == f"s3://lake/{folder}/orders"


def test_a_buffer_may_hold_one_batch_and_no_more() -> None:
    assert Config.parse(options(batch_size_mb=64, buffer_size_mb=64)).buffer_size_mb == 64


def test_unknown_options_are_accepted_and_listed() -> None:
    config = Config.parse(options(colour="green", credentials={**KEYS, "mfa": "1"}, spark={"jars": "x"}))

    assert sorted(option.name for option in config.unknown_options()) == ["colour", "credentials.mfa", "spark.jars"]


@pytest.mark.parametrize(
    ("changes", "name", "meant"),
    [
        ({"partitionning": "DAY"}, "partitionning", "partitioning"),
        ({"tableType": "HIVE"}, "tableType", "table_type"),
        ({"Table_Prefix": "raw_"}, "Table_Prefix", "table_prefix"),
        ({"bucket_name": ..., "s3_bucket_name": "lake"}, "s3_bucket_name", "bucket_name"),
        ({"format": {"format_type": "JSONL", "compression_code": "GZIP"}}, "format.compression_code", "format.comp"),
        ({"spark": {"mastr": "yarn"}}, "spark.mastr", "spark.master"),
        (
            {"streams": [{"stream": "orders", "partition_bye": [{"source": "id"}]}]},
            "streams.0.partition_bye",
            "streams.0.partition_by",
        ),
        (
            {"streams": [{"stream": "orders", "partition_by": [{"source": "id", "tranform": "day"}]}]},
            "streams.0.partition_by.0.tranform",
            "streams.0.partition_by.0.transform",
        ),
    ],
)
def test_an_option_that_is_much_like_one_that_is_not_given_is_refused(
    changes: dict[str, Any], name: str, meant: str
) -> None:
    assert f"Unknown option {name}. Did you mean {meant}" in refusal(options(**changes))


@pytest.mark.parametrize(
    ("changes", "description"),
    [
        ({"colour": "green"}, "Unknown option colour is ignored."),
        ({"s3_bucket_name": "lake"}, "Unknown option s3_bucket_name is ignored."),
        (
            {"format": {"format_type": "JSONL", "compression": "GZIP"}},
            "Unknown option format.compression is ignored. Did you mean format.compression_codec?",
        ),
    ],
)
def test_other_unknown_options_are_told(changes: dict[str, Any], description: str) -> None:
    assert [str(option) for option in Config.parse(options(**changes)).unknown_options()] == [description]


def test_secrets_are_those_of_credentials_and_spark() -> None:
    conf = {
        "spark.hadoop.fs.s3a.secret.key": "hidden",
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.encryption.key": "base64==",
        "spark.driver.extraJavaOptions": (
            """-Xss4m -Da.keyStorePassword=hunter22 -Db.c=d -Da.token="with blank" -Da.secret='one=two'"""
        ),
    }

    assert Config.parse(options(spark={"conf": conf})).secrets() == (
        *("AKIA1234", "s3cr3t/9876"),
        *("hidden", "base64==", "hunter22", "with blank", "one=two"),
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(option=st.sampled_from(sorted(Config.model_fields)), value=json_values)
def test_any_json_value_of_any_option_is_accepted_or_refused_with_a_message(option: str, value: Any) -> None:
    try:
        Config.parse(options(**{option: value}))
        outcome = "accepted"
    except ConfigError as error:
        outcome = str(error)

    assert outcome


OF_STREAMS = [
    {"stream": "orders", "nested": "json", "sort_by": [{"source": "id"}]},
    {"stream": "orders", "namespace": "eu", "nested": "flatten", "flatten_max_depth": 2},
    {"stream": "orders", "namespace": "us", "flatten_max_depth": 3},
    {"stream": "clicks", "partition_by": []},
]


@pytest.mark.parametrize("streams", [OF_STREAMS, OF_STREAMS[::-1]])
@pytest.mark.parametrize(
    ("namespace", "name", "nested", "sorted_by"),
    [
        (None, "orders", ("json", 10), ["id"]),
        ("uk", "orders", ("json", 10), ["id"]),
        ("eu", "orders", ("flatten", 2), ["id"]),
        ("us", "orders", ("json", 3), ["id"]),
        ("eu", "clicks", ("struct", 10), None),
        ("eu", "Orders", ("struct", 10), None),
    ],
)
def test_options_of_a_stream_are_those_of_its_namespace_then_of_its_name_then_of_all(
    streams: Sequence[Any], namespace: str | None, name: str, nested: tuple[str, int], sorted_by: list[str] | None
) -> None:
    config = Config.parse(options(streams=streams))

    sort_by = config.of_stream(namespace, name).sort_by

    assert config.nested_of(namespace, name) == nested
    assert (None if sort_by is None else [sort_field.source for sort_field in sort_by]) == sorted_by


@pytest.mark.parametrize("name", ["Europe/Bielefeld", "CEST", "GMT+25"])
def test_a_time_zone_that_does_not_exist_is_refused_at_the_start(name: str) -> None:
    assert refusal(options(table_type="HIVE", timezone=name)) == (
        f'timezone "{name}" is not valid. It must be UTC, or the name of a time zone such as Europe/Berlin.'
    )


@pytest.mark.parametrize(
    ("credentials", "identity"),
    [
        (KEYS, AccessKeys("AKIA1234", "s3cr3t/9876")),
        ({**ROLE, "external_id": "e1", "session_duration_seconds": 900}, Role(ROLE["role_arn"], "e1", 900)),
        ({"credentials_title": "Default chain"}, Environment()),
    ],
)
def test_the_access_has_the_identity_region_and_endpoint_of_the_options(
    credentials: dict[str, Any], identity: Identity
) -> None:
    access = aws_access(Config.parse(options(credentials=credentials, endpoint_url="http://localhost:1")))

    assert access == AwsAccess("eu-west-1", identity, "http://localhost:1")


KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def access_with(**changes: Any) -> AwsAccess:
    return aws_access(Config.parse(options(credentials={"credentials_title": "Default chain"}, **changes)))


@pytest.mark.parametrize(
    ("encryption", "expected"),
    [
        ({"encryption_type": "Bucket default"}, None),
        ({"encryption_type": "SSE-S3"}, Encryption()),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY}, Encryption(KEY, bucket_key=True)),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY, "bucket_key": False}, Encryption(KEY, bucket_key=False)),
    ],
)
def test_the_access_has_the_encryption_of_the_options(encryption: Any, expected: Encryption | None) -> None:
    assert access_with(encryption=encryption).encryption == expected


def test_the_access_has_the_data_catalog_of_the_options() -> None:
    access = access_with(glue_region="eu-central-1", glue_catalog_id="210987654321")

    assert (access.glue_region, access.glue_catalog_id) == ("eu-central-1", "210987654321")


def test_options_of_another_catalog_or_encryption_change_nothing_unless_given() -> None:
    assert access_with() == AwsAccess("eu-west-1", Environment())
