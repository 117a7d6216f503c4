"""Users with exactly the printed policy: everything works, everything is used, and without any action it breaks."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from integration_tests.aws.requests.log import Record
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.permissions.evaluation import actions, is_allowed, refused_without, unused
from integration_tests.permissions.scenarios import Tenant

KINDS = {kind.name: kind.options for kind in TABLE_KINDS}

MODES: Mapping[str, Mapping[str, object]] = {
    "iceberg": KINDS["iceberg"],
    "hive-parquet": KINDS["hive-parquet"],
    "hive-jsonl": KINDS["hive-jsonl"],
}

REFUSED: Mapping[str, str] = {
    "HeadBucket": "check asks for the bucket's region, which S3 tells with its refusal, too",
    "GetDatabases": "check looks for tables of other databases, for notes; it is not in the policy",
}
"""The operations that the policy does not allow, although they are tried, and why not."""


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_allows_what_its_configuration_needs_and_nothing_else(
    lake: Lake, tmp_path: Path, launch: WarmLaunch, mode: str
) -> None:
    tenant = Tenant.of(lake, tmp_path, MODES[mode])

    records = tenant.lives(tmp_path, launch)

    asked = [each for each in records if each.operation not in REFUSED]
    needs = [need for each in asked for need in each.needs]
    assert [summary(each) for each in asked if each.refusal] == []
    assert [need for need in needs if not is_allowed(tenant.document, need)] == []
    assert unused(tenant.document, needs) == []
    refused = refused_without(tenant.document, [each.needs for each in asked])
    assert [action for action in actions(tenant.document) if not refused[action]] == []


def summary(record: Record) -> str:
    """Tell what was refused."""
    resources = ", ".join(need.resource for need in record.needs)
    return f"{record.operation} ({resources}): {record.refusal}"
