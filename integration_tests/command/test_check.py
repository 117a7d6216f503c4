"""`check` through the command line: it tries everything, leaves nothing behind, and names each problem."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from emulated_aws.account import Account, allow
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY

from destination_datalake.tables.glue.catalog import ensure_database
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.launch import COMMAND, with_variables
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch

pytestmark = pytest.mark.share(8)


def test_a_working_configuration_succeeds_and_leaves_only_the_database_behind(container: Platform, lake: Lake) -> None:
    run = container.check(lake.config())

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert run.exit_code == 0
    assert lake.objects() == {}
    assert lake.unfinished_uploads() == []
    assert lake.tables() == []
    assert lake.glue.get_database(Name=lake.database)["Database"]["Name"] == lake.database


def test_each_step_is_a_log_message_of_one_line_of_json(platform: Platform, lake: Lake) -> None:
    run = platform.check(lake.config())

    lines = [json.loads(text.removeprefix("INFO: ")) for text in run.logs if text.startswith('INFO: {"id"')]
    assert [line["id"] for line in lines] == [
        "java",
        "identity",
        "region",
        "tables_folder",
        "rejects_folder",
        "kms_key",
        "database",
        "table",
        "existing_tables",
    ]
    for line in lines:
        assert set(line) == {"id", "name", "success", "error", "error_class", "duration_ms"}
        assert (line["success"], line["error"], line["error_class"]) == (True, None, None)


def test_what_a_killed_check_leaves_behind_is_in_nobody_s_way(
    lake: Lake, tmp_path: Path, launch: WarmLaunch, platform: Platform
) -> None:
    in_the_middle = KillPoint("before", "destination_datalake.check.catalog:_try_partition")

    killed = Platform(tmp_path, launch.killed_at(in_the_middle)).check(lake.config())

    assert killed.exit_code == -9
    assert len(lake.tables()) == 1
    assert platform.check(lake.config()).connection_status == {"status": "SUCCEEDED"}


def test_concurrent_checks_do_not_interfere(platform: Platform, lake: Lake) -> None:
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(platform.check, [lake.config()] * 2))

    assert [run.connection_status["status"] for run in runs] == ["SUCCEEDED", "SUCCEEDED"]
    assert (lake.objects(), lake.tables()) == ({}, [])


def test_a_role_is_assumed_with_the_credentials_of_the_environment(
    lake: Lake, tmp_path: Path, launch: WarmLaunch
) -> None:
    role = {
        "credentials_title": "IAM Role",
        "role_arn": f"arn:aws:iam::{ACCOUNT_ID}:role/airbyte",
        "external_id": "airbyte-1",
        "session_duration_seconds": 900,
    }
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}

    run = Platform(tmp_path, with_variables(launch, **keys)).check(lake.config(credentials=role))

    assert run.connection_status == {"status": "SUCCEEDED"}


def test_a_region_that_is_not_known_is_no_place_for_another_bucket(platform: Platform, lake: Lake) -> None:
    refusal = platform.check(lake.config(region="us-east-9")).refusal

    assert refusal.startswith(
        f"Bucket {lake.bucket} is in region {REGION}, but region is us-east-9. Set region to {REGION}."
    )


def test_another_account_than_the_configured_one_is_named(platform: Platform, lake: Lake) -> None:
    refusal = platform.check(lake.config(aws_account_id="999999999999")).refusal

    assert f"The credentials belong to AWS account {ACCOUNT_ID}" in refusal
    assert "aws_account_id is 999999999999" in refusal


def test_an_unreachable_endpoint_is_reported_in_time(platform: Platform, lake: Lake) -> None:
    refusal = platform.check(lake.config(endpoint_url="http://127.0.0.1:9")).refusal

    assert "Cannot identify the owner of the credentials" in refusal
    assert "Check region, endpoint_url and the network" in refusal


def test_a_key_that_aws_does_not_know_is_reported_once_and_not_for_every_service(
    platform: Platform, lake: Lake
) -> None:
    keys = {"aws_access_key_id": "AKIANOBODY1234567890", "aws_secret_access_key": "n0b0dy/knows/this/secret"}
    account = Account(lake.endpoint_url)
    account.user(allow("s3:*"))  # From the first user on the account knows its keys.

    refusal = platform.check(lake.config(credentials={"credentials_title": "IAM User", **keys})).refusal

    assert "the access key ID does not exist. Correct aws_access_key_id and aws_secret_access_key" in refusal
    assert "\n" not in refusal


def test_missing_permissions_are_named_with_the_policy_that_has_them_all(platform: Platform, lake: Lake) -> None:
    user = Account(lake.endpoint_url).user(allow("s3:*", "glue:*Database", "glue:CreateTable", "glue:DeleteTable"))

    refusal = platform.check(lake.config(credentials=user.credentials)).refusal

    assert "glue:GetTable" in refusal
    assert "glue:UpdateTable" in refusal
    intro, _, policy = refusal.splitlines()[-1].partition("`: ")
    assert intro.startswith(
        "The complete IAM policy for this configuration, as printed by `destination-datalake iam-policy"
    )
    actions = {action for statement in json.loads(policy)["Statement"] for action in statement["Action"]}
    assert {"s3:PutObject", "glue:GetTable", "glue:UpdateTable", "glue:CreateTable"} <= actions
    assert (lake.objects(), lake.unfinished_uploads(), lake.tables()) == ({}, [], [])


def test_notes_about_tables_that_are_there_are_in_the_answer_and_those_of_others_are_not(
    platform: Platform, lake: Lake
) -> None:
    for stream, namespace, folder in (
        ("orders", lake.database, f"{lake.bucket}/{PREFIX}/{lake.database}/orders/data"),
        ("users", lake.name("shop"), "another-lake/shop/users"),
    ):
        namespace_parameter = {} if namespace == lake.database else {"airbyte.stream-namespace": namespace}
        entry: Any = {
            "Name": stream,
            "Parameters": {"airbyte.stream-name": stream, "airbyte.naming": "snake_case", **namespace_parameter},
            "StorageDescriptor": {"Location": f"s3://{folder}/"},
        }
        ensure_database(lake.glue, namespace)
        lake.glue.create_table(DatabaseName=namespace, TableInput=entry)

    status = platform.check(lake.config(table_type="ICEBERG")).connection_status

    assert status["status"] == "SUCCEEDED"
    assert f"syncs refuse to write to these tables: {lake.database}.orders (Hive, stream orders)" in status["message"]
    assert "users" not in status["message"]


def test_invalid_options_are_a_failed_status_with_a_sentence_for_each(platform: Platform, lake: Lake) -> None:
    refusal = platform.check(
        lake.config(region="Ireland", bucket_prefix="../other", format={"format_type": "JSONL"}, table_type="ICEBERG")
    ).refusal

    assert 'region "Ireland" is not valid.' in refusal
    assert 'bucket_prefix "../other" is not valid. It must be a path of folders inside the bucket' in refusal
    assert "table_type ICEBERG does not support format_type JSONL" in refusal


def test_an_unknown_option_is_in_the_answer_and_a_misspelt_one_fails(platform: Platform, lake: Lake) -> None:
    unknown, misspelt = platform.check(lake.config(colour="green")), platform.check(lake.config(tableprefix="raw_"))

    warning = "Unknown option colour is ignored."
    assert unknown.connection_status == {"status": "SUCCEEDED", "message": warning}
    assert any(warning in text for text in unknown.logs)
    assert misspelt.refusal == "Unknown option tableprefix. Did you mean table_prefix?"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("not json {", "is not valid JSON: line 1, column 1: Expecting value."),
        ('{"region": "eu-west-1",\n "bucket_name": }', "is not valid JSON: line 2, column 17: Expecting value."),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "is nested too deeply"),
        ('{"batch_size_mb": ' + "9" * 5000 + "}", "contains a number with too many digits"),
        ('{"batch_size_mb": ' + "9" * 400 + "}", "batch_size_mb 999"),
        ("[]", "does not contain a JSON object"),
        (None, "cannot be read: No such file"),
    ],
)
def test_an_unreadable_configuration_file_is_a_failed_status(
    platform: Platform, tmp_path: Path, content: str | None, reason: str
) -> None:
    config = tmp_path / "config.json"
    if content is not None:
        config.write_text(content)

    run = platform.run("check", "--config", str(config))

    assert reason in run.refusal
    assert "not json" not in str(run.messages)


@pytest.mark.parametrize("version", [None, "11"])
def test_an_unusable_java_is_named_without_starting_spark(
    lake: Lake, tmp_path: Path, launch: WarmLaunch, version: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if version is not None:
        java.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
        java.chmod(0o755)

    refusal = Platform(tmp_path, with_variables(launch, JAVA_HOME=str(tmp_path))).check(lake.config()).refusal

    assert str(java) in refusal
    assert "Install a Java runtime 17 or newer" in refusal
    assert lake.objects() == {}


def test_check_does_not_import_the_engine(lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(lake.config()))

    done = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, "check", "--config", str(config)],
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"pyspark", "py4j", "pandas", "awswrangler", "pyiceberg", "pyarrow"})
