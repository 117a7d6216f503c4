"""spec.json describes the same options as `Config`, in the form that Airbyte's platform and user interface require."""

from __future__ import annotations

import json
import logging
from importlib import resources
from typing import Any

import jsonschema
import pytest
from airbyte_cdk import AirbyteMessage, Type
from airbyte_cdk.models.airbyte_protocol_serializers import AirbyteMessageSerializer
from airbyte_cdk.test.standard_tests._spec_lint import find_secret_marking_errors
from pydantic import BaseModel

from destination_datalake.cli import spec_message
from destination_datalake.config.groups.dedup import DedupOptions
from destination_datalake.config.groups.encryption import BucketDefault, SseKms, SseS3
from destination_datalake.config.groups.governance import Grant, LakeFormationOptions, TableTags
from destination_datalake.config.groups.layout import PartitionBy, SortBy, StreamOptions
from destination_datalake.config.groups.maintenance import ConnectorMaintenance, GlueOptimizers, NoMaintenance
from destination_datalake.config.groups.spark import SparkOptions
from destination_datalake.config.normalisation import normalised
from destination_datalake.config.options import (
    Config,
    DefaultChain,
    IamRole,
    IamUser,
    Jsonl,
    NamingOptions,
    Parquet,
    RejectOptions,
)
from destination_datalake.destination import DestinationDatalake

SPEC: dict[str, Any] = json.loads((resources.files("destination_datalake") / "spec.json").read_text("utf-8"))
CONNECTION: dict[str, Any] = SPEC["connectionSpecification"]

STREAM: dict[str, Any] = CONNECTION["properties"]["streams"]["items"]
GOVERNANCE: dict[str, Any] = CONNECTION["properties"]["lake_formation"]["properties"]

# Options whose default depends on another one have none in the spec: a form would send it as the user's choice.
DEPENDENT = {"format", "table_type", "numeric_types", "compression_codec", "partitioning", "partition_source"}
SPARK: dict[str, Any] = CONNECTION["properties"]["spark"]
SMALLEST = {
    "credentials": {
        "credentials_title": "IAM User",
        "aws_access_key_id": "AKIA1234",
        "aws_secret_access_key": "s3cr3t",
    },
    "region": "eu-west-1",
    "bucket_name": "lake",
    "lakeformation_database_name": "raw",
}
RULES = ("type", "pattern", "enum", "const", "minimum", "maximum", "minLength", "maxLength", "default")


def rules_of(model: type[BaseModel]) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """The model's rules for each field, in the spec's terms, and the required fields."""
    schema = model.model_json_schema()
    fields = {}
    for name, field in schema["properties"].items():
        # `X | None` is an option that may be left out; in the spec, it is not required.
        chosen = next((kind for kind in field.get("anyOf", []) if kind.get("type") != "null"), field)
        merged = {"type": "object"} if "$ref" in chosen else {**chosen, "default": field.get("default")}
        fields[name] = {rule: merged[rule] for rule in RULES if merged.get(rule) is not None}
    return fields, set(schema.get("required", [])) - DEPENDENT


def rules_in(spec: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], set[str]]:
    fields = {
        name: {rule: field[rule] for rule in RULES if rule in field} for name, field in spec["properties"].items()
    }
    return fields, set(spec.get("required", []))


def variants(option: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = CONNECTION["properties"][option]["oneOf"]
    return found


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        pytest.param(variants("credentials")[0], IamRole, id="IAM Role"),
        pytest.param(variants("credentials")[1], IamUser, id="IAM User"),
        pytest.param(variants("credentials")[2], DefaultChain, id="Default chain"),
        pytest.param(variants("format")[0], Parquet, id="Parquet"),
        pytest.param(CONNECTION["properties"]["naming"], NamingOptions, id="Naming"),
        pytest.param(CONNECTION["properties"]["rejects"], RejectOptions, id="Rejects"),
        pytest.param(CONNECTION["properties"]["lake_formation"], LakeFormationOptions, id="Lake Formation"),
        pytest.param(GOVERNANCE["table_tags"]["items"], TableTags, id="Tags"),
        pytest.param(GOVERNANCE["grants"]["items"], Grant, id="Grants"),
        pytest.param(STREAM, StreamOptions, id="Stream"),
        pytest.param(STREAM["properties"]["partition_by"]["items"], PartitionBy, id="Partition by"),
        pytest.param(STREAM["properties"]["sort_by"]["items"], SortBy, id="Sort by"),
        pytest.param(variants("encryption")[0], BucketDefault, id="Bucket default"),
        pytest.param(variants("encryption")[1], SseS3, id="SSE-S3"),
        pytest.param(variants("encryption")[2], SseKms, id="SSE-KMS"),
        pytest.param(variants("maintenance")[0], NoMaintenance, id="No maintenance"),
        pytest.param(variants("maintenance")[1], GlueOptimizers, id="Glue's optimizers"),
        pytest.param(variants("maintenance")[2], ConnectorMaintenance, id="Maintenance by the connector"),
        pytest.param(CONNECTION["properties"]["dedup"], DedupOptions, id="Deduplication"),
        pytest.param(SPARK, SparkOptions, id="Spark"),
    ],
)
def test_the_spec_and_the_configuration_have_the_same_options_rules_and_defaults(
    spec: dict[str, Any], model: type[BaseModel]
) -> None:
    assert rules_in(spec) == rules_of(model)


