"""A whole check: it answers with sentences, logs its steps, and does not meet another one; who the caller is."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from destination_datalake.aws.access import role_of_session
from destination_datalake.check.connection import STEPS, CheckResult, check_connection, try_identity, try_server
from destination_datalake.check.step import StepFindings
from destination_datalake.config.options import Config
from unit_tests.check.examples import a_context
from unit_tests.cloud import Cloud
from unit_tests.config.examples import options
from unit_tests.spark.connect.server import Server

KEY = "arn:aws:kms:us-east-1:123456789012:key/1"


def check(unique: str = "1" * 32, **changes: Any) -> CheckResult:
    return check_connection(Config.parse(options(region="us-east-1", **changes)), unique)


def make_administrator(cloud: Cloud) -> None:
    """Have the caller administer Lake Formation, which defines an LF-Tag and governs what is new."""
    caller = role_of_session(cloud.access.client("sts").get_caller_identity()["Arn"])
    settings: Any = {"DataLakeAdmins": [{"DataLakePrincipalIdentifier": caller}]}
    client = cloud.access.client("lakeformation")
    client.put_data_lake_settings(DataLakeSettings=settings)
    client.create_lf_tag(TagKey="domain", TagValues=["sales"])


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(text) for text in caplog.messages if text.startswith('{"id"')]


@pytest.mark.parametrize(
    "encryption",
    [
        {"encryption_type": "Bucket default"},
        {"encryption_type": "SSE-S3"},
        {"encryption_type": "SSE-KMS", "kms_key_arn": KEY},
    ],
    ids=lambda encryption: encryption["encryption_type"],
)
@pytest.mark.parametrize(
    ("bucket_prefix", "master", "mode"),
    [(None, "local[*]", "none"), ("lake/raw", "spark://cluster:7077", "hybrid"), ("lake/raw", "local[*]", "managed")],
)
def test_a_working_configuration_logs_each_step_and_leaves_only_the_database(
    cloud: Cloud,
    caplog: pytest.LogCaptureFixture,
    encryption: dict[str, str],
    bucket_prefix: str | None,
    master: str,
    mode: str,
) -> None:
    changes: dict[str, Any] = {
        "encryption": encryption,
        "bucket_prefix": bucket_prefix,
        "spark": {"master": master},
        "raw_archive": {"enabled": True},
        "lake_formation": {"mode": mode, "tags": {"domain": ["sales"]} if mode != "none" else {}},
    }
    make_administrator(cloud)
    with caplog.at_level(logging.INFO):
        result = check(**changes)

    assert result.problems == []
    config = Config.parse(options(**changes))
    lines = logged(caplog)
    assert [line["id"] for line in lines] == [step.id for step in STEPS if step.applies(config)]
    assert [line["id"] for line in lines if not line["success"]] == []
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])
    assert cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"] == []


def test_sentences_are_in_the_order_of_the_steps(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result = check(bucket_name="nobody-s", lakeformation_database_name="UPPER")

    assert [problem.partition(" (")[0] for problem in result.problems] == ["Cannot find s3://nobody-s/"]
    failed = [line["id"] for line in logged(caplog) if not line["success"]]
    assert failed == ["region", "tables_folder", "rejects_folder", "kms_key"]
    assert cloud.objects() == {}


def test_two_checks_at_once_do_not_meet(cloud: Cloud) -> None:
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(check, ["1" * 32, "2" * 32]))

    assert results == [CheckResult([]), CheckResult([])]
    assert cloud.objects() == {}
    assert cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"] == []


ACCOUNT = "123456789012"


@pytest.mark.parametrize(("account", "failures"), [(None, 0), (ACCOUNT, 0), ("999999999999", 1)])
def test_credentials_of_another_account_are_a_failure(cloud: Cloud, account: str | None, failures: int) -> None:
    findings = StepFindings()

    try_identity(a_context(cloud.access, aws_account_id=account), findings)

    assert len(findings.failures) == failures


def test_a_configured_role_is_the_principal_of_remedies(cloud: Cloud) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/team/loader"
    context = a_context(cloud.access, credentials={"credentials_title": "IAM Role", "role_arn": role})

    try_identity(context, StepFindings())

    assert context.remedies is not None
    assert context.remedies.principal == role


def test_a_server_without_tls_is_warned_of(cloud: Cloud) -> None:
    findings = StepFindings()

    with Server() as server:
        try_server(a_context(cloud.access, spark={"remote": server.url}), findings)

    assert findings.failures == []
    assert [note.partition(",")[0] for note in findings.notes] == ["The connection to spark.remote does not use TLS"]
