"""Whole syncs under Lake Formation: what they ask of it, and how they fail."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from emulated_aws.account import Account, allow, deny
from emulated_aws.requests.log import RequestLog
from emulated_aws.server import ACCOUNT_ID

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform

pytestmark = pytest.mark.share(2)

ANALYST = f"arn:aws:iam::{ACCOUNT_ID}:role/analyst"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "email": {"type": "string"}},
}
STREAMS = ("orders", "users", "visits")


def options(lake: Lake, mode: str) -> dict[str, object]:
    """Return `lake_formation` with something of each kind."""
    if mode == "none":
        return {"mode": mode}
    key = lake.database.replace("_", "-")
    return {
        "mode": mode,
        "registration_role_arn": f"arn:aws:iam::{ACCOUNT_ID}:role/lake-formation",
        "tags": {f"domain-{key}": ["sales"]},
        "table_tags": [{"table": "*", "columns": ["email"], "tags": {f"pii-{key}": ["yes"]}}],
        "grants": [
            {"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS", "DESCRIBE"]},
            {"principal": ANALYST, "permissions": ["SELECT"], "table": "*", "columns": ["id"]},
        ],
    }


def sync(platform: Platform, config: Mapping[str, object], *streams: str) -> Run:
    """Sync a record of each stream."""
    catalog = configured_catalog(*(configured_stream(name, SCHEMA) for name in streams))
    lines = [record(name, {"id": 1, "email": "a@example.org"}) for name in streams]
    lines += [state(name, 1) for name in streams]
    return platform.write(config, catalog, [*lines, *(status(name, "COMPLETE") for name in streams)])


def asked(log: RequestLog) -> Counter[str]:
    """Return how often each operation of Lake Formation was called since the last time."""
    counts = Counter(request.operation for request in log.read(service="lakeformation"))
    log.restart()
    return counts


@pytest.fixture
def account(lake: Lake) -> Account:
    return Account(lake.endpoint_url)


@pytest.mark.parametrize(
    ("mode", "streams", "first", "second"), [("none", 1, 0, 0), ("hybrid", 1, 20, 10), ("managed", 3, 24, 12)]
)
def test_a_second_sync_only_reads_from_lake_formation(
    platform: Platform, lake: Lake, mode: str, streams: int, first: int, second: int
) -> None:
    config = lake.config(lake_formation=options(lake, mode))
    log = RequestLog(lake.endpoint_url)
    counts: list[Counter[str]] = []

    for _ in range(2):
        assert sync(platform, config, *STREAMS[:streams]).exit_code == 0
        counts.append(asked(log))

    assert [calls.total() for calls in counts] == [first, second], counts
    assert [name for name in counts[1] if not name.startswith(("Get", "List"))] == []
    assert (counts[0]["CreateLakeFormationOptIn"] > 0) == (mode == "hybrid")


def test_a_location_that_cannot_be_governed_fails_the_sync_before_a_record_is_read(
    platform: Platform, lake: Lake, account: Account
) -> None:
    caller = account.user(allow("*"), deny("lakeformation:RegisterResource"))
    config = lake.config(lake_formation=options(lake, "managed"), credentials=caller.credentials)

    run = sync(platform, config, "orders")

    assert run.exit_code == 1
    [error] = run.errors
    assert error["failure_type"] == "config_error"
    assert f"Allow lakeformation:RegisterResource on * in an IAM policy of {caller.arn}" in error["message"]
    assert run.states == []
    assert not lake.objects()


def test_a_stream_whose_table_cannot_be_governed_fails_alone(platform: Platform, lake: Lake, account: Account) -> None:
    caller, key = account.user(allow("*")), lake.database
    account.client("lakeformation").create_lf_tag(TagKey=key, TagValues=["yes"])
    tag = {"LFTag": {"TagKey": key, "TagValues": ["yes"]}}
    account.grant(caller, tag, "DESCRIBE")
    tagged = {"mode": "managed", "table_tags": [{"table": "orders", "tags": {key: ["yes"]}}]}
    config = lake.config(lake_formation=tagged, credentials=caller.credentials)

    run = sync(platform, config, "orders", "users")

    [error] = run.errors
    message = error["message"]
    assert f"{caller.arn} needs ASSOCIATE on LF-Tag {key}. Run: aws lakeformation grant-permissions" in message
    assert [released.body["stream"]["stream_descriptor"]["name"] for released in run.states] == ["users"]
    assert [row["id"] for row in lake.rows(lake.database, "users")] == [1]
    assert lake.rows(lake.database, "orders") == []

    account.grant(caller, tag, "ASSOCIATE")
    assert sync(platform, config, "orders", "users").exit_code == 0
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]


def test_the_grants_that_refusals_name_are_those_that_are_missing(
    platform: Platform, lake: Lake, account: Account
) -> None:
    """In a database of which Lake Formation decides, and with nothing in the options about it."""
    caller = account.user(allow("*"))
    account.governed_database(lake.database)
    role = f"arn:aws:iam::{ACCOUNT_ID}:role/lake-formation"
    account.client("lakeformation").register_resource(ResourceArn=f"arn:aws:s3:::{lake.bucket}", RoleArn=role)
    granted: list[str] = []

    while (run := sync(platform, lake.config(credentials=caller.credentials), "orders")).exit_code != 0:
        [error] = run.errors
        words = shlex.split(error["message"].partition("Run: ")[2])
        assert words[:3] == ["aws", "lakeformation", "grant-permissions"], error["message"]
        permission = words[words.index("--permissions") + 1]
        assert permission not in granted, error["message"]
        account.grant(caller, json.loads(words[words.index("--resource") + 1]), permission)
        granted.append(permission)

    assert granted == ["DESCRIBE", "CREATE_TABLE", "DATA_LOCATION_ACCESS"]
    assert [row["id"] for row in lake.rows(lake.database, "orders")] == [1]
