"""Roles with exactly the printed policy: everything works, everything is used, and without any action it breaks."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from emulated_aws.account import Member
from emulated_aws.requests.log import Record

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.conditions import ARCHIVED
from destination_datalake.iam_policy.rules import CAPABILITIES
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.permissions.evaluation import actions, denied, refused_without, unused
from integration_tests.permissions.modes import KINDS, MODES, Mode
from integration_tests.permissions.scenarios import Requests, Tenant, messages, streams, succeeded

REFUSED: Mapping[str, str] = {
    "HeadBucket": "check asks for the bucket's region, which S3 tells with its refusal, too",
    "GetDatabases": "check looks for tables in other databases, for notes; who wants these allows it",
}
"""The operations that are tried although the policy does not allow them, and why."""

NOT_RECORDED: Mapping[str, str] = {
    "iam:GetRole": "AWS's own policy for administrators of data lakes has it; the tests' AWS does not ask for it",
}
"""The actions that no recorded request needs, and why they are in the policy."""

CLAIMED = {
    (permission.action, command)
    for capability in CAPABILITIES
    for permission in capability.permissions
    for command in ("check", "syncs")
    if command in permission.need.value
}
"""Which command uses which action, as the rules and the page say."""


@pytest.mark.share(1)
@pytest.mark.parametrize("name", MODES)
def test_a_policy_allows_what_its_configuration_needs_and_nothing_else(
    lake: Lake, workers: Member, tmp_path: Path, launch: WarmLaunch, name: str
) -> None:
    mode = MODES[name]
    tenant = Tenant.create(mode, lake, workers, tmp_path)

    launch = launch.without_shared_disk() if mode.remote_executors else launch
    requests = tenant.lives(mode.accident, tmp_path, launch)
    replayed = tenant.replays(tmp_path, launch) if ARCHIVED.holds(Config.parse(tenant.config)) else ()

    asked = [
        request for request in (*requests.of_check, *requests.of_syncs, *replayed) if request.operation not in REFUSED
    ]
    needs = [need for request in asked for need in request.needs]
    assert [summary(request) for request in asked if request.refusal] == []
    assert denied(tenant.document, needs) == []
    assert NOT_RECORDED.keys().isdisjoint(need.action for need in needs)
    known = {*NOT_RECORDED, *mode.unneeded}
    assert [pair for pair in unused(tenant.document, needs) if pair[0] not in known] == []
    refused = refused_without(tenant.document, [request.needs for request in asked])
    assert [action for action in actions(tenant.document) if not refused[action] and action not in NOT_RECORDED] == []

    assert used_by(requests) <= CLAIMED


@pytest.mark.slow
def test_tables_elsewhere_are_written_with_the_policy_that_names_their_folder(
    lake: Lake, workers: Member, tmp_path: Path, launch: WarmLaunch
) -> None:
    earlier = lake.config(**{**KINDS["hive-jsonl"], "bucket_prefix": "old", "batch_size_mb": 1})
    shop = lake.name("shop")
    succeeded(Platform(tmp_path, launch).write(earlier, configured_catalog(*streams(shop, 1)), messages(shop)))
    mode = Mode(lambda _site: {**KINDS["hive-jsonl"], "follow_table_location": True})
    tenant = Tenant.create(mode, lake, workers, tmp_path, "--location", f"s3://{lake.bucket}/old")

    requests = tenant.lives("killed", tmp_path, launch)

    asked = [request for request in (*requests.of_check, *requests.of_syncs) if request.operation not in REFUSED]
    needs = [need for request in asked for need in request.needs]
    assert [summary(request) for request in asked if request.refusal] == []
    assert denied(tenant.document, needs) == []
    assert [pair for pair in unused(tenant.document, needs) if pair[0].startswith("s3:")] == []


def used_by(requests: Requests) -> set[tuple[str, str]]:
    """Return the actions with the commands that have used them; those that are not allowed are left out."""
    commands = {"check": requests.of_check, "syncs": requests.of_syncs}
    return {
        (need.action, command)
        for command, records in commands.items()
        for record in records
        if record.operation not in REFUSED
        for need in record.needs
    }


def summary(record: Record) -> str:
    """Tell what was refused."""
    resources = ", ".join(need.resource for need in record.needs)
    return f"{record.operation} ({resources}): {record.refusal}"
