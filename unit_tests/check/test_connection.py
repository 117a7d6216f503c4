"""A whole check: it answers with sentences, logs its steps, and does not meet another one."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from destination_datalake.aws.caller import role_of_session
from destination_datalake.check.connection import STEPS, CheckResult, check_connection
from destination_datalake.config.options import Config
from unit_tests.cloud import Cloud
from unit_tests.config.examples import options

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
        "lake_formation": {"mode": mode, "tags": {"domain": ["sales"]} if mode != "none" else {}},
    }
    make_administrator(cloud)
    with caplog.at_level(logging.INFO):
        found = check(**changes)

    assert found.problems == []
    config = Config.parse(options(**changes))
    lines = logged(caplog)
    assert [line["id"] for line in lines] == [step.id for step in STEPS if step.applies(config)]
    assert [line["id"] for line in lines if not line["success"]] == []
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])
    assert cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"] == []


def test_sentences_are_in_the_order_of_the_steps(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = check(bucket_name="nobody-s", lakeformation_database_name="UPPER")

    assert [said.partition(" (")[0] for said in found.problems] == ["Cannot find s3://nobody-s/"]
    failed = [line["id"] for line in logged(caplog) if not line["success"]]
    assert failed == ["region", "tables_folder", "rejects_folder", "kms_key"]
    assert cloud.objects() == {}


def test_two_checks_at_once_do_not_meet(cloud: Cloud) -> None:
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(check, ["1" * 32, "2" * 32]))

    assert found == [CheckResult([]), CheckResult([])]
    assert cloud.objects() == {}
    assert cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"] == []
