"""The policy of a configuration: what it allows and within which limits; permissions of Lake Formation."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.aws.objects import S3Address
from destination_datalake.iam_policy.policy import (
    MANAGED_POLICY_CHARACTERS,
    Statement,
    characters,
    document,
    lake_formation_grants,
    parts,
    statements,
)
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import AllTables, Database, Resource
from destination_datalake.protocol.catalog import StreamId
from unit_tests.config.examples import ROLE
from unit_tests.examples import examples
from unit_tests.iam_policy.examples import ACCOUNT, ANALYST, KEY, LOCATION_ROLE, actions, config, policy

GLUE = f"arn:aws:glue:eu-west-1:{ACCOUNT}"
READ_BY_ANALYST = {"principal": ANALYST, "permissions": ["SELECT"], "table": "*"}
USES_LOCATION = {"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS"]}


def test_without_governance_and_keys_a_policy_is_about_s3_and_glue_alone() -> None:
    assert policy(config()) == {
        "Objects": Statement(
            "Objects",
            ("s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
            ("arn:aws:s3:::lake/airbyte/*",),
            {},
        ),
        "Folders": Statement(
            "Folders", ("s3:ListBucket",), ("arn:aws:s3:::lake",), {"StringLike": {"s3:prefix": ("airbyte/*",)}}
        ),
        "Databases": Statement(
            "Databases", ("glue:GetDatabase", "glue:CreateDatabase"), (f"{GLUE}:catalog", f"{GLUE}:database/raw"), {}
        ),
        "Tables": Statement(
            "Tables",
            ("glue:GetTable", "glue:CreateTable", "glue:UpdateTable"),
            (f"{GLUE}:catalog", f"{GLUE}:database/raw", f"{GLUE}:table/raw/*"),
            {},
        ),
        "Rejects": Statement(
            "Rejects",
            ("glue:BatchCreatePartition",),
            (
                f"{GLUE}:catalog",
                f"{GLUE}:database/raw",
                f"{GLUE}:table/raw/airbyte_rejects",
                f"{GLUE}:table/raw/airbyte_check_*",
            ),
            {},
        ),
        "Reports": Statement(
            "Reports",
            ("glue:GetPartition", "glue:BatchCreatePartition"),
            (f"{GLUE}:catalog", f"{GLUE}:database/raw", f"{GLUE}:table/raw/airbyte_sync_reports"),
            {},
        ),
        "CheckedTables": Statement(
            "CheckedTables",
            ("glue:DeleteTable",),
            (f"{GLUE}:catalog", f"{GLUE}:database/raw", f"{GLUE}:table/raw/airbyte_check_*"),
            {},
        ),
        "ExistingTables": Statement(
            "ExistingTables",
            ("glue:GetTables",),
            (f"{GLUE}:catalog", f"{GLUE}:database/raw", f"{GLUE}:table/raw/*"),
            {},
        ),
    }


def test_a_policy_with_an_archive_allows_to_read_lifecycle_rules_and_to_drop_what_replaces_a_table() -> None:
    archived = policy(config(raw_archive={"enabled": True}))

    assert archived.pop("Rebuilds") == Statement(
        "Rebuilds",
        ("glue:DeleteTable",),
        (f"{GLUE}:catalog", f"{GLUE}:database/raw", f"{GLUE}:table/raw/*__rebuild"),
        {},
    )
    assert archived.pop("Lifecycle") == Statement(
        "Lifecycle", ("s3:GetLifecycleConfiguration",), ("arn:aws:s3:::lake",), {}
    )
    assert archived == policy(config())


def test_a_policy_is_about_s3_alone_where_tables_are_not_in_glue() -> None:
    in_rest = config(table_type="ICEBERG", catalog={"type": "rest", "uri": "https://polaris.example.com"})

    assert policy(in_rest).keys() == {"Objects", "Folders"}


def test_a_policy_is_about_the_table_bucket_where_tables_are_in_one() -> None:
    bucket = f"arn:aws:s3tables:eu-west-1:{ACCOUNT}:bucket/lake"

    by_sid = policy(config(table_type="ICEBERG", catalog={"type": "s3_tables", "table_bucket_arn": bucket}))

    assert by_sid.keys() == {"Objects", "Folders", "TableBucket", "TablesInBucket"}
    assert by_sid["TableBucket"].resources == (bucket,)
    assert by_sid["TablesInBucket"].resources == (f"{bucket}/table/*",)
    assert "s3tables:PutTableData" in by_sid["TablesInBucket"].actions


def test_a_policy_for_glue_s_own_endpoint_names_the_catalogs_that_requests_pass() -> None:
    options = {"type": "glue_rest", "warehouse": f"{ACCOUNT}:s3tablescatalog/lake", "vended_credentials": True}

    by_sid = policy(config(table_type="ICEBERG", catalog=options))

    catalogs = (f"{GLUE}:catalog", f"{GLUE}:catalog/s3tablescatalog", f"{GLUE}:catalog/s3tablescatalog/lake")
    assert by_sid["Catalogs"].resources == catalogs
    assert by_sid["Tables"].resources == (
        *catalogs,
        f"{GLUE}:database/s3tablescatalog/lake/raw",
        f"{GLUE}:table/s3tablescatalog/lake/raw/*",
    )
    assert by_sid["TablesInBucket"].actions == ("s3tables:GetTableData", "s3tables:PutTableData")
    assert by_sid["LakeFormation"].actions == ("lakeformation:GetDataAccess",)
    assert "Rejects" not in by_sid


def test_a_policy_for_the_data_catalog_s_endpoint_is_that_for_glue_with_one_action_more() -> None:
    plain, asked = policy(config(table_type="ICEBERG")), policy(config(catalog={"type": "glue_rest"}))

    assert asked.keys() - plain.keys() == {"Catalogs"}
    assert plain.keys() - asked.keys() == {"ExistingTables"}


@pytest.mark.parametrize("changes", [{"table_type": "HIVE"}, {"format": {"format_type": "JSONL"}}], ids=str)
def test_a_policy_for_hive_tables_also_allows_to_list_the_tables_of_every_database(changes: dict[str, Any]) -> None:
    streams = [StreamId("shop", "orders")]
    hive = policy(config(**changes), streams)

    assert hive.pop("FormerFolders") == Statement(
        "FormerFolders",
        ("glue:GetTables",),
        (
            f"{GLUE}:catalog",
            f"{GLUE}:database/raw",
            f"{GLUE}:database/shop",
            f"{GLUE}:table/raw/*",
            f"{GLUE}:table/shop/*",
        ),
        {},
    )
    assert hive == policy(config(), streams)


@pytest.mark.parametrize(
    "changes",
    [
        {"spark": {"master": "spark://spark:7077"}},
        {"encryption": {"encryption_type": "SSE-S3"}},
    ],
    ids=str,
)
def test_spark_s_master_and_keys_of_s3_do_not_change_the_policy(changes: dict[str, Any]) -> None:
    assert policy(config(**changes)) == policy(config())


PARTITIONS = {"table_type": "HIVE", "partitioning": "DATE"}


@pytest.mark.parametrize(
    ("changes", "registers"),
    [
        (PARTITIONS, True),
        ({"table_type": "HIVE", "path_layout": "segment"}, True),
        ({"table_type": "HIVE", "streams": [{"stream": "a", "partition_by": [{"source": "b"}]}]}, True),
        ({**PARTITIONS, "catalog_partitions": "both"}, True),
        ({**PARTITIONS, "catalog_partitions": "projection"}, False),
        ({"partitioning": "DATE"}, False),
        ({"table_type": "HIVE"}, False),
    ],
)
def test_partitions_of_hive_tables_are_registered_in_all_databases(changes: dict[str, Any], registers: bool) -> None:
    statement = policy(config(**changes), [StreamId("shop", "orders")]).get("Partitions")

    assert (statement is not None) == registers
    if statement is not None:
        assert [action.removeprefix("glue:") for action in statement.actions] == [
            "BatchGetPartition",
            "GetPartitions",
            "BatchCreatePartition",
            "BatchUpdatePartition",
            "BatchDeletePartition",
        ]
        assert f"{GLUE}:table/shop/*" in statement.resources


def test_without_a_prefix_all_objects_and_no_others_are_the_connector_s() -> None:
    by_sid = policy(config(bucket_prefix=...))

    assert by_sid["Objects"].resources == ("arn:aws:s3:::lake/*",)
    assert by_sid["Folders"].condition == {"StringLike": {"s3:prefix": ("*",)}}


def test_a_key_is_used_through_s3_alone() -> None:
    statement = policy(config(encryption={"encryption_type": "SSE-KMS", "kms_key_arn": KEY}))["Key"]

    assert (statement.actions, statement.resources) == (("kms:GenerateDataKey", "kms:Decrypt"), (KEY,))
    assert statement.condition == {"StringEquals": {"kms:ViaService": ["s3.eu-west-1.amazonaws.com"]}}


@pytest.mark.parametrize(
    ("region", "partition"), [("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_arns_are_of_the_region_s_partition(region: str, partition: str) -> None:
    by_sid = policy(config(region=region))

    arns = {arn.split(":")[1] for statement in by_sid.values() for arn in statement.resources}
    assert arns == {partition}


def test_the_catalog_may_be_another_account_s_and_in_another_region() -> None:
    by_sid = policy(config(glue_catalog_id="210987654321", glue_region="us-east-1"))

    assert by_sid["Databases"].resources == (
        "arn:aws:glue:us-east-1:210987654321:catalog",
        "arn:aws:glue:us-east-1:210987654321:database/raw",
    )


@pytest.mark.parametrize(
    ("changes", "account"),
    [
        ({"credentials": ROLE, "aws_account_id": ...}, "123456789012"),
        ({"credentials": ROLE, "aws_account_id": "111111111111"}, "111111111111"),
        ({"glue_catalog_id": "222222222222"}, "222222222222"),
        ({"aws_account_id": ...}, "*"),
    ],
    ids=["role", "account", "catalog", "none"],
)
def test_the_account_is_the_catalog_s_or_the_configured_one_or_the_role_s(
    changes: dict[str, Any], account: str
) -> None:
    assert Scope.for_config(config(**changes)).account == account


def test_namespaces_have_databases_of_their_own() -> None:
    streams = [StreamId("Shop Floor", "orders"), StreamId(None, "users"), StreamId("billing", "orders")]

    assert Scope.for_config(config(), streams).databases == ("raw", "billing", "shop_floor")
    assert Scope.for_config(config(database_strategy="single"), streams).databases == ("raw",)
    assert "database/*" not in json.dumps(document(statements(config(), Scope.for_config(config(), streams))))


def test_rejects_and_probes_are_in_the_first_database_alone() -> None:
    by_sid = policy(config(), [StreamId("shop", "orders")])

    assert f"{GLUE}:table/shop/*" in by_sid["Tables"].resources
    for sid in ("Rejects", "CheckedTables", "ExistingTables"):
        assert not any("shop" in resource for resource in by_sid[sid].resources)


def test_databases_that_the_options_of_lake_formation_name_are_in_the_policy() -> None:
    governed = {"mode": "managed", "grants": [{**READ_BY_ANALYST, "database": "shop"}]}

    assert Scope.for_config(config(lake_formation=governed)).databases == ("raw", "shop")


def test_tables_elsewhere_are_named_by_their_folders() -> None:
    by_sid = policy(config(follow_table_location=True), outside=[S3Address("old-lake", "sales/")])

    assert by_sid["Objects"].resources == ("arn:aws:s3:::lake/airbyte/*", "arn:aws:s3:::old-lake/sales/*")
    assert by_sid["Folders"].resources == ("arn:aws:s3:::lake", "arn:aws:s3:::old-lake")
    assert by_sid["Folders"].condition == {"StringLike": {"s3:prefix": ("airbyte/*", "sales/*")}}


LISTED = {"ListResources", "ListPermissions", "GetDataLakeSettings"}
TAGS = {"GetLFTag", "CreateLFTag", "UpdateLFTag", "GetResourceLFTags", "AddLFTagsToResource"}
GRANTS = {"GrantPermissions"}
OPT_INS = {"ListLakeFormationOptIns", "CreateLakeFormationOptIn"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"lakeformation_governed_tables": True}, LISTED),
        ({"lake_formation": {"mode": "managed"}}, LISTED),
        ({"lake_formation": {"mode": "managed", "tags": {"domain": ["sales"]}}}, LISTED | TAGS),
        ({"lakeformation_database_default_tag_key": "t", "lakeformation_database_default_tag_values": "a"}, TAGS),
        ({"lake_formation": {"mode": "managed", "grants": [READ_BY_ANALYST]}}, LISTED | GRANTS),
        ({"lake_formation": {"mode": "hybrid", "grants": [READ_BY_ANALYST]}}, LISTED | GRANTS | OPT_INS),
        ({"lake_formation": {"mode": "hybrid", "grants": [USES_LOCATION]}}, LISTED | GRANTS),
        (
            {"lake_formation": {"mode": "hybrid", "registration_role_arn": LOCATION_ROLE}},
            LISTED | {"RegisterResource"},
        ),
    ],
)
def test_lake_formation_s_actions_are_those_that_the_options_ask_for(
    changes: dict[str, Any], expected: set[str]
) -> None:
    allowed = actions(config(**changes))

    assert {
        action.removeprefix("lakeformation:") for action in allowed if action.startswith("lakeformation:")
    } == expected


def test_the_registration_role_is_passed_only_if_one_is_configured() -> None:
    registered = config(lake_formation={"mode": "hybrid", "registration_role_arn": LOCATION_ROLE})

    assert policy(registered)["RegistrationRole"].resources == (LOCATION_ROLE,)
    assert "RegistrationRole" not in policy(config(lake_formation={"mode": "hybrid"}))


def test_the_role_of_the_optimizers_is_passed_to_glue_alone() -> None:
    optimized = config(maintenance={"mode": "glue", "role_arn": LOCATION_ROLE})

    by_sid = policy(optimized)

    assert by_sid["OptimizerRole"].resources == (LOCATION_ROLE,)
    assert by_sid["OptimizerRole"].condition == {"StringEquals": {"iam:PassedToService": ["glue.amazonaws.com"]}}
    assert by_sid["TableOptimizers"].actions == ("glue:BatchGetTableOptimizer", "glue:CreateTableOptimizer")
    hive = config(maintenance={"mode": "glue", "role_arn": LOCATION_ROLE}, table_type="HIVE")
    assert policy(hive) == policy(config(table_type="HIVE"))


@pytest.mark.parametrize(
    ("strategy", "added"),
    [("namespace", {"MaintainedTables", "MaintainedDatabases"}), ("single", {"MaintainedTables"})],
)
def test_maintenance_by_the_connector_lists_databases_and_tables(strategy: str, added: set[str]) -> None:
    plain = config(database_strategy=strategy)

    maintained = policy(config(database_strategy=strategy, maintenance={"mode": "connector"}))

    assert maintained.keys() - policy(plain).keys() == added


def test_a_prefix_that_policies_cannot_hold_is_matched_by_a_wildcard() -> None:
    # IAM API: policyDocumentType has characters up to ÿ.
    assert policy(config(bucket_prefix="été/京都"))["Objects"].resources == ("arn:aws:s3:::lake/été/*/*",)


def test_a_name_of_a_namespace_never_is_a_wildcard() -> None:
    scope = Scope.for_config(
        config(naming={"style": "preserve"}), [StreamId("*", "orders"), StreamId("sh?p", "orders")]
    )

    assert scope.databases == ("raw", "sh_p", "unnamed_684888c0")


def test_a_policy_within_the_limit_is_one_document() -> None:
    whole = statements(config(), Scope.for_config(config()))

    assert parts(whole) == [whole]


@given(st.integers(1, 300), st.integers(1, 250))
@settings(max_examples=examples(50), deadline=None)
def test_parts_allow_what_the_policy_allows_and_each_is_within_the_limit(count: int, length: int) -> None:
    streams = [StreamId(f"{number:03}{'x' * length}", "orders") for number in range(count)]
    whole = statements(config(), Scope.for_config(config(), streams))

    divided = parts(whole)

    assert all(characters(part) <= MANAGED_POLICY_CHARACTERS for part in divided)
    assert all(
        characters([*part, *next_part]) > MANAGED_POLICY_CHARACTERS
        for part, next_part in pairwise(divided)
        if len(part) > 1
    )
    assert _allowed(statement for part in divided for statement in part) == _allowed(whole)
    for part in divided:
        assert len({statement.sid for statement in part}) == len(part)


def _allowed(policy_statements: Any) -> set[tuple[str, str, str]]:
    return {
        (action, resource, json.dumps(statement.condition))
        for statement in policy_statements
        for action in statement.actions
        for resource in statement.resources
    }


@pytest.mark.parametrize(
    ("tags", "resource", "permissions"),
    [
        ({"tags": {"domain": ["sales"]}}, Database("raw"), ("ALTER", "CREATE_TABLE", "DESCRIBE", "DROP")),
        (
            {"table_tags": [{"table": "orders", "tags": {"pii": ["high"]}}]},
            AllTables("raw"),
            ("ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"),
        ),
    ],
)
def test_who_tags_what_others_created_has_all_its_permissions_with_grant_option(
    tags: dict[str, Any], resource: Resource, permissions: tuple[str, ...]
) -> None:
    options = config(lake_formation={"mode": "managed", **tags})

    grantable = [grant for grant in lake_formation_grants(options, Scope.for_config(options)) if grant.grantable]
    assert [(grant.resource, grant.permissions) for grant in grantable] == [(resource, permissions)]


def test_an_lf_tag_for_databases_that_the_connector_creates_takes_no_grant_option() -> None:
    options = config(lakeformation_database_default_tag_key="t", lakeformation_database_default_tag_values="a")

    assert not any(grant.grantable for grant in lake_formation_grants(options, Scope.for_config(options)))