def test_jsonl_differs_only_in_the_default_of_its_codec() -> None:
    written, required = rules_in(variants("format")[1])
    assert written["compression_codec"].pop("default") == "UNCOMPRESSED"

    assert (written, required) == rules_of(Jsonl)


def test_the_top_level_of_the_spec_and_the_configuration_agree() -> None:
    written, required = rules_in(CONNECTION)
    held, needed = rules_of(Config)
    for nested in (
        "credentials",
        "format",
        "naming",
        "rejects",
        "lake_formation",
        "encryption",
        "spark",
        "maintenance",
        "dedup",
    ):
        assert written.pop(nested) == {"type": "object"}
        held.pop(nested)

    assert (written, required) == (held, needed)
    assert list(CONNECTION["properties"]) == list(Config.model_fields)


def test_options_are_ordered_in_existing_groups_with_title_and_description() -> None:
    groups = [group["id"] for group in CONNECTION["groups"]]
    options_in_order = list(CONNECTION["properties"].values())

    assert [option["order"] for option in options_in_order] == list(range(len(options_in_order)))
    used = [option["group"] for option in options_in_order]
    assert set(used) == set(groups)
    plain = [CONNECTION["properties"][name] for name in ("naming", "rejects", "lake_formation", "spark", "dedup")]
    chosen = [*variants("credentials"), *variants("format"), *variants("encryption"), *variants("maintenance")]
    listed = [GOVERNANCE["table_tags"]["items"], GOVERNANCE["grants"]["items"], STREAM]
    for nested in [CONNECTION, *chosen, *plain, *listed]:
        for name, option in nested["properties"].items():
            assert option["title"], name
            assert option.get("description") or "const" in option, name


def test_choices_are_one_of_with_a_constant_discriminator() -> None:
    text = json.dumps(CONNECTION)

    assert '"anyOf"' not in text
    assert '"allOf"' not in text
    assert [variant["properties"]["credentials_title"]["const"] for variant in variants("credentials")] == [
        "IAM Role",
        "IAM User",
        "Default chain",
    ]
    assert [variant["properties"]["format_type"]["const"] for variant in variants("format")] == ["Parquet", "JSONL"]
    assert [variant["properties"]["encryption_type"]["const"] for variant in variants("encryption")] == [
        "Bucket default",
        "SSE-S3",
        "SSE-KMS",
    ]


def test_the_spec_is_a_valid_schema_with_its_secrets_marked() -> None:
    jsonschema.Draft7Validator.check_schema(CONNECTION)

    assert find_secret_marking_errors(CONNECTION) == []


def test_the_spec_names_sync_modes_documentation_and_protocol_version() -> None:
    assert SPEC["supported_destination_sync_modes"] == ["overwrite", "append", "append_dedup"]
    assert SPEC["supportsIncremental"] is True
    assert SPEC["documentationUrl"].startswith("https://")
    assert SPEC["protocol_version"].count(".") == 2


def test_the_spec_message_is_that_of_the_cdk_s_class() -> None:
    answer = DestinationDatalake().spec(logging.getLogger(__name__))

    assert json.loads(spec_message()) == AirbyteMessageSerializer.dump(AirbyteMessage(type=Type.SPEC, spec=answer))


@pytest.mark.parametrize(
    "given_options",
    [
        {},
        {"bucket_prefix": "/a/b/", "aws_account_id": "", "region": " eu-west-1 "},
        {"format": {"format_type": "JSONL", "compression_codec": "GZIP"}, "endpoint_url": None},
        {"partitioning": "NO PARTITIONING", "lakeformation_governed_tables": False, "colour": "green"},
        {"partitioning": "YEAR/MONTH/DAY", "partition_source": "created_at"},
        {"table_type": "HIVE", "path_layout": "segment", "timezone": "Europe/Berlin", "catalog_partitions": "both"},
        {"streams": [{"stream": "orders", "partition_by": [{"source": "id", "transform": "bucket[16]"}]}]},
        {"lakeformation_governed_tables": True, "encryption": {"encryption_type": "SSE-S3"}},
        {"lake_formation": {"mode": "hybrid", "tags": {"a": ["b"]}, "grants": []}, "glue_catalog_id": "123456789012"},
        {"spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}}},
        {"credentials": {"credentials_title": "Default chain"}},
        {"table_prefix": "Raw_", "database_strategy": "single", "naming": {"style": "preserve"}},
        {"table_prefix": "", "naming": {"split_numbers": True}},
        {"dedup": {"deletes": "merge_on_read", "cdc_deletion": "soft"}},
    ],
)
def test_options_that_the_configuration_accepts_are_valid_by_the_spec(given_options: dict[str, Any]) -> None:
    given = {**SMALLEST, **given_options}
    Config.parse(given)

    jsonschema.validate(normalised(given), CONNECTION)
